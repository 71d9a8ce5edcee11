"""Coding assistants: `holdfast hook` as they call it, at the events that they report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.hook.transcript import is_mark

SCRIPT = Path(sys.executable).parent / "holdfast"
RUN = "claude-s-1"


def checkpoints(run=RUN):
    with holdfast.open() as store:
        return [(one.trigger, one.reason) for one in store.checkpoints(run)] if store.has(run) else []


def transcript_of(run):
    with holdfast.open() as store:
        return [item for item in store.run(run).log("transcript") if not is_mark(item)]


def settled():
    """Let the change times of what was written grow older than a file system's clock is coarse."""
    time.sleep(0.15)


def test_a_session_becomes_a_run_with_the_files_of_the_project(tell, project):
    """Proves X6 for coding assistants, by their hooks."""
    (project / "a.txt").write_text("one\n")
    tell("SessionStart", source="startup")
    (project / "a.txt").write_text("two\n")
    tell("UserPromptSubmit", prompt="make it  three\nplease")
    (project / "a.txt").write_text("three\n")
    tell("PostToolBatch")
    assert checkpoints() == [
        ("step_complete", "after tools"),
        ("phase_transition", "before a prompt: make it three please"),
        ("state_transition", "the session started"),
    ]
    with holdfast.open() as store:
        newest = store.latest(RUN)
        assert newest.read("a.txt") == b"three\n"
        assert store.find(f"{RUN}@2").read("a.txt") == b"two\n"
        assert newest.section("session")["id"] == "s-1"


def test_where_nothing_changed_no_checkpoint_is_added(tell, project):
    (project / "a.txt").write_text("one\n")
    for _ in range(4):
        settled()
        assert tell("UserPromptSubmit", prompt="look") == {}
    assert len(checkpoints()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "new.txt").write_text("new"),
        lambda at: (at / "a.txt").unlink(),
        lambda at: (at / "a.txt").write_text("ONE\n"),
        lambda at: (at / "a.txt").chmod(0o755),
        lambda at: (at / "src" / "b.txt").write_text("in a folder"),
        lambda at: (at / "src").chmod(0o700),
        lambda at: (at / "a.txt").rename(at / "src" / "a.txt"),
        lambda at: (at / "link").symlink_to("a.txt"),
        lambda at: (at / ".gitignore").write_text("src\n"),
        lambda at: (at / ".holdfastignore").write_text("src\n"),
        lambda at: subprocess.run(["git", "add", "a.txt"], cwd=at, check=True),
        lambda at: subprocess.run(["git", "checkout", "-qb", "other"], cwd=at, check=True),
        lambda at: (at / "src" / "sub").mkdir(),
        lambda at: (at / ".git" / "info" / "exclude").write_text("src\n"),
        lambda at: (at / "holdfast.yaml").write_text("workspace: {ignore: [src]}\n"),
        lambda at: (at.parent / ".config" / "git" / "ignore").write_text("main.py\n"),
        lambda at: (at.parent / ".gitconfig").write_text(f"[core]\nexcludesFile = {at.parent}/mine\n"),
        lambda at: subprocess.run(["git", "init", "-q", "src/inner"], cwd=at, check=True),
        lambda _: holdfast.open().delete_run(RUN),
    ],
    ids=[
        "new", "deleted", "written", "mode", "below", "folder mode", "moved", "link", "gitignore", "holdfastignore",
        "staged", "branch", "folder", "exclude", "settings", "user's ignore file", "git's settings", "inner repository",
        "run deleted",
    ],
)  # fmt: skip
def test_a_glance_overlooks_no_change(tell, project, change):
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project.parent / ".config" / "git").mkdir(parents=True)
    (project.parent / "mine").write_text("main.py\n")
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("print(1)\n")
    (project / "a.txt").write_text("one\n")
    for _ in range(2):
        settled()
        tell("UserPromptSubmit", prompt="first")
    settled()
    before = len(checkpoints())
    change(project)
    tell("UserPromptSubmit", prompt="second")
    with holdfast.open() as store:
        newest = store.latest(RUN)
        assert newest.reason == "before a prompt: second" or newest.seq == before
        fresh = store.run("fresh", workspace=project).checkpoint()
        assert newest.workspace.root == fresh.workspace.root
        assert newest.git == fresh.git


