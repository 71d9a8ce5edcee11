"""The engine's door, line by line as the issue shows it, over both stores."""

import gc
import logging
import re
import threading
import warnings
from datetime import UTC, datetime, timedelta

import apsw
import pytest

import holdfast
from holdfast import (
    CheckpointCorrupt,
    ChunkCorrupt,
    DamageWarning,
    HeadMoved,
    Holdfast,
    IntegrityError,
    InvalidId,
    LimitExceeded,
    NotFound,
    SectionInvalid,
    StoreUnavailable,
    Trigger,
    TypeRegistry,
    UnknownType,
    UsageError,
    ValueRefused,
)
from holdfast.model.sections import Agent, Workflow
from holdfast.store.codec import RowCodec
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.tables import LEASE, LeaseRow
from holdfast.testing.strategies import same
from property.things import Colour, Note

START = 1_900_000_000.0


class Clock:
    """A clock that goes forward a minute each time it is read, or wherever a test sends it."""

    def __init__(self):
        self.now = START

    def __call__(self):
        self.now += 60
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "x.db", durability="process")
    yield store
    store.close()


@pytest.fixture
def hf(store):
    return Holdfast(store, clock=Clock())


def test_the_example_of_the_issue_works(tmp_path, monkeypatch):
    """Proves A10, D5, E2."""
    monkeypatch.chdir(tmp_path)
    hf = holdfast.open()
    assert (tmp_path / ".holdfast" / "holdfast.db").exists()
    run = hf.run("issue-42")
    state = {"messages": ["hello"], "context": {"goal": "refactor"}}
    cp = run.checkpoint(trigger="manual", reason="before refactor", state=state)
    assert [found.id for found in hf.checkpoints("issue-42", limit=50)] == [cp.id]
    assert hf.get(cp.id).section("state") == state
    assert hf.latest("issue-42").id == cp.id
    assert [found.id for found in hf.runs()] == ["issue-42"]
    assert hf.verify().sound
    assert hf.stats().checkpoints == 1
    hf.delete(cp.id)
    with pytest.raises(NotFound):
        hf.get(cp.id)
    hf.delete_run("issue-42")
    assert hf.runs() == []
    hf.close()


def test_a_checkpoint_tells_all_about_itself(hf):
    """Proves A7."""
    run = hf.run("r")
    first = run.checkpoint(state="one")
    cp = run.checkpoint(trigger=Trigger.BEFORE_DESTRUCTIVE, reason="push", label="here", pinned=True, state="two")
    assert (cp.run, cp.seq, cp.parent, cp.trigger, cp.reason) == ("r", 2, first.id, "before_destructive", "push")
    assert (cp.label, cp.pinned, cp.status, cp.sections, cp.saved) == ("here", True, "valid", ("state",), True)
    assert cp.created_at == datetime.fromtimestamp(START + 120, UTC)
    assert cp.size_bytes == 4
    assert cp.stored_bytes > 0
    assert re.fullmatch("[0-9a-f]{64}", cp.checksum)
    assert cp.record.envelope.parent_checksum.hex() == first.checksum
    assert cp.record.envelope.program_version == holdfast.__version__
    assert cp.record.envelope.codec == "zstd"
    assert "r@2" in repr(cp)
    assert first.parent is None


def test_a_section_that_is_not_given_is_carried_over_for_nothing(hf):
    """Proves X2."""
    run = hf.run("r")
    run.checkpoint(state={"big": ["x" * 1000] * 200}, sections={"mine": {1, 2}})
    cp = run.checkpoint(workflow={"current_state": "BUILD"})
    assert set(cp.sections) == {"state", "mine", "workflow"}
    assert same(cp.section("mine"), {1, 2})
    assert cp.stored_bytes < 200
    empty = run.checkpoint()
    assert (empty.stored_bytes, set(empty.sections)) == (0, set(cp.sections))


