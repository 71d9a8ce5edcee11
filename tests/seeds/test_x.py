"""What none of the five systems has: state and files together, small, sound, planned, forked; the ledger's X."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast import PlanOutdated, Settings
from holdfast.settings.values import RetentionSettings
from holdfast.workspace.decide import Decisions
from recovery.recovery_kit import contents, damage_section
from seeds.conftest import System

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast import Checkpoint, Holdfast

RUN = "episode"
KEEP_ALL = Settings(retention=RetentionSettings(enabled=False))


@pytest.fixture(scope="module")
def finished(system):
    """The episode of system E, played to its end with every checkpoint kept; not to be changed."""
    made = system("e_episode")
    while made.carry_on(workspace=".").status == "waiting":
        with made.open() as hf:
            for wait in hf.control.waiting(RUN):
                is_over = wait.kind == "budget" and "continue" not in wait.options
                hf.control.answer(
                    RUN, "raise" if is_over else "continue", wait=wait.id, value=4000 if is_over else None
                )
    return made


@pytest.fixture
def episode(finished, tmp_path):
    """A copy of it that a test may change."""
    return finished.copy(tmp_path / "system")


def opened(system: System) -> Holdfast:
    return holdfast.open(system.store, settings=KEEP_ALL)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what the robot left, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for place in ("floor", "shelf")
        for path in sorted((folder / place).iterdir())
    }


def middle(hf: Holdfast) -> Checkpoint:
    """Return the checkpoint at the end of the second round."""
    line = reversed(hf.checkpoints(RUN, archived=True))
    ends = [one for one in line if one.trigger == "phase_complete" and one.summary.phase == "observe"]
    return ends[1]


def test_one_recovery_brings_state_and_files_back_together_and_one_undo_takes_both_back(episode):
    """Proves X1: on the same machine."""
    after = files_of(episode.folder)
    with opened(episode) as hf:
        result = hf.recover(middle(hf).id, workspace=episode.folder)
        assert result.success, result.errors
        assert sorted(files_of(episode.folder)) == [
            "floor/clock", "floor/drums", "floor/easel", "floor/flute", "shelf/anvil", "shelf/books",
        ]  # fmt: skip
        assert hf.latest(RUN).section("phases").phases["observe"].summary == "4 left"
        assert hf.latest(RUN).section("budget").spending["tokens"].used == 6 * 960  # what was paid is not given back
        assert hf.undo(RUN, workspace=episode.folder).success
        assert files_of(episode.folder) == after
        assert hf.latest(RUN).summary.status == "completed"
    again = episode.carry_on(workspace=".")
    assert (again.status, again.tasks_done) == ("completed", 0)


def test_a_run_goes_on_on_another_machine_from_a_file_that_was_mailed(episode, tmp_path):
    """Proves X1: on another machine, its files too."""
    with opened(episode) as hf:
        hf.recover(middle(hf).id, workspace=episode.folder)
        hf.transfer.export(tmp_path / "episode.holdfast", RUN)
    elsewhere = System(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    with opened(elsewhere) as hf:
        hf.transfer.import_from(tmp_path / "episode.holdfast")
        assert hf.recover(RUN, workspace=elsewhere.folder).success
    assert sorted(files_of(elsewhere.folder)) == sorted(files_of(episode.folder))
    calls = elsewhere.lines()
    while elsewhere.carry_on(workspace=".").status == "waiting":
        with opened(elsewhere) as hf:
            for wait in hf.control.waiting(RUN):
                is_over = wait.kind == "budget" and "continue" not in wait.options
                hf.control.answer(
                    RUN, "raise" if is_over else "continue", wait=wait.id, value=4000 if is_over else None
                )
    assert len(elsewhere.lines()) - len(calls) == 4 * 4  # the four rounds that were left
    assert len(list((elsewhere.folder / "shelf").iterdir())) == 6


def test_a_checkpoint_costs_what_changed_and_not_the_size_of_state_or_files(tmp_path):
    """Proves X2: in bytes; the benchmarks have the times."""
    work = tmp_path / "work"
    work.mkdir()
    for number in range(300):
        (work / f"{number}.bin").write_bytes(os.urandom(4096))
    state = {f"k{number}": os.urandom(50).hex() for number in range(5000)}
    with holdfast.open(tmp_path / "store", settings=KEEP_ALL) as hf:
        run = hf.run("r", workspace=work)
        whole = run.checkpoint(state=state)
        assert whole.stored_bytes > 1_200_000
        (work / "7.bin").write_bytes(os.urandom(4096))
        small = run.checkpoint(state={**state, "k7": "new"})
        assert small.stored_bytes < whole.stored_bytes / 20
        nothing = run.checkpoint(state={**state, "k7": "new"})
        assert nothing.stored_bytes < 4096
        assert len(nothing.files()) == 300


def test_damage_is_found_and_a_recovery_walks_back_to_the_newest_sound_checkpoint_and_says_what_is_lost(episode):
    """Proves X3."""
    with opened(episode) as hf:
        head = hf.latest(RUN)
        before = hf.checkpoints(RUN, archived=True)[1]
        assert hf.verify().sound
    damage_section(episode.store, head, "status")
    with opened(episode) as hf:
        report = hf.verify()
        assert not report.sound
        plan = hf.plan(RUN, workspace=episode.folder)
        assert plan.checkpoint != head.id
        assert plan.seq <= before.seq
        [lost] = [one for one in plan.damage if one.checkpoint == head.id]
        assert lost.lost
        assert "damaged" in str(plan)
        result = hf.recover(plan)
        assert result.success, result.errors
        assert hf.latest(RUN, sound=True).id == hf.latest(RUN).id


def test_a_plan_is_shown_before_anything_is_touched_and_carried_out_exactly_or_not_at_all(episode):
    """Proves X4: shown first."""
    with opened(episode) as hf:
        store, files = contents(hf), files_of(episode.folder)
        plan = hf.plan(middle(hf).id, workspace=episode.folder)
        text = str(plan)
        assert "run episode: go back to checkpoint" in text
        assert "runs again: step" in text
        assert "floor/clock" in text
        assert (contents(hf), files_of(episode.folder)) == (store, files)
        assert plan.from_json(plan.to_json()) == plan
        (episode.folder / "floor" / "clock").write_text("somebody put it there")
        with pytest.raises(PlanOutdated, match="clock"):
            hf.recover(plan)
        assert contents(hf) == store


def test_files_that_both_sides_changed_are_merged_three_ways_and_never_overwritten(tmp_path):
    """Proves X4: merged."""
    work = tmp_path / "work"
    work.mkdir()
    text, notes = work / "text.py", work / "notes.txt"
    lines = [f"line {number}\n" for number in range(20)]
    text.write_text("".join(lines))
    notes.write_text("old\n")
    with holdfast.open(tmp_path / "store", settings=KEEP_ALL) as hf, hf.run("r", workspace=work) as run:
        first = run.checkpoint(state=1)
        text.write_text("".join(["ours\n", *lines[1:]]))
        notes.write_text("ours\n")
        run.checkpoint(state=2)
        text.write_text("".join(["ours\n", *lines[1:-1], "theirs\n"]))  # since the run last looked
        notes.write_text("theirs\n")
        plan = hf.plan(first.id, workspace=work)
        assert {item.path: item.action for item in plan.files.items} == {"text.py": "merge", "notes.txt": "conflict"}
        assert not plan.can_resume
        refused = hf.recover(plan)
        assert not refused.success
        assert notes.read_text() == "theirs\n"
        decided = Decisions(paths={"notes.txt": "both"})
        assert hf.recover(first.id, workspace=work, decisions=decided, run=run).success
    assert text.read_text() == "".join([*lines[:-1], "theirs\n"])
    assert notes.read_text() == "theirs\n"
    assert "old\n" in {path.read_text() for path in work.iterdir()}  # the checkpoint's, beside it


def test_any_checkpoint_is_forked_into_a_run_of_its_own_and_any_two_are_compared(episode, tmp_path):
    """Proves X5."""
    with opened(episode) as hf:
        origin = middle(hf)
        fork = hf.fork(origin.id, "other-way")
        assert [one.checkpoint for one in hf.recovery.lineage("other-way")] == [origin.id]
        phases = origin.section("phases")
        assert fork.section("phases") == phases
        difference = hf.diff(origin.id, RUN)
        assert difference
        changed = {change.path: change.status for change in difference.file_changes()}
        assert "shelf/flute" in changed
        assert any("budget" in line for line in difference.lines())
        elsewhere = tmp_path / "elsewhere"
        assert hf.recover("other-way", into=elsewhere).success
        assert (elsewhere / "shelf" / "books").exists()
        assert not (elsewhere / "shelf" / "flute").exists()
        hf.delete_run(RUN)
        assert hf.verify().sound
        assert hf.latest("other-way").section("phases") == phases


def test_one_store_serves_shell_scripts_and_python(tmp_path):
    """Proves X6: as far as there are ways in: the command line from shell scripts, and Python."""
    system = System(tmp_path)
    (tmp_path / "PLAN.md").write_text("# Plan\n\n## Phase 1: Research\n\n## Phase 2: Build\n")
    script = """
        set -e
        holdfast() { "$PYTHON" -m holdfast --store .holdfast "$@"; }
        holdfast begin PLAN.md --resume
        holdfast phase start research
        holdfast phase done research --summary 'read it all'
        holdfast status --left
    """
    said = system.sh(f"PYTHON={sys.executable}\n{script}")
    assert said.split()[-1] == "2-build"
    with system.open() as hf:
        [run] = hf.runs()
        with hf.run(run.id) as opened_run:
            assert opened_run.phases.completed == ("1-research",)
            with opened_run.phase("2-build"):
                opened_run.step("build", lambda: "built")
            opened_run.complete()
    shown = system.hf("status", run.id, "--json")
    assert shown.json["status"] == "completed"
