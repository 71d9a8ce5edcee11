"""Places that a store names: a store that somebody else made decides nowhere where files are written or read."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import holdfast
from holdfast.mcp.confirm import ConfirmationDesk, pending_requests


@pytest.fixture
def another_user(tmp_path, monkeypatch):
    """Do as another user: from the call on, with a home and a key of their own."""

    def become(name):
        home = tmp_path / f"home-{name}"
        home.mkdir(exist_ok=True)
        monkeypatch.setenv("HOME", str(home))

    return become


@pytest.fixture
def private(tmp_path):
    """A directory of the user beside the project, with something in it."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "a").write_text("one")
    return folder


def made_by_another(hf, private, *, outside_link=False):
    """Make a store of a run whose last recovery was in the private directory, and leave that as it was before."""
    hf("checkpoint", "w", "--workspace", str(private))
    (private / "a").write_text("hostile")
    (private / "new").write_text("hostile")
    if outside_link:
        (private / "link").symlink_to("/etc")
    hf("checkpoint", "w", "--workspace", str(private))
    assert hf("resume", "w@1", "--take", "--workspace", str(private), "-y").code == 14
    assert sorted(path.name for path in private.iterdir()) == ["a"]
    assert (private / "a").read_text() == "one"


def is_untouched(private):
    return sorted(path.name for path in private.iterdir()) == ["a"] and (private / "a").read_text() == "one"


def test_an_undo_does_not_believe_the_directory_that_a_foreign_store_names(hf, project, private, another_user):
    another_user("mallory")
    made_by_another(hf, private)
    another_user("alice")
    with holdfast.open() as opened, pytest.raises(holdfast.UsageError, match="workspace="):
        opened.undo("w")
    assert is_untouched(private)
    hf("undo", "w", "-y")
    assert is_untouched(private)


def test_an_undo_of_a_foreign_recovery_writes_where_the_user_says_so(hf, project, private, another_user):
    another_user("mallory")
    made_by_another(hf, private)
    another_user("alice")
    assert hf("undo", "w", "-y", "--workspace", str(private)).code == 0
    assert (private / "a").read_text() == "hostile"


def test_an_undo_of_a_foreign_recovery_makes_no_link_that_leads_out(hf, project, private, another_user):
    another_user("mallory")
    made_by_another(hf, private, outside_link=True)
    another_user("alice")
    refused = hf("undo", "w", "-y", "--workspace", str(private))
    assert refused.code == 8, refused
    assert is_untouched(private)
    allowed = hf("undo", "w", "-y", "--workspace", str(private), "--allow-outside-links")
    assert allowed.code == 0, allowed
    assert (private / "link").readlink() == type(private)("/etc")


def test_an_undo_of_ones_own_recovery_puts_links_back_that_lead_out(hf, project, private):
    made_by_another(hf, private, outside_link=True)
    assert hf("undo", "w", "-y").code == 0
    assert (private / "link").readlink() == type(private)("/etc")


