"""What the page is told, over real SQLite, file and PostgreSQL stores, compared with the command line's own words."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import msgspec
import pytest

import holdfast
from answer_types import answer_types, typescript
from holdfast.cli.graph import LogGraph
from holdfast.web import answers, values
from holdfast.web.events import EventIndex
from holdfast.web.history import LaneIndex
from holdfast.web.site import Handle
from web.ui_kit import CANARY, WAITING, damage_state, files_below, leaky, page, sealed, start_program, story, until


def command(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout)


def test_it_tells_the_same_over_every_store(anywhere):
    ui = anywhere
    runs = {run["id"]: run for run in ui.get("/api/runs")["runs"]}
    assert set(runs) == {"add-login", "try-2"}
    assert runs["add-login"]["budget"][0]["limit"] == 200_000
    rows = ui.get("/api/runs/add-login/checkpoints")["rows"]
    assert [row["seq"] for row in rows] == [5, 4, 3, 2, 1]
    assert rows[0]["is_head"]
    assert ui.get("/api/runs/add-login")["forks"] == {rows[-1]["id"]: ["try-2"]}
    assert ui.get("/api/c/add-login@2/section/state?path=%5B%22messages%22%5D&offset=119")["items"][0]["key"] == 119
    assert [one["path"] for one in ui.get("/api/c/add-login@3/files?under=src")["entries"]] == [
        "src/api.py", "src/auth.py",
    ]  # fmt: skip
    assert "mfa" in ui.get("/api/compare/file?a=add-login@1&b=add-login@2&path=src/auth.py")["diff"]
    assert [one["seq"] for one in ui.get("/api/runs/add-login/file-history?path=src/auth.py")["versions"]] == [2, 1]
    assert len(ui.get("/api/runs/add-login/samples?n=3")["samples"]) == 3
    storage = ui.get("/api/storage")
    assert storage["stats"]["checkpoints"] == 6
    assert {row["run"] for row in storage["runs"]} == {"add-login", "try-2"}
    found = ui.get("/api/runs/add-login/checkpoints?q=research")["rows"]
    assert [row["seq"] for row in found] == [2]


def test_a_plan_is_carried_out_and_undone_over_every_store(anywhere, folder):
    ui = anywhere
    before = (folder / "src" / "auth.py").read_text()
    plan = ui.post("/api/plans", {"spec": "add-login@1"}).json
    assert plan["moved"] == []
    sides = ui.get(f"/api/plans/{plan['digest']}/item?path=src/auth.py")["sides"]
    assert sides["disk"]["text"] == before
    done = ui.post(f"/api/plans/{plan['digest']}/run")
    assert done.status == 200, done.body
    assert (folder / "src" / "auth.py").read_text() == sides["result"]["text"]
    assert ui.post(f"/api/plans/{plan['digest']}/run").status == 409  # once
    undo = ui.post("/api/plans", {"undo": "add-login"}).json
    assert ui.post(f"/api/plans/{undo['digest']}/run").status == 200
    assert (folder / "src" / "auth.py").read_text() == before


def test_a_commit_of_another_process_is_told(anywhere):
    ui = anywhere
    with ui.live() as next_event:
        assert next_event()["type"] == "reset"
        hf = holdfast.open(ui.store) if ui.store else holdfast.open(ui.folder / ".holdfast")
        hf.run("try-2").checkpoint(reason="moved", state={"step": 9})
        hf.close()
        told = next_event()
        assert (told["type"], told["run"], told["summary"]["last_seq"]) == ("run", "try-2", 2)
        cursor = told["cursor"]
    with ui.live(cursor) as next_event:
        assert next_event()["type"] == "hello"


def test_events_missed_meanwhile_come_with_the_cursor(told):
    with page(told) as ui:
        with ui.live() as next_event:
            cursor = next_event()["cursor"]
        hf = holdfast.open(told / ".holdfast")
        hf.run("try-2").checkpoint(reason="moved", state={"step": 9})
        hf.close()
        until(lambda: ui.get("/api/runs/try-2")["last_seq"] == 2)
        with ui.live(cursor) as next_event:
            assert next_event()["type"] == "hello"
            assert next_event()["run"] == "try-2"


def test_figures_of_a_comparison_are_those_of_the_command_line(told):
    """Check 6."""
    with page(told) as ui:
        for a, b in (("add-login@1", "add-login@3"), ("add-login@2", "try-2@1"), ("add-login@1", "now")):
            shown = ui.get(f"/api/compare?a={a}&b={b}")
            line = command(told, "diff", a, *([b] if b != "now" else []))
            assert {one["name"]: one["count"] for one in shown["sections"]} == {
                one["name"]: one["count"] for one in line["state"]["sections"]
            }
            assert [(one["path"], one["status"]) for one in shown["files"]] == [
                (one["path"], one["status"]) for one in line["files"]
            ]
            for one in line["files"]:
                text = ui.get(f"/api/compare/file?a={a}&b={b}&path={one['path']}")
                assert (text["diff"], text["added"], text["removed"]) == (one["diff"], one["added"], one["removed"])
        assert ui.get("/api/compare?a=add-login@2&b=try-2@1")["ancestor"]["seq"] == 1


def test_checkpoints_that_touch_one_file(folder):
    hf = holdfast.open(folder / ".holdfast")
    run = hf.run("r", workspace=folder)
    wanted = []
    for number, text in enumerate(["one", "one", "two", "two", "three"], 1):
        (folder / "notes.md").write_text(text)
        (folder / "other.md").write_text(str(number))
        taken = run.checkpoint(reason=f"step {number}")
        wanted = [taken.seq, *wanted] if number in (1, 3, 5) else wanted
    hf.close()
    with page(folder) as ui:
        touching = ui.get("/api/runs/r/checkpoints?path=notes.md")
        assert [row["seq"] for row in touching["rows"]] == wanted
        assert [row["reason"] for row in ui.get("/api/runs/r/checkpoints?path=notes.md&q=step+3")["rows"]] == ["step 3"]
        assert ui.get("/api/runs/r/checkpoints?path=none.md")["rows"] == []
        assert ui.request("GET", "/api/runs/r/checkpoints?path=../out").status == 404


def test_a_comparison_offers_the_phase_and_the_last_answer(folder):
    hf = holdfast.open(folder / ".holdfast")
    with hf.run("r") as run:
        with run.phase("one"):
            run.checkpoint(state=1)
        with run.phase("two"):
            hf.control.signal("r", "ok")
            run.wait_signal("ok")
            at_answer = hf.latest("r").seq
            run.checkpoint(state=2)
            run.checkpoint(state=3)
    with page(folder) as ui:
        last = next(one for one in hf.checkpoints("r") if one.summary.phase == "two" and one.seq > at_answer + 1)
        since = ui.get(f"/api/compare?a=r@1&b=r@{last.seq}")["since"]
        assert since["phase"] == hf.find("r:before:two").place
        answered = hf.find(since["answer"])
        assert answered.summary.phase == "two"
        assert answered.seq < last.seq
        assert ui.get("/api/compare?a=r@1&b=r@1")["since"] == {}
    hf.close()


def test_a_plan_does_the_same_as_the_command_line_byte_for_byte(folder, tmp_path):
    """Check 7, on twins."""
    twin = tmp_path / "twin"
    twin.mkdir()
    for place in (folder, twin):
        story(place)
        (place / "README.md").write_text("# Mine\n")
    with page(folder, write=True) as ui:
        plan = ui.post("/api/plans", {"spec": "add-login@1"}).json
        assert ui.post(f"/api/plans/{plan['digest']}/run").status == 200
    line = [sys.executable, "-m", "holdfast", "resume", "add-login@1", "--yes"]
    assert subprocess.run(line, cwd=twin, check=False, capture_output=True).returncode == 14  # put back; start it
    assert plan["command"] == "holdfast resume add-login@1"
    ours, theirs = (
        {name: data for name, data in files_below(place).items() if not name.startswith(".holdfast")}
        for place in (folder, twin)
    )
    assert ours == theirs
    states = [holdfast.open(place / ".holdfast").latest("add-login").section("state") for place in (folder, twin)]
    assert states[0] == states[1]


def test_a_world_that_moved_is_told_and_nothing_is_touched(told):
    """Check 8."""
    with page(told, write=True) as ui:
        plan = ui.post("/api/plans", {"spec": "add-login@1"}).json
        (told / "src" / "auth.py").write_text("mine\n")
        before = {name: data for name, data in files_below(told).items() if ".holdfast" not in name}
        assert ui.get(f"/api/plans/{plan['digest']}")["moved"] == ["file 'src/auth.py' is not as it was"]
        refused = ui.post(f"/api/plans/{plan['digest']}/run")
        assert (refused.status, refused.json["error"]) == (409, "PlanOutdated")
        assert {name: data for name, data in files_below(told).items() if ".holdfast" not in name} == before
        again = ui.post("/api/plans", {"spec": "add-login@1"}).json
        assert again["digest"] != plan["digest"]


@pytest.mark.parametrize("choice", ["take", "keep", "merge", "both"])
def test_the_result_that_is_shown_is_what_is_written(told, choice):
    """Check 9: each choice for a file that both sides changed."""
    (told / "src" / "auth.py").write_text("def login(user, mfa, mine):\n    return mine\n")
    with page(told, write=True) as ui:
        first = ui.post("/api/plans", {"spec": "add-login@1"}).json
        assert first["files"]["items"][0]["action"] == "conflict"
        assert ui.post(f"/api/plans/{first['digest']}/run").status == 409
        decided = {"spec": "add-login@1", "decisions": {"paths": {"src/auth.py": choice}}}
        plan = ui.post("/api/plans", decided).json
        side = ui.get(f"/api/plans/{plan['digest']}/item?path=src/auth.py")
        done = ui.post(f"/api/plans/{plan['digest']}/run")
        assert done.status == 200, done.body
    assert (told / "src" / "auth.py").read_text() == side["sides"]["result"]["text"]
    if choice == "both":
        assert (told / side["beside"]).read_text() == side["sides"]["checkpoint"]["text"]


def test_a_run_that_another_process_has_is_not_recovered(told):
    """Check 11."""
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            plan = ui.post("/api/plans", {"spec": "deploy-42"}).json
            assert plan["owner"]
            assert ui.post(f"/api/plans/{plan['digest']}/run").status == 423
    finally:
        program.kill()
        program.communicate()


def test_an_answer_reaches_the_process_that_waits(told):
    """Check 12: answered here, gone there, and 409 for who comes second."""
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            waits = until(lambda: ui.get("/api/waits")["waiting"])
            assert (waits[0]["run"], waits[0]["question"]) == ("deploy-42", "Push to main?")
            path = f"/api/waits/deploy-42/{waits[0]['id']}"
            assert ui.post(path, {"choice": "approve", "note": "ok"}).status == 200
            assert ui.post(path, {"choice": "reject"}).status == 409
            assert ui.get("/api/waits")["waiting"] == []
            assert program.stdout.readline().split() == ["answered", "approve"]
            given = until(lambda: [one for one in ui.get("/api/waits")["answered"] if one["run"] == "deploy-42"])
            assert [(one["choice"], one["by"], one["note"]) for one in given] == [("approve", "ann", "ok")]
        hf = holdfast.open(told / ".holdfast")
        assert any(event.by == "ann" for event in hf.events("deploy-42"))
    finally:
        program.kill()
        program.communicate()


def test_a_fork_with_an_edited_state(told):
    """Check 14."""
    with page(told, write=True) as ui:
        made = ui.post("/api/fork", {"spec": "add-login@2", "name": "try-3", "sections": {"state": {"step": 7}}})
        assert made.json["run"] == "try-3"
        assert ui.get("/api/c/try-3/section/state")["items"][0]["preview"] == "7"
        wrong = ui.post("/api/fork", {"spec": "add-login@2", "name": "try-4", "sections": {"budget": {"spending": 7}}})
        assert wrong.status == 422
        assert "budget" in wrong.json["sentence"]


def test_a_damaged_chunk_is_named_and_the_rest_works(told):
    """Check 15."""
    damage_state(told, "add-login@3")
    with page(told) as ui:
        broken = ui.request("GET", "/api/c/add-login@3/section/state")
        assert (broken.status, broken.json["error"]) == (500, "ChunkCorrupt")
        assert ui.get("/api/c/add-login@3/section/budget")["kind"] == "map"
        assert ui.get("/api/c/add-login@3/files")["total"] == 2
        ui.post("/api/verify")
        report = until(lambda: ui.get("/api/storage")["verified"])
        assert not report["sound"]


def test_an_encrypted_store_is_shown_with_its_key_only(folder, tmp_path):
    """Proves X7: check 16."""
    key = tmp_path / "key"
    sealed(folder, key, {"deep": "secret words"})
    with page(folder) as ui:
        assert ui.get("/api/c/sealed/section/state")["items"][0]["preview"] == "secret words"
    key.write_text(holdfast.generate_key())
    with pytest.raises(AssertionError, match="did not start"), page(folder):
        pass


def test_what_was_said_is_shown_at_any_point_and_compared(folder):
    """Messages between agents and those that a state holds; the same words a second time are two messages."""
    hf = holdfast.open(folder / ".holdfast")
    with hf.run("talk") as run:
        run.mailbox.send("coder", "reviewer", "look at auth.py", expects_answer=True)
        first = run.checkpoint(
            state={"messages": [{"role": "user", "content": "go"}, {"role": "user", "content": "go"}]}
        )
        given = run.mailbox.receive("reviewer")
        run.mailbox.answer(given, "it is fine")
        run.mailbox.ack(given)
        said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": f"done, Bearer {CANARY}"}]
        second = run.checkpoint(state={"messages": said})
    hf.close()
    with page(folder) as ui:
        early = ui.get(f"/api/runs/talk/messages?at={first.seq}")["messages"]
        (between,) = [one for one in early if one["place"] == "messages"]
        assert (between["by"], between["to"], between["text"]) == ("coder", "reviewer", "look at auth.py")
        assert "answer" in between["note"]
        assert [(one["by"], one["text"]) for one in early if one is not between] == [("user", "go")] * 2
        told = ui.get(f"/api/compare/messages?a=talk@{first.seq}&b=talk@{second.seq}")
        texts = {
            kind: [one["message"]["text"] for one in told["changes"] if one["kind"] == kind]
            for kind in ("added", "removed")
        }
        assert sorted(texts["removed"]) == ["go", "look at auth.py"]
        assert "it is fine" in texts["added"]
        assert any(text.startswith("done") for text in texts["added"])
        assert CANARY not in str(told)
        assert (told["added"], told["removed"], told["kept"]) == (len(texts["added"]), 2, 1)
        assert ui.request("GET", "/api/runs/nothing/messages").status == 404


def test_a_page_of_a_huge_section_cleans_what_it_shows_and_no_more(folder, monkeypatch):
    """A million keys, a text that compresses to nothing, and nesting: pages are small, secrets go by their names."""
    deep = {"password": "hunter2-hunter2", "list": [{"api_key": "hunter3-hunter3"}]}
    for _ in range(40):
        deep = {"more": deep}
    keys = {str(number): number for number in range(1_000_000)}
    (folder / "holdfast.yaml").write_text("redaction:\n  enabled: false\n")
    hf = holdfast.open(folder / ".holdfast", settings=folder / "holdfast.yaml")
    (folder / "holdfast.yaml").unlink()
    hf.run("huge").checkpoint(state={"keys": keys, "text": "x" * 30_000_000, "deep": deep})
    hf.close()
    hf = holdfast.open(folder / ".holdfast", read_only=True)
    handle, cleaned = Handle(hf), []
    monkeypatch.setattr(Handle, "clean", lambda _self, value, _where="": cleaned.append(value) or value)
    state = hf.latest("huge").plain_section("state")
    shown = values.excerpt(handle, "state", state["keys"], ["keys"], offset=500_000, limit=50)
    assert values.page(state["keys"], shown, offset=500_000)["items"][0]["key"] == "500000"
    values.excerpt(handle, "state", state, [], offset=0, limit=50)
    assert max(len(msgspec.json.encode({**one, "text": ""})) for one in cleaned) < 2000
    monkeypatch.undo()
    hf.close()
    with page(folder) as ui:
        steps = ["deep", *["more"] * 40]
        place = "/api/c/huge/section/state?path="
        told = ui.get(place + quote(json.dumps(steps)), timeout=120)
        assert (told["total"], [one["key"] for one in told["items"]]) == (2, ["password", "list"])
        for path in ([*steps, "password"], [*steps, "list", 0], [*steps, "list", 0, "api_key"], ["keys"], ["text"]):
            answer = ui.request("GET", place + quote(json.dumps(path)), timeout=120)
            assert answer.status == 200, path
            assert b"hunter" not in answer.body, path
            assert len(answer.body) < 100_000
        assert b"hunter" not in json.dumps(told).encode()
        assert ui.request("GET", "/api/c/huge/whole/state").status == 413


LEAVING = (
    "/api/runs",
    "/api/runs/leaky",
    "/api/runs/leaky/events",
    "/api/runs/leaky/messages",
    "/api/runs/leaky/spans",
    "/api/c/leaky",
    "/api/c/leaky/section/state",
    "/api/c/leaky/section/state?path=%5B%22other%22%5D",
    "/api/c/leaky/whole/state",
    "/api/c/leaky/file?path=notes.txt",
    "/api/compare?a=leaky@1&b=leaky@2",
    "/api/compare/section?a=leaky@1&b=leaky@2&name=state",
    "/api/compare/file?a=leaky@1&b=leaky@2&path=notes.txt",
    "/api/waits",
    "/api/storage",
)


def test_a_secret_is_in_no_answer(folder):
    """Check 17: kept out when it was stored, and what older settings let through when it leaves."""
    leaky(folder)
    with page(folder) as ui:
        for path in LEAVING:
            answer = ui.request("GET", path)
            assert answer.status == 200, path
            assert CANARY.encode() not in answer.body, path
        plan = ui.post("/api/plans", {"spec": "leaky@1"})
        assert CANARY.encode() not in plan.body
        item = ui.request("GET", f"/api/plans/{plan.json['digest']}/item?path=notes.txt")
        assert CANARY.encode() not in item.body


def test_lanes_are_those_of_the_log(told):
    """Check 5: the star of `holdfast log` stands in the same lane."""
    hf = holdfast.open(told / ".holdfast")
    hf.undo("add-login", workspace=told)
    hf.recover("add-login@1", workspace=told)
    hf.delete(hf.find("add-login@3").id)
    listed = hf.checkpoints("add-login", archived=True)
    deleted = {one.id for one in hf.store.tombstones("add-login")}
    graph = LogGraph(lambda name: name in deleted)
    drawn = {one.seq: graph.row(one.id, one.parent if one.seq > 1 else None).lanes.index("*") // 2 for one in listed}
    hf.close()
    with page(told) as ui:
        shown = ui.get("/api/runs/add-login/lanes")["chains"]
        assert lanes_of(shown, drawn) == drawn
        assert len(set(drawn.values())) > 1
        hf = holdfast.open(told / ".holdfast")
        hf.run("add-login").checkpoint(state="more")
        hf.close()
        grown = ui.get("/api/runs/add-login/lanes")["chains"]  # what is known grows by what came
        assert lanes_of(grown, [*drawn, max(drawn) + 1]) == {**drawn, max(drawn) + 1: 0}


def lanes_of(shown, numbers):
    ranges = [(chain["lane"], high, low) for chain in shown for high, low in chain["ranges"]]
    return {seq: next(lane for lane, high, low in ranges if low <= seq <= high) for seq in numbers}


def test_lanes_are_read_by_branches_not_by_checkpoints(told):
    """Of 60 checkpoints with one branch a few are read; of a run that grew straight on, none."""
    hf = holdfast.open(told / ".holdfast")
    for numbers in (range(50), range(10)):
        with hf.run("long") as run:
            for number in numbers:
                run.checkpoint(state=number)
        if len(numbers) == 50:
            hf.recover("long@20")
    asked = []
    for name in ("checkpoint", "checkpoints", "checkpoint_at", "checkpoint_upto", "_first_readable"):
        call = getattr(hf.store, name)
        setattr(hf.store, name, lambda *words, call=call, **named: asked.append(words) or call(*words, **named))
    index = LaneIndex("long")
    shown = index.chains(hf.store)
    assert [chain.joins for chain in shown] == [None, 20]
    assert 0 < len(asked) < 15
    with hf.run("long") as run:
        run.checkpoint(state="more")
    newest = hf.latest("long").seq
    asked.clear()
    (main, left) = index.chains(hf.store)
    assert (main.ranges[0][0], left.ranges) == (newest, shown[1].ranges)
    assert index.chains(hf.store) == [main, left]
    assert asked == []
    hf.close()


@pytest.mark.parametrize("seed", range(5))
def test_lanes_lead_to_the_parent_however_often_the_run_went_back(folder, seed):
    """With and without steps between, parts deleted, told to one that knew the run before and to one that did not."""
    import random  # noqa: PLC0415

    chance = random.Random(seed)
    hf = holdfast.open(folder / ".holdfast")
    known = LaneIndex("r")
    for turn in range(6):
        run = hf.run("r")
        for number in range(chance.randrange(1, 4)):
            if chance.random() < 0.2:
                run.step(f"{turn} {number}", lambda: 1)
            run.checkpoint(state=(turn, number))
        run.close()
        hf.recover(chance.choice(hf.checkpoints("r")).id)
        if turn % 2:
            hf.delete(*[one.id for one in hf.checkpoints("r", archived=True)[1:] if chance.random() < 0.2])
        seqs = {one.id: one.seq for one in hf.checkpoints("r", archived=True)}
        parents = {one.seq: seqs.get(one.parent) for one in hf.checkpoints("r", archived=True)}
        for index in (known, LaneIndex("r")):
            below = {}
            for chain in index.chains(hf.store):
                row = [seq for high, low in chain.ranges for seq in range(high, low - 1, -1)]
                below |= dict(zip(row, [*row[1:], chain.joins], strict=True))
            assert below.keys() == parents.keys()
            assert {seq: below[seq] for seq in parents if parents[seq]} == {k: v for k, v in parents.items() if v}
    hf.close()


def test_events_are_read_once_and_are_those_of_the_run(folder, monkeypatch):
    """Of a journal that grows only what came is read, of a long one the newest part; going back begins again."""
    hf = holdfast.open(folder / ".holdfast")
    handle, index = Handle(hf), EventIndex("r")

    def work(*names):
        with hf.run("r") as run:
            for name in names:
                run.step(name, lambda: 1)

    work("one", "two")
    assert index.of(handle)[1] == hf.events("r")
    asked = []
    records = hf.store.journal.records
    monkeypatch.setattr(hf.store.journal, "records", lambda *a, **k: asked.append(f := records(*a, **k)) or f)
    index.of(handle)
    assert asked == []
    number = hf.store.line("r").number
    work("three")
    asked.clear()
    found = index.of(handle)[1]
    assert min(one.number for page in asked for one in page) == number + 1
    assert found == hf.events("r")
    hf.recover(hf.checkpoints("r")[-1].id)
    assert index.of(handle)[1] == hf.events("r")
    assert not index.is_cut
    monkeypatch.setattr("holdfast.web.events._MOST_RECORDS", 3)
    short = EventIndex("r")
    assert short.of(handle)[1] == hf.events("r")[-len(short.of(handle)[1]) :]
    assert short.is_cut
    hf.close()


def test_pages_by_place_pass_over_what_was_deleted(told):
    hf = holdfast.open(told / ".holdfast")
    run = hf.run("long")
    for number in range(30):
        run.checkpoint(reason=f"r{number}", state=number)
    run.close()
    hf.delete(*[hf.find(f"long@{seq}").id for seq in (3, 7, 8, 28)])
    hf.close()
    with page(told) as ui:
        seen = []
        for offset in range(0, 30, 4):
            seen += [row["seq"] for row in ui.get(f"/api/runs/long/checkpoints?offset={offset}&limit=4")["rows"]]
        assert seen == [seq for seq in range(30, 0, -1) if seq not in (3, 7, 8, 28)]
        (chain,) = ui.get("/api/runs/long/lanes")["chains"]
        assert (chain["lane"], chain["gaps"]) == (0, [29, 9, 4])
        around = ui.get("/api/runs/long/checkpoints?around=9&limit=4")
        assert 9 in [row["seq"] for row in around["rows"]]


def test_each_line_has_the_checkpoint_that_it_came_with(folder):
    hf = holdfast.open(folder / ".holdfast")
    run = hf.run("lines", workspace=folder)
    for number, text in enumerate(("a\nb\nc\n", "a\nB\nc\n", "new\na\nB\nc\nlast\n"), 1):
        (folder / "file.txt").write_text(text)
        run.checkpoint(reason=f"coder completed {number}", state=number)
    run.checkpoint(state="the file is as it was")
    run.close()
    hf.close()
    with page(folder) as ui:
        told = ui.get("/api/runs/lines/blame?path=file.txt")
        origins = [(told["versions"][origin]["seq"], text) for origin, text in told["lines"]]
        assert origins == [(3, "new"), (1, "a"), (2, "B"), (1, "c"), (3, "last")]
        assert told["versions"][0]["reason"] == "coder completed 3"


def test_what_is_pruned_is_what_was_shown(told):
    with page(told, write=True) as ui:
        plan = ui.post("/api/prune", {"run": "add-login"}).json
        assert ui.post(f"/api/prune/{plan['digest']}/run", {"typed": "x"}).status == 422
        hf = holdfast.open(told / ".holdfast")
        for number in range(3):
            hf.run("other").checkpoint(state=number)
        hf.close()
        done = ui.post(f"/api/prune/{plan['digest']}/run", {"typed": "add-login"})
        assert done.status == 200
        assert done.json["deleted"] == plan["counts"].get("delete", 0)


def test_the_page_can_be_mounted_into_ones_own_service(told):
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    from holdfast.web import create_app  # noqa: PLC0415

    app = create_app(lambda _to_write: holdfast.open(told / ".holdfast", read_only=True), hosts=["team.example"])
    service = Starlette(routes=[Mount("/holdfast", app=app)])
    assert asked(service, "/holdfast/api/runs", "team.example")[0] == 200
    assert asked(service, "/holdfast/api/runs", "evil.example")[0] == 421
    assert asked(service, "/holdfast/api/runs/add-login/tell/pause", "team.example", method="POST")[0] == 403


def asked(app, path, host, method="GET"):
    """Call an ASGI app as a server does."""
    import asyncio  # noqa: PLC0415

    sent = []

    async def call():
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "scheme": "https", "http_version": "1.1", "client": None, "server": None,
            "headers": [(b"host", host.encode()), (b"origin", f"https://{host}".encode()),
                        (b"sec-fetch-site", b"same-origin"), (b"content-type", b"application/json")],
        }  # fmt: skip

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run(call())
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)


ASKED = {
    "/api/runs/{run}/touched": "seqs=2,3",
    "/api/runs/{run}/file-history": "path=src/auth.py",
    "/api/runs/{run}/blame": "path=src/auth.py",
    "/api/c/{spec}/file": "path=src/auth.py",
    "/api/compare": "a=add-login@1&b=add-login@2",
    "/api/compare/section": "a=add-login@1&b=add-login@2&name=state",
    "/api/compare/file": "a=add-login@1&b=add-login@2&path=src/auth.py",
    "/api/compare/messages": "a=add-login@1&b=add-login@2",
    "/api/plans/{digest}/item": "path=src/auth.py",
}
POSTED = {
    "/api/plans": {"spec": "add-login@1"},
    "/api/fork": {"spec": "add-login@2", "name": "try-3"},
    "/api/c/{spec}/marks": {"label": "kept"},
    "/api/prune": {"run": "add-login"},
    "/api/prune/{digest}/run": {"typed": "add-login"},
    "/api/waits/{run}/{wait:path}": {"choice": "approve"},
}


def as_declared(told, kind):
    """Return an answer as its declared type has it: a field that is missing is an error, one too many is left out."""
    return json.loads(msgspec.json.encode(msgspec.convert(told, kind)))


def test_every_answer_is_as_declared(told):
    """Proves X7: what a route answers is its declared type, no field less and none more."""
    hf = holdfast.open(told / ".holdfast")
    with contextlib.suppress(ValueError), hf.run("failing"):
        raise ValueError("it broke")
    hf.close()
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            waits = until(lambda: ui.get("/api/waits")["waiting"])
            parts = {"run": "add-login", "spec": "add-login@3", "name": "state", "what": "pause"}
            seen = {}
            for (method, route), kind in answer_types().items():
                parts["digest"] = seen.get("/api/prune" if "prune" in route else "/api/plans", {}).get("digest", "")
                if "{wait" in route:
                    parts["run"] = "deploy-42"
                path = route.replace("{wait:path}", waits[0]["id"]).format(**parts) if route != "/api/session" else None
                if path is None:
                    continue  # every other request here shows what it gives
                asked = path + (f"?{ASKED[route]}" if route in ASKED else "")
                answer = ui.request(method, asked, body=POSTED.get(route, {}) if method == "POST" else None)
                assert answer.status == 200, (asked, answer.status, answer.body[:300])
                seen[route] = answer.json
                assert as_declared(answer.json, kind) == answer.json, route
                parts["run"] = "add-login"
            for path, kind in (
                ("/api/runs/failing", answers.RunDetail),
                ("/api/runs/deploy-42", answers.RunDetail),
                ("/api/runs/add-login/checkpoints?q=research", answers.CheckpointPage),
                ("/api/c/add-login@2/section/state?path=%5B%22messages%22%5D", answers.SectionPage),
                ("/api/compare?a=add-login@1&b=now", answers.Comparison),
            ):
                answer = ui.get(path)
                assert as_declared(answer, kind) == answer, path
            refused = ui.request("GET", "/api/runs/nothing")
            assert as_declared(refused.json, answers.ErrorAnswer) == refused.json
    finally:
        program.kill()
        program.communicate()


def test_every_event_is_as_declared(told):
    with page(told, write=True) as ui, ui.live() as next_event:
        seen = [next_event()]
        hf = holdfast.open(told / ".holdfast")
        hf.run("try-2").checkpoint(reason="moved", state={"step": 9})
        hf.close()
        ui.post("/api/c/try-2@1/marks", {"label": "first"})
        ui.post("/api/verify")
        while {"reset", "run", "marks"} - {one["type"] for one in seen} or not any(one.get("done") for one in seen):
            seen.append(next_event(60))
        for event in seen:
            kinds = get_args(answers.LiveEvent)
            kind = next(one for one in kinds if event["type"] in get_args(one.__annotations__["type"]))
            assert as_declared(event, kind) == event


def test_the_clients_types_are_those_of_the_server():
    """`make web` writes them; a change of the answers that the client was not told of is found here."""
    written = Path(__file__).parents[2] / "web" / "src" / "answers.ts"
    assert written.read_text() == typescript()
