import re
from contextlib import suppress
from datetime import timedelta

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.encode.tree import LEAF, Ref
from holdfast.errors import (
    Ambiguous,
    CheckpointCorrupt,
    ChunkCorrupt,
    FormatTooNew,
    IntegrityError,
    NotFound,
    RunCorrupt,
    UsageError,
)
from holdfast.model.checkpoint import CheckpointRecord, Marks, SectionRecord, Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.recovery.find import locate, mark_corrupted, parse
from holdfast.recovery.line import RunLine
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.contract import NOON, Line, chunk_of


class Writer(Line):
    """A line whose checkpoints say what a test wants them to say, a minute apart."""

    def take(self, *, onto=None, label=None, phase=None, steps=0, blocked=False, state=None, **changes):
        self.at = NOON + timedelta(minutes=self.seq)
        chunk = chunk_of(f"{self.run} {self.seq}")
        blockers = ("agent a failed 3 times",) if blocked else ()
        changes = {
            "summary": Summary(phase=phase, steps=steps, state=state),
            "recovery": RecoveryInfo(can_resume=not blocked, blockers=blockers),
        } | changes
        if onto is not None:
            changes |= {"parent": onto.envelope.id, "parent_checksum": onto.checksum}
        ref = Ref(LEAF, chunk.size, chunk.id)
        envelope = msgspec.structs.replace(
            self.envelope([chunk]), sections=(SectionRecord("state", ref.kind, ref.id, ref.size),), **changes
        )
        head = self.head.envelope.id if self.head else None
        self.head = self.store.commit(envelope, Marks(label=label), [chunk], expected_head=head)
        self.seq = envelope.seq
        return self.head


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def disk(tmp_path):
    opened = SQLiteStore(tmp_path / "store.db")
    yield opened
    opened.close()


def damage_chunk(store, record):
    """Spoil a checkpoint's bytes in the file behind a store's back."""
    chunk = record.envelope.sections[0].root
    with apsw.Connection(str(store.path)) as raw:
        raw.execute("UPDATE chunk SET data = x'00' WHERE id = ?", (chunk,))


def damage_record(store, record):
    with apsw.Connection(str(store.path)) as raw:
        raw.execute("UPDATE checkpoint SET value = x'00' WHERE id = ?", (record.envelope.id,))


def found(store, spec, **options):
    return locate(store, spec, **options).record.envelope.seq


def test_a_checkpoint_is_found_by_every_name_that_it_has(store):
    """Proves C12."""
    writer = Writer(store, "episode-42")
    writer.take()
    second = writer.take(label="before deploy")
    writer.take()
    name = second.envelope.id
    for spec in (name, "episode-42@2", "episode-42:before deploy", "before deploy", "latest~1", "episode-42~", "~1"):
        assert found(store, spec) == 2
    for spec in ("latest", "episode-42", "episode-42:latest", "episode-42~0"):
        assert found(store, spec) == 3
    assert found(store, "episode-42:latest~2") == 1
    assert found(store, f"{name}~1") == 1


def test_a_prefix_of_the_id_or_of_its_random_end_is_enough(store):
    writer = Writer(store)
    record = writer.take()
    Writer(store, "other").take()
    digits = record.envelope.id.removeprefix("cp_")
    tail = digits[12:]
    for spec in (tail[:8], f"cp_{tail[:8]}", tail[:8].upper(), tail, f"run:{tail[:8]}", digits[:-1]):
        assert locate(store, spec).record == record
    assert locate(store, tail[:6], run="run").record == record


def test_a_prefix_that_fits_several_names_them(store):
    first, second = Writer(store, "a").take(), Writer(store, "b").take()
    shared = first.envelope.id[3:15]
    with pytest.raises(Ambiguous) as caught:
        locate(store, shared)
    assert set(caught.value.matches) == {first.envelope.id, second.envelope.id}
    assert locate(store, shared, run="a").record == first
    for run in range(300):
        Writer(store, f"many-{run}").take()
    assert locate(store, shared, run="b").record == second
    with pytest.raises(Ambiguous):
        locate(store, shared)


def test_a_spec_is_relative_to_the_run_that_is_given(store):
    a, b = Writer(store, "a"), Writer(store, "b")
    for writer in (a, b):
        writer.take(label="mark")
        writer.take()
    for spec in ("latest~1", "@1", "mark", "~", "b@1", "b:mark"):
        record = locate(store, spec, run="b").record
        assert (record.envelope.run, record.envelope.seq) == ("b", 1)
    with pytest.raises(NotFound, match="it is one of run 'a'"):
        locate(store, a.head.envelope.id, run="b")


