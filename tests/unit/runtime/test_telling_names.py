"""Parts whose names look like those of secrets: their records are structures of ours, and are restored."""

import pytest

import holdfast


@pytest.mark.parametrize("name", ["credentials", "password", "api_key", "secret"])
def test_a_phase_task_agent_or_gate_may_be_called_like_a_secret(tmp_path, name):
    with holdfast.open(tmp_path / "s.db", interval_s=None) as hf:
        with hf.run("r") as run:
            run.agents.register(name, lambda _: {"text": "done", "password": "swordfish"})
            with run.phase(name):
                run.agents.call(name, "x", task=name)
            graph = run.graph(name)
            graph.add(name, lambda: "result")
            graph.run()
            run.gates.task(name, lambda: "code", [lambda: True]).run()
        head = hf.latest("r")
        assert head.section("phases").phases[name].status == "completed"
        assert head.section("graph").tasks[name].result == "result"
        [agent] = head.section("agents")
        assert agent.tasks[name].output["text"] == "done"
        assert agent.tasks[name].output["password"] == holdfast.Redacted("key")
        assert name in head.section("gates").tasks
        assert "swordfish" not in str([head.section(section) for section in head.sections])
