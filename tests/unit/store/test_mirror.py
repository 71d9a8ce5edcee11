"""The readable mirror of any store: documents, index, `latest`, the file of a task, names that lead back."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import msgspec
import pytest
import yaml

import holdfast
from holdfast.encode.chunks import Chunk
from holdfast.encode.documents import Bounds, read_document
from holdfast.encode.tree import leaf_id
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer
from holdfast.errors import DocumentInvalid, HoldfastError, StoreUnavailable, UsageError
from holdfast.model.checkpoint import Marks, SectionRecord, Summary
from holdfast.model.ids import checkpoint_of_name, make_checkpoint_id, readable_id, stage_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.settings.file import make_settings
from holdfast.store.files import FilesMedium
from holdfast.store.memory import MemoryMedium
from holdfast.store.mirror import Mirror, MirrorOptions, document_of, entry_of, read_sections, rebuild_mirror
from holdfast.store.store import Store
from holdfast.testing.contract import NOON, Line

STATE = {
    "plan": ["read", "write"],
    "note": "first line\nsecond line\n",
    "when": datetime(2030, 1, 1, 12, 30, tzinfo=UTC),
    "day": date(2030, 1, 2),
    "took": timedelta(minutes=1.5),
    "pair": (1, 2),
    "tags": {"b", "a"},
    "price": Decimal("1.10"),
    "where": Path("/tmp/x"),
    "who": UUID(int=5),
    "huge": 10**30,
    "blob": b"\0\1",
    "no": "no",
    "number": "1e5",
    "nothing": "",
    "keys": {1: "one", (1, 2): "pair"},
    "nan": float("nan"),
    "odd": "a\ud800b",
}


@pytest.fixture(params=["memory", "files"])
def store(request, tmp_path):
    with closing(Store(MemoryMedium() if request.param == "memory" else FilesMedium(tmp_path / "store"))) as store:
        yield store


class Run:
    """A writer that saves sections as the engine does."""

    def __init__(self, store, run="issue-42", mirror=None):
        self.line = Line(store, run)
        self.mirror = mirror

    def save(self, sections, *, phase="Implementing It", files=(), marks=None, types=(), **changes):
        packer = Packer(TypeRegistry(types))
        packed = {name: packer.pack(value, name) for name, value in sections.items()}
        chunks = [Chunk(leaf_id(data), 0, len(data), data) for data in packed.values()]
        records = [SectionRecord(n, 1, leaf_id(d), len(d)) for n, d in packed.items()]
        summary = Summary(state="CODING", phase=phase, status="running", agents={"running": 1})
        self.line.at += timedelta(milliseconds=250)
        envelope = self.line.envelope(chunks, sections=tuple(records), summary=summary, **changes)
        head = self.line.head.envelope.id if self.line.head else None
        record = self.line.store.commit(envelope, marks or Marks(), chunks, expected_head=head)
        self.line.head, self.line.seq = record, record.envelope.seq
        if self.mirror is not None:
            document = document_of(record, sections, files_modified=files)
            assert self.mirror.write(document, entry_of(record, self.mirror.options)) is None
        return record


def options(tmp_path, **more):
    return MirrorOptions(root=tmp_path / "project", **more)


def load(path):
    return yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else json.loads(path.read_text())


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_checkpoint_is_a_document_with_named_fields_and_plain_times(store, tmp_path, form):
    """Proves C8, C11: of any store."""
    mirror = Mirror(options(tmp_path, form=form))
    files = [SimpleNamespace(path="src/a.py", status="M", staged=True), SimpleNamespace(path="b", status="?", staged=0)]
    recovery = RecoveryInfo(can_resume=False, blockers=("ask",), blocker_kinds=("question:q1",), resume_phase="test")
    record = Run(store, mirror=mirror).save(
        {"state": STATE, "workflow": {"current_state": "CODING"}},
        files=files, reason="before lunch", recovery=recovery, marks=Marks(label="here", pinned=True),
    )  # fmt: skip
    folder = tmp_path / "project" / ".holdfast" / "readable" / "issue-42"
    path = folder / f"implementing-it-20300101T120000250Z-{record.envelope.id[15:23]}.{form}"
    found = load(path)
    assert (found["id"], found["name"], found["run"], found["seq"]) == (record.envelope.id, path.stem, "issue-42", 1)
    assert (found["trigger"], found["reason"], found["phase"]) == ("manual", "before lunch", "Implementing It")
    assert (found["status"], found["label"], found["pinned"]) == ("valid", "here", True)
    assert found["created_at"] == "2030-01-01T12:00:00.250000+00:00"
    assert found["recovery"]["can_resume"] is False
    assert found["recovery"]["resume_phase"] == "test"
    assert found["recovery"]["blockers"] == [{"kind": "question", "about": "q1", "text": "ask"}]
    assert found["summary"]["agents"] == {"running": 1}
    assert found["files_modified"] == [
        {"path": "src/a.py", "status": "M", "staged": True},
        {"path": "b", "status": "?", "staged": False},
    ]
    state = found["sections"]["state"]
    assert state["plan"] == ["read", "write"]
    assert state["when"] == "2030-01-01T12:30:00+00:00"
    assert (state["day"], state["took"], state["pair"], state["tags"]) == ("2030-01-02", 90.0, [1, 2], ["a", "b"])
    assert (state["price"], state["where"], state["huge"]) == ("1.10", "/tmp/x", str(10**30))
    assert (state["no"], state["number"], state["nothing"], state["nan"]) == ("no", "1e5", "", "nan")
    assert state["keys"] == {"1": "one", "[1, 2]": "pair"}
    assert state["blob"] == {"base64": "AAE="}
    assert found["sections"]["workflow"] == {"current_state": "CODING"}
    if form == "yaml":
        assert "      first line\n" in path.read_text()
    assert read_document(path) == found, "the two readers of YAML differ"


def test_the_index_has_what_a_person_chooses_by(store, tmp_path):
    """Proves A15, C11."""
    mirror = Mirror(options(tmp_path))
    run = Run(store, mirror=mirror)
    run.save({"state": 1})
    second = run.save({"state": 2}, phase=None, marks=Marks(label="here"), recovery=RecoveryInfo(can_resume=False))
    folder = mirror.folder("issue-42")
    index = load(folder / "index.yaml")
    newest = index["checkpoints"][0]
    assert (index["run"], index["total"], index["latest"]["id"]) == ("issue-42", 2, second.envelope.id)
    assert newest == {
        "id": second.envelope.id, "file": index["latest"]["file"], "seq": 2,
        "created_at": "2030-01-01T12:00:00.500000+00:00", "trigger": "manual", "phase": None, "status": "valid",
        "state": "CODING", "can_resume": False, "size": 1, "label": "here",
    }  # fmt: skip
    assert newest["file"].startswith("manual-2030")
    assert (folder / "latest").resolve() == (folder / newest["file"]).resolve()
    assert index["checkpoints"][1]["phase"] == "Implementing It"


@pytest.mark.parametrize("harm", ["missing", "broken", "hostile", "fifo", "list"])
def test_a_missing_or_broken_index_is_made_again_from_the_documents(store, tmp_path, harm):
    """Proves A15, D11."""
    mirror = Mirror(options(tmp_path))
    run = Run(store, mirror=mirror)
    run.save({"state": 1})
    index = mirror.folder("issue-42") / "index.yaml"
    index.unlink()
    (index.parent / "latest").unlink()
    if harm == "fifo":
        os.mkfifo(index)
    elif harm != "missing":
        texts = {"broken": "{{{", "hostile": "[" * 100_000, "list": "[]"}
        index.write_text(texts[harm])
    run.save({"state": 2})
    assert [entry["seq"] for entry in load(index)["checkpoints"]] == [2, 1]
    assert (index.parent / "latest").exists()


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_rebuilt_mirror_is_the_one_that_was_written_and_has_nothing_of_what_was_deleted(store, tmp_path, form):
    """Proves C11: derived, and never the truth."""
    mirror = Mirror(options(tmp_path, form=form))
    run = Run(store, mirror=mirror)
    first, second, third = (run.save({"state": {**STATE, "n": n}}) for n in range(3))
    Run(store, "other", mirror).save({"state": 1})
    folder = mirror.folder("issue-42")
    written = {path.name: path.read_bytes() for path in folder.glob("impl*")}
    (folder / "notes.txt").write_text("mine")
    store.delete("issue-42", [second.envelope.id])
    for path in folder.glob("impl*"):
        path.write_text("harm")
    assert rebuild_mirror(store, mirror) == []
    rebuilt = {path.name: path.read_bytes() for path in folder.glob("impl*")}
    assert rebuilt == {name: data for name, data in written.items() if second.envelope.id[15:23] not in name}
    assert [entry["id"] for entry in load(folder / f"index.{form}")["checkpoints"]] == [
        third.envelope.id,
        first.envelope.id,
    ]
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_section_of_a_type_that_only_its_program_knows_is_shown_by_its_parts(store, tmp_path):
    class Point(msgspec.Struct):
        x: int
        y: list

    run = Run(store)
    record = run.save({"state": {"at": Point(1, [STATE["when"]])}}, types=[Point])
    shown = read_sections(store, record)["state"]["at"]
    assert shown["value"] in ([1, ["2030-01-01T12:30:00+00:00"]], {"x": 1, "y": ["2030-01-01T12:30:00+00:00"]})
    assert "Point" in shown["type"]
    written = document_of(record, {"state": {"at": Point(1, [STATE["when"]])}})
    assert written["sections"]["state"]["at"] == {"x": 1, "y": ["2030-01-01T12:30:00+00:00"]}


def test_a_large_or_damaged_section_is_only_named(store, tmp_path):
    run = Run(store)
    record = run.save({"state": "x" * 2_000_000, "notes": ["kept"]})
    shown = read_sections(store, record)
    assert shown["notes"] == ["kept"]
    assert shown["state"].startswith("(2,000,005 bytes")
    gone = SectionRecord("lost", 1, bytes(32), 5)
    harmed = msgspec.structs.replace(
        record, envelope=msgspec.structs.replace(record.envelope, sections=(gone, *record.envelope.sections))
    )
    assert "missing" in read_sections(store, harmed)["lost"]


def test_a_versioned_file_holds_all_checkpoints_of_a_task(store, tmp_path):
    """Proves D1, D2: ids of tasks as they are, and ids of task, time and stage."""
    mirror = Mirror(options(tmp_path, form="task"))
    run = Run(store, "P1.M1.T1.S1", mirror)
    made = [run.save({"gates": {"n": n}}) for n in range(3)]
    path = tmp_path / "project" / "artifacts" / "P1.M1.T1.S1" / "checkpoints.json"
    task = load(path)
    assert (task["task"], task["version"], task["total"]) == ("P1.M1.T1.S1", 3, 3)
    assert datetime.fromisoformat(task["last_modified"]).tzinfo is not None
    assert [one["sections"]["gates"] for one in task["checkpoints"]] == [{"n": n} for n in (2, 1, 0)]
    assert task["checkpoints"][0]["checkpoint"] == "P1.M1.T1.S1-20300101T120000750Z-CODING"
    for one, record in zip(task["checkpoints"], reversed(made), strict=True):
        assert store.find(checkpoint_of_name(one["checkpoint"]), limit=2) == [record.envelope.id]
    path.write_text("[" * 100_000)
    record = run.line.store.checkpoint(made[2].envelope.id)
    told = mirror.write(document_of(record, {}), entry_of(record, mirror.options))
    assert isinstance(told, DocumentInvalid)
    assert load(path)["total"] == 1
    store.delete("P1.M1.T1.S1", [made[0].envelope.id])
    assert rebuild_mirror(store, mirror) == []
    assert [one["seq"] for one in load(path)["checkpoints"]] == [3, 2]


def test_a_location_template_places_the_documents(store, tmp_path):
    """Proves C14."""
    mirror = Mirror(options(tmp_path, location="issues/{project}/issue-{run}", project="Acme Ltd"))
    Run(store, "42", mirror).save({"state": 1})
    assert len(list((tmp_path / "project" / "issues").glob("Acme*/issue-42/*.yaml"))) == 2
    for bad in ("x", "../{run}", "{run:>3000000000}", "{run!r}", "{run.__class__}", "{run", "{nothing}/{run}"):
        with pytest.raises(UsageError):
            Mirror(options(tmp_path, location=bad))


@pytest.mark.parametrize("form", ["yaml", "json", "task"])
def test_documents_of_several_writers_are_all_kept(form, tmp_path):
    """Proves D10, D1, C11: each opens the store for itself; what retention deleted is not there, and nothing else."""
    settings = make_settings(
        {"mirror": {"form": form, "location": f"{tmp_path}/{{task}}"}, "retention": {"triggers": {"agent_complete": 3}}}
    )
    start = threading.Barrier(4)

    def save(number):
        with holdfast.open(tmp_path / "store", settings=settings) as hf:
            start.wait()
            for _ in range(8):
                for trigger in ("manual", "agent_complete"):
                    while True:
                        try:
                            hf.run("r").checkpoint(trigger=trigger, state=number)
                            break
                        except holdfast.HeadMoved:
                            continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    with holdfast.open(tmp_path / "store", settings=settings) as hf:
        ids = [one.id for one in hf.checkpoints("r", archived=True)]
    index = read_document(tmp_path / "r" / {"task": "checkpoints.json"}.get(form, f"index.{form}"), Bounds())
    assert [one["id"] for one in index["checkpoints"]] == ids
    assert len(ids) == 32 + 3
    if form != "task":
        assert (tmp_path / "r" / "latest").resolve().name == index["checkpoints"][0]["file"]


def test_a_mirror_that_fails_says_so_and_fails_nothing(store, tmp_path):
    """Proves D11: the checkpoint is stored, whatever becomes of its document."""
    mirror = Mirror(options(tmp_path))
    run = Run(store)
    record = run.save({"state": 1})
    document, entry = document_of(record, {"state": 1}), entry_of(record, mirror.options)
    (tmp_path / "project").write_text("a file")
    assert isinstance(mirror.write(document, entry), StoreUnavailable)
    (tmp_path / "project").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".holdfast").symlink_to(tmp_path / "elsewhere")
    assert isinstance(mirror.write(document, entry), HoldfastError)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "project" / ".holdfast").unlink()
    assert mirror.write(document, entry) is None


def test_files_of_a_mirror_are_private(store, tmp_path):
    mirror = Mirror(options(tmp_path))
    Run(store, mirror=mirror).save({"state": 1})
    paths = [path for path in (tmp_path / "project" / ".holdfast").rglob("*") if not path.is_symlink()]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600, 0o700}


@pytest.mark.parametrize("what", ["Implementing It", "gate_1", "../../x", "", "ß", "a" * 300, "P1.M1.T1.S1", "v1.2"])
@pytest.mark.parametrize("time_ms", [0, 1_893_499_200_123, (1 << 48) - 1])
def test_a_readable_name_leads_back_to_its_checkpoint(what, time_ms):
    """Proves C1: as it is, with a folder before it, and with the end of a file name."""
    checkpoint = make_checkpoint_id(time_ms, bytes(range(10)))
    name = readable_id(checkpoint, what)
    assert "/" not in name
    assert len(name) < 90
    for written in (name, f"{name}.yaml", f"{name}.json", f".holdfast/readable/issue-42/{name}.yaml"):
        prefix = checkpoint_of_name(written)
        assert checkpoint.startswith(prefix)
        assert len(prefix) >= len("cp_") + 20
    assert checkpoint.startswith(checkpoint_of_name(stage_id(checkpoint, "P1.M1", "gate_1")))


def test_what_is_no_readable_name_leads_nowhere():
    for name in (
        *(
            "",
            "run",
            "run@7",
            "cp_0123",
            "latest",
            "a-b",
            "a-20300101T120000000Z",
            "a-20300101T120000000Z-",
            "index.yaml",
        ),
        *("a-20301301T120000000Z-01234567", "a-20300101T120000000Z-0123456\n", "x" * 10_000, "a-2030Z-01234567"),
    ):
        assert checkpoint_of_name(name) is None


def test_a_name_finds_its_checkpoint_among_many(store):
    """Proves C1."""
    run = Run(store)
    for number in range(20):
        record = run.save({"state": number})
        assert store.find(checkpoint_of_name(entry_of(record, MirrorOptions(root=Path())).file), limit=2) == [
            record.envelope.id
        ]
    assert record.envelope.created_at > NOON


def test_an_encrypted_store_has_no_mirror(tmp_path):
    """Proves E7: what is encrypted is not written beside it in plain text."""
    import holdfast  # noqa: PLC0415
    from holdfast.settings.values import MirrorSettings  # noqa: PLC0415

    settings = holdfast.Settings(mirror=MirrorSettings(form="yaml"))
    with pytest.raises(holdfast.UsageError, match="plain text"):
        holdfast.open(tmp_path / "s", settings=settings, key=holdfast.generate_key())
    assert not (tmp_path / "readable").exists()
