"""What is the files store's own: what a commit writes and reads, names on disk, the index, and what it refuses."""

from __future__ import annotations

import json
import os
from contextlib import closing

import pytest

from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.compress import Codec, Compressor
from holdfast.errors import FormatTooNew, IntegrityError, RunCorrupt, StoreUnavailable, UsageError
from holdfast.store import files_log
from holdfast.store.commit import Commit, Draft
from holdfast.store.files import FilesMedium
from holdfast.store.files_disk import Disk
from holdfast.store.files_log import LogLine, make_line
from holdfast.store.inspection import Inspection
from holdfast.store.medium import Batch, StaleError
from holdfast.store.names import run_name
from holdfast.store.open import open_store
from holdfast.store.store import Store
from holdfast.store.tables import INBOX
from holdfast.testing.contract import Line, chunk_of


class CountingDisk(Disk):
    def __init__(self):
        self.operations = []

    def meet(self, operation, path, data=b"", offset=0):
        self.operations.append((operation, path.name, len(data)))


def open_files(folder, **options):
    return Store(FilesMedium(folder, **options))


def append(store, run="run", body=b"x"):
    line = store.line(run)
    return store.write(
        Commit(run=run, after=line.number if line else 0, records=[Draft("call", "step/one", 1.0, body)])
    ).line


def journal(folder, run="run"):
    return folder / "runs" / run_name(run) / "journal.jsonl"


def test_an_append_writes_one_line_however_long_the_log_is(tmp_path):
    disk = CountingDisk()
    with closing(open_files(tmp_path, disk=disk)) as store:
        sizes = []
        for number in range(400):
            disk.operations.clear()
            append(store, body=b"%03d" % number * 50)
            assert [name for operation, name, _ in disk.operations if operation == "sync"] == ["journal.jsonl"]
            sizes.append(sum(size for operation, _, size in disk.operations if operation == "write"))
        assert max(sizes[300:]) <= max(sizes[1:100]) * 1.1
        assert [op for op, *_ in disk.operations] == ["write", "sync", "write"]
        assert store.medium.sizes().records == 400


def test_another_process_reads_only_what_was_appended_since(tmp_path, monkeypatch):
    with closing(open_files(tmp_path)) as writer, closing(open_files(tmp_path)) as reader:
        for _ in range(200):
            append(writer)
        assert reader.line("run").number == 200
        read = []
        whole = os.pread
        monkeypatch.setattr(files_log.os, "pread", lambda d, n, at: read.append(len(got := whole(d, n, at))) or got)
        append(writer)
        read.clear()
        assert reader.line("run").number == 201
        assert sum(read) < 2_000
        read.clear()
        assert reader.line("run").number == 201
        assert read == []


def test_a_log_can_be_read_by_a_person_with_a_json_library(tmp_path):
    with closing(open_files(tmp_path)) as store:
        Line(store).commit(chunk_of("one"))
        append(store)
    first, second = [json.loads(line) for line in journal(tmp_path).read_text().splitlines()]
    assert (first["holdfast"], first["run"], first["number"], first["begun"]) == (2, "run", 1, 1)
    assert second["prev"] == first["check"]
    assert [name for name, _ in second["rows"]] == ["record", "line", "run"]
    assert first["hold"] == [chunk_of("one").id.hex()]


@pytest.mark.parametrize("harm", ["missing", "broken", "stale", "hostile", "empty", "misleading"])
def test_a_missing_stale_or_broken_index_changes_nothing_and_is_written_again(tmp_path, harm):
    """Proves A15: the folders are the truth."""
    index = tmp_path / "index.jsonl"
    with closing(open_files(tmp_path)) as store:
        lines = {}
        for run in ("a", "B:1", "c"):
            Line(store, run).commit(chunk_of(run))
            lines[run] = append(store, run)
            if run == "a":
                stale = index.read_bytes()
        whole = index.read_bytes()
    if harm == "missing":
        index.unlink()
    elif harm == "misleading":
        entries = [json.loads(line) for line in whole.splitlines()]
        rotated = zip(entries, [*entries[1:], entries[0]], strict=True)
        told = [{**one, "numbers": other["numbers"], "lines": other["lines"]} for one, other in rotated]
        index.write_bytes(b"".join(files_log.index_line(files_log.IndexLine(
            one["run"], one["begun"], one["numbers"], one["lines"])) for one in told))  # fmt: skip
    else:
        texts = {"stale": stale, "broken": whole[:20] + b"x" + whole[21:], "hostile": b"[" * 10_000, "empty": b""}
        index.write_bytes(texts[harm])
    with closing(open_files(tmp_path)) as store:
        assert [record.number for record in store.journal.records(lines["B:1"])] == [1]
        assert [run.id for run in store.runs()] == ["c", "B:1", "a"]
        Line(store, "d").commit()
        assert [run.id for run in store.runs()] == ["d", "c", "B:1", "a"]
        assert list(Inspection(store).check()) == []
    with closing(open_files(tmp_path)) as store:
        assert [run.id for run in store.runs(limit=2)] == ["d", "c"]


