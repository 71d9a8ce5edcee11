"""HoldfastSessionStore: the SDK's own contracts, and files beside the transcript."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk")

import claude_agent_sdk
from claude_agent_sdk import fork_session_via_store, project_key_for_directory
from claude_agent_sdk.testing import run_session_store_conformance

import holdfast
from holdfast.adapters.claude import HoldfastSessionStore

CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
KEY = {"project_key": "-home-me-project", "session_id": "5c1b2c9e-0d8e-4a55-9c39-2a9a3a4d1f10"}


def entry(number, **fields):
    return {"type": "user", "uuid": f"uuid-{number}", "message": {"content": f"text {number}"}, **fields}


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_the_sdks_own_contracts_hold(kind, tmp_path):
    """Proves X6."""
    opened = []

    def make():
        place = kind if kind == "memory:" else tmp_path / f"{len(opened)}.db"
        opened.append(HoldfastSessionStore(place))
        return opened[-1]

    asyncio.run(run_session_store_conformance(make))
    assert len(opened) == 15  # a look at what is there, and fourteen contracts
    for store in opened:
        assert store.holdfast.verify().sound
        store.close()


def test_entries_come_back_as_they_were_once_each(hf):
    store = HoldfastSessionStore(hf)
    large = entry(3, toolUseResult={"text": "x" * 300_000, "nested": [None, 1.5, {"a": "nul \0"}]})
    marks = {"type": "custom-title", "customTitle": "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3}

    async def run():
        await store.append(KEY, [entry(1), entry(2), marks])
        await store.append(KEY, [entry(2), large, marks])
        await store.append(KEY, [large])
        return await store.load(KEY)

    assert asyncio.run(run()) == [entry(1), entry(2), marks, large, marks]


def test_sessions_and_transcripts_may_have_any_name(hf):
    store = HoldfastSessionStore(hf)
    odd = {"project_key": "p\0" * 2000, "session_id": "s/ü\0" * 1500}

    async def run():
        await store.append(odd, [entry(1)])
        await store.append({**odd, "subpath": "sub/ü\0" * 500}, [entry(2)])
        assert await store.load(odd) == [entry(1)]
        assert await store.list_subkeys(odd) == ["sub/ü\0" * 500]
        assert [one["session_id"] for one in await store.list_sessions(odd["project_key"])] == [odd["session_id"]]
        await store.delete(odd)
        assert await store.list_sessions(odd["project_key"]) == []

    asyncio.run(run())


def _append_many(place, number):
    async def run():
        async with HoldfastSessionStore.open(place) as store:
            for step in range(20):
                await store.append(KEY, [entry(f"{number}-{step}"), entry(f"shared-{step}")])

    asyncio.run(run())


def test_two_processes_on_one_session_lose_and_double_nothing(place):
    HoldfastSessionStore.open(place).close()
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_append_many, args=(place, number)) for number in range(2)]
    for one in others:
        one.start()
    for one in others:
        one.join()
        assert one.exitcode == 0
    with HoldfastSessionStore.open(place) as store:
        found = [one["uuid"] for one in asyncio.run(store.load(KEY))]
        assert len(found) == len(set(found)) == 60
        assert store.holdfast.verify().sound


def test_files_are_captured_with_the_entries_and_put_back(hf, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    store = HoldfastSessionStore(hf, workspace=folder)

    async def run():
        for number in (1, 2):
            (folder / "main.py").write_text(f"version = {number}\n")
            await store.append(KEY, [entry(number)])

    asyncio.run(run())
    run_of = hf.run(store.run_of(KEY), workspace=folder)
    run_of.workspace.restore(run_of.workspace.plan(store.checkpoint_of(KEY, "uuid-1")))
    assert (folder / "main.py").read_text() == "version = 1\n"
    assert asyncio.run(store.load(KEY)) == [entry(1), entry(2)]


def test_a_session_that_was_killed_is_there_up_to_the_last_entry(program):
    program.write(
        """
        import asyncio, os, signal, sys
        from holdfast.adapters.claude import HoldfastSessionStore
        key = {"project_key": "p", "session_id": "s"}
        store = HoldfastSessionStore.open(sys.argv[1])
        async def run():
            for number in range(5):
                await store.append(key, [{"type": "user", "uuid": str(number)}])
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(run())
        """
    )
    program.run_killed()
    with holdfast.open(program.place) as hf:
        store = HoldfastSessionStore(hf)
        found = asyncio.run(store.load({"project_key": "p", "session_id": "s"}))
        assert [one["uuid"] for one in found] == ["0", "1", "2", "3", "4"]


AGENT = """
    import asyncio, os, signal, sys, time
    sys.path.insert(0, TESTS)
    import scripted_claude
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, UserMessage, query
    from holdfast.adapters.claude import HoldfastSessionStore

    prompt, session, what = sys.argv[2:5]
    stored = []

    class Store(HoldfastSessionStore):
        async def append(self, key, entries):
            await super().append(key, entries)
            stored.extend(str(one) for one in entries if one["type"] == "user")

    def wait_until_stored(text):  # Claude Code itself does not wait for its store
        while not any(text in one for one in stored):
            time.sleep(0.01)

    told = {"ANTHROPIC_BASE_URL": scripted_claude.serve(wait_until_stored), "ANTHROPIC_API_KEY": "scripted"}
    told["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"

    async def run():
        async with Store.open(sys.argv[1], workspace="project") as store:
            options = ClaudeAgentOptions(
                cwd="project", session_store=store, session_store_flush="eager", allowed_tools=["Bash"],
                setting_sources=[], resume=session or None, env=told,
            )
            async for message in query(prompt=prompt, options=options):
                if what == "killed" and isinstance(message, UserMessage):
                    await asyncio.to_thread(wait_until_stored, message.content[0].tool_use_id)
                    os.kill(os.getpid(), signal.SIGKILL)
                if isinstance(message, ResultMessage):
                    print(message.session_id, message.result, sep="\\n")

    asyncio.run(run())
"""


@pytest.mark.skipif(not CLAUDE.exists(), reason="this SDK comes without its program")
def test_an_agent_is_killed_resumed_from_the_store_alone_forked_and_compared(program, monkeypatch):
    """Proves X6: Claude Code itself, with a scripted model and a shell."""
    home, project = program.folder / "home", program.folder / "project"
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    program.write(AGENT.replace("TESTS", repr(str(Path(__file__).parent))))
    session, first = program.run("DO echo one > notes.txt", "", "").splitlines()
    assert first == "1 prompts, the last: DO echo one > notes.txt"
    program.run_killed("DO echo two >> notes.txt", session, "killed")
    shutil.rmtree(home)  # what Claude Code itself kept is gone
    resumed, last = program.run("DO echo three >> notes.txt", session, "").splitlines()
    assert (resumed, last) == (session, "3 prompts, the last: DO echo three >> notes.txt")
    assert (project / "notes.txt").read_text() == "one\ntwo\nthree\n"

    key = {"project_key": project_key_for_directory(str(project)), "session_id": session}
    with HoldfastSessionStore.open(program.place) as store:
        entries = asyncio.run(store.load(key))
        prompts = [one["uuid"] for one in entries if "DO echo" in str(one.get("message", {}).get("content"))]
        forked = asyncio.run(fork_session_via_store(store, session, str(project)))
        other = {**key, "session_id": forked.session_id}
        assert len(asyncio.run(store.load(other))) >= len(prompts)
        early, late = store.checkpoint_of(key, prompts[0]), store.checkpoint_of(key)
        assert "notes.txt" not in {one.path for one in early.files()}
        assert late.read("notes.txt") == b"one\ntwo\nthree\n"
        assert "notes.txt" in str(store.holdfast.diff(early.id, late.id))
        assert store.holdfast.verify().sound
    again, answer = program.run("DO echo four >> notes.txt", forked.session_id, "").splitlines()
    assert (again, answer) == (forked.session_id, "4 prompts, the last: DO echo four >> notes.txt")