def test_when_nothing_changed_neither_the_engine_nor_a_parser_is_loaded(tell, project):
    (project / "a.txt").write_text("one\n")
    for _ in range(2):
        settled()
        tell("UserPromptSubmit", prompt="first")
    settled()
    event = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "cwd": str(project), "prompt": "more"}
    code = (
        "import sys; from holdfast.cli.main import main; main(['hook']); "
        "print([name for name in ('argparse', 'msgspec', 'apsw', 'holdfast.engine') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(event), capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["{}", "[]"]


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "git reset --hard HEAD~1", "git -C . checkout -- .", "git stash -u", "git clean -fdx",
        "mv a.txt b.txt", "find . -name '*.txt' -delete", "truncate -s 0 a.txt", "sudo -n rm a.txt", "echo x > a.txt",
        "FOO=1 rm a.txt", "true && rm a.txt", "bash -lc 'rm a.txt'", "sed -i s/one/two/ a.txt", "ls | xargs rm",
        "echo $(rm a.txt)", "git push --force", "if true; then rm a.txt; fi", "timeout 5 rm a.txt", "make clean",
        "cat 'unclosed", "find . -exec rm {} +", "/bin/rm a.txt", "nice -n 5 git restore .", "cd x\nrm a.txt",
    ],
)  # fmt: skip
def test_a_destructive_shell_command_is_preceded_by_a_checkpoint(tell, project, command):
    (project / "a.txt").write_text("precious\n")
    assert tell("PreToolUse", tool_name="Bash", tool_input={"command": command}) == {}
    [(trigger, reason)] = checkpoints()
    assert trigger == "before_destructive"
    assert reason.startswith("before: ")
    with holdfast.open() as store:
        assert store.latest(RUN).read("a.txt") == b"precious\n"


@pytest.mark.parametrize(
    "command",
    ["ls -la", "git status", "git log --oneline", "cat a.txt", "grep -rn rm_all src", "echo hi >> log", "python x.py",
     "pytest -q 2>&1", "cat a > /dev/null", "sed -n 1,5p a.txt", "find . -name x", "git diff HEAD~1", "tar -tf x.tar"],
)  # fmt: skip
def test_a_command_that_only_looks_costs_nothing(tell, project, command):
    tell("PreToolUse", tool_name="Bash", tool_input={"command": command})
    assert checkpoints() == []


def test_tools_that_are_no_shell_are_left_alone(tell, project):
    tell("PreToolUse", tool_name="Read", tool_input={"command": "rm -rf /"})
    assert checkpoints() == []


def test_a_transcript_is_taken_over_as_it_grows(tell, project, tmp_path):
    transcript = tmp_path / "t.jsonl"
    lines = [{"type": "user", "n": 1}, {"type": "assistant", "n": 2, "big": 10**30}]
    transcript.write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"half": ')
    tell("Stop", transcript_path=str(transcript))
    with transcript.open("a") as file:
        file.write('"written"}\nnot json\n')
    tell("PreCompact", transcript_path=str(transcript), trigger="auto")
    taken = transcript_of(RUN)
    assert taken[0] == lines[0]
    assert taken[1]["n"] == 2
    assert taken[2:] == [{"half": "written"}, "not json"]
    transcript.write_text('{"after": "compacting"}\n')
    tell("Stop", transcript_path=str(transcript))
    assert transcript_of(RUN)[4:] == [{"after": "compacting"}]
    tell("Stop", transcript_path=str(transcript))
    assert len(transcript_of(RUN)) == 5
    assert len(checkpoints()) == 1  # its lines are durable without one, and no file changed


def test_secrets_of_prompts_and_transcripts_are_not_stored(tell, project, tmp_path):
    secret = "ghp_" + "a1B2" * 9
    transcript = tmp_path / "t.jsonl"
    transcript.write_text(json.dumps({"text": f"my token is {secret}"}) + "\n")
    tell("UserPromptSubmit", prompt=f"use {secret}")
    tell("Stop", transcript_path=str(transcript))
    for file in (project / ".holdfast").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
    with holdfast.open() as store:
        assert secret not in json.dumps(list(store.run(RUN).log("transcript")))