def test_latest_without_a_run_is_of_the_run_that_moved_last(store):
    old, new = Writer(store, "old"), Writer(store, "new")
    old.take()
    new.take()
    old.take()
    assert locate(store, "latest").record == old.head


def test_runs_of_our_own_are_found_by_their_whole_name_only(store):
    visible = Writer(store, "r").take(label="mark")
    hidden = Writer(store, "_holdfast.inbox.r")
    for _ in range(3):
        hidden.take(label="mark")
    assert locate(store, "latest").record == locate(store, "mark").record == visible
    assert locate(store, visible.envelope.id[3:15]).record == visible
    assert locate(store, "_holdfast.inbox.r").record == hidden.head
    with pytest.raises(NotFound):
        locate(store, hidden.head.envelope.id[15:25])


def test_a_run_is_found_before_a_label_of_the_same_name(store):
    Writer(store, "a").take(label="b")
    b = Writer(store, "b").take()
    assert locate(store, "b").record == b
    assert locate(store, "a:b").record.envelope.run == "a"


def test_a_label_in_several_runs_is_ambiguous_and_in_one_run_the_newest_has_it(store):
    a, b = Writer(store, "a"), Writer(store, "b")
    a.take(label="x")
    newest = a.take(label="x")
    a.take()
    assert locate(store, "x").record == newest
    b.take(label="x")
    with pytest.raises(Ambiguous, match="a:x"):
        locate(store, "x")
    assert locate(store, "a:x").record == newest


def test_going_back_follows_parents_and_counts_what_can_be_resumed(store):
    writer = Writer(store)
    records = [writer.take() for _ in range(4)]
    writer.take(blocked=True, onto=records[1])
    writer.take()
    assert [found(store, f"latest~{n}") for n in range(3)] == [6, 2, 1]
    with pytest.raises(NotFound, match="2 resumable ones before"):
        locate(store, "latest~3")


def test_deleted_parents_are_stepped_over(store):
    writer = Writer(store)
    records = [writer.take() for _ in range(6)]
    store.delete("run", [record.envelope.id for record in records[2:5]])
    assert [found(store, f"run~{n}") for n in range(3)] == [6, 2, 1]


def test_a_fork_does_not_lead_back_into_the_run_that_it_came_from(store):
    origin = Writer(store, "origin")
    origin.take()
    fork = Writer(store, "fork")
    fork.take(onto=origin.head)
    fork.take()
    assert found(store, "fork~1") == 1
    with pytest.raises(NotFound):
        locate(store, "fork~2")


@pytest.mark.parametrize("name", ["implement", "BUILD"])
def test_the_last_before_a_phase_is_the_last_before_it_first_began(store, name):
    writer = Writer(store)
    for phase, state in [("plan", "A"), (None, "A"), ("implement", "BUILD"), ("test", "C"), ("implement", "BUILD")]:
        writer.take(phase=phase, state=state)
    assert found(store, f"before:{name}") == found(store, f"run:before:{name}") == 2
    assert found(store, f"before:{name}", run="run") == 2
    assert found(store, f"run:before:{name}~1") == 1
    with pytest.raises(NotFound, match="there are implement"):
        locate(store, "run:before:implemnt")
    with pytest.raises(NotFound, match="it began with that phase"):
        locate(store, "run:before:plan")


def test_names_that_are_nearly_right_are_suggested(store):
    Writer(store, "episode-42").take()
    with pytest.raises(NotFound, match="did you mean 'episode-42'"):
        locate(store, "epsode-42")
    with pytest.raises(NotFound, match="did you mean 'episode-42'"):
        locate(store, "latest", run="episode-4")
    with pytest.raises(NotFound, match="did you mean 'episode-42'"):
        locate(store, "epsode-42@1")
    with pytest.raises(NotFound, match="its last is 1"):
        locate(store, "episode-42@7")
    with pytest.raises(NotFound, match="of run 'episode-42' named 'nolabel'"):
        locate(store, "episode-42:nolabel")
    with pytest.raises(NotFound, match="no checkpoint 'cp_"):
        locate(store, "cp_" + "0" * 32)


def test_an_empty_store_says_that_it_is_empty(store):
    """Proves C12."""
    for spec in ("latest", "run", "x:y", "latest~2"):
        with pytest.raises(NotFound, match="empty"):
            locate(store, spec)


@pytest.mark.parametrize("spec", ["", "   ", None, 7, "x" * 70_000])
def test_what_names_nothing_is_refused(store, spec):
    with pytest.raises(UsageError):
        locate(store, spec)


