"""Recoveries of runs with files: state and files together, or neither."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

import holdfast
from crash.children import Child
from holdfast import ChunkCorrupt, Holdfast, PlanOutdated, RecoveryIncomplete, StoreFull, StoreUnavailable, UsageError
from holdfast.cli.main import main
from holdfast.encode.tree import leaf_id
from holdfast.recovery.gather import Freshness
from holdfast.recovery.plan import RecoveryPlan
from holdfast.recovery.record import INTENT, intent_value
from holdfast.store.sqlite import SQLiteStore
from holdfast.workspace import git_create
from holdfast.workspace.decide import Decisions
from holdfast.workspace.ops import FileOps
from holdfast.workspace.workspace import Workspace
from recovery.recovery_kit import Notes, contents, damage_record, damage_section, execute, tree
from store_calls import counted


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def hf(place):
    with holdfast.open(place) as opened:
        yield opened


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("one\n")
    (root / "notes.txt").write_text("a\nb\nc\n")
    return root


def two_moments(hf, project, run="r"):
    """Return a run with two checkpoints: a file changed, one added and one deleted in between."""
    opened = hf.run(run, workspace=project)
    first = opened.checkpoint(state=1)
    (project / "src" / "main.py").write_text("two\n")
    (project / "src" / "new.py").write_text("new\n")
    (project / "notes.txt").unlink()
    opened.checkpoint(state=2)
    return opened, first


def test_state_and_files_come_back_together_and_are_undone_together(hf, project):
    """Proves X1, X4, A12."""
    before = tree(project)
    run, first = two_moments(hf, project)
    (project / "mine.txt").write_text("by hand\n")
    after = tree(project)
    plan = hf.plan(first.id, workspace=project)
    assert plan.files.counts() == {"delete": 1, "replace": 1, "write": 1, "keep": 1}
    assert "src/main.py" in str(plan)
    assert tree(project) == after
    result = hf.recover(plan)
    assert result.success, result.errors
    assert result.files.verified
    assert tree(project) == before | {"mine.txt": after["mine.txt"]}
    assert hf.latest("r").section("state") == 1
    assert {record.path for record in hf.latest("r").files()} == {"mine.txt", "notes.txt", "src", "src/main.py"}
    assert run.workspace.changes() == []
    assert hf.undo("r").success
    assert tree(project) == after
    assert hf.latest("r").section("state") == 2
    assert hf.undo("r").success
    assert tree(project) == before | {"mine.txt": after["mine.txt"]}
    assert hf.verify().sound


def test_it_works_from_a_fresh_process_with_the_plan_as_json(hf, project, place):
    before = tree(project)
    _, first = two_moments(hf, project)
    plan = hf.plan(first.id, workspace=project).to_json()
    with holdfast.open(place) as other:
        assert other.recover(RecoveryPlan.from_json(plan)).success
        assert tree(project) == before
        assert other.undo("r").success
    assert (project / "src" / "new.py").exists()


def test_a_file_that_changed_since_the_plan_refuses_it(hf, project):
    """Proves X4."""
    _, first = two_moments(hf, project)
    plan = hf.plan(first.id, workspace=project)
    (project / "src" / "main.py").write_text("three\n")
    picture, files = contents(hf), tree(project)
    with pytest.raises(PlanOutdated, match=r"main\.py"):
        hf.recover(plan)
    assert (contents(hf), tree(project)) == (picture, files)


def test_a_file_that_both_sides_changed_waits_for_a_decision(hf, project):
    """Proves C15, X4."""
    _, first = two_moments(hf, project)
    (project / "src" / "main.py").write_text("theirs\n")
    picture, files = contents(hf), tree(project)
    plan = hf.plan(first.id, workspace=project)
    assert "main.py" in plan.blockers[0]
    assert any("Decisions" in each for each in plan.suggestions)
    result = hf.recover(plan)
    assert not result.success
    assert (contents(hf), tree(project)) == (picture, files)
    assert hf.recover(first.id, workspace=project, decisions=Decisions(conflicts="both")).success
    assert (project / "src" / "main.py").read_text() == "theirs\n"
    assert (project / "src" / "main.py.checkpoint").read_text() == "one\n"
    assert hf.undo("r").success
    assert tree(project) == files


def test_only_named_paths_come_back(hf, project):
    _, first = two_moments(hf, project)
    assert hf.recover(first.id, workspace=project, files=["notes.txt"]).success
    assert (project / "notes.txt").read_text() == "a\nb\nc\n"
    assert (project / "src" / "main.py").read_text() == "two\n"


def test_without_files_the_directory_is_left_alone_and_the_plan_says_so(hf, project):
    two_moments(hf, project)
    before = tree(project)
    hf.close()
    with holdfast.open(project.parent / "store") as other:
        plan = other.plan("r@1")
        assert any("files are not put back" in warning for warning in plan.warnings)
        assert other.recover(plan).success
        assert tree(project) == before
        with pytest.raises(UsageError, match="workspace="):
            other.plan("r@1", files=True)


def test_files_go_into_another_directory(hf, project, tmp_path):
    before = tree(project)
    _, first = two_moments(hf, project)
    now = tree(project)
    result = hf.recover(first.id, into=tmp_path / "elsewhere")
    assert result.success, result.errors
    assert tree(tmp_path / "elsewhere") == before
    assert tree(project) == now


def test_the_undo_of_a_recovery_into_another_directory_leaves_files_alone(hf, project, tmp_path):
    _, first = two_moments(hf, project)
    now = tree(project)
    assert hf.recover(first.id, into=tmp_path / "elsewhere").success
    (tmp_path / "elsewhere" / "notes.txt").write_text("edited there\n")
    elsewhere = tree(tmp_path / "elsewhere")
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 2
    assert tree(tmp_path / "elsewhere") == elsewhere
    assert tree(project) == now


def test_the_undo_of_a_recovery_without_files_leaves_them_alone(hf, project):
    run, first = two_moments(hf, project)
    run.close()
    (project / "src" / "main.py").write_text("by hand, never captured\n")
    before = tree(project)
    assert hf.recover(first.id, files=False).success
    assert hf.undo("r", workspace=project).success
    assert hf.latest("r").section("state") == 2
    assert tree(project) == before


def test_the_undo_of_a_recovery_that_found_files_as_they_were_takes_back_what_came_after(hf, project):
    run, _ = two_moments(hf, project)
    before = tree(project)
    assert hf.recover(run.checkpoint(state=3).id, workspace=project).success
    same = run.checkpoint(state=4, files=False)
    assert hf.recover("r@3", workspace=project).success
    (project / "src" / "main.py").write_text("later\n")
    run.checkpoint(state=5)
    run.close()
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == same.section("state")
    assert tree(project) == before


def reason_of(commit):
    return commit.checkpoints[-1].envelope.reason if commit.checkpoints else ""


def test_a_store_that_is_full_at_the_last_commit_leaves_everything_as_it_was(hf, project, monkeypatch):
    """A failure half-way puts files, objects and state back, and says so."""
    notes = Notes("one")
    run, first = two_moments(hf, project)
    run.register("notes", notes)
    commits = []
    commit = type(hf.store).write

    def full(self, made):
        commits.append(reason_of(made))
        if "recovered" in reason_of(made):
            raise StoreFull("no room", hf.store.url)
        return commit(self, made)

    monkeypatch.setattr(type(hf.store), "write", full)
    before = tree(project)
    result = hf.recover(hf.plan(first.id), run=run)
    assert not result.success
    assert "no room" in result.errors[0]
    assert "put back" in result.errors[-1]
    assert tree(project) == before
    assert hf.latest("r").section("state") == 2
    assert notes.lines == ["one"]
    monkeypatch.undo()
    assert hf.recover(first.id).success
    assert hf.latest("r").section("state") == 1


def test_a_file_that_is_damaged_in_the_store_changes_nothing(hf, project, place):
    """Proves A12, X3: the damage is met while files are staged, before one is touched."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint(state=1)
    (project / "src" / "main.py").write_text("two\n")
    run.checkpoint(state=2)
    plan = hf.plan(first.id)
    execute(place, "UPDATE chunk SET data = x'00' WHERE id = ?", leaf_id(b"one\n"))
    before, picture = tree(project), contents(hf)
    result = hf.recover(plan)
    assert not result.success
    assert (tree(project), contents(hf)) == (before, picture)