def test_a_subagent_leaves_its_transcript_and_a_checkpoint(tell, project, tmp_path):
    transcript = tmp_path / "agent.jsonl"
    transcript.write_text('{"from": "the subagent"}\n')
    tell("SubagentStop", agent_id="ab/12", agent_transcript_path=str(transcript))
    assert [trigger for trigger, _ in checkpoints()] == ["agent_complete"]
    with holdfast.open() as store:
        assert next(iter(store.run(RUN).log("transcript-ab12"))) == {"from": "the subagent"}


def test_a_resumed_session_is_told_of_its_recovery_points_and_nothing_is_restored(tell, project):
    (project / "a.txt").write_text("one\n")
    first = tell("SessionStart", source="startup")
    assert "hookSpecificOutput" not in first
    (project / "a.txt").write_text("changed by a person meanwhile\n")
    with holdfast.open() as store, pytest.raises(ZeroDivisionError), store.run("other-work"):
        1 / 0  # noqa: B018
    context = tell("SessionStart", source="resume")["hookSpecificOutput"]
    assert context["hookEventName"] == "SessionStart"
    assert RUN in context["additionalContext"]
    assert "other-work (failed)" in context["additionalContext"]
    assert (project / "a.txt").read_text() == "changed by a person meanwhile\n"


def test_a_session_of_cursor_is_told_as_cursors_documentation_says(hf, project):
    (project / "a.txt").write_text("one\n")
    event = {
        "hook_event_name": "sessionStart", "conversation_id": "c-1", "generation_id": "g-1", "session_id": "c-1",
        "workspace_roots": [str(project)], "is_background_agent": False, "composer_mode": "agent",
        "cursor_version": "3.24.18", "model": "x", "user_email": None, "transcript_path": None,
    }  # fmt: skip
    assert hf("hook", stdin=json.dumps(event).encode()).json == {}
    shell = {**event, "hook_event_name": "beforeShellExecution", "command": "rm a.txt", "cwd": str(project)}
    assert hf("hook", stdin=json.dumps(shell).encode()).json == {}
    with holdfast.open() as store, pytest.raises(ZeroDivisionError), store.run("other-work"):
        1 / 0  # noqa: B018
    told = hf("hook", stdin=json.dumps(event).encode()).json
    assert list(told) == ["additional_context"]
    assert "other-work (failed)" in told["additional_context"]


# Bad input: an assistant is never stopped, and is told what was not captured.


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b"{}", b'{"a": 1}'])
def test_malformed_input_is_answered_with_a_message(hf, data):
    done = hf("hook", stdin=data)
    assert done.code == 0
    assert "nothing was captured" in done.json["systemMessage"]


def test_an_unknown_event_does_nothing(tell, project):
    assert tell("SomethingOfNextYear") == {}
    assert not (project / ".holdfast").exists()


@pytest.mark.parametrize(
    "session", ["x" * 5000, "a\0b", "../../etc/passwd", "-rf", "a\nb", "ü" * 300, " ", "CON", "a/b", "\ud800"]
)
def test_session_ids_of_any_kind_make_a_run_each(tell, project, session):
    (project / "a.txt").write_text("one\n")
    assert tell("UserPromptSubmit", prompt="x", session=session) == {}
    assert tell("UserPromptSubmit", prompt="x", session=session + "2") == {}
    with holdfast.open() as store:
        runs = [record.id for record in store.runs()]
    assert len(runs) == 2
    assert all(run.startswith("claude-") and len(run) < 200 for run in runs)
    outside = [path for path in project.parent.rglob("*") if path.is_file() and project not in path.parents]
    assert [path for path in outside if "claude-" in path.name] == []


def test_a_directory_that_is_gone_is_told(tell):
    assert "Holdfast" in tell("UserPromptSubmit", cwd="/nowhere/at/all", prompt="x")["systemMessage"]


def test_fields_of_other_types_are_not_taken(tell, project):
    (project / "a.txt").write_text("one\n")
    assert tell("UserPromptSubmit", prompt={"not": "text"}, transcript_path=7) == {}
    assert tell("PreToolUse", tool_name=["Bash"], tool_input="rm") == {}
    assert len(checkpoints()) == 1