_KILLED_AFTER_FILES = """
import os, signal, sys
from holdfast.cli.main import main
from holdfast.recovery.apply import PlanApplication

PlanApplication.commit = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def killed_after_its_files(*words):
    done = subprocess.run([sys.executable, "-c", _KILLED_AFTER_FILES, *words], capture_output=True, timeout=60)  # noqa: PLW1510
    assert done.returncode == -signal.SIGKILL, done


@pytest.fixture
def interrupted_by_another(hf, project, private, another_user):
    """A store of another user with a recovery that was killed after its files, in the private directory."""
    another_user("mallory")
    (private / "a").write_text("two")
    hf("checkpoint", "w", "--workspace", str(private))
    (private / "a").write_text("three")
    hf("checkpoint", "w", "--workspace", str(private))
    killed_after_its_files("resume", "w@1", "--take", "--workspace", str(private), "-y")
    (private / "secret").write_text("mine")
    another_user("alice")
    return private


def captured_names(run):
    with holdfast.open() as opened:
        return [
            path
            for checkpoint in opened.checkpoints(run)
            if "workspace" in checkpoint.sections
            for path in [one.path for one in opened.get(checkpoint.id).files()]
        ]


@pytest.mark.parametrize("words", [("resume", "w", "-y"), ("undo", "w", "-y"), ("resume", "w", "-y", "--git")])
def test_no_interrupted_recovery_of_a_foreign_store_is_finished_where_it_says(hf, interrupted_by_another, words):
    hf(*words)
    assert "secret" not in captured_names("w")
    assert {path.name for path in interrupted_by_another.iterdir()} <= {"a", "secret", ".holdfast"}


@pytest.mark.parametrize("words", [("doctor",), ("undo", "w", "-n"), ("resume", "w", "-n")])
def test_no_advice_names_the_directory_of_a_foreign_store(hf, interrupted_by_another, words):
    done = hf(*words)
    assert f"--workspace {interrupted_by_another}" not in done.out + done.err


def test_an_interrupted_recovery_of_another_user_is_finished_where_the_user_says(hf, interrupted_by_another):
    assert hf("resume", "w", "-y", "--workspace", str(interrupted_by_another)).code == 14
    assert (interrupted_by_another / "a").read_text() == "two"
    with holdfast.open() as opened:
        assert "recovering" not in opened.latest("w").sections


def test_a_stamp_of_another_user_names_no_directory(hf, project, private, another_user):
    another_user("mallory")
    (private / "a").write_text("hostile")
    hf("checkpoint", "w", "--workspace", str(private))
    (private / "a").write_text("one")
    another_user("alice")
    assert hf("restore", "w@1", "--take", "-y").code == 0
    assert is_untouched(private)
    assert (project / "a").read_text() == "hostile"


def test_a_directory_names_no_store_that_another_user_gave_it(hf, project, tmp_path, another_user, monkeypatch):
    another_user("mallory")
    (project / "a").write_text("one")
    hf("checkpoint", "w", "--workspace")
    fork = tmp_path / "fork"
    assert hf("fork", "w", "f", "--into", str(fork)).code == 0
    monkeypatch.chdir(fork)
    assert hf("log", "f").code == 0
    another_user("alice")
    refused = hf("log", "f")
    assert refused.code != 0, refused


@pytest.fixture
def linked_away(project, tmp_path):
    """Return a folder elsewhere with old files, and make a folder below `.holdfast` a link to it."""
    elsewhere = tmp_path / "documents"
    elsewhere.mkdir()
    for name in ("letter.txt", "data.json", "data.yes"):
        (elsewhere / name).write_text("mine")
        os.utime(elsewhere / name, (0, 0))

    def link(name):
        (project / ".holdfast").mkdir(exist_ok=True)
        (project / ".holdfast" / name).symlink_to(elsewhere)
        return elsewhere

    return link


def test_an_assistants_hook_removes_nothing_behind_a_link_of_the_repository(hf, project, linked_away):
    """It removed every file there that was older than a month."""
    elsewhere = linked_away("hook")
    event = {"hook_event_name": "SessionStart", "session_id": "s1", "cwd": str(project), "source": "startup"}
    assert hf("hook", "--from", "claude", stdin=json.dumps(event).encode()).code == 0
    assert sorted(path.name for path in elsewhere.iterdir()) == ["data.json", "data.yes", "letter.txt"]


def test_a_flow_removes_nothing_behind_a_link_of_the_repository(hf, project, linked_away):
    """It removed every folder there that was older than a month."""
    elsewhere = linked_away("output")
    (elsewhere / "photos").mkdir()
    (elsewhere / "photos" / "one.jpg").write_text("mine")
    (elsewhere / "f").mkdir()
    (elsewhere / "f" / "unprotected").write_text("mine")
    for folder in ("photos", "f"):
        os.utime(elsewhere / folder, (0, 0))
    before = sorted(elsewhere.rglob("*"))
    (project / "f.yaml").write_text("flow: f\nphases:\n  - one:\n      tasks:\n        - t1: {run: echo hi}\n")
    assert hf("run", "f.yaml").code == 0
    assert sorted(elsewhere.rglob("*")) == before


def test_output_of_long_ago_is_removed(hf, project):
    (project / "f.yaml").write_text("flow: f\nphases:\n  - one:\n      tasks:\n        - t1: {run: echo hi}\n")
    assert hf("run", "f.yaml").code == 0
    (old,) = (project / ".holdfast" / "output").iterdir()
    os.utime(old, (0, 0))
    assert hf("run", "f.yaml", "--run-id", "another").code == 0
    assert [one.name for one in (project / ".holdfast" / "output").iterdir()] == ["another"]


def test_a_confirmation_removes_nothing_behind_a_link_of_the_repository(hf, project, linked_away):
    """It removed every JSON file there that was no request."""
    elsewhere = linked_away("mcp")
    refused = hf("mcp", "confirm", stdin=b"y\n", terminal=True)
    assert refused.code == 2
    assert "is a link" in refused.err
    assert sorted(path.name for path in elsewhere.iterdir()) == ["data.json", "data.yes", "letter.txt"]


@pytest.mark.parametrize(
    "text",
    ["[" * 60_000, '{"made_at": 1' + "0" * 400 + ', "lines": [], "code": "a", "kind": "", "run": "", "body": ""}'],
)
def test_a_request_that_nobody_could_have_made_is_none(hf, project, text):
    (project / ".holdfast" / "mcp").mkdir(parents=True)
    (project / ".holdfast" / "mcp" / "a.json").write_text(text)
    done = hf("mcp", "confirm", stdin=b"y\n", terminal=True)
    assert done.code == 3
    assert "unexpected" not in done.err


@pytest.mark.parametrize("has_git", [False, True])
def test_a_store_without_a_folder_writes_nothing_through_a_link_of_the_repository(project, tmp_path, has_git):
    """Caches and marks of a run in PostgreSQL or memory lie in the workspace."""
    (tmp_path / "elsewhere").mkdir()
    (project / ".holdfast").symlink_to(tmp_path / "elsewhere")
    if has_git:
        subprocess.run(["git", "-C", project, "init", "-q"], check=True)
    with holdfast.open("memory:") as opened, pytest.raises(holdfast.UsageError, match="is a link"):
        opened.run("r", workspace=project).checkpoint(state=1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "where",
    [
        "memory:",
        "{project}/.holdfast/store.db",
        "file://{project}/.holdfast",
        "file://{project}/st",
        "file://{project}/.holdfast/st",
    ],
)
def test_a_link_that_appears_during_a_run_is_not_written_through(project, tmp_path, caplog, where):
    """Signs of life, stamps, caches and the store itself: what an agent or a checkout puts there leads nowhere."""
    elsewhere, own = tmp_path / "elsewhere", project / ("st" if where.endswith("project}/st") else ".holdfast")
    elsewhere.mkdir()
    if where.endswith(".holdfast/st"):
        (elsewhere / "st").mkdir()  # a folder of this name is there already
    with (
        suppress(holdfast.StoreUnavailable, holdfast.RunStopped),
        holdfast.open(where.format(project=project)) as opened,
        opened.run("r", workspace=project) as run,
    ):
        run.checkpoint(state=1)
        own.rename(tmp_path / "away")
        own.symlink_to(elsewhere)
        (project / "b").write_text("2")
        run.checkpoint(state=2)
    assert [path.name for path in elsewhere.rglob("*") if path.name != "st"] == []
    assert f"{own}" in caplog.text
    assert "link" in caplog.text or "replaced" in caplog.text


def test_a_folder_of_ours_is_not_made_through_a_link(hf, project, tmp_path, monkeypatch):
    """The folder of an assistant's sessions was made first, and found to be behind a link then."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / ".holdfast").symlink_to(elsewhere)
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "other" / "store.db"))
    event = {"hook_event_name": "SessionStart", "session_id": "s1", "cwd": str(project), "source": "startup"}
    hf("hook", "--from", "claude", stdin=json.dumps(event).encode())
    (project / "plan.md").write_text("## Phase 1: one\n- [ ] do it\n")
    refused = hf("begin", "plan.md")
    assert refused.code == 2, refused
    assert "is a link" in refused.err
    assert [path.name for path in elsewhere.iterdir()] == []


