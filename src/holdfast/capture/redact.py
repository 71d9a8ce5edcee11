"""Keeping secrets out: a packer that looks at what it packed, and packs what it suspects again without them.

Only what is packed is looked at, and a long list packs only what changed; of the rest, bytes that are as they were last
time are not scanned again. What was taken out is kept by path and rule.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from datetime import date, time, timedelta
from enum import Enum
from functools import cached_property, lru_cache, reduce
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import ormsgpack

from holdfast.capture.markers import KeptValue, register_markers
from holdfast.capture.names import Kind, is_number_secret, kind_of, looks_secret
from holdfast.capture.patterns import CURL_LOGIN, NAME_FIELDS, ONLY_JOINED, PASSWORD_FLAGS, VALUE_FIELDS
from holdfast.capture.scan import changed_part, make_scan
from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.capture.secrets import ends_in_secret_key, is_secret_key, keys_pattern, make_finder, redacted
from holdfast.capture.texts import is_users_own
from holdfast.encode.opaque import Opaque
from holdfast.encode.outcome import Outcome
from holdfast.encode.values import Packer, below
from holdfast.model.redaction import Redacted, Redaction, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.capture.secrets import SecretFinder
    from holdfast.encode.section import SectionMemo
    from holdfast.encode.types import TypeRegistry

_REMEMBERED_BYTES = 1 << 20  # of rope items; its unsettled tail is at most an eighth of this
_REMEMBERED_NAMES = 4096
_LONGEST_FLAG = 1024
_PAIR_FIELDS = 32  # a mapping with more fields is not a pair of a name and its value
_DEEPEST = 100  # deeper is refused by the packer
_ITEM = re.compile(r"(.*)\[(\d+)\]\Z", re.DOTALL)
_FLAG = re.compile(r"-[!-<>-~]*(?:=|\Z)")
_BINARY = re.compile(rb"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f]")
# Of what stands below `credentials`, these fields are not secret.
_BESIDE = frozenset(
    {"user", "username", "login", "email", "host", "hostname", "region", "type", "name", "id", "profile"}
)


class RedactionRules(NamedTuple):
    """What is taken out: what stands under these keys and paths, and these patterns beside the known ones.

    Under a key of SECRET_KEYS only what looks like a secret is taken out; under any other, which the user named, all.
    """

    keys: tuple[str, ...] = SECRET_KEYS
    paths: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    fill: tuple[tuple[str, str], ...] = ()
    lock: Callable[[bytes], bytes] | None = None
    """Locks what is taken out under the store's key, where that is kept; see docs/CAPTURE.md."""


class _Seen(NamedTuple):
    raw: bytes
    packed: bytes
    found: tuple[Redaction, ...]


class _Judged(NamedTuple):
    """What a name says of its value."""

    kind: Kind | None
    is_known: bool = False
    """Whether it is, or ends in, one of SECRET_KEYS."""
    takes_all: bool = False
    """Whether the user named it: then nothing under it is kept, or no text if it only ends in such a name."""
    is_exact: bool = False


_HARMLESS = _Judged(None)

_STRUCTURES = (dict, list)
_ANYTHING = [0]  # what a telling name hides, whatever it is