def test_a_dropped_section_is_gone_from_then_on(hf):
    run = hf.run("r")
    run.checkpoint(state=1, sections={"mine": 2})
    assert run.checkpoint(drop=["mine", "never-was"]).sections == ("state",)
    assert run.checkpoint().sections == ("state",)
    with pytest.raises(NotFound, match="mine"):
        run.head.section("mine")


@pytest.mark.parametrize(
    "arguments", [{"drop": "state"}, {"drop": ["state"], "state": 1}, {"drop": ["../x"]}, {"drop": [5]}]
)
def test_a_senseless_drop_is_refused(hf, arguments):
    with pytest.raises(UsageError):
        hf.run("r").checkpoint(**arguments)
    assert not hf.has("r")


def test_a_value_of_its_own_comes_out_each_time(hf):
    """Proves D9."""
    cp = hf.run("r").checkpoint(state={"list": [1]})
    cp.section("state")["list"].append(2)
    assert cp.section("state") == {"list": [1]}


def test_what_is_saved_is_what_was_given_at_that_moment(hf):
    state = {"list": [1]}
    cp = hf.run("r").checkpoint(state=state)
    state["list"].append(2)
    assert cp.section("state") == {"list": [1]}


def test_typed_sections_come_back_as_their_types(hf):
    """Proves A4."""
    run = hf.run("r")
    run.checkpoint(workflow={"current_state": "BUILD"}, agents=[{"id": "a", "status": "running", "output": {1, 2}}])
    cp = hf.latest("r")
    assert cp.section("workflow") == Workflow(current_state="BUILD")
    assert cp.section("agents") == [Agent(id="a", status="running", output={1, 2})]
    assert same(cp.section("agents")[0].output, {1, 2})


def test_a_refused_value_names_its_path_and_leaves_nothing(hf):
    """Proves D11."""
    run = hf.run("r")
    run.checkpoint(state={"n": 1})
    before = hf.stats()
    for arguments, error, words in (
        ({"state": {"a": [0, {"x": threading.Lock()}]}}, ValueRefused, "state.a[1].x"),
        ({"agents": [{"id": "a", "status": "running", "output": object()}]}, ValueRefused, "agents[0].output"),
        ({"workflow": {"current_state": 5}}, SectionInvalid, "$.current_state"),
        ({"workflow": {"current_state": "\ud800"}}, UsageError, "surrogates"),
        ({"budget": {"spending": {"t": {"used": 1 << 70}}}}, UsageError, "cannot be stored"),
        ({"reason": 5}, UsageError, "reason"),
        ({"label": 5}, UsageError, "label"),
        ({"trigger": "whenever"}, UsageError, "unknown trigger 'whenever'"),
        ({"stat": 1}, UsageError, "did you mean 'state'"),
        ({"sections": {"../x": 1}}, InvalidId, "../x"),
    ):
        with pytest.raises(error, match=re.escape(words)):
            run.checkpoint(**arguments)
    assert hf.stats() == before
    assert run.checkpoint(state={"n": 2}).seq == 2
    assert hf.verify().sound


@pytest.mark.parametrize("run", ["../x", "a\0b", "", "x" * 4096, "-rf", "a%", 5, None])
def test_a_bad_run_id_is_refused_at_every_door(hf, run):
    """Proves D11."""
    calls = [hf.run, hf.has, hf.checkpoints, hf.latest, hf.delete_run]
    for call in calls if run is None else [*calls, lambda run: hf.prune(run, keep=1)]:  # None is every run
        with pytest.raises(InvalidId):
            call(run)


@pytest.mark.parametrize("checkpoint", ["../x", "cp_", "'; DROP TABLE run; --", 5, None])
def test_a_bad_checkpoint_id_is_refused_at_every_door(hf, checkpoint):
    """Proves D11."""
    for call in (hf.get, hf.delete, lambda checkpoint: hf.mark(checkpoint, pinned=True)):
        with pytest.raises(InvalidId):
            call(checkpoint)


