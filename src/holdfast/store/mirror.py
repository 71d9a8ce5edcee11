"""The readable mirror of a store: each checkpoint as a YAML or JSON document that people read, with an index.

    <location>/implement-20300101T120000000Z-1f2e3d4c.yaml    one checkpoint, named by its readable id
    <location>/index.yaml                                     all of them, newest first, with `latest` and `total`
    <location>/latest                                         a link to the newest

or, in the form `task`, one versioned file that holds all checkpoints of a task: of each run, and of each task with
gates in it, with the stages of that task. A mirror is derived: written after the
commit, never read for the truth, and rebuilt at will. A mirror that fails does not fail its checkpoint. It holds in
plain text what the store holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.documents import Bounds, is_plain_text, read_document
from holdfast.encode.plain import plain, plain_section
from holdfast.encode.tree import Ref
from holdfast.errors import DocumentInvalid, HoldfastError, StoreBusy, StoreUnavailable, UsageError
from holdfast.model.checkpoint import name_of
from holdfast.model.ids import checkpoint_of_name, is_in_git, stage_id
from holdfast.model.sections import WORKSPACE
from holdfast.store.names import run_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.store import Store

Form = Literal["yaml", "json", "task"]
MIRROR_FORMAT = 1
_LARGEST_SECTION = 1 << 20
_BOUNDS = Bounds(size_bytes=64 << 20, nodes=2_000_000)
_FIELD = re.compile(r"\{([^{}]*)\}")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}(?<!\.)\Z")
_LONGEST_WAIT_S = 10.0
_PAUSE_S = 0.002
_OWN_NAMES = ("index.yaml", "index.json", "latest", "checkpoints.json")
_LOCATIONS = {"task": "{root}/artifacts/{task}"}
_LOCATION = "{root}/.holdfast/readable/{run}"


class MirrorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mirror is and what it looks like.

    `{root}`, `{project}`, `{run}`, `{task}` and `{issue}` stand in its location; the issue of run `issue-42` is 42.
    """

    root: Path
    form: Form = "yaml"
    location: str = ""
    project: str = ""


class MirrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint in the index."""

    id: str
    file: str
    seq: int
    created_at: str
    trigger: str
    phase: str | None = None
    status: str = "valid"
    state: str | None = None
    can_resume: bool = True
    size: int = 0
    label: str | None = None


def document_of(
    record: CheckpointRecord, sections: Mapping[str, Any], *, files_modified: Iterable[Any] = ()
) -> dict[str, Any]:
    """Return a checkpoint as plain data with named fields, in the order in which people read it.

    `sections` are values as they were saved, or as `read_sections` gives them; `files_modified` are objects with a
    path, a status and whether it is staged.
    """
    envelope, marks = record.envelope, record.marks
    recovery = {
        name: plain(getattr(envelope.recovery, name))
        for name in envelope.recovery.__struct_fields__
        if name not in ("blockers", "blocker_kinds")
    }
    recovery["prerequisites_met"] = envelope.recovery.prerequisites_met
    recovery["blockers"] = [one._asdict() for one in envelope.recovery.blocked_by]
    return {
        "holdfast": MIRROR_FORMAT,
        "id": envelope.id,
        "name": name_of(record.envelope),
        "run": envelope.run,
        "seq": envelope.seq,
        "parent": envelope.parent,
        "trigger": plain(envelope.trigger),
        "reason": plain(envelope.reason),
        "phase": plain(envelope.summary.phase),
        "status": marks.status,
        "label": plain(marks.label),
        "pinned": marks.pinned,
        "created_at": envelope.created_at.isoformat(),
        "program_version": plain(envelope.program_version),
        "size_bytes": envelope.size_bytes,
        "stored_bytes": envelope.stored_bytes,
        "compression": envelope.codec,
        "recovery": recovery,
        "summary": plain(envelope.summary),
        "files_modified": [
            {"path": plain(one.path), "status": plain(one.status), "staged": bool(one.staged)} for one in files_modified
        ],
        "sections": {name: plain(value) for name, value in sections.items()},
    }


def entry_of(record: CheckpointRecord, options: MirrorOptions) -> MirrorEntry:
    """Return a checkpoint as the index has it."""
    envelope, marks = record.envelope, record.marks
    suffix = "yaml" if options.form == "yaml" else "json"
    return MirrorEntry(
        id=envelope.id, file=f"{name_of(record.envelope)}.{suffix}", seq=envelope.seq,
        created_at=envelope.created_at.isoformat(), trigger=plain(envelope.trigger),
        phase=plain(envelope.summary.phase), status=marks.status, state=plain(envelope.summary.state),
        can_resume=envelope.recovery.can_resume, size=envelope.size_bytes, label=plain(marks.label),
    )  # fmt: skip


def read_sections(store: Store, record: CheckpointRecord) -> dict[str, Any]:
    """Return a checkpoint's sections as plain data; one that is large, damaged or a tree of files is only named."""
    reader = ChunkReader(store.fetch)
    found: dict[str, Any] = {}
    for section in record.envelope.sections:
        if section.name == WORKSPACE or section.size > _LARGEST_SECTION:
            found[section.name] = f"({section.size:,} bytes; see `holdfast show {record.envelope.id}`)"
            continue
        try:
            data = reader.read(Ref(section.kind, section.size, section.root), limit=_LARGEST_SECTION)
            found[section.name] = plain_section(data)
        except (HoldfastError, ValueError) as error:
            found[section.name] = f"({error})"
    return found