def test_only_the_logs_that_are_needed_are_read(tmp_path, monkeypatch):
    with closing(open_files(tmp_path)) as store:
        for run in "abcdef":
            Line(store, run).commit(chunk_of(run))
    opened = []
    real = files_log.open_regular
    monkeypatch.setattr(files_log, "open_regular", lambda path, **o: opened.append(path.parent.name) or real(path, **o))
    with closing(open_files(tmp_path)) as store:
        append(store, "c")
        assert [run.id for run in store.runs(limit=1)] == ["f"]
        assert set(opened) == {"c", "f"}


def test_two_runs_are_never_given_one_number(tmp_path):
    """A number that an unread log has is refused, and the next one is tried."""
    numbers = iter([b"\0\0\0\1", b"\0\0\0\2", *[b"\0\0\0\1", b"\0\0\0\2"] * 3, b"\0\0\0\3", b"\0\0\0\4"])
    with closing(open_files(tmp_path)) as store:
        store.line_reader.entropy = lambda _size: next(numbers)
        Line(store, "a").commit()
    with closing(open_files(tmp_path)) as store:
        store.line_reader.entropy = lambda _size: next(numbers)
        Line(store, "b").commit()
        assert (store.row_of("a").n, store.row_of("b").n) == (1, 3)


def test_a_deleted_run_leaves_neither_its_bytes_nor_its_name(tmp_path):
    """Proves E2."""
    with closing(open_files(tmp_path)) as store:
        Line(store, "secret-name").commit(chunk_of("secret bytes"))
        append(store, "secret-name", b"secret record")
        store.wake("secret-name")
        store.delete_run("secret-name")
        Line(store, "other").commit()
        left = [path.name for path in tmp_path.rglob("*")]
        assert not [name for name in left if "secret" in name]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"secret bytes" not in path.read_bytes()


def test_a_deleted_run_keeps_the_number_of_its_lease(tmp_path):
    with closing(open_files(tmp_path)) as store:
        store.leases.take("run", owner="me", ttl_s=60)
        lease = store.leases.running("run")
        store.write(Commit(run="run", fence=lease.token))
        store.delete_run("run")
        assert store.runs() == []
        assert store.leases.take("run", owner="other", ttl_s=60).token == lease.token + 1


def test_compaction_rewrites_the_log_and_the_numbers_of_its_lines_go_on(tmp_path):
    with closing(open_files(tmp_path)) as store, closing(open_files(tmp_path)) as other:
        for _ in range(300):
            append(store, body=os.urandom(200))
        assert other.line("run").number == 300
        before, last = journal(tmp_path).stat(), json.loads(journal(tmp_path).read_bytes().splitlines()[-1])
        store.journal.compact("run", range(1, 291))
        after = [json.loads(line) for line in journal(tmp_path).read_bytes().splitlines()]
        assert journal(tmp_path).stat().st_size < before.st_size / 10
        assert journal(tmp_path).stat().st_ino != before.st_ino
        assert (after[0]["number"], after[0]["prev"]) == (last["number"] + 1, last["check"])
        assert [record.number for record in other.journal.records(other.line("run"))] == list(range(291, 301))
        assert [step.fault for step in other.journal.walk(append(other)) if step.fault] == []


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_chunks_are_stored_as_their_writer_compressed_them_and_sizes_are_true(tmp_path, compression):
    """Proves A7, A15, C14."""
    writer = ChunkWriter(Compressor(compression))
    text = b"something worth keeping " * 500
    ref = writer.leaf(text)
    chunk = writer.chunks[ref.id]
    with closing(open_files(tmp_path)) as store:
        Line(store).commit(chunk)
        assert store.fetch([ref.id]) == {ref.id: chunk}
        assert chunk.codec == Codec[compression.upper()]
        stats = store.stats()
        path = next((tmp_path / "chunks").glob("*/*"))
        assert stats.chunk_bytes == len(text)
        assert stats.stored_bytes == len(chunk.data) == path.stat().st_size - 5
        assert stats.file_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        assert (stats.stored_bytes == len(text)) == (compression == "none")


def test_a_log_of_a_newer_program_is_told_from_a_damaged_one(tmp_path):
    with closing(open_files(tmp_path)) as store:
        append(store)
    last = json.loads(journal(tmp_path).read_bytes())
    for more in ({}, {"unknown": {"deep": [1]}}):
        body = json.dumps({"holdfast": 3, "run": "run", "number": 2, "prev": last["check"], **more})
        line = files_log.sealed(body.replace(": ", ":").encode()[:-1])[0]
        whole = journal(tmp_path).read_bytes()
        journal(tmp_path).write_bytes(whole + line)
        with closing(open_files(tmp_path)) as store, pytest.raises(FormatTooNew):
            store.run("run")
        journal(tmp_path).write_bytes(whole)