def test_what_is_not_there_is_not_found(hf):
    unknown = "cp_" + "0" * 32
    for call in (
        lambda: hf.latest("r", required=True),
        lambda: hf.latest("r", required=True, sound=True),
        lambda: hf.get(unknown),
        lambda: hf.delete(unknown),
        lambda: hf.mark(unknown, pinned=True),
    ):
        with pytest.raises(NotFound):
            call()
    assert hf.has("r") is False
    assert hf.latest("r") is hf.latest("r", sound=True) is hf.run("r").head is None
    assert hf.checkpoints("r") == hf.prune("r", keep=1) == []
    hf.delete_run("r")


def test_newest_first_is_by_number_though_the_clock_jumps_back(hf):
    """Proves E2."""
    run = hf.run("r")
    for _ in range(4):
        hf.internals.clock.now -= 86_400
        run.checkpoint(state=1)
    assert [cp.seq for cp in hf.checkpoints("r")] == [4, 3, 2, 1]
    assert [cp.seq for cp in hf.checkpoints("r", limit=2, before_seq=4)] == [3, 2]
    assert hf.latest("r").seq == 4


@pytest.mark.parametrize("limit", [-1, "5", 1.5])
def test_a_senseless_limit_is_refused(hf, limit):
    hf.run("r").checkpoint()
    with pytest.raises(UsageError, match="limit"):
        hf.checkpoints("r", limit=limit)
    with pytest.raises(UsageError, match="limit"):
        hf.runs(limit=limit)


def test_of_two_writers_the_slower_gets_head_moved_and_goes_on_after_a_reload(hf):
    """Proves D10."""
    first, second = hf.run("r"), hf.run("r")
    won = first.checkpoint(state="first")
    with pytest.raises(HeadMoved) as caught:
        second.checkpoint(state="second")
    assert caught.value.actual == won.id
    second.recorder.reload()
    assert second.head.id == won.id
    assert second.checkpoint(state="second").parent == won.id
    assert [cp.section("state") for cp in hf.checkpoints("r")] == ["second", "first"]


def test_threads_that_share_a_run_take_turns(hf):
    """Proves D10."""
    run, failures = hf.run("r"), []

    def work(name):
        try:
            for step in range(5):
                run.checkpoint(sections={name: step})
        except holdfast.HoldfastError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [cp.seq for cp in hf.checkpoints("r")] == list(range(20, 0, -1))
    latest = hf.latest("r")
    assert {name: latest.section(name) for name in latest.sections} == {"t0": 4, "t1": 4, "t2": 4, "t3": 4}


def test_marks_change_and_the_record_does_not(hf):
    """Proves A2."""
    cp = hf.run("r").checkpoint(state=1, label="first")
    marked = hf.mark(cp.id, status="archived", pinned=True)
    assert (marked.status, marked.pinned, marked.label) == ("archived", True, "first")
    assert hf.mark(cp.id, label="second").label == "second"
    assert hf.mark(cp.id, label=None).label is None
    assert hf.mark(cp.id, pinned=False).pinned is False
    assert marked.checksum == cp.checksum
    for nonsense in ({"status": "lost"}, {"pinned": "yes"}, {"label": 5}):
        with pytest.raises(UsageError):
            hf.mark(cp.id, **nonsense)
    assert hf.get(cp.id).status == "archived"


