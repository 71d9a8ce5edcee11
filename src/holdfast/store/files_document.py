"""One checkpoint as a document that people read: its record, its marks and the whole content of its sections.

The record is sealed as in every store, and each section's content must have the hash that the record states; so an edit
by hand shows, and says where. The order of keys is fixed, for small differences in a git repository.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode import records
from holdfast.encode.tree import LEAF, Ref, leaf_id
from holdfast.errors import CheckpointCorrupt, FormatTooNew
from holdfast.model.checkpoint import CheckpointRecord, Envelope, Marks
from holdfast.store.files_tree import cut
from holdfast.store.files_value import NotReadableError, packed, readable

if TYPE_CHECKING:
    from holdfast.encode.chunks import Chunk

DOCUMENT_FORMAT = 1
_FIELDS = Envelope.__struct_fields__
_MARKS = Marks.__struct_fields__


class RunFacts(msgspec.Struct, frozen=True, array_like=True):
    """What every document says of its run, so that any one of them is enough to know it."""

    number: int
    created_at: datetime


class Content(msgspec.Struct, frozen=True):
    """A section's whole bytes, and where its tree cuts them."""

    data: bytes
    outline: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint with the contents that stand in its document; a section that is missing there is kept as chunks."""

    record: CheckpointRecord
    facts: RunFacts
    contents: dict[str, Content]
    damage: dict[str, str] = {}

    def chunks(self, section: str) -> dict[bytes, Chunk]:
        """Return the chunks of one section as its content gives them, whatever names the record has for them."""
        return cut(self.contents[section].data, self.contents[section].outline)


def lines_of(document: Document, *, plain: bool = False) -> dict[str, Any]:
    """Return the document as plain data in the order in which it is written; `plain` writes all contents in base64."""
    record = document.record
    fields = dict(zip(_FIELDS, msgspec.to_builtins(record.envelope), strict=True))
    marks = dict(zip(_MARKS, msgspec.to_builtins(record.marks), strict=True))
    forms = {name: _form(content.data, plain=plain) for name, content in document.contents.items()}
    return {
        "holdfast": DOCUMENT_FORMAT,
        **{name: value for name, value in fields.items() if name != "sections"},
        "section_roots": fields["sections"],
        "run_facts": msgspec.to_builtins(document.facts),
        "checksum": record.checksum.hex(),
        "marks": marks,
        "marks_checksum": records.seal_marks(record.envelope.id, record.marks)[1].hex(),
        "sections": {name: shown for name, (_, shown) in forms.items()},
        "forms": {name: form for name, (form, _) in forms.items() if form != "value"},
        "outlines": {name: content.outline for name, content in document.contents.items() if "(" in content.outline},
    }


def record_of(lines: Any, where: str) -> tuple[CheckpointRecord, RunFacts]:
    """Return what a document's head says; CheckpointCorrupt if it was altered."""
    name = _id_of(lines, where)
    version = lines.get("holdfast")
    if isinstance(version, int) and version > DOCUMENT_FORMAT:
        raise FormatTooNew(where, version, DOCUMENT_FORMAT)
    try:
        fields = [lines["section_roots"] if field == "sections" else lines[field] for field in _FIELDS]
        envelope = msgspec.convert(fields, Envelope)
        marks = msgspec.convert([lines["marks"][field] for field in _MARKS], Marks)
        facts = msgspec.convert(lines["run_facts"], RunFacts)
        checksum, marks_checksum = bytes.fromhex(lines["checksum"]), bytes.fromhex(lines["marks_checksum"])
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise CheckpointCorrupt(f"the head of {where} is broken ({error}); {_UNDO}", name) from error
    if records.seal(envelope)[1] != checksum:
        raise CheckpointCorrupt(f"a line in the head of {where} was changed; {_UNDO}", name)
    if records.seal_marks(envelope.id, marks)[1] != marks_checksum:
        raise CheckpointCorrupt(f"the marks in {where} were changed by hand; use hf.mark(...), and {_UNDO}", name)
    return CheckpointRecord(envelope, checksum, marks), facts


def document_of(lines: Any, where: str) -> Document:
    """Return a document with all its contents; sections that were edited are named in its `damage`."""
    record, facts = record_of(lines, where)
    sections, forms, outlines = (_mapping(lines, part, where, record) for part in ("sections", "forms", "outlines"))
    contents: dict[str, Content] = {}
    damage: dict[str, str] = {}
    for section in record.envelope.sections:
        if section.name not in sections:
            continue
        try:
            data = _data(forms.get(section.name, "value"), sections[section.name])
            content = Content(data, str(outlines.get(section.name, len(data))))
            contents[section.name] = content
            if Ref(section.kind, section.size, section.root) != _root(content):
                damage[section.name] = _edited(section.name, where, record)
        except ValueError as error:
            damage[section.name] = f"{_edited(section.name, where, record)} ({error})"
    return Document(record=record, facts=facts, contents=contents, damage=damage)


_UNDO = "undo the edit, or delete the checkpoint"


def _edited(section: str, where: str, record: CheckpointRecord) -> str:
    return (
        f"section {section!r} in {where} does not match its checksum: it was edited. Undo the edit, or accept it as a "
        f"new checkpoint with hf.store.accept({record.envelope.id!r})"
    )


def _id_of(lines: Any, where: str) -> str:
    name = lines.get("id") if isinstance(lines, dict) else None
    if not isinstance(name, str):
        raise CheckpointCorrupt(f"{where} is no checkpoint document; {_UNDO}", where)
    return name


def _mapping(lines: dict[str, Any], part: str, where: str, record: CheckpointRecord) -> dict[str, Any]:
    found = lines.get(part) or {}
    if not isinstance(found, dict):
        raise CheckpointCorrupt(f"{part} in {where} is no mapping any more; {_UNDO}", record.envelope.id)
    return found


def _form(data: bytes, *, plain: bool) -> tuple[str, Any]:
    """Return the most readable form of a content: a value, text, or base64."""
    if plain:
        return "base64", b64encode(data).decode()
    try:
        return "value", readable(data)
    except NotReadableError:
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64", b64encode(data).decode()
    printable = text.replace("\n", "").isprintable()
    return ("text", text) if printable else ("base64", b64encode(data).decode())


def _data(form: str, shown: Any) -> bytes:
    if form == "value":
        return packed(shown)
    if not isinstance(shown, str):
        raise ValueError("is no text")  # noqa: TRY004 - an edit, not a programming error
    return shown.encode() if form == "text" else b64decode(shown, validate=True)


def _root(content: Content) -> Ref | None:
    if "(" not in content.outline:
        return Ref(LEAF, len(content.data), leaf_id(content.data))
    chunks = cut(content.data, content.outline)
    *_, last = chunks  # a node is finished after all below it
    return Ref(2, len(content.data), last)