def test_a_worker_enters_no_directory_that_is_a_link(hf, project, tmp_path):
    """The files of whom the link led to were captured, and the run wrote among them."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "own.txt").write_text("mine")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "p").symlink_to(elsewhere)
    flow = {"flow": "p", "phases": {"ask": {"approve": "ok?"}, "two": "echo made > made.txt"}}
    (project / "flow.json").write_text(json.dumps(flow))
    hf("init")
    assert hf("run", "flow.json", "--no-wait").code == 9
    hf("approve", "p")
    left = hf("advance", "p", "--root", tmp_path / "runs", "--json")
    assert left.json["outcome"] == "again"
    assert "is a link" in left.out
    assert [path.name for path in elsewhere.iterdir()] == ["own.txt"]
    (tmp_path / "runs" / "p").unlink()
    assert hf("advance", "p", "--root", tmp_path / "runs").code == 0
    assert (tmp_path / "runs" / "p" / "made.txt").exists()


def test_what_a_task_prints_is_written_through_no_link_that_it_put_there(hf, project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    hf("init")
    swap = "mv .holdfast ../away && ln -s ../elsewhere .holdfast && echo printed"
    (project / "flow.json").write_text(json.dumps({"flow": "p", "phases": {"one": swap}}))
    assert hf("run", "flow.json", "--no-wait").code == 7
    assert (project / ".holdfast").is_symlink()
    assert [str(path) for path in elsewhere.rglob("*")] == []


def test_sessions_behind_a_link_are_not_told(hf, project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private-name.json").write_text("{}")
    hf("init")
    assert hf("hook", "status").code == 0
    (project / ".holdfast").mkdir(exist_ok=True)
    (project / ".holdfast" / "hook").symlink_to(tmp_path / "elsewhere")
    refused = hf("hook", "status", "--json")
    assert refused.code == 2, refused
    assert "is a link" in refused.json["error"]["message"]
    assert "private-name" not in refused.out


def test_a_request_is_withdrawn_through_no_link(project, tmp_path):
    elsewhere, own = tmp_path / "elsewhere", project / ".holdfast" / "mcp"
    desk = ConfirmationDesk(project)
    code = desk.ask("restore", "r", ("one",), "{}").partition(".")[0]
    own.rename(elsewhere)
    own.symlink_to(elsewhere)
    desk.close()
    assert [path.name for path in elsewhere.iterdir()] == [f"{code}.json"]
    with pytest.raises(holdfast.UsageError, match="is a link"):
        pending_requests(project, 2e9)
    own.unlink()
    elsewhere.rename(own)
    assert pending_requests(project, 2e10) == []
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("where", ["{project}/.holdfast/st/a.db", "file://{project}/.holdfast/st"])
def test_a_store_below_a_linked_folder_of_ours_is_not_begun(project, tmp_path, where):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / ".holdfast").symlink_to(elsewhere)
    with pytest.raises(holdfast.StoreUnavailable, match="is a link"):
        holdfast.open(where.format(project=project)).run("r")
    assert list(elsewhere.iterdir()) == []
