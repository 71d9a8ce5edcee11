"""Each setting acts, on every store: the same work with it and without it, and what is different then."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import LimitExceeded, RunWaiting
from holdfast.settings.file import make_settings
from holdfast.settings.values import Settings
from store_kit import STORES, open_store_in

TOKEN = "tok-" + "x9" * 8


def triggers(hf, _folder):
    """A run of two rounds of two phases, two gated tasks and a budget; return which checkpoints were taken."""
    with hf.run("r") as run:
        run.budget.limit(tokens=10)
        for number in range(2):
            for phase in ("plan", "act"):
                with run.phase(f"{phase}-{number}"):
                    run.budget.spend(tokens=2, once=f"{phase}-{number}")
            run.maybe_checkpoint("loop_complete", state=number)
    return [one.trigger for one in reversed(hf.checkpoints("r", archived=True)) if one.trigger != "shutdown"]


def captured(hf, folder):
    """Capture a directory; return the paths."""
    for name in ("kept.py", "notes.tmp", "hidden.log", ".env.test", ".gitignore"):
        (folder / name).write_text("*.log\n" if name == ".gitignore" else name)
    (folder / "large.bin").write_bytes(os.urandom(200_000))
    _git(folder, "init", "-q", "-b", "main")
    with suppress(LimitExceeded):
        made = hf.run("r", workspace=folder).checkpoint()
        return sorted(one.path for one in made.files()), made.git.branch
    return "refused"


def _git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", folder, *words], check=True)


def history(hf, folder):
    """Capture a repository; return whether it can be put back elsewhere with its history."""
    (folder / "file").write_text("text")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        _git(folder, *words)
    made = hf.run("r", workspace=folder).checkpoint()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    return hf.recover(made.id, workspace=elsewhere, confirmed=True).success and (elsewhere / ".git").exists()


def files_at(trigger):
    def captures(hf, folder):
        """Change a file before an event; return whether its checkpoint has the change."""
        with hf.run("r", workspace=folder) as run:
            (folder / "file").write_text("changed")
            return "file" in [one.path for one in run.maybe_checkpoint(trigger, state=1).files()]

    return captures


def stored(hf, _folder):
    """Store what looks like secrets, and what only its owner knows for one; return what is left of each."""
    given = {"password": "hunter2hunter2", "badge": "BADGE-123456", "cookie": "abc=8s7df6g5", "pin_code": TOKEN}
    hf.run("r").checkpoint(state={"login": given})
    found = hf.latest("r").section("state")["login"]
    return {name for name in given if found[name] == given[name]}


def marked(hf, _folder):
    """Store a secret that is marked with a variable; return whether the program gets it again."""
    hf.run("r").checkpoint(state={"token": holdfast.Secret(TOKEN, env="HOLDFAST_TEST_TOKEN")})
    return hf.latest("r").section("state")["token"] == TOKEN


def filled(hf, _folder):
    hf.run("r").checkpoint(state={"api_key": TOKEN})
    return hf.latest("r").section("state")["api_key"] == TOKEN


def resumed(hf, folder):
    """Change the issue of a run after its checkpoint; return what a resume makes of it."""
    issue = folder / "7.json"
    issue.write_text(json.dumps({"id": "7", "title": "Log in", "body": "Soon."}))
    with hf.run("r", subject=str(issue)) as run:
        run.subject.update(id="7", title="Log in", body="Soon.")
    issue.write_text(json.dumps({"id": "7", "title": "Log in", "body": "Now."}))
    try:
        return hf.recover("r", subject=str(issue)).success
    except RunWaiting:
        return "asks"


def aged(hf, _folder):
    """Look at a checkpoint that is ten days old; return what was found."""
    hf.run("r").checkpoint(state=1)
    later = holdfast.Holdfast(hf.store, settings=hf.settings, clock=lambda: time.time() + 10 * 86_400)
    return [one.kind for one in later.plan("r").findings]


def operated(hf, _folder):
    """Stand before an operation that only its owner knows; return whether it is warned about."""
    with hf.run("r") as run:
        try:
            with run.destructive("drop_table"):
                return False
        except UserWarning:
            return True


def timed(hf, _folder):
    """Wait for a checkpoint of the timer or for the end of the session; return which came."""
    is_expected = hf.settings != Settings()
    until = time.monotonic() + (60 if is_expected else 0.2)
    came = set()
    with hf.run("r") as run, suppress(holdfast.SessionOver):
        while time.monotonic() < until and not came:
            run.context.note(at=time.monotonic())
            run.step(f"s{time.monotonic()}", time.sleep, 0.01)
            came = {one.trigger for one in hf.checkpoints("r")} & {"time_interval", "session_end"}
    return came or {one.trigger for one in hf.checkpoints("r")} & {"time_interval", "session_end"}


def leased(hf, _folder):
    with hf.run("r"):
        return hf.store.leases.running("r").expires_at - datetime.now(UTC) > timedelta(seconds=60)


def mirrored(hf, folder):
    hf.run("issue-7").checkpoint(state=1)
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.name.startswith(("index", "check")))


PLAIN = [".gitignore", "kept.py", "large.bin", "notes.tmp"]
TAKEN = ["state_transition", *["phase_transition", "phase_complete"] * 2, "loop_complete", "phase_transition",
         "phase_complete", "phase_transition", "budget_warning", "phase_complete", "loop_complete"]  # fmt: skip
CASES = [
    # what is done, the result without a setting, and the result of each setting
    (triggers, TAKEN, [
        ({"strategy": {"phases": ["plan-1"]}}, ["phase_complete"]),
        ({"strategy": {"every_loops": 2}}, ["loop_complete"]),
        ({"strategy": {"on_budget_warning": True}}, ["budget_warning"]),
        ({"strategy": {"every_s": 3600}}, ["state_transition"]),
        ({"strategy": {"otherwise": "none"}}, []),
    ]),
    (captured, (PLAIN, "main"), [
        ({"workspace": {"ignore": ["*.tmp"]}}, ([".gitignore", "kept.py", "large.bin"], "main")),
        ({"workspace": {"include": ["hidden.log"]}}, (sorted([*PLAIN, "hidden.log"]), "main")),
        ({"workspace": {"use_gitignore": False}}, (sorted([*PLAIN, "hidden.log"]), "main")),
        ({"workspace": {"use_git": False}}, (PLAIN, None)),
        ({"workspace": {"max_files": 3}}, "refused"),
        ({"workspace": {"max_file_mb": 0.1}}, ([".gitignore", "kept.py", "notes.tmp"], "main")),
        ({"workspace": {"max_total_mb": 0.1}}, "refused"),
    ]),
    (history, True, [({"workspace": {"git_history_mb": 0}}, False)]),
    (files_at("agent_complete"), True, [({"workspace_on": ["manual"]}, False)]),
    (files_at("loop_complete"), False, [({"workspace_on": ["loop_complete"]}, True)]),
    (stored, {"badge", "pin_code"}, [
        ({"redaction": {"enabled": False}}, {"password", "badge", "cookie", "pin_code"}),
        ({"redaction": {"keys": ["password"]}}, {"badge", "cookie", "pin_code"}),
        ({"redaction": {"more_keys": ["pin_code"]}}, {"badge"}),
        ({"redaction": {"paths": ["state.login.pin_code"]}}, {"badge"}),
        ({"redaction": {"patterns": {"badge": "BADGE-[0-9]{6}"}}}, {"pin_code"}),
    ]),
    (marked, False, [({"redaction": {"fill_env": ["HOLDFAST_TEST_TOKEN"]}}, True)]),
    (filled, False, [({"redaction": {"fill": {"state.api_key": "HOLDFAST_TEST_TOKEN"}}}, True)]),
    (resumed, "asks", [({"recovery": {"verdicts": {"body-changed": "warn"}}}, True)]),
    (aged, [], [({"recovery": {"max_age_days": 7}}, ["too-old"])]),
    (operated, True, [({"destructive": {"operations": ["drop_table"]}}, False)]),
    (timed, set(), [
        ({"interval_s": 0.05}, {"time_interval"}),
        ({"session": {"deadline_s": 0.3, "lead_s": 0.1}}, {"session_end"}),
    ]),
    (leased, False, [({"lease_s": 600}, True)]),
    (mirrored, [], [
        ({"mirror": {"form": "yaml", "location": "FOLDER/m/{issue}"}}, ["m/7/index.yaml"]),
        ({"mirror": {"form": "task", "location": "FOLDER/m/{task}"}}, ["m/issue-7/checkpoints.json"]),
    ]),
]  # fmt: skip
ROWS = [(act, given, result) for act, plain, rows in CASES for given, result in [({}, plain), *rows]]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("row", ROWS, ids=[f"{act.__name__} {given}" for act, given, _ in ROWS])
def test_each_setting_changes_what_happens_on_every_store(kind, row, tmp_path, monkeypatch):
    """Proves C14: what decides about triggers, files, secrets, resuming, sessions and readable documents."""
    monkeypatch.setenv("HOLDFAST_TEST_TOKEN", TOKEN)
    store, folder = tmp_path / "store", tmp_path / "work"
    store.mkdir()
    folder.mkdir()
    act, given, result = row
    settings = make_settings(json.loads(json.dumps(given).replace("FOLDER", str(folder))))
    with ExitStack() as held:
        made = held.enter_context(open_store_in(kind, store))
        if kind == "encrypted" and "mirror" in given:
            held.enter_context(pytest.raises(holdfast.UsageError, match="in plain text what this store encrypts"))
        hf = held.enter_context(holdfast.Holdfast(made, settings=settings))
        assert act(hf, folder) == result
