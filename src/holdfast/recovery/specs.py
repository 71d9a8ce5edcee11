"""What a person may type for a checkpoint, and every way it can be read; pure.

A label may hold anything, so one text can have several readings: the store decides which of them there is.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from holdfast.errors import UsageError
from holdfast.model.ids import checkpoint_of_name

Kind = Literal["id", "latest", "seq", "position", "before", "label", "prefix"]
_ID = re.compile(r"cp_[0-9a-f]{32}\Z")
_PREFIX = re.compile(r"(?:cp_)?([0-9a-f]{4,32})\Z", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}\Z")
_BACK = re.compile(r"(.*)~([0-9]{0,9})\Z", re.DOTALL)
_NUMBERED: tuple[tuple[str, Kind], ...] = (("@", "seq"), ("#", "position"))
_DIGITS = 19
_LONGEST = 66_000  # a label may have 64 KiB


class Reading(NamedTuple):
    """One way to read a spec: `run` is None where it names no run, `back` counts resumable checkpoints."""

    kind: Kind
    run: str | None = None
    value: str = ""
    back: int = 0


class Spec(NamedTuple):
    """A spec with all its readings, the one that wins first."""

    text: str
    readings: tuple[Reading, ...]


def parse(spec: str) -> Spec:
    """Return all readings of a spec; UsageError if it has none."""
    if not isinstance(spec, str) or not spec.strip() or len(spec) > _LONGEST:
        raise UsageError(
            f"{spec!r:.80} names no checkpoint: give an id, a run, RUN@SEQ, RUN#NUMBER, RUN:label, latest or latest~3"
        )
    found = _BACK.match(spec)
    readings = _readings(found[1], int(found[2] or "1")) if found else []
    return Spec(spec, tuple(dict.fromkeys([*readings, *_readings(spec, 0)])))


def _readings(text: str, back: int) -> list[Reading]:
    if _ID.match(text):
        return [Reading("id", None, text, back), Reading("latest", text, "", back)]
    readings: list[Reading] = []
    if text in ("", "latest"):
        readings.append(Reading("latest", None, "", back))
    if _NAME.match(text):
        readings.append(Reading("latest", text, "", back))
    readings += _of_run(text, back)
    if text.startswith("before:") and len(text) > len("before:"):
        readings.append(Reading("before", None, text[len("before:") :], back))
    prefix = _PREFIX.match(text)
    if prefix:
        readings.append(Reading("prefix", None, prefix[1].lower(), back))
    readings += _of_document(None, text, back)
    if text:
        readings.append(Reading("label", None, text, back))
    return readings


def _of_run(text: str, back: int) -> list[Reading]:
    """Return the readings that begin with a run's id."""
    readings: list[Reading] = []
    for sign, kind in _NUMBERED:
        run, at, number = text.rpartition(sign)
        if at and number.isascii() and number.isdecimal() and len(number) < _DIGITS and (not run or _NAME.match(run)):
            readings.append(Reading(kind, run or None, number, back))
    run, _, rest = text.partition(":")
    if not rest or not _NAME.match(run):
        return readings
    if rest == "latest":
        readings.append(Reading("latest", run, "", back))
    elif rest.startswith("before:") and len(rest) > len("before:"):
        readings.append(Reading("before", run, rest[len("before:") :], back))
    readings.append(Reading("label", run, rest, back))
    if _PREFIX.match(rest):
        readings.append(Reading("prefix", run, rest.lower().removeprefix("cp_"), back))
    return readings + _of_document(run, rest, back)


def _of_document(run: str | None, text: str, back: int) -> list[Reading]:
    """Return the reading of a readable id, or of the path of a document in the mirror."""
    begins = checkpoint_of_name(text)
    return [] if begins is None else [Reading("prefix", run, begins.removeprefix("cp_"), back)]