class RedactingPacker(Packer):
    """Packs without secrets, and remembers for each section what was taken out where."""

    def __init__(
        self, types: TypeRegistry, rules: RedactionRules, *, bound: Callable[[str, bytes], None] | None = None
    ) -> None:
        super().__init__(types, bound=bound)
        self._rules = rules
        self._keys = keys_pattern(tuple(key for key in rules.keys if key in SECRET_KEYS))
        self._own_keys = keys_pattern(tuple(key for key in rules.keys if key not in SECRET_KEYS))
        self._paths = [(path, path_pattern(path)) for path in rules.paths]
        self._fill = [(path_pattern(path), env) for path, env in rules.fill]
        self._judged = lru_cache(maxsize=_REMEMBERED_NAMES)(self._judge)
        self._clean_key = lru_cache(maxsize=_REMEMBERED_NAMES)(self.text)
        self._last: dict[str, dict[str, _Seen]] = {}  # section, then path, of what was packed last time
        self._taken: list[Redaction] = []
        self._is_walking = False
        self.begin("")

    @cached_property
    def _scan(self) -> Callable[[bytes], bool]:
        """The quick look; made when something is first packed, as compiling it takes a while."""
        return make_scan(self._rules.keys, tuple(pattern for _, pattern in self._rules.patterns))

    @cached_property
    def _finder(self) -> SecretFinder:
        return make_finder(self._rules.patterns)

    def begin(self, section: str) -> None:
        """Say which section is packed next."""
        self._section = section
        self._before = self._last.get(section, {})
        self._now: dict[str, _Seen] = {}
        self._items: deque[tuple[str, int]] = deque()
        self._item_bytes = 0
        self._walks_always = any(first_step(path) in (section, "*", "**") for path, _ in self._paths)

    def end(self, memo: SectionMemo) -> list[Redaction]:
        """Return all that is taken out of the section, also from items that were not packed again."""
        settled = {reduce(below, path): rope.packed for path, rope in memo.ropes.items()}
        seen = {where: one for where, one in self._before.items() if where not in self._now and _is_in(where, settled)}
        seen.update(self._now)
        for where in list(seen):
            # Of settled items only what was found is of use; their bytes would be a second copy of the section.
            if where in settled or _is_in(where, settled):
                seen[where] = _Seen(b"", b"", seen[where].found)
                if not seen[where].found:
                    del seen[where]
        self._last[self._section] = seen
        return _counted([one.found for one in seen.values() if one.found])

    def forget(self) -> None:
        """Forget what was seen: the next packing looks at everything."""
        self._last.clear()

    def pack(self, value: Any, where: str) -> bytes:
        """Return the value's bytes without secrets."""
        raw = super().pack(value, where)
        before, repeated = self._before.get(where), self._now.get(where)
        if repeated is not None:
            # Several stretches of one mapping are packed under its path: none can stand for it next time.
            packed, found = self._looked_at(value, where, raw, None)
            new = tuple(one for one in found if one not in repeated.found)
            self._now[where] = _Seen(b"", b"", repeated.found + new)
        elif before is not None and before.raw == raw:
            packed, found = before.packed, before.found
            self._now[where] = before
        else:
            packed, found = self._looked_at(value, where, raw, before)
            self._now[where] = _Seen(raw, packed, found)
        if where[-1:] == "]":
            self._limit_items(where, len(raw))
        return packed

    def _looked_at(
        self, value: Any, where: str, raw: bytes, before: _Seen | None
    ) -> tuple[bytes, tuple[Redaction, ...]]:
        """Return the bytes without secrets, walking the value only if the scan suspects it."""
        if before is not None and before.raw and not before.found:
            suspect = self._scan(changed_part(before.raw, raw))
        else:
            suspect = (before is not None and bool(before.found)) or self._scan(raw)
        if not self._walks_always and not (suspect and self._is_founded(value, where)):
            return raw, ()
        plain = self._walked(value, where)
        return (self._pack_parts(plain), tuple(self._taken)) if self._taken else (raw, ())

    def _walked(self, value: Any, where: str) -> Any:
        self._taken, self._is_walking = [], True
        try:
            return self._plain(value, where, 0)
        finally:
            self._is_walking = False

    def _is_founded(self, value: Any, where: str) -> bool:
        """Tell whether a walk takes anything out of a value that the scan suspects.

        Structures beside each other say nothing of one another, so of those only the suspected ones are walked: one
        false alarm in a large section cost a walk over all of it at every checkpoint near it.
        """
        kind = type(value)
        if kind is dict and value and all(type(item) in _STRUCTURES for item in value.values()):
            for key, item in value.items():
                if not self._scan(super().pack({key: item}, where)):
                    continue
                if type(key) is not str or self._scan(super().pack({key: _ANYTHING}, where)):
                    self._walked({key: item}, where)
                    if self._taken:
                        return True
                elif self._is_founded(item, below(where, key)):
                    return True
            return False
        if kind is list and value and all(type(item) in _STRUCTURES for item in value):
            parts = ((item, f"{where}[{index}]") for index, item in enumerate(value))
            return any(self._scan(super(RedactingPacker, self).pack(*one)) and self._is_founded(*one) for one in parts)
        self._walked(value, where)
        return bool(self._taken)

    def _limit_items(self, where: str, size: int) -> None:
        """Let the bytes of items that were packed long ago go: they are settled by now."""
        self._items.append((where, size))
        self._item_bytes += size
        while self._item_bytes > _REMEMBERED_BYTES and len(self._items) > 1:
            oldest, freed = self._items.popleft()
            self._item_bytes -= freed
            self._now[oldest] = _Seen(b"", b"", self._now[oldest].found)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        # The scan knows all that the finder does, so the finder is compiled (0.1 s) only when there may be something.
        return self._finder.clean(text) if self._scan(text.encode("utf-8", "surrogatepass")) else text

    def _plain(self, value: Any, where: str, depth: int) -> Any:  # noqa: C901 - a row of types
        """Replace what is secret on the way down; everything else is as in any packing."""
        kind = type(value)
        if not self._is_walking or kind is ormsgpack.Ext:
            return value if kind is ormsgpack.Ext else super()._plain(value, where, depth)
        for path, pattern in self._paths:
            if pattern.fullmatch(where) and _is_worth_hiding(value):
                return self._marked(f"path {path}", where, value)
        if kind is str:
            return self._text(value, where)
        if kind is bytes or kind is bytearray or kind is memoryview:
            return self._bytes(bytes(value), where)
        if kind is dict:
            return super()._plain(self._mapping(value, where), where, depth)
        if kind is list or kind is tuple:
            return super()._plain(self._sequence(value, where), where, depth)
        if kind is Secret:
            return self._marked("marked", where, value)
        if kind is Redacted:
            self._taken.append(Redaction(where, value.rule))
        elif isinstance(value, PurePath):
            return self._path(value, where, depth)
        elif isinstance(value, Enum):
            return self._as_it_is(value, where, depth)  # a constant of the program, which must be restored as it is
        return super()._plain(value, where, depth)

    def _path(self, value: PurePath, where: str, depth: int) -> Any:
        clean = self.text(str(value))
        if clean != str(value):
            self._taken.append(Redaction(where, "path text"))
            return self._kept(type(value)(clean), value, where)
        return super()._plain(value, where, depth)

    def _as_it_is(self, value: Any, where: str, depth: int) -> Any:
        """Pack a value without looking into it: no rule, and no path of the user's, applies to its parts."""
        self._is_walking = False
        try:
            return super()._plain(value, where, depth)
        finally:
            self._is_walking = True

    def _mapping(self, value: dict[Any, Any], where: str) -> dict[Any, Any]:
        """Return a mapping without secrets in its keys and without what stands under telling ones."""
        clean: dict[Any, Any] = {}
        for key, item in value.items():
            name = self._key(key, where, clean) if type(key) is str else key
            said = key if type(key) is str else key.decode("latin-1") if type(key) is bytes else None
            clean[name] = item if said is None else self._field(said, item, below(where, name))
        return self._pair(clean, where)

    def _field(self, key: str, item: Any, where: str) -> Any:
        """Return what is kept of the value of a field: all, a marker, or a structure without the secrets in it."""
        if isinstance(item, dict | list) and not is_users_own(self._section, where):
            return item  # a task or phase of this name: its record is a structure of ours, and is looked into
        rule = self._rule_for(key, item)
        if rule is not None:
            return self._marked(rule, where, item)
        if isinstance(item, dict | list | tuple) and self._judged(key).kind is Kind.PASSWORD:
            return self._below_secret(item, where, 0)
        return item

    def _below_secret(self, value: Any, where: str, depth: int) -> Any:
        """Return a structure that stands under a telling name without what looks like a secret in it."""
        kind = type(value)
        if depth > _DEEPEST:
            return value
        if kind is dict:
            return {
                key: item if key in _BESIDE else self._below_secret(item, below(where, key), depth + 1)
                for key, item in value.items()
            }
        if kind is list or kind is tuple:
            return kind(self._below_secret(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value))
        return self._marked("key", where, value) if _is_secret(Kind.PASSWORD, value) else value

    def _pair(self, value: dict[Any, Any], where: str) -> dict[Any, Any]:
        """Return a mapping without the value that another field gives a telling name: {"name": …, "value": …}."""
        fields = {key.lower(): key for key in value if type(key) is str} if 1 < len(value) <= _PAIR_FIELDS else {}
        names = [value[fields[field]] for field in NAME_FIELDS & fields.keys()]
        for field in VALUE_FIELDS & fields.keys():
            key = fields[field]
            rules = (self._rule_for(name, value[key]) for name in names if type(name) is str)
            rule = next(filter(None, rules), None)
            if rule is not None:
                value[key] = self._marked(rule, below(where, key), value[key])
        return value

    def _sequence(self, value: list[Any] | tuple[Any, ...], where: str) -> list[Any] | tuple[Any, ...]:
        """Return a list without what belongs to a telling flag: ["--password", …], ["--password=…"]."""
        clean: list[Any] | None = None
        program = next((PurePath(item).name for item in value if type(item) is str and _is_program(item)), None)
        short = PASSWORD_FLAGS[program] if program is not None else None
        for index, item in enumerate(value):
            if type(item) is not str or item[:1] != "-" or len(item) > _LONGEST_FLAG:
                continue
            if not _FLAG.match(item):
                continue  # a sentence
            is_short = short is not None and item.startswith(short) and item[1] != "-"
            if is_short and (len(item) > len(short or "") or program in ONLY_JOINED):
                flag, joint, given = item[:2], "", item[2:]
                at = index
            else:
                flag, joint, given = item.partition("=")
                at = index if joint else index + 1
            if at == len(value):
                break
            taken = self._after_flag(
                flag,
                given if at == index else value[at],
                f"{where}[{at}]",
                value,
                in_text=at == index,
                named=not is_short,
            )
            if taken is not None:
                clean = list(value) if clean is None else clean
                clean[at] = self._kept(f"{flag}{joint}{taken}", item, f"{where}[{at}]") if at == index else taken
        return value if clean is None else type(value)(clean)

    def _after_flag(
        self, flag: str, given: Any, where: str, items: Sequence[Any], *, in_text: bool, named: bool
    ) -> Any:
        """Return what stands for a flag's value, None if that is not a secret, or says where the secret is."""
        if type(given) not in (str, bytes, int, float) or (type(given) is str and given[:1] in ("-", "$", "")):
            return None
        if not named:
            rule = "command-password" if _is_secret(Kind.PASSWORD, given) else None
        else:
            rule = self._rule_for(flag.lstrip("-"), given)
        if rule is not None and not in_text:
            return self._marked(rule, where, given)
        user, colon, password = given.partition(":") if type(given) is str else ("", "", "")
        if rule is None and flag in CURL_LOGIN and colon and password[:1] not in ("$", "") and _is_curl(items):
            rule, given = "curl-user", f"{user}:"
        elif rule is not None:
            given = ""
        if rule is None:
            return None
        self._taken.append(Redaction(where, rule))
        return f"{given}[redacted:{rule}]"

    def _rule_for(self, key: str, item: Any) -> str | None:
        """Return the rule by which a name makes a secret of what stands under it."""
        judged = self._judged(key)
        if judged is _HARMLESS or type(item) is ormsgpack.Ext:  # what is taken out already stays as it is
            return None
        if judged.takes_all and (_is_worth_hiding(item) if judged.is_exact else isinstance(item, str | bytes) and item):
            return "key"
        if judged.kind is None or isinstance(item, dict | list | tuple | Opaque) or not _is_secret(judged.kind, item):
            return None
        return "key" if judged.is_known else "telling name"

    def _judge(self, key: str) -> _Judged:
        """Return what a name says of its value: by the user's own keys, then by the known ones, then by its words."""
        is_own = is_secret_key(key, self._own_keys)
        if is_own or ends_in_secret_key(key, self._own_keys):
            return _Judged(None, takes_all=True, is_exact=is_own)
        if is_secret_key(key, self._keys) or ends_in_secret_key(key, self._keys):
            return _Judged(Kind.PASSWORD, is_known=True)
        kind = kind_of(key)
        return _HARMLESS if kind is None else _Judged(kind)

    def _key(self, key: str, where: str, taken: dict[Any, Any]) -> str:
        name = self._clean_key(key)
        if name == key:
            return key
        self._taken.append(Redaction(f"{where}.<key>", "key text"))
        while name in taken:
            name += "'"
        return name

    def _text(self, text: str, where: str) -> Any:
        data = text.encode("utf-8", "surrogatepass")
        found = self._finder.find(data)
        if not found:
            return super()._plain(text, where, 0)
        if (found[0].start, found[0].end) == (0, len(data)):
            return self._marked(found[0].rule, where, text)
        self._taken += [Redaction(where, one.rule) for one in found]
        return self._kept(redacted(data, found).decode("utf-8", "surrogatepass"), text, where)

    def _bytes(self, data: bytes, where: str) -> Any:
        """Return bytes that are text without secrets, and all others as they are: an edit would break their format."""
        found = self._finder.find(data) if _is_text(data) else []
        self._taken += [Redaction(where, one.rule) for one in found]
        return self._kept(redacted(data, found), data, where) if found else data

    def _marked(self, rule: str, where: str, value: Any) -> Any:
        """Note the removal of a value and return what stands for it."""
        self._taken.append(Redaction(where, rule))
        env = value.env if isinstance(value, Secret) else None
        env = env or next((name for pattern, name in self._fill if pattern.fullmatch(where)), None)
        marker = self._marker(rule, env, where)
        # What a variable brings back, or the program marked as secret itself, is not kept.
        is_out = env is not None or isinstance(value, Secret)
        return self._as_it_is(marker, where, 0) if is_out else self._kept(marker, value, where)

    def _marker(self, rule: str, env: str | None, where: str) -> Redacted | str:
        """Return a marker, or text where the section's type wants text."""
        return Redacted(rule, env) if is_users_own(self._section, where) else str(Redacted(rule))

    def _kept(self, shown: Any, value: Any, where: str) -> Any:
        """Return what is shown for a value; with the value locked beside it, where the store keeps it."""
        if self._rules.lock is None:
            return self._as_it_is(shown, where, 0)
        locked = self._rules.lock(self._pack_parts(self._as_it_is(value, where, 0)))
        return self._as_it_is(KeptValue(shown, locked), where, 0)