def test_a_store_that_cannot_be_reached_is_told_and_told_again_when_it_can(tell, project, monkeypatch):
    """A failed checkpoint never blocks, and is told at the next chance."""
    (project / "a.txt").write_text("one\n")
    monkeypatch.setenv("HOLDFAST_STORE", str(project / "a.txt" / "no-folder"))
    assert tell("PostToolBatch") == {}  # nobody waits for this answer
    message = tell("UserPromptSubmit", prompt="x")["systemMessage"]
    assert "unprotected since" in message
    monkeypatch.delenv("HOLDFAST_STORE")
    assert "protected again" in tell("UserPromptSubmit", prompt="x")["systemMessage"]
    assert tell("UserPromptSubmit", prompt="x") == {}


def test_a_read_only_project_is_told(project):
    (project / "a.txt").write_text("one\n")
    project.chmod(0o500)
    code = (
        "from crash.privileges import give_up_privileges; give_up_privileges(); "
        "from holdfast.cli.main import main; main(['hook'])"
    )
    event = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "cwd": str(project), "prompt": "x"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], input=json.dumps(event), capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
    finally:
        project.chmod(0o700)
    assert "unprotected since" in json.loads(done.stdout)["systemMessage"]
    assert done.stderr == ""


def test_git_leaves_alone_what_hooks_keep_beside_a_store_elsewhere(tell, project, tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "elsewhere"))
    (project / "a.txt").write_text("one\n")
    tell("UserPromptSubmit", prompt="x")
    told = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True)
    assert told.stdout == "?? a.txt\n"


def test_sessions_of_long_ago_leave_no_state(tell, project):
    (project / "a.txt").write_text("one\n")
    tell("SessionStart", session="old")
    [state] = (project / ".holdfast" / "hook").iterdir()
    os.utime(state, (0, 0))
    tell("SessionStart", session="new")
    assert [file.name for file in (project / ".holdfast" / "hook").iterdir()] == ["claude-new.json"]


def test_a_damaged_state_beside_the_store_is_not_believed(tell, project):
    (project / "a.txt").write_text("one\n")
    for _ in range(2):
        settled()
        tell("UserPromptSubmit", prompt="x")
    [state] = (project / ".holdfast" / "hook").iterdir()
    good = json.loads(state.read_text())
    (project / "a.txt").write_text("two\n")
    for bad in (b"", b"{", b"[]", b'{"version": 1, "tree": 7}', json.dumps({**good, "tree": []}).encode()):
        state.write_bytes(bad)
        tell("UserPromptSubmit", prompt="x")
        with holdfast.open() as store:
            assert store.latest(RUN).read("a.txt") == b"two\n"


def test_many_processes_on_one_session_are_all_served(project):
    (project / "a.txt").write_text("one\n")
    children = []
    for number in range(6):
        (project / f"{number}.txt").write_text("x")
        event = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "cwd": str(project), "prompt": str(number)}
        child = subprocess.Popen([SCRIPT, "hook"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child.stdin.write(json.dumps(event))
        child.stdin.close()
        children.append(child)
    assert [json.loads(child.stdout.read()) for child in children] == [{}] * 6
    assert [child.wait() for child in children] == [0] * 6
    for child in children:
        child.stdout.close()
    with holdfast.open() as store:
        assert store.latest(RUN).read("5.txt") == b"x"
        assert store.verify().sound


# Dialects


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ({"session_id": "7", "hook_event_name": "UserPromptSubmit", "turn_id": "1", "prompt": "x"}, "codex-7"),
        ({"session_id": "7", "hook_event_name": "SessionStart", "transcript_path": "/h/.codex/s.jsonl"}, "codex-7"),
        ({"session_id": "7", "hook_event_name": "BeforeAgent", "timestamp": "2026", "prompt": "x"}, "gemini-7"),
        ({"conversation_id": "7", "hook_event_name": "beforeSubmitPrompt", "workspace_roots": ["."]}, "cursor-7"),
        ({"opencode": 1, "event": "chat.message", "session_id": "7"}, "opencode-7"),
        ({"session_id": "7", "hook_event_name": "UserPromptSubmit", "prompt": "x"}, "claude-7"),
    ],
)
def test_the_assistant_is_recognised_by_its_fields(hf, project, given, run):
    (project / "a.txt").write_text("one\n")
    if "workspace_roots" in given:
        given = {**given, "workspace_roots": [str(project)]}
    else:
        given = {**given, "cwd": str(project)}
    done = hf("hook", stdin=json.dumps(given).encode())
    assert (done.code, done.json) == (0, {})
    with holdfast.open() as store:
        assert [record.id for record in store.runs()] == [run]