def test_a_content_that_is_damaged_in_the_store_and_whole_on_disk_is_not_missed(hf, project, place):
    """Proves X3: only what would be written has to be read."""
    _, first = two_moments(hf, project)
    (project / "src" / "main.py").write_text("one\n")
    execute(place, "UPDATE chunk SET data = x'00' WHERE id = ?", leaf_id(b"one\n"))
    plan = hf.plan(first.id, workspace=project)
    assert plan.checkpoint == first.id
    assert hf.recover(plan).success
    assert (project / "notes.txt").read_text() == "a\nb\nc\n"
    assert hf.verify().sound  # the file that is whole was captured again, and fixed what was stored of it


def test_a_content_that_would_be_written_and_is_damaged_sends_the_plan_further_back(hf, project, place):
    """Proves X3."""
    run, first = two_moments(hf, project)
    (project / "src" / "new.py").write_text("newer\n")
    run.checkpoint(state=3)
    (project / "src" / "new.py").write_text("newest\n")
    execute(place, "UPDATE chunk SET data = x'00' WHERE id IN (?, ?)", leaf_id(b"newer\n"), leaf_id(b"new\n"))
    plan = hf.plan("r", workspace=project, decisions=Decisions(edits="take", conflicts="take"))
    assert plan.checkpoint == first.id
    assert len(plan.damage) == 2
    with pytest.raises(ChunkCorrupt):
        hf.plan("r@3", workspace=project, decisions=Decisions(edits="take"))