def text_redactor(types: TypeRegistry, rules: RedactionRules | None) -> Callable[[str], str]:
    """Return what takes secrets out of a text as the store does; without rules it changes nothing."""
    return str if rules is None else RedactingPacker(types, rules).text


def _counted(found: list[tuple[Redaction, ...]]) -> list[Redaction]:
    """Join what was found; a place that was packed twice, in a list and again as its item, counts once."""
    counts: dict[Redaction, int] = {}
    for some in found:
        for one, count in Counter(some).items():
            counts[one] = max(count, counts.get(one, 0))
    return [one for one, count in counts.items() for _ in range(count)]


def _is_in(where: str, settled: dict[str, int]) -> bool:
    """Tell whether a path is that of a settled item of one of these lists."""
    match = _ITEM.match(where)
    return match is not None and int(match[2]) < settled.get(match[1], 0)


def _is_curl(items: Sequence[Any]) -> bool:
    """Tell whether a command line calls curl."""
    return any(type(item) is str and PurePath(item).name in ("curl", "curl.exe") for item in items)


def _is_program(item: str) -> bool:
    """Tell whether an item of a command line is a program that takes a password behind a short flag."""
    return PurePath(item).name in PASSWORD_FLAGS


def _is_text(data: bytes) -> bool:
    """Tell whether bytes are text: UTF-8 without control characters, which the lengths and tags of a format are."""
    if _BINARY.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_secret(kind: Kind, value: Any) -> bool:
    """Tell whether a value that is not a structure looks like what its name promises."""
    if type(value) is str:
        return looks_secret(kind, value)
    if type(value) is bytes or type(value) is bytearray or type(value) is memoryview:
        data = bytes(value)
        return looks_secret(kind, data.decode()) if _is_text(data) else kind is Kind.PASSWORD
    if type(value) is int or type(value) is float:
        return is_number_secret(kind, value)
    if value is None or isinstance(value, bool | Redacted | Opaque | Outcome | date | time | timedelta | Enum):
        return False
    return kind is Kind.PASSWORD and _is_worth_hiding(value)


def _is_worth_hiding(value: Any) -> bool:
    return not (value is None or isinstance(value, bool | Redacted) or (hasattr(value, "__len__") and len(value) == 0))


@lru_cache(maxsize=256)
def path_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path as errors write it, `state.config['a b'][0]`; * is any one step, ** any number."""
    steps = re.findall(r"\*\*|\*|\[[^\]]*\]|[^.\[\]*]+", path)
    source = ""
    for step in steps:
        if step == "**":
            source += r"(?:\.\w+|\[[^\]]*\])*"
        elif step in ("*", "[*]", "[]"):
            source += r"(?:\.\w+|\[[^\]]*\])"
        elif step.startswith("["):
            source += re.escape(step)
        else:
            source += (r"\." if source else "") + re.escape(step)
    return re.compile(source)


def first_step(path: str) -> str:
    """Return the section that a path is in, which may be a star."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


__all__ = ["RedactingPacker", "RedactionRules", "first_step", "path_pattern", "register_markers", "text_redactor"]