def test_damaged_ones_are_walked_past_and_what_is_lost_is_said(disk):
    """Proves X3."""
    writer = Writer(disk, "r")
    records = [writer.take(steps=2 * n) for n in range(6)]
    damage_chunk(disk, records[5])
    damage_record(disk, records[4])
    result = locate(disk, "latest")
    assert result.record == records[3]
    assert [(one.seq, one.checkpoint) for one in result.skipped] == [
        (6, records[5].envelope.id),
        (5, records[4].envelope.id),
    ]
    first, second = result.skipped
    assert "section state" in first.detail
    day = f"{NOON:%Y-%m-%d}"
    span = f"2.0 min of work, from {day} 12:03:00 to {day} 12:05:00 UTC"
    assert first.lost == f"2 checkpoints and 4 steps after r@4: {span}"
    assert second.lost.startswith("1 checkpoint after r@4: 1.0 min of work")
    assert found(disk, "latest~1") == 3
    assert found(disk, "latest", sound=False) == 6


def test_marking_writes_down_what_can_be_written_and_twice_is_once(disk):
    """Proves X3."""
    writer = Writer(disk)
    records = [writer.take(label=f"n{n}") for n in range(4)]
    damage_chunk(disk, records[3])
    damage_record(disk, records[2])
    result = locate(disk, "run")
    assert mark_corrupted(disk, result.skipped) == [records[3].envelope.id]
    assert mark_corrupted(disk, result.skipped) == []
    assert disk.checkpoint(records[3].envelope.id).marks == Marks(status="corrupted", label="n3")
    again = locate(disk, "run")
    assert again.record == records[1]
    assert again.skipped[0].detail == "it is marked as corrupted"


def test_one_that_is_asked_for_by_name_is_not_replaced_by_another(disk):
    """Proves A12."""
    writer = Writer(disk)
    records = [writer.take(label=f"n{n}") for n in range(3)]
    damage_chunk(disk, records[1])
    damage_record(disk, records[2])
    for spec in (records[1].envelope.id, "run@2", "n1", "run:n1"):
        with pytest.raises(ChunkCorrupt):
            locate(disk, spec)
    for spec in (records[2].envelope.id, "run@3"):
        with pytest.raises(CheckpointCorrupt):
            locate(disk, spec)
    assert locate(disk, records[1].envelope.id, sound=False).record == records[1]


def test_after_a_rewind_damage_leads_back_along_the_line_not_onto_the_one_that_was_left(disk):
    writer = Writer(disk)
    records = [writer.take() for _ in range(4)]
    head = writer.take(onto=records[1])
    damage_chunk(disk, head)
    assert locate(disk, "run").record == records[1]
    damage_chunk(disk, records[1])
    damage_chunk(disk, records[0])
    assert locate(disk, "run").record == records[3]


def test_when_nothing_is_sound_it_says_so(disk):
    writer = Writer(disk)
    for record in [writer.take() for _ in range(3)]:
        damage_chunk(disk, record)
    with pytest.raises(IntegrityError, match="all 3 are damaged"):
        locate(disk, "run")


def test_archived_ones_are_the_last_resort(disk):
    writer = Writer(disk)
    records = [writer.take() for _ in range(3)]
    disk.mark(records[2].envelope.id, Marks(status="archived"))
    assert locate(disk, "run").record == records[1]
    damage_chunk(disk, records[0])
    damage_chunk(disk, records[1])
    result = locate(disk, "run")
    assert result.record.envelope == records[2].envelope
    assert {one.lost for one in result.skipped} == {"nothing, run@3 is newer"}


def test_one_of_a_newer_program_is_not_taken_for_damage(disk):
    writer = Writer(disk)
    writer.take()
    writer.take(format_version=99)
    with pytest.raises(FormatTooNew):
        locate(disk, "run")


@pytest.mark.parametrize("count", [1, 3, 17, 70])
@pytest.mark.parametrize("harm", ["spoiled", "gone"])
def test_a_run_whose_own_record_is_damaged_still_gives_its_newest_sound_checkpoint(disk, count, harm):
    """Proves X3."""
    writer = Writer(disk)
    records = [writer.take() for _ in range(count)]
    if count > 5:
        disk.delete("run", [record.envelope.id for record in records[3 : count - 2]])
    with apsw.Connection(str(disk.path)) as raw:
        raw.execute("UPDATE run SET value = x'00'" if harm == "spoiled" else "DELETE FROM run")
    with pytest.raises(RunCorrupt):
        disk.run("run")
    assert locate(disk, "run").record == records[-1]
    assert locate(disk, "latest").record == records[-1]
    assert locate(disk, f"run@{count}").record == records[-1]
    with pytest.raises(NotFound, match="did you mean 'run'"):
        locate(disk, "rnu")
    if count > 5:
        damage_chunk(disk, records[-1])
        assert locate(disk, "run").record == records[-2]
        assert locate(disk, "run~1").record == records[2]