def test_marks_set_at_the_same_moment_by_two_do_not_undo_each_other(hf):
    """Proves D10."""
    cp = hf.run("r").checkpoint(state=1)
    start = threading.Barrier(2)

    def write(**marks):
        start.wait()
        for _ in range(20):
            hf.mark(cp.id, **marks)

    threads = [threading.Thread(target=write, kwargs=marks) for marks in ({"pinned": True}, {"label": "good"})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (hf.get(cp.id).pinned, hf.get(cp.id).label) == (True, "good")


def test_deleting_gives_back_the_chunks_and_leaves_the_rest_sound(hf):
    """Proves D5, E2."""
    run = hf.run("r")
    doomed = [run.checkpoint(state={"n": n, "noise": [f"{n} {i}" * 50 for i in range(300)]}).id for n in range(3)]
    kept = run.checkpoint(state="small")
    before = hf.stats().chunks
    hf.delete(*doomed, doomed[0])
    assert hf.stats().chunks < before
    assert [cp.id for cp in hf.checkpoints("r")] == [kept.id]
    assert hf.verify().sound
    assert run.checkpoint(state="more").seq == 5


def test_when_the_head_is_deleted_an_open_run_goes_on_from_the_one_before(hf):
    run = hf.run("r")
    first = run.checkpoint(state=[1])
    second = run.checkpoint(state=[1, 2])
    hf.delete(second.id)
    assert run.head.id == first.id
    third = run.checkpoint(sections={"more": 1})
    assert (third.parent, third.seq, third.section("state")) == (first.id, 3, [1])
    hf.delete(first.id, third.id)
    assert run.head is None
    assert hf.has("r") is False
    assert hf.latest("r") is None
    with pytest.raises(NotFound):
        hf.latest("r", required=True)
    assert run.checkpoint(state=2).seq == 4
    assert hf.verify().sound


def test_deleting_a_run_leaves_others_and_the_run_can_begin_again(hf):
    """Proves E2."""
    run, other = hf.run("r"), hf.run("other")
    shared = {"log": ["the same"] * 500}
    run.checkpoint(state=shared)
    other.checkpoint(state=shared)
    hf.delete_run("r")
    assert hf.latest("other").section("state") == shared
    assert run.head is None
    assert run.checkpoint(state=1).seq == 1
    assert hf.verify().sound


def test_pruning_by_count_shows_first_and_keeps_head_and_pins(hf):
    """Proves D5, D6, E2."""
    run = hf.run("r")
    made = [run.checkpoint(state=n, pinned=n == 1) for n in range(6)]
    doomed = hf.prune("r", keep=3, dry_run=True)
    assert set(doomed) == {made[0].id, made[2].id}
    assert len(hf.checkpoints("r")) == 6
    assert set(hf.prune("r", keep=3)) == set(doomed)
    assert [cp.seq for cp in hf.checkpoints("r")] == [6, 5, 4, 2]
    assert hf.prune("r", keep=3) == []
    assert hf.verify().sound


def test_pruning_by_age_goes_by_the_clock(hf):
    """Proves E2."""
    run = hf.run("r")
    old = run.checkpoint(state=1)
    hf.internals.clock.now += 8 * 86_400
    run.checkpoint(state=2)
    assert hf.prune("r", older_than=timedelta(days=7)) == [old.id]
    hf.internals.clock.now += 100 * 86_400
    assert hf.prune("r", older_than=timedelta(days=7)) == []
    assert hf.prune("r", dry_run=True) == []


def test_recovery_information_follows_the_carried_over_sections(hf):
    """Proves A8, A11."""
    hf.run("r").checkpoint(
        workflow={"current_state": "BUILD"},
        agents=[{"id": "coder", "status": "running"}],
        budget={"spending": {"tokens": {"used": 5}}},
    )
    cp = hf.run("r").checkpoint(state=1)
    assert (cp.recovery.can_resume, cp.recovery.resume_agent, cp.recovery.resume_state) == (True, "coder", "BUILD")
    assert (cp.summary.state, cp.summary.agents, cp.summary.budget_used) == ("BUILD", {"running": 1}, {"tokens": 5})
    dead = hf.run("r").checkpoint(workflow={"current_state": "ABORTED"})
    assert (dead.recovery.can_resume, dead.recovery.blockers) == (False, ("the workflow is in state ABORTED",))
    assert hf.run("r").checkpoint(drop=["workflow", "agents"]).recovery.can_resume


def test_a_disabled_holdfast_saves_nothing_and_says_so(store, caplog):
    """Proves D5."""
    hf = Holdfast(store, enabled=False)
    with caplog.at_level(logging.INFO, logger="holdfast"):
        cp = hf.run("r").checkpoint(state=1)
    assert (bool(cp), cp.saved, cp.id, cp.seq, cp.run) == (False, False, "", 0, "r")
    assert "disabled" in repr(cp)
    assert "disabled" in caplog.text
    for look in (lambda: cp.section("state"), lambda: cp.record, lambda: cp.nonsense):
        with pytest.raises(UsageError, match="disabled"):
            look()
    assert not hf.has("r")
    with pytest.raises(UsageError):
        hf.run("r").checkpoint(stat=1)


def test_a_disabled_holdfast_still_reads_and_deletes(store):
    """Proves D5."""
    cp = Holdfast(store).run("r").checkpoint(state=1)
    hf = Holdfast(store, enabled=False)
    assert hf.latest("r").section("state") == 1
    hf.delete(cp.id)
    assert not hf.has("r")


def test_a_closed_holdfast_refuses_and_closing_twice_is_fine(store):
    with Holdfast(store) as hf:
        run = hf.run("r")
        cp = run.checkpoint(state=1)
    hf.close()
    for call in (hf.runs, lambda: hf.run("r"), lambda: run.checkpoint(state=2), lambda: cp.section("state"), hf.stats):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_a_section_over_the_limit_is_refused_by_number(store):
    """Proves D11."""
    cp = Holdfast(store).run("r").checkpoint(state="x" * 5000)
    small = Holdfast(store, max_section_bytes=1000)
    with pytest.raises(LimitExceeded) as caught:
        small.run("r").checkpoint(state="x" * 5000)
    assert (caught.value.size, caught.value.limit) == (5003, 1000)
    with pytest.raises(LimitExceeded):
        small.get(cp.id).section("state")
    assert small.run("r").checkpoint(state="fits").seq == 2


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip", "lz4"])
def test_every_compression_reads_what_every_other_wrote(store, compression):
    """Proves A7."""
    state = {"log": [f"some words and some words, {n}" for n in range(2000)]}
    cp = Holdfast(store, compression=compression).run("r").checkpoint(state=state)
    assert cp.record.envelope.codec == compression
    for other in ("none", "zstd", "gzip", "lz4"):
        assert Holdfast(store, compression=other).get(cp.id).section("state") == state
    assert (cp.stored_bytes < 30_000) is (compression != "none")


def test_registered_types_come_back_and_unregistered_ones_are_named(store):
    hf = Holdfast(store, types=[Note, Colour])
    state = [Note("t", Colour.RED)]
    cp = hf.run("r").checkpoint(state=state)
    assert same(cp.section("state"), state)
    assert same(Holdfast(store, types=TypeRegistry([Colour, Note])).get(cp.id).section("state"), state)
    with pytest.raises(UnknownType) as caught:
        Holdfast(store).get(cp.id).section("state")
    assert "section state" in str(caught.value)
    assert "property.things." in str(caught.value)


def test_what_a_first_writer_stored_a_second_builds_on(store):
    """Proves X2."""
    state = {"log": [f"{n}" * 300 for n in range(1000)]}
    Holdfast(store).run("r").checkpoint(state=state)
    before = store.stats().stored_bytes
    state["log"].append("more")
    Holdfast(store).run("r").checkpoint(state=state)
    assert store.stats().stored_bytes - before < 20_000


def test_runs_that_nobody_uses_any_more_are_forgotten(hf):
    for _ in range(10):
        hf.run("r")
    gc.collect()
    assert len(hf.internals.open_runs) == 0


@pytest.fixture
def damaged(tmp_path):
    """Three checkpoints of one run in a file, and a way to change bytes behind the store's back."""
    hf = holdfast.open(tmp_path, durability="process")
    run = hf.run("r")
    made = [run.checkpoint(state=f"state {n} " * 20, workflow={"current_state": f"S{n}"}) for n in range(3)]

    def behind(text, *values):
        connection = apsw.Connection(str(tmp_path / "holdfast.db"))
        connection.execute(text, values)
        assert connection.changes() == 1
        connection.close()

    yield hf, made, behind
    hf.close()


def break_section(behind, cp, name):
    root = next(section.root for section in cp.record.envelope.sections if section.name == name)
    behind("UPDATE chunk SET data = CAST(data || x'00' AS BLOB) WHERE id = ?", root)
    return root.hex()


def test_a_damaged_section_is_named_with_its_checkpoint_and_the_others_stay_readable(damaged):
    """Proves X3."""
    hf, made, behind = damaged
    chunk = break_section(behind, made[2], "state")
    with pytest.raises(ChunkCorrupt) as caught:
        hf.latest("r").section("state")
    assert (caught.value.checkpoint, caught.value.section, caught.value.chunk) == (made[2].id, "state", chunk)
    assert hf.latest("r").section("workflow").current_state == "S2"
    assert hf.get(made[1].id).section("state").startswith("state 1")


def test_the_newest_sound_checkpoint_is_found_with_what_was_skipped(damaged):
    """Proves X3."""
    hf, made, behind = damaged
    break_section(behind, made[2], "state")
    found = hf.latest("r", sound=True)
    assert found.id == made[1].id
    assert [(error.checkpoint, error.section) for error in found.skipped] == [(made[2].id, "state")]
    behind("UPDATE checkpoint SET value = CAST(value || x'00' AS BLOB) WHERE id = ?", made[1].id)
    found = hf.latest("r", sound=True)
    assert found.id == made[0].id
    assert [error.checkpoint for error in found.skipped] == [made[2].id, made[1].id]
    break_section(behind, made[0], "workflow")
    with pytest.raises(IntegrityError, match="no sound checkpoint left"):
        hf.latest("r", sound=True)


def test_a_list_with_damage_in_it_warns_and_says_which(damaged):
    """Proves X3."""
    hf, made, behind = damaged
    behind("UPDATE checkpoint SET seal = CAST(seal || x'00' AS BLOB) WHERE id = ?", made[1].id)
    with pytest.warns(DamageWarning, match=made[1].id):
        listing = hf.checkpoints("r")
    assert [cp.id for cp in listing] == [made[2].id, made[0].id]
    assert [error.checkpoint for error in listing.damaged] == [made[1].id]


def test_verify_names_every_fault(damaged):
    """Proves X3, A10."""
    hf, made, behind = damaged
    break_section(behind, made[0], "state")
    behind("UPDATE checkpoint SET value = CAST(value || x'00' AS BLOB) WHERE id = ?", made[1].id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        report = hf.verify()
    assert not report.sound
    found = {(fault.kind, fault.checkpoint, fault.section) for fault in report.faults}
    assert ("chunk", made[0].id, "state") in found
    assert ("checkpoint", made[1].id, None) in found


def test_damage_in_a_section_that_is_carried_over_is_named(damaged):
    """Proves X3."""
    hf, made, behind = damaged
    break_section(behind, made[2], "workflow")
    with pytest.raises(ChunkCorrupt) as caught:
        hf.run("r").checkpoint(state=1)
    assert (caught.value.checkpoint, caught.value.section) == (made[2].id, "workflow")
    assert hf.run("r").checkpoint(workflow={"current_state": "NEW"}).seq == 4


def test_a_head_that_is_missing_is_damage_not_an_empty_run(damaged):
    """Proves X3."""
    hf, made, behind = damaged
    behind("DELETE FROM checkpoint WHERE id = ?", made[2].id)
    for call in (lambda: hf.latest("r"), lambda: hf.run("r")):
        with pytest.raises(CheckpointCorrupt) as caught:
            call()
        assert caught.value.checkpoint == made[2].id
    assert hf.latest("r", sound=True).id == made[1].id


def test_a_store_opened_for_reading_reads_and_refuses_to_write(tmp_path):
    cp = holdfast.open(tmp_path).run("r").checkpoint(state=1)
    with holdfast.open(tmp_path, read_only=True) as hf:
        assert hf.get(cp.id).section("state") == 1
        for call in (lambda: hf.run("r").checkpoint(state=2), lambda: hf.delete(cp.id), lambda: hf.delete_run("r")):
            with pytest.raises(StoreUnavailable, match="read-only"):
                call()
    with pytest.raises(StoreUnavailable, match="no store here"):
        holdfast.open(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("options", [{"compression": "brotli"}, {"durability": "none"}])
def test_an_option_that_does_not_exist_is_refused_with_those_that_do(tmp_path, options):
    with pytest.raises(UsageError, match="use "):
        holdfast.open(tmp_path, **options)


def test_a_class_that_cannot_be_registered_is_refused_when_opening(tmp_path):
    with pytest.raises(UsageError, match="take_apart="):
        holdfast.open(tmp_path, types=[threading.Thread])


def test_a_value_that_comes_again_after_its_first_checkpoint_went_is_stored_again(tmp_path):
    """Proves X3: what a writer remembers never leads to chunks that were swept meanwhile."""
    big = {f"k{number}": f"value {number} " * 20 for number in range(100)}
    with holdfast.open(tmp_path) as hf, holdfast.open(tmp_path) as other:
        run = hf.run("r")
        first = run.checkpoint(state=big)
        run.checkpoint(state={"x": "small"})
        other.delete(first.id)  # this writer is not told
        assert run.checkpoint(state=big).section("state") == big
        assert hf.verify().sound


def test_a_run_goes_on_before_a_damaged_head_once_that_is_deleted(tmp_path):
    """Proves X3, D11."""
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        sound = run.checkpoint(state=1)
        bad = run.checkpoint(state=2)
        connection = apsw.Connection(str(tmp_path / "holdfast.db"))
        connection.execute("UPDATE checkpoint SET value = x'00' WHERE id = ?", (bad.id,))
        connection.close()
        with pytest.raises(holdfast.CheckpointCorrupt, match=r"hf\.recover"):
            hf.run("r")
        hf.delete(bad.id)
        again = hf.run("r")
        assert again.head.id == sound.id
        assert again.checkpoint(state=3).seq == 3
        assert hf.verify().sound


@pytest.mark.parametrize("seal", ["fits", "does not fit"])
def test_a_damaged_lease_is_named_and_nobody_has_it(tmp_path, seal):
    """Proves A7: every column of every row is under a checksum; a lease at 1e300 stops nobody."""
    with holdfast.open(tmp_path) as hf:
        hf.run("r").checkpoint(state=1)
        hf.store.leases.take("r", owner="me", ttl_s=60)
        forged = RowCodec().close(LEASE, LeaseRow(run="r", line="main", owner="me", token=1, expires_at=1e300))
        connection = apsw.Connection(str(tmp_path / "holdfast.db"))
        connection.execute("UPDATE lease SET value = ?", (forged[-2],))
        if seal == "fits":
            connection.execute("UPDATE lease SET seal = ?", (forged[-1],))
        connection.close()
        assert [fault.kind for fault in hf.verify().faults] == ["lease"]
        hf.run("r").checkpoint(state=2)
        assert hf.latest("r").section("state") == 2


def test_a_list_goes_on_behind_damage_and_archived_ones(tmp_path):
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        taken = [run.checkpoint(state=number) for number in range(6)]
        hf.mark(taken[5].id, status="archived")
        connection = apsw.Connection(str(tmp_path / "holdfast.db"))
        connection.execute("UPDATE checkpoint SET value = x'00' WHERE id = ?", (taken[4].id,))
        connection.close()
        with pytest.warns(holdfast.DamageWarning):
            assert [row.seq for row in hf.checkpoints("r", limit=2)] == [4, 3]


def test_what_could_not_be_kept_is_refused_by_name(tmp_path):
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        with pytest.raises(holdfast.UsageError, match="workspace=directory"):
            run.checkpoint(sections={"workspace": 1})
        with pytest.raises(holdfast.LimitExceeded, match="record"):
            run.checkpoint(workflow={"current_state": "x" * 2_000_000})


def test_the_url_of_a_store_opens_it_again(tmp_path):
    with holdfast.open(tmp_path / "a#b %41") as hf:
        hf.run("r").checkpoint(state=1)
        with holdfast.open(hf.stats().url) as again:
            assert again.latest("r").section("state") == 1