class Mirror:
    """Writes the documents of one mirror."""

    def __init__(self, options: MirrorOptions) -> None:
        self.options = options
        self._lock = threading.Lock()  # retention removes documents in a thread of its own
        self._form = "json" if options.form == "task" else options.form
        self._template = options.location or _LOCATIONS.get(options.form, _LOCATION)
        unknown = set(_FIELD.findall(self._template)) - {"root", "project", "run", "task", "issue"}
        parts = Path(self._template).parts
        if options.form not in ("yaml", "json", "task") or unknown or not {"run", "task", "issue"} & set(
            _FIELD.findall(self._template)
        ) or ".." in parts or "{" in _FIELD.sub("", self._template) or is_in_git(self._template):  # fmt: skip
            raise UsageError(
                f"mirror: form {options.form!r}, location {self._template!r}: use yaml, json or task, and a path with "
                "{run}, {task} or {issue} in it, not in a .git; {root} and {project} are known too"
            )

    def folder(self, run: str, task: str | None = None) -> Path:
        """Return the folder of a run's documents, or of those of one task in it."""
        task = task or run
        name = _folder_name(run)
        fields = {
            "run": name,
            "task": _folder_name(task),
            "issue": name.removeprefix("issue-") or name,
            "project": run_name(self.options.project),
            "root": str(self.options.root),
        }
        path = Path(_FIELD.sub(lambda field: fields[field[1]], self._template))
        folder = path if path.is_absolute() else self.options.root / path
        if is_in_git(str(folder), os.path.realpath(folder)):
            raise UsageError(f"the mirror of {run} would be in {folder}, and git runs what lies there: choose another")
        index = self._read_index(folder)
        taken = index.get("run", index.get("task", run)), index.get("task", task)
        # Taken by another: a task of this name in another run, or twins where case is one.
        return folder if taken == (run, task) else folder.with_name(run_name(f"{run}:{task}:{taken}"))

    def write(self, document: Mapping[str, Any], entry: MirrorEntry) -> HoldfastError | None:
        """Write a checkpoint's document, the index and `latest`; return what went wrong, None if nothing did.

        A mirror never fails the checkpoint that it is of.
        """
        return self._kept(str(document["run"]), lambda folder: self._write(folder, [(document, entry)], keep=True))

    def rewrite(self, run: str, documents: Sequence[tuple[Mapping[str, Any], MirrorEntry]]) -> HoldfastError | None:
        """Write all documents of a run, newest first, and remove those of checkpoints that are not among them."""
        return self._kept(run, lambda folder: self._write(folder, documents, keep=False))

    def keep_only(self, run: str, checkpoints: Callable[[], Collection[str]]) -> HoldfastError | None:
        """Remove the documents of checkpoints that are not among these; return what went wrong.

        They are asked for while nobody else writes, or the document of one that is new would go.
        """
        if not self.folder(run).is_dir():
            return None
        return self._kept(run, lambda folder: self._keep_only(folder, run, set(checkpoints())))

    def _keep_only(self, folder: Path, run: str, checkpoints: set[str]) -> None:
        if self.options.form == "task":
            path = folder / "checkpoints.json"
            found: Any = read_document(path, _BOUNDS) if path.exists() else None
            if not _is_task_file(found):
                return
            tasks = {one.get("task", run) for one in found["checkpoints"]} | {run}
            for task in sorted(tasks, key=lambda task: task == run):  # the run's own last: it names the others
                self._keep_in_file(self.folder(run, task) / "checkpoints.json", run, task, checkpoints)
            return
        self._write_index(folder, run, [one for one in self._entries(folder) if one.id in checkpoints], keep=False)

    def _keep_in_file(self, path: Path, run: str, task: str, checkpoints: set[str]) -> None:
        """Leave these of the checkpoints in a task's file; written only where that changes something."""
        found: Any = read_document(path, _BOUNDS) if path.exists() else None
        if _is_task_file(found):
            self._make_folder(path.parent)  # it is there; refused if it is a link
            kept = [one for one in found["checkpoints"] if one["id"] in checkpoints]
            if len(kept) < len(found["checkpoints"]):
                _write_task_file(path, run, task, kept)

    def _kept(self, run: str, work: Callable[[Path], None]) -> HoldfastError | None:
        try:
            with self._lock:
                folder = self.folder(run)
                self._make_folder(folder)
                with _alone(folder):
                    work(folder)
        except HoldfastError as error:
            return error
        except (OSError, ValueError, RecursionError, OverflowError, MemoryError) as error:
            return StoreUnavailable(f"mirror of {run}", f"its document was not written ({error})")
        return None

    def _write(self, folder: Path, documents: Sequence[tuple[Mapping[str, Any], MirrorEntry]], *, keep: bool) -> None:
        if self.options.form == "task":
            self._write_task(folder, [document for document, _ in documents], keep=keep)
            return
        for document, entry in documents:
            _put(folder / entry.file, _written(document, self._form))
        entries = {entry.id: entry for entry in self._entries(folder)} if keep else {}
        entries |= {entry.id: entry for _, entry in documents}
        self._write_index(folder, documents[0][0]["run"] if documents else "", entries.values(), keep=keep)

    def _write_index(self, folder: Path, run: str, entries: Iterable[MirrorEntry], *, keep: bool) -> None:
        """Write the index and `latest`; without `keep`, remove the documents that it does not name."""
        ordered = sorted(entries, key=lambda entry: entry.seq, reverse=True)
        if not keep:
            _remove_others(folder, {entry.file for entry in ordered})
        if not ordered:
            _remove_others(folder, set(), own=True)
            return
        latest = ordered[0]
        index = {
            "holdfast": MIRROR_FORMAT, "run": run, "total": len(ordered),
            "latest": {"id": latest.id, "file": latest.file, "created_at": latest.created_at},
            "last_modified": datetime.now(UTC).isoformat(),
            "checkpoints": [msgspec.to_builtins(entry) for entry in ordered],
        }  # fmt: skip
        _put(folder / f"index.{self._form}", _written(index, self._form))
        _link(folder / "latest", latest.file)

    def _write_task(self, folder: Path, documents: Sequence[Mapping[str, Any]], *, keep: bool) -> None:
        """Write the files of the tasks that checkpoints belong to: the run's own, and those whose stages they are."""
        entries = [_task_entry(one) for one in documents]
        files: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for entry in entries:
            for task in {entry["run"], entry["task"] if "{task}" in self._template else entry["run"]}:
                files.setdefault((entry["run"], task), []).append(entry)
        problems = [self._add_to_file(folder, *owner, made, keep=keep) for owner, made in files.items()]
        for broken in filter(None, problems):
            raise broken

    def _add_to_file(
        self, folder: Path, run: str, task: str, entries: Sequence[dict[str, Any]], *, keep: bool
    ) -> DocumentInvalid | None:
        """Write one file, newest first; with `keep` what it holds stays, unless it cannot be read: that is returned."""
        if task != run:
            folder = self.folder(run, task)
            self._make_folder(folder)
        path = folder / "checkpoints.json"
        before: dict[str, Any] = {}
        broken: DocumentInvalid | None = None
        if keep:
            try:
                found = read_document(path, _BOUNDS)
                if not _is_task_file(found):
                    raise DocumentInvalid("is not a file of checkpoints", str(path))  # noqa: TRY301 - written again
                before = {one["id"]: one for one in found["checkpoints"]}
            except FileNotFoundError:
                pass
            except DocumentInvalid as error:
                broken = DocumentInvalid(f"{error.detail}; it begins again here, rebuild the mirror", str(path))
        _write_task_file(path, run, task, (before | {one["id"]: one for one in entries}).values())
        return broken

    def _entries(self, folder: Path) -> list[MirrorEntry]:
        """Return the entries of the index; from the documents themselves, if it is missing or broken."""
        with suppress(msgspec.ValidationError, KeyError):
            return msgspec.convert(self._read_index(folder)["checkpoints"], list[MirrorEntry])
        found: list[MirrorEntry] = []
        for path in sorted(folder.iterdir()):
            with suppress(OSError, DocumentInvalid, KeyError, TypeError, msgspec.ValidationError):
                if checkpoint_of_name(path.name) and path.suffix == f".{self._form}":
                    found.append(_entry_in(read_document(path, _BOUNDS), path.name))
        return found

    def _read_index(self, folder: Path) -> dict[str, Any]:
        try:
            name = "checkpoints.json" if self.options.form == "task" else f"index.{self._form}"
            index = read_document(folder / name, _BOUNDS)
        except (OSError, DocumentInvalid):
            return {}
        return index if isinstance(index, dict) else {}

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root for its owner only; a link on the way is not followed."""
        below = folder.relative_to(self.options.root) if folder.is_relative_to(self.options.root) else None
        path = self.options.root if below is not None else folder
        path.mkdir(parents=True, exist_ok=True)
        for part in below.parts if below is not None else ():
            path /= part
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            if path.is_symlink() or not path.is_dir():
                raise DocumentInvalid("is a link or a file where the mirror has a folder", str(path))


def rebuild_mirror(
    store: Store,
    mirror: Mirror,
    *,
    runs: Iterable[str] | None = None,
    files_of: Callable[[CheckpointRecord], Iterable[Any]] = lambda _record: (),
    decrypted: bool = False,
) -> list[HoldfastError]:
    """Write the mirror of a store again, all of it or some runs; return what could not be read or written.

    A mirror is plain text: one of an encrypted store is made only if `decrypted` says so.
    """
    if store.codec.mode == "encrypt" and not decrypted:
        raise UsageError(
            "this store is encrypted, and a mirror of it would be plain text; ask for it with decrypted=True"
        )
    problems: list[HoldfastError] = []
    listing = store.runs()
    problems += listing.damaged
    for run in [one.id for one in listing] if runs is None else runs:
        records = store.checkpoints(run)
        problems += records.damaged
        documents = [
            (document_of(one, read_sections(store, one), files_modified=files_of(one)), entry_of(one, mirror.options))
            for one in records
        ]
        failed = mirror.rewrite(run, documents)
        problems += [failed] if failed else []
    return problems


def _entry_in(document: Any, file: str) -> MirrorEntry:
    fields = {name: document[name] for name in ("id", "seq", "created_at", "trigger", "phase", "status", "label")}
    return msgspec.convert(
        {
            **fields, "file": file, "state": document["summary"]["state"], "size": document["size_bytes"],
            "can_resume": document["recovery"]["can_resume"],
        },
        MirrorEntry,
    )  # fmt: skip


def _folder_name(name: str) -> str:
    return name if _FOLDER_NAME.match(name) else run_name(name)


def _task_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint as the file of a task has it: whose it is, at which stage, with an id of task, time, stage.

    A checkpoint that a task with gates took when a stage was over is that task's; any other is the run's.
    """
    run, gates = document["run"], document["sections"].get("gates")
    tasks = gates.get("tasks") if isinstance(gates, dict) else None
    task, stage = run, document["summary"]["state"] or document["phase"] or document["trigger"]
    if isinstance(tasks, dict):
        stages = {name: str(one["stage"]) for name, one in tasks.items() if isinstance(one, dict) and "stage" in one}
        name, _, reached = document["reason"].rpartition(": ")
        task = name if stages.get(name) == reached else run
        stage = stages.get(task, stage)
    return {"checkpoint": stage_id(document["id"], task, stage), "task": task, "stage": stage, **document}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from writing an index that this one has read; StoreBusy if one of them takes long."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _LONGEST_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreBusy(str(folder), "another process writes documents there") from None
                time.sleep(_PAUSE_S)
                continue
            except OSError:
                pass  # a file system without locks
            break
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough where a fork has the descriptor, too
        os.close(descriptor)