def test_a_whole_page_of_damage_is_walked_past(disk):
    writer = Writer(disk)
    records = [writer.take() for _ in range(40)]
    for record in records[2:]:
        damage_record(disk, record)
    result = locate(disk, "run")
    assert result.record == records[1]
    assert [one.seq for one in result.skipped] == list(range(40, 2, -1))


def test_numbers_that_vanished_are_damage(disk):
    writer = Writer(disk)
    records = [writer.take() for _ in range(5)]
    with apsw.Connection(str(disk.path)) as raw:
        raw.execute("DELETE FROM checkpoint WHERE seq > 3")
    result = locate(disk, "run")
    assert result.record == records[2]
    assert [(one.seq, one.checkpoint) for one in result.skipped] == [(5, None), (4, None)]
    assert mark_corrupted(disk, result.skipped) == []


@pytest.mark.parametrize("spec", ["run", "latest~3", "run@5000", "run~100"])
def test_a_place_near_the_head_is_found_without_reading_the_whole_run(store, spec, monkeypatch):
    writer = Writer(store)
    for _ in range(600):
        writer.take()
    read = []
    checkpoints = store.checkpoints
    monkeypatch.setattr(store, "checkpoints", lambda *a, **k: read.append(len(page := checkpoints(*a, **k))) or page)
    with suppress(NotFound):
        locate(store, spec)
    assert sum(read) < 400


names = st.text("ab:@~.-", min_size=1, max_size=8)


@given(st.text(max_size=30) | names)
def test_a_spec_is_refused_or_has_readings_and_nothing_else_happens(spec):
    try:
        parsed = parse(spec)
    except UsageError:
        assert not spec.strip()
    else:
        assert parsed.readings
        assert parsed.text == spec


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_name_that_a_checkpoint_has_leads_to_it(data):
    """Proves C12."""
    store = MemoryStore()
    runs = data.draw(st.lists(st.from_regex(r"[a-c][a-c.-]{0,3}", fullmatch=True), min_size=1, max_size=3, unique=True))
    records = []
    for run in runs:
        writer = Writer(store, run)
        records += [writer.take(label=f"l{n} {run}") for n in range(data.draw(st.integers(1, 4)))]
    record = data.draw(st.sampled_from(records))
    envelope = record.envelope
    assert locate(store, envelope.id).record == record
    assert locate(store, f"@{envelope.seq}", run=envelope.run).record == record
    assert locate(store, record.marks.label).record == record
    assert locate(store, record.marks.label, run=envelope.run).record == record
    last = max(one.envelope.seq for one in records if one.envelope.run == envelope.run)
    assert locate(store, f"~{last - envelope.seq}", run=envelope.run).record == record
    assert locate(store, envelope.run).record.envelope.run == envelope.run
    assert locate(store, f"{envelope.run}@{envelope.seq}").record == record


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_newest_sound_one_is_never_damaged_and_nothing_sound_is_newer_on_its_line(data):
    """Proves X3."""
    store = MemoryStore()
    writer = Writer(store)
    records = []
    for _ in range(data.draw(st.integers(1, 12))):
        onto = data.draw(st.sampled_from([None, *records]))
        records.append(writer.take(onto=onto))
    bad = data.draw(st.sets(st.sampled_from(range(len(records)))))
    for index in bad:
        del store.medium._tables.chunks[records[index].envelope.sections[0].root]
    by_id = {record.envelope.id: index for index, record in enumerate(records)}
    line, name = [], records[-1].envelope.id
    while name is not None:
        line.append(by_id[name])
        name = records[by_id[name]].envelope.parent
    rest = [index for index in reversed(range(len(records))) if index not in line]
    expected = next((index for index in [*line, *rest] if index not in bad), None)
    if expected is None:
        with pytest.raises(IntegrityError):
            locate(store, "run")
        return
    result = locate(store, "run")
    assert result.record == records[expected]
    assert all(one.seq - 1 in bad for one in result.skipped)
    assert all(re.match(r"\d+ checkpoints? |nothing", one.lost) for one in result.skipped)


def test_a_line_is_read_once(store):
    writer = Writer(store)
    for _ in range(30):
        writer.take()
    line = RunLine(store, "run")
    assert [row.envelope.seq for row in line.line()] == list(range(30, 0, -1))
    assert all(isinstance(row, CheckpointRecord) for row in line.rows())