@pytest.mark.parametrize(
    "rows",
    [
        [("record", [77, 1, None, None, "", ""])],
        [("line", ["other", "main", 5, "", ""])],
        [("line", ["run", 7, 5, "", ""])],
        [("line", ["run", "main", "5", "", ""])],
        [("line", [None, "main", 5, "", ""])],
        [("line", ["run", "main", 5, "no base64", ""])],
        [("meta", ["keys", "", ""])],
        [("nothing", ["run"])],
        [("checkpoint", ["run"])],
        [("-checkpoint", [])],
        [("-checkpoint", ["other"])],
        [("-record", [77])],
    ],
)
def test_a_line_with_a_fitting_check_that_changes_what_is_not_its_own_is_damage(tmp_path, rows):
    """Proves D11: whoever writes a line by hand can make its check fit."""
    with closing(open_files(tmp_path)) as store:
        append(store)
        Line(store, "other").commit()
    last = json.loads(journal(tmp_path).read_bytes())
    line = LogLine(holdfast=2, run="run", number=2, prev=last["check"], rows=rows)
    with journal(tmp_path).open("ab") as file:
        file.write(make_line(line)[0])
    with closing(open_files(tmp_path)) as store:
        with pytest.raises(RunCorrupt):
            store.run("run")
        assert store.run("other").last_seq == 1
        assert len(list(Inspection(store).check())) == 1
        with pytest.raises(RunCorrupt):
            append(store)
        with pytest.raises(RunCorrupt):
            store.post("run", "answer", b"")


def test_a_transaction_changes_one_run(tmp_path):
    with closing(open_files(tmp_path)) as store:
        rows = [(INBOX, (run, 1, None, b"", b"")) for run in ("a", "b")]
        with pytest.raises(UsageError, match="one run"):
            store.medium.apply(Batch(inserts=rows))
        assert store.inbox("a") == []
        store.medium.apply(Batch(inserts=rows[:1]))
        with pytest.raises(StaleError):
            store.medium.apply(Batch(inserts=rows[:1]))


def test_no_two_ids_share_a_folder_also_where_case_does_not_count():
    """Proves D11: case twins, devices, long ones."""
    ids = [
        "a",
        "A",
        "con",
        "CON",
        "a:b",
        "a_b",
        "nul.txt",
        "x" * 200,
        "x" * 199 + "y",
        "X" * 200,
        "index",
        "a.",
        "latest",
    ]
    names = [run_name(run) for run in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 120 and "/" not in name and ":" not in name and not name.startswith(".") for name in names)


def test_files_are_private_whatever_the_umask(tmp_path):
    was = os.umask(0)
    try:
        with closing(open_files(tmp_path / "store")) as store:
            Line(store).commit(chunk_of("one"))
            append(store)
            store.wake("run")
            store.put_meta("keys", b"slot", expected=None)
    finally:
        os.umask(was)
    modes = {path.lstat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")}
    assert modes == {0o600, 0o700}


def test_a_folder_that_everybody_may_write_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StoreUnavailable, match="everybody"):
        open_files(tmp_path / "open")


@pytest.mark.parametrize(
    "url",
    ["file://host/x", "file:///", "file:relative", "file:///x?unknown=1", "file:///x?compression=gzip", "file:///x.db"],
)
def test_what_is_no_place_for_files_is_refused(url):
    with pytest.raises(UsageError):
        open_store(url)


def test_a_url_opens_the_folder(tmp_path):
    with closing(open_store(f"file://{tmp_path}/st%20ore")) as store:
        Line(store).commit(chunk_of("one"))
    with closing(open_files(tmp_path / "st ore")) as store:
        assert store.run("run").last_seq == 1


def test_a_store_that_was_deleted_under_a_process_is_not_written_into_nothing(tmp_path):
    with closing(open_files(tmp_path / "store")) as store:
        line = Line(store)
        line.commit(chunk_of("one"))
        (tmp_path / "store").rename(tmp_path / "gone")
        with pytest.raises(StoreUnavailable):
            line.commit(chunk_of("two"))
        (tmp_path / "gone").rename(tmp_path / "store")
        line.commit(chunk_of("two"))


def test_a_bell_hears_every_wake_of_its_run_from_another_process(tmp_path):
    with closing(open_files(tmp_path)) as one, closing(open_files(tmp_path)) as other, one.listen("run") as wakeup:
        assert not wakeup.wait(0)
        other.wake("else")
        assert not wakeup.wait(0)
        other.wake("run")
        assert wakeup.wait(5)
        assert not wakeup.wait(0)


def test_a_fact_that_was_replaced_is_not_left_on_the_disk(tmp_path):
    """A key that was retired cannot be put back from the log."""
    with closing(open_files(tmp_path)) as store:
        store.put_meta("keys", b"old slot", expected=None)
        store.put_meta("keys", b"new slot", expected=b"old slot")
        assert store.meta("keys") == b"new slot"
    lines = (tmp_path / "meta.jsonl").read_bytes().splitlines()
    assert len(lines) == 1
    with closing(open_files(tmp_path)) as store:
        assert store.meta("keys") == b"new slot"
        (tmp_path / "meta.jsonl").write_bytes(b"")
        with pytest.raises(IntegrityError):
            store.meta("keys")