def _write_task_file(path: Path, run: str, task: str, checkpoints: Iterable[dict[str, Any]]) -> None:
    """Write the file of a task, newest first; without a checkpoint there is none."""
    ordered = sorted(checkpoints, key=lambda one: one["seq"], reverse=True)
    if not ordered:
        path.unlink(missing_ok=True)
        return
    whole = {
        "holdfast": MIRROR_FORMAT, "run": run, "task": task, "version": ordered[0]["seq"],
        "last_modified": datetime.now(UTC).isoformat(), "total": len(ordered), "checkpoints": ordered,
    }  # fmt: skip
    _put(path, _written(whole, "json"))


def _is_task_file(found: Any) -> bool:
    items = found.get("checkpoints") if isinstance(found, dict) else None
    return isinstance(items, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("id"), str)
        and isinstance(one.get("seq"), int)
        and isinstance(one.get("run"), str)
        and isinstance(one.get("created_at"), str)
        for one in items
    )


def _written(document: Mapping[str, Any], form: str) -> bytes:
    if form == "json":
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    dumped: bytes = _yaml().dump(document)
    return dumped


def _put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; it is derived, so it is not synced."""
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _link(path: Path, target: str) -> None:
    """Point a symbolic link at a neighbour; where links are not to be had, a file holds the name."""
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        _put(path, f"{target}\n".encode())


def _remove_others(folder: Path, kept: set[str], *, own: bool = False) -> None:
    """Remove documents of checkpoints that are gone; whatever else lies there is not ours."""
    for path in folder.iterdir():
        is_document = checkpoint_of_name(path.name) is not None and path.suffix in (".yaml", ".json")
        if (is_document and path.name not in kept) or (own and path.name in _OWN_NAMES):
            path.unlink(missing_ok=True)


class _Yaml:
    """PyYAML's safe dumper: long texts as blocks, no anchors, and quotes where YAML 1.2 would see no text."""

    def __init__(self) -> None:
        try:
            import yaml  # noqa: PLC0415 - loaded only where a mirror is written in it
        except ImportError:
            raise UsageError("YAML documents need PyYAML: pip install pyyaml; or use the form json") from None
        self._yaml = yaml

        class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
            def ignore_aliases(self, _data: Any) -> bool:
                return True

        def text(dumper: Any, value: str) -> Any:
            style = "|" if "\n" in value and not value.startswith(("\n", " ")) else None
            if style is None and not is_plain_text(value):
                style = "'"
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

        Dumper.add_representer(str, text)
        self._dumper = Dumper

    def dump(self, document: Mapping[str, Any]) -> bytes:
        """Return plain data as YAML."""
        dumped: bytes = self._yaml.dump(
            dict(document), Dumper=self._dumper, sort_keys=False, allow_unicode=True, width=100, encoding="utf-8"
        )
        return dumped


@cache
def _yaml() -> _Yaml:
    return _Yaml()