@pytest.mark.parametrize("way", ["record", "workspace"])
def test_with_the_newest_checkpoint_damaged_its_files_go_back_with_the_state(hf, project, place, way):
    """Proves X3, X1: what is on disk is kept in the undo point."""
    before = tree(project)
    two_moments(hf, project)
    now = tree(project)
    head = hf.latest("r")
    damage_record(place, head.id) if way == "record" else damage_section(place, head, "workspace")
    hf.close()
    with holdfast.open(place) as other:
        plan = other.plan("r", workspace=project)
        assert plan.checkpoint != head.id
        result = other.recover(plan)
        assert result.success, result.errors
        assert tree(project) == before | {"src/new.py": now["src/new.py"]}  # never known to a sound checkpoint
        assert other.latest("r").section("state") == 1
        assert other.undo("r", workspace=project).success
        assert tree(project) == now


def test_an_interrupted_restore_blocks_a_plan_until_it_is_brought_to_an_end(hf, project):
    _, first = two_moments(hf, project)
    (project / ".holdfast" / "restore-0123").mkdir(parents=True)
    plan = hf.plan(first.id, workspace=project)
    assert "interrupted" in plan.blockers[0]
    assert "hf.run" in plan.suggestions[-1]


def two_branches(hf, project):
    """Return git, and a first checkpoint on branch main; the second is on branch work, with a commit of its own."""

    def git(*arguments):
        named = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(named, cwd=project, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    run = hf.run("r", workspace=project)
    first = run.checkpoint(state=1)
    git("checkout", "-qb", "work")
    (project / "src" / "main.py").write_text("two\n")
    git("commit", "-qam", "second")
    run.checkpoint(state=2)
    run.close()
    return git, first


def test_the_git_position_comes_back_when_asked(hf, project):
    """Proves A6."""
    git, first = two_branches(hf, project)
    plan = hf.plan(first.id, workspace=project, git=True)
    assert plan.git
    assert hf.recover(plan).success
    assert git("branch", "--show-current").strip() == "main"
    assert git("status", "--porcelain") == ""
    assert hf.latest("r").git.branch == "main"


def test_an_undo_puts_the_git_position_back_and_once_more_goes_forward(hf, project):
    git, first = two_branches(hf, project)
    assert hf.recover(first.id, workspace=project, git=True).success
    for branch, text in (("work", "two\n"), ("main", "one\n")):
        assert hf.undo("r").success
        assert git("branch", "--show-current").strip() == branch
        assert git("status", "--porcelain") == ""
        assert (project / "src" / "main.py").read_text() == text


def test_an_undo_whose_git_has_to_stay_takes_state_and_files_back_and_warns(hf, project):
    git, first = two_branches(hf, project)
    assert hf.recover(first.id, workspace=project, git=True).success
    (project / "staged.txt").write_text("in no checkpoint\n")
    git("add", "staged.txt")
    result = hf.undo("r")
    assert result.success, result.errors
    assert any("git stays where it is" in warning for warning in result.warnings)
    assert git("branch", "--show-current").strip() == "main"
    assert (project / "src" / "main.py").read_text() == "two\n"
    assert hf.latest("r").section("state") == 2


def test_a_kill_between_files_and_git_is_finished_with_git_when_the_run_is_opened(hf, project, place):
    git, first = two_branches(hf, project)

    def work(report):
        git_create.checkout = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        with holdfast.open(place) as child:
            child.recover(first.id, workspace=project, git=True)

    assert Child(work).join().signal == signal.SIGKILL
    assert git("branch", "--show-current").strip() == "work"
    with holdfast.open(place) as other:
        assert other.run("r", workspace=project).head.section("state") == 1
    assert git("branch", "--show-current").strip() == "main"
    assert git("status", "--porcelain") == ""


@pytest.fixture
def killed_before_git(hf, project, place):
    """A recovery that was killed after its files came back and before git did, with git locked by somebody since."""
    git, first = two_branches(hf, project)

    def work(report):
        git_create.checkout = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        with holdfast.open(place) as child:
            child.recover(first.id, workspace=project, git=True)

    assert Child(work).join().signal == signal.SIGKILL
    lock = project / ".git" / "index.lock"
    lock.write_bytes(b"")
    return git, first, lock


def test_a_git_that_cannot_be_put_back_after_a_kill_is_in_the_result(killed_before_git, project, place):
    """Proves X1: finished without git is no success, and says what was done: state and files, undo included."""
    git, first, lock = killed_before_git
    with holdfast.open(place) as other:
        result = other.recover(first.id, workspace=project, git=True)
        assert not result.success
        assert "index.lock" in result.errors[0]
        assert result.checkpoint.section("state") == 1
        assert (project / "src" / "main.py").read_text() == "one\n"
        assert f"recovered from {first.id}, but not all of it" in str(result)
        lock.unlink()
        assert other.undo("r").success
    assert git("branch", "--show-current").strip() == "work"
    assert (project / "src" / "main.py").read_text() == "two\n"


def test_opening_a_run_whose_git_cannot_be_put_back_after_a_kill_says_so_once(killed_before_git, project, place):
    _, first, lock = killed_before_git
    with holdfast.open(place) as other:
        with pytest.raises(RecoveryIncomplete, match=r"index\.lock") as told:
            other.run("r", workspace=project)
        assert told.value.checkpoint == first.id
        lock.unlink()
        head = other.run("r", workspace=project).head
        assert head.section("state") == 1
        assert any("index.lock" in warning for warning in head.section("recovery")["warnings"])


@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_resume_does_not_end_as_done_where_git_could_not_be_put_back(
    killed_before_git, project, place, capsys, json_flag
):
    _, first, _ = killed_before_git
    words = ["--store", str(place), *json_flag, "resume", first.id, "--git", "--workspace", str(project), "--no-run"]
    assert main(words) == RecoveryIncomplete.exit_code
    said = capsys.readouterr()
    if json_flag:
        document = json.loads(said.out)
        assert document["result"]["success"] is False
        assert "index.lock" in document["result"]["errors"][0]
    else:
        assert "index.lock" in said.err
        assert "but not all of it" in said.out


def test_a_commit_that_fails_after_git_moved_puts_git_back_too(hf, project, monkeypatch):
    git, first = two_branches(hf, project)
    commit = type(hf.store).write

    def full(self, made):
        if "recovered" in reason_of(made):
            raise StoreFull("no room", hf.store.url)
        return commit(self, made)

    monkeypatch.setattr(type(hf.store), "write", full)
    result = hf.recover(first.id, workspace=project, git=True)
    assert not result.success
    assert "everything was put back" in result.errors[-1]
    assert git("branch", "--show-current").strip() == "work"
    assert git("status", "--porcelain") == ""
    assert (project / "src" / "main.py").read_text() == "two\n"


def test_files_that_are_no_text_survive_the_plans_json(hf, project):
    name = os.fsdecode(b"caf\xe9.txt")
    (project / name).write_text("latin\n")
    run = hf.run("r", workspace=project)
    first = run.checkpoint(state=1)
    (project / name).write_text("changed\n")
    run.checkpoint(state=2)
    plan = hf.plan(first.id)
    again = RecoveryPlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest
    assert hf.recover(again).success
    assert (project / name).read_text() == "latin\n"


def test_on_another_machine_the_files_come_into_an_empty_directory(hf, project, place, tmp_path):
    """Proves X1: nothing was deleted there, there was nothing yet."""
    two_moments(hf, project)
    now = tree(project)
    hf.close()
    (tmp_path / "elsewhere").mkdir()
    with holdfast.open(place) as other:
        result = other.recover("r", workspace=tmp_path / "elsewhere")
        assert result.success, result.errors
        assert tree(tmp_path / "elsewhere") == now
        run = other.run("r", workspace=tmp_path / "elsewhere")
        assert run.workspace.changes() == []
        assert run.checkpoint(state=3).section("state") == 3


def test_what_moved_outside_the_run_is_found_and_says_what_follows(hf, project):
    """Proves C15."""
    two_moments(hf, project)
    (project / "src" / "main.py").write_text("by others\n")
    plan = hf.plan("r", workspace=project)
    assert [(found.kind, found.verdict) for found in plan.findings] == [("files-changed", "warn")]
    assert plan.verdict == "warn"
    assert "main.py" in str(plan)
    assert hf.plan("r", workspace=project, freshness=False).findings == ()
    mild = Freshness(verdicts={"files-changed": "resume"})
    assert hf.plan("r", workspace=project, freshness=mild).verdict == "resume"


def test_a_branch_that_is_gone_says_to_start_fresh(hf, project):
    """Proves C15."""

    def git(*arguments):
        named = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        subprocess.run(named, cwd=project, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    git("checkout", "-qb", "work")
    hf.run("r", workspace=project).checkpoint(state=1)
    git("checkout", "-q", "main")
    git("branch", "-D", "work")
    plan = hf.plan("r", workspace=project)
    assert plan.verdict == "fresh"
    assert any("work" in found.detail for found in plan.findings)


def test_a_recovery_that_cannot_be_finished_any_more_does_not_keep_the_run_from_being_opened(hf, project, place):
    _, first = two_moments(hf, project)
    plan = hf.plan(first.id)
    run = hf.run("r", workspace=project)
    undo = run.checkpoint(trigger="recovery", sections={INTENT: intent_value(plan.to_json())})
    assert hf.recover(first.id, workspace=project).success  # another plan; the files are as the first one wanted them
    hf.delete(*(one.id for one in hf.checkpoints("r") if one.seq > undo.seq))
    execute(place, "UPDATE checkpoint SET value = x'00' WHERE id = ?", first.id)
    hf.close()
    with holdfast.open(place) as other:
        assert other.run("r", workspace=project).checkpoint(state=5).section("state") == 5


def test_an_answer_that_was_lost_on_the_way_is_a_recovery_that_was_done(hf, project, monkeypatch):
    before = tree(project)
    run, first = two_moments(hf, project)
    commit = type(hf.store).write

    def lost(self, made):
        done = commit(self, made)
        if "recovered" in reason_of(made):
            raise StoreUnavailable("the line went dead", hf.store.url)
        return done

    monkeypatch.setattr(type(hf.store), "write", lost)
    result = hf.recover(hf.plan(first.id), run=run)
    assert result.success, result.errors
    assert (hf.latest("r").section("state"), tree(project)) == (1, before)
    assert run.head.id == hf.latest("r").id


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_store_that_is_gone_at_the_last_commit_leaves_it_to_the_next_opening(hf, project, monkeypatch, is_stored):
    """State and files are never of two moments, also where nobody can say whether the commit was stored."""
    before = tree(project)
    run, first = two_moments(hf, project)
    commit, look = type(hf.store).write, type(hf.store).run
    gone = []

    def lost(self, made):
        if "recovered" not in reason_of(made):
            return commit(self, made)
        if is_stored:
            commit(self, made)
        gone.append(True)
        raise StoreUnavailable("the line went dead", hf.store.url)

    def nothing(self, name):
        if gone:
            raise StoreUnavailable("the line is dead", hf.store.url)
        return look(self, name)

    monkeypatch.setattr(type(hf.store), "write", lost)
    monkeypatch.setattr(type(hf.store), "run", nothing)
    result = hf.recover(hf.plan(first.id), run=run)
    assert not result.success
    assert "not known" in result.errors[-1]
    monkeypatch.undo()
    run.close()
    hf.run("r", workspace=project).close()
    assert (hf.latest("r").section("state"), tree(project)) == (1, before)


def test_a_disk_that_fails_from_any_moment_on_leaves_state_and_files_of_one_moment(tmp_path, monkeypatch):
    """Every file operation of the restore from the nth on fails, also those that would undo it; then the disk heals."""
    seen = 0
    for number in range(1, 200):
        folder = tmp_path / str(number)
        project = folder / "project"
        (project / "src").mkdir(parents=True)
        (project / "src" / "main.py").write_text("one\n")
        (project / "notes.txt").write_text("a\n")
        before = tree(project)
        with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
            _, first = two_moments(hf, project)
            after = tree(project)
            plan = hf.plan(first.id)
            calls = itertools.count(1)

            def failing(call, calls=calls, number=number):
                def maybe(*args, **named):
                    if next(calls) >= number:
                        raise OSError(errno.EIO, "failing")
                    return call(*args, **named)

                return maybe

            with monkeypatch.context() as broken:
                for name in [name for name in vars(FileOps) if not name.startswith("_")]:
                    broken.setattr(FileOps, name, failing(getattr(FileOps, name)))
                result = hf.recover(plan)
            if result.success:
                seen = number
                break
        with Holdfast(SQLiteStore(folder / "x.db", durability="process")) as hf:
            hf.run("r", workspace=project).close()
            found = (hf.latest("r").section("state"), tree(project))
            assert found in ((1, before), (2, after)), f"at {number}: {result.errors}"
            assert hf.recover(first.id, workspace=project).success
            assert (hf.latest("r").section("state"), tree(project)) == (1, before)
    assert seen > 15


def test_a_recovery_that_writes_no_file_reads_the_tree_once(hf, project, monkeypatch):
    """Proves C12 at its cost: one scan, for the plan."""
    with hf.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    (project / "mine.txt").write_text("a person's\n")
    scans = []
    scan = Workspace._scan
    monkeypatch.setattr(Workspace, "_scan", lambda self, *rest: scans.append(1) or scan(self, *rest))
    assert hf.recover("r", workspace=project).success
    assert len(scans) == 1


@pytest.fixture
def opened_directories():
    """Count how often each directory is opened, whoever does it."""
    counts: Counter[str] = Counter()
    heard = [True]

    def hear(event, given):
        if heard[0] and event == "open" and isinstance(given[2], int) and given[2] & os.O_DIRECTORY:
            counts[os.fsdecode(given[0]) if isinstance(given[0], (str, bytes)) else ""] += 1

    sys.addaudithook(hear)  # there is no way to take one away
    yield counts
    heard[0] = False


def many_directories(root):
    for number in range(30):
        folder = root / f"folder-{number}"
        folder.mkdir()
        (folder / "file.txt").write_text(f"{number}\n")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_recovery_that_writes_files_looks_at_each_directory_once(hf, project, opened_directories, is_known):
    """Proves issue 15: one scan of the tree for a recovery, with a cache of what was there and without one."""
    many_directories(project)
    run = hf.run("r", workspace=project)
    run.checkpoint(state=1)
    (project / "folder-7/file.txt").write_text("the run's\n")
    run.checkpoint(state=2)
    run.close()
    (project / "folder-9/mine.txt").write_text("a person's\n")
    if not is_known:
        for cache in [*hf.store.folder.rglob("*.cache"), *project.rglob("*.cache")]:
            cache.unlink()
    opened_directories.clear()
    result = hf.recover("r@1", workspace=project)
    assert result.success
    assert result.files.replaced == 1
    looks = {name: count for name, count in opened_directories.items() if name.startswith("folder-")}
    assert len(looks) == 30
    assert {name for name, count in looks.items() if count > 1} <= {"folder-7", "folder-9"}
    head = hf.latest("r")
    assert head.read("folder-7/file.txt") == b"7\n"
    assert head.read("folder-9/mine.txt") == b"a person's\n"
    with hf.run("r", workspace=project) as again:
        assert again.workspace.changes() == []


def test_a_recovery_asks_its_store_few_times(hf, project):
    """Proves issue 15: it was 128 look-ups for one file; 15 of these are of compaction, when the run is closed."""
    run = hf.run("r", workspace=project)
    run.checkpoint(state=1)
    (project / "src" / "main.py").write_text("the run's\n")
    run.checkpoint(state=2)
    run.close()
    with counted(hf.store.medium) as calls:
        assert hf.recover("r@1", workspace=project).success
    assert calls.count <= 90


def test_what_changes_between_a_plan_and_its_recovery_is_not_lost(hf, project):
    """Proves X4: a plan carried out later in the same process still refuses a file that moved, and keeps the others."""
    many_directories(project)
    run = hf.run("r", workspace=project)
    run.checkpoint(state=1)
    (project / "folder-7/file.txt").write_text("the run's\n")
    run.checkpoint(state=2)
    run.close()
    plan = hf.plan("r@1", workspace=project)
    (project / "folder-7/file.txt").write_text("a person's\n")
    with pytest.raises(PlanOutdated):
        hf.recover(plan)
    (project / "folder-7/file.txt").write_text("the run's\n")
    plan = hf.plan("r@1", workspace=project)
    (project / "folder-3/file.txt").write_text("a person's, meanwhile\n")
    (project / "folder-4/new.txt").write_text("a person's, meanwhile\n")
    assert hf.recover(plan).success
    assert (project / "folder-3/file.txt").read_text() == (project / "folder-4/new.txt").read_text()
    with hf.run("r", workspace=project) as again:
        assert again.head.read("folder-3/file.txt") == b"a person's, meanwhile\n"
        assert again.head.read("folder-4/new.txt") == b"a person's, meanwhile\n"