def test_commands_that_are_given_as_words_are_seen(tell, project):
    (project / "a.txt").write_text("one\n")
    tell("PreToolUse", assistant="codex", tool_name="shell", tool_input={"command": ["bash", "-lc", "rm a.txt"]})
    assert [trigger for trigger, _ in checkpoints("codex-s-1")] == ["before_destructive"]


# Installing


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("claude", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini", ".gemini/settings.json"),
        ("cursor", ".cursor/hooks.json"),
        ("opencode", ".opencode/plugin/holdfast.js"),
    ],
)
def test_installing_shows_the_change_asks_and_writes_it_once(hf, project, name, file):
    refused = hf("hook", "install", name)
    assert refused.code != 0
    assert "holdfast" in refused.out
    assert not (project / file).exists()
    done = hf("hook", "install", name, "--yes")
    assert done.code == 0
    written = (project / file).read_text()
    assert "hook" in written
    again = hf("hook", "install", name, "--yes")
    assert again.code == 0
    assert (project / file).read_text() == written
    found = hf("hook", "status", "--json").json["installed"]
    assert [(one["assistant"], one["where"], one["missing"]) for one in found] == [(name, "project", [])]


def test_what_others_configured_stays(hf, project):
    file = project / ".claude" / "settings.json"
    file.parent.mkdir()
    theirs = {"model": "opus", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}
    file.write_text(json.dumps(theirs))
    file.chmod(0o640)
    hf("hook", "install", "claude", "--yes")
    settings = json.loads(file.read_text())
    assert settings["model"] == "opus"
    assert settings["hooks"]["Stop"][0] == theirs["hooks"]["Stop"][0]
    assert settings["hooks"]["Stop"][1]["hooks"][0]["command"].endswith("hook --from claude")
    assert settings["hooks"]["PreToolUse"][0]["matcher"] == "Bash"
    assert settings["hooks"]["PostToolBatch"][0]["hooks"][0]["async"] is True
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("linked", [".claude", ".claude/settings.json"])
def test_a_link_of_the_project_installs_nothing_elsewhere(hf, project, linked):
    outside = project.parent / "elsewhere"
    outside.mkdir()
    settings = outside / "settings.json"
    settings.write_text("{}\n")
    (project / linked).parent.mkdir(exist_ok=True)
    (project / linked).symlink_to(outside if linked == ".claude" else settings)
    done = hf("hook", "install", "claude", "--yes")
    assert done.code == 2
    assert [path.read_text() for path in outside.iterdir()] == ["{}\n"]


def test_a_link_of_the_user_is_followed(hf, project):
    kept = project.parent / "dotfiles.json"
    kept.write_text("{}\n")
    (project.parent / ".claude").mkdir()
    (project.parent / ".claude" / "settings.json").symlink_to(kept)
    assert hf("hook", "install", "claude", "--user", "--yes").code == 0
    assert "hooks" in json.loads(kept.read_text())
    assert (project.parent / ".claude" / "settings.json").is_symlink()


@pytest.mark.parametrize("content", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": 7}}', "\0"])
def test_a_configuration_that_cannot_be_read_is_left_alone(hf, project, content):
    file = project / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(content)
    done = hf("hook", "install", "claude", "--yes")
    assert done.code == 2
    assert str(file) in done.err
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("name", "file"), [("claude", ".claude/settings.json"), ("opencode", ".config/opencode/plugin/holdfast.js")]
)
def test_hooks_for_all_projects_go_into_the_home_directory(hf, project, name, file):
    hf("hook", "install", name, "--user", "--yes")
    assert (project.parent / file).exists()
    assert not list(project.glob(".[co]*"))
    found = hf("hook", "status", "--json").json["installed"]
    assert [(one["where"], one["file"]) for one in found] == [("user", str(project.parent / file))]


def test_what_was_installed_can_be_called_by_a_shell(hf, project):
    hf("hook", "install", "claude", "--yes", "--command", f"'{SCRIPT}' hook")
    settings = json.loads((project / ".claude" / "settings.json").read_text())
    command = settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    event = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "cwd": str(project), "prompt": "x"}
    done = subprocess.run(["sh", "-c", command], input=json.dumps(event), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {}
    assert len(checkpoints()) == 1
