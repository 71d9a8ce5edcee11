"""Settings from `holdfast.yaml` or `[tool.holdfast]` in pyproject.toml of a project, over this user's own file.

Whatever is not understood is refused by name: a setting that is silently ignored is a checkpoint that is silently
missing. What a project's file may say without the user's trust is in `holdfast.settings.trust`.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.encode.documents import Bounds, parse_yaml, read_regular
from holdfast.errors import DocumentInvalid, SettingsInvalid, UsageError
from holdfast.model.nearest import hint
from holdfast.model.rules import OTHERS
from holdfast.model.triggers import TRIGGER_GROUPS, Trigger
from holdfast.model.verdicts import check_verdicts
from holdfast.settings.environment import config_folder
from holdfast.settings.presets import preset_under
from holdfast.settings.trust import Wish, check_trust, filled, is_unsaid, wishes_of
from holdfast.settings.values import Settings, SettingsPart

FILES = ("holdfast.yaml", "holdfast.yml", "pyproject.toml")
_BOUNDS = Bounds(size_bytes=1 << 20, depth=32, nodes=50_000)
_MOST_DOTS = 200
_LONGEST_PATTERN = 2_000
# Lists that protect something: what a project adds to them does not replace the user's own.
_JOINED = (
    ("redaction", "keys"),
    ("redaction", "more_keys"),
    ("redaction", "paths"),
    ("workspace", "ignore"),
    ("destructive", "operations"),
)


def find_settings(folder: Path) -> Path | None:
    """Return the settings file of a folder, None if it has none; a pyproject.toml that is not a plain file has none."""
    for name in FILES:
        path = folder / name
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if name != "pyproject.toml" or (stat.S_ISREG(mode) and b"[tool.holdfast" in _read(path)):
            return path
    return None


def user_file() -> Path | None:
    """Return this user's own settings file, None if there is none."""
    folder = config_folder()
    path = None if folder is None else folder / "holdfast.yaml"
    return path if path is not None and path.exists() else None


def load_settings(path: Path) -> Settings:
    """Read one settings file that the caller named; SettingsInvalid names the place of what is wrong."""
    return make_settings(_with_key_path(_plain(path, follow=True), path.parent), str(path))


def project_settings(file: Path | None, *, is_located: bool = False) -> Settings:
    """Return the settings of a project: its file, if it has one, over the user's own.

    SettingsUntrusted if the file says what needs trust and has none; `is_located`: the caller names the store itself.
    """
    own = user_file()
    base = None if own is None else _with_key_path(_plain(own, follow=True), own.parent)
    if own is not None:
        make_settings(base, str(own))
    if file is None:
        return make_settings(base, str(own))
    data = _plain(file)
    settings = make_settings(data, str(file))
    check_trust(wishes_of(data, _root(file), is_located=is_located), file)
    joined = join_settings(base, _with_key_path(data, file.parent))
    return settings if joined == data else make_settings(joined, str(file))


def project_wishes(file: Path) -> list[Wish]:
    """Return what a project's file says that needs trust, after a look whether the file can be followed at all."""
    data = _plain(file)
    make_settings(data, str(file))
    return wishes_of(data, _root(file))


def _plain(path: Path, *, follow: bool = False) -> Any:
    data = _read(path, follow=follow)
    if path.suffix == ".toml":
        return _toml(data, path)
    try:
        return parse_yaml(data, str(path), _BOUNDS)
    except DocumentInvalid as error:
        raise SettingsInvalid(error.detail, str(path)) from None


def _root(file: Path) -> Path:
    return file.parent.absolute()


def _with_key_path(data: Any, folder: Path) -> Any:
    """Return plain settings in which the key file's place does not depend on where the program was started."""
    encryption: Any = data.get("encryption") if isinstance(data, dict) else None
    named = encryption.get("key_file") if isinstance(encryption, dict) else None
    if not isinstance(named, str) or named.startswith("~"):
        return data
    return {**data, "encryption": {**encryption, "key_file": str(folder.absolute() / named)}}


def join_settings(base: Any, data: Any) -> Any:
    """Return a project's plain settings over the user's: names of it win, protecting lists are put together."""
    if not base or not data:
        return data or base
    joined: dict[str, Any] = {**base, **data}
    for name in base.keys() & data.keys():
        if isinstance(base[name], dict) and isinstance(data[name], dict):
            said = {key: value for key, value in data[name].items() if not is_unsaid(f"{name}.{key}", value)}
            joined[name] = {**base[name], **said}
        elif data[name] is None:  # nothing is said, so nothing of the user's own is switched off
            joined[name] = base[name]
    for section, name in _JOINED:
        lists = [one[section][name] for one in (base, data) if name in (one.get(section) or {})]
        if len(lists) > 1:
            joined[section][name] = [*lists[0], *lists[1]]
    patterns = [one["redaction"].get("patterns") or {} for one in (base, data) if one.get("redaction")]
    if len(patterns) > 1:
        joined["redaction"]["patterns"] = {**patterns[1], **patterns[0]}
    return joined


def make_settings(data: Any, file: str = "settings") -> Settings:
    """Return settings from plain data; SettingsInvalid if it has anything that is not understood."""
    if data is None:
        return Settings()
    if not isinstance(data, dict):
        raise SettingsInvalid(f"settings are a mapping, not a {type(data).__name__}", file)
    _refuse_unknown(data, Settings, "", file)
    try:
        settings = msgspec.convert(preset_under(data), Settings)
        _check_names(settings)
        _ = settings.policy
    except (msgspec.ValidationError, UsageError) as error:
        raise SettingsInvalid(str(error).replace(" - at `$.", " - at `") + _choices(str(error)), file) from None
    except RecursionError:
        raise SettingsInvalid("settings are nested too deeply", file) from None
    return settings


def check_settings(settings: Settings, place: str = "holdfast.open()") -> Settings:
    """Return settings that code made, checked like those of a file: constructing a value checks nothing."""
    if settings == Settings():
        return settings  # the checks build a type for every part: 8 ms that most calls need not pay
    try:
        data = msgspec.to_builtins(settings)
    except TypeError as error:
        raise SettingsInvalid(str(error), place) from None
    return make_settings(data, place)


def located(settings: Settings, file: Path | None) -> str | None:
    """Return where the store is, the template filled in and a relative path taken from the file's folder."""
    if settings.location is None:
        return None
    root = (file.parent if file else Path.cwd()).absolute()
    place = filled(settings.location, root, str(file or "settings"))
    is_path = ":" not in place.partition("/")[0]
    return str(root / place) if is_path else place


def _choices(refusal: str) -> str:
    """Return what can be chosen where a choice was refused."""
    if refusal.startswith("Expected `bool`, got `str`"):
        return "; write true or false"
    match = re.search(r"enum value .* at `\$\.([\w.]+)`", refusal)
    hint: Any = Settings
    for name in match[1].split(".") if match else ():
        hint = get_type_hints(hint)[name]
    return "; use " + ", ".join(get_args(hint)) if match else ""


def _check_names(settings: Settings) -> None:
    several = [*TRIGGER_GROUPS, OTHERS]
    for place, names, known in (
        ("triggers", settings.triggers, [*Trigger, *several]),
        ("workspace_on", settings.workspace_on, [*Trigger]),
        ("retention.triggers", settings.retention.triggers, [*Trigger, *several]),
    ):
        for name in names:
            if name not in known:
                raise UsageError(f"{place}: there is no trigger {name!r}; {hint(name, map(str, known))}")
    if settings.encryption.key_file and settings.encryption.key_env:
        raise UsageError("encryption: give key_file or key_env, not both")
    for name, pattern in settings.redaction.patterns.items():
        _check_pattern(name, pattern)
    try:
        check_verdicts(settings.recovery.verdicts)
    except UsageError as error:
        raise UsageError(f"recovery.verdicts: {error}") from None


def matches_nothing(pattern: str) -> bool:
    """Tell whether an expression fits empty text, and so would match everywhere; re.error if it is not valid."""
    if len(pattern) > _LONGEST_PATTERN:
        raise re.error(f"it has {len(pattern):,} characters; the limit is {_LONGEST_PATTERN:,}")
    try:
        re.compile(pattern)
        return int(vars(re)["_parser"].parse(pattern).getwidth()[0]) == 0  # told without matching anything
    except (RecursionError, OverflowError, MemoryError) as error:
        raise re.error(f"it is too large ({type(error).__name__})") from None


def _check_pattern(name: str, pattern: str) -> None:
    try:
        is_empty = matches_nothing(pattern)
    except re.error as error:
        raise UsageError(f"redaction.patterns: {name!r} is not a valid regular expression ({error})") from None
    if is_empty:
        raise UsageError(f"redaction.patterns: {name!r} matches empty text, so it would match everywhere")


def _refuse_unknown(data: dict[Any, Any], cls: type[msgspec.Struct], path: str, file: str) -> None:
    hints = get_type_hints(cls)
    for key, value in data.items():
        if key == "preset" and cls is Settings:
            continue
        if key not in hints:
            raise SettingsInvalid(f"there is no setting {path + str(key)!r}; {hint(str(key), hints)}", file)
        part = next((one for one in (hints[key], *get_args(hints[key])) if _is_part(one)), None)
        if part is not None and isinstance(value, dict):
            _refuse_unknown(value, part, f"{path}{key}.", file)


def _is_part(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, SettingsPart)


def _read(path: Path, *, follow: bool = False) -> bytes:
    try:
        return read_regular(path, limit=_BOUNDS.size_bytes, follow=follow)
    except DocumentInvalid as error:
        raise SettingsInvalid(error.detail, str(path)) from None
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise SettingsInvalid(f"it cannot be read ({why})", str(path)) from error


def _toml(data: bytes, path: Path) -> Any:
    import tomllib  # noqa: PLC0415 - only for those who keep settings in pyproject.toml

    # The parser takes the square of the number of parts of a dotted key: a megabyte of them is an hour.
    if any(line.count(b".") > _MOST_DOTS for line in data.split(b"\n")):
        raise SettingsInvalid(f"a line has more than {_MOST_DOTS} dots", str(path))
    try:
        return tomllib.loads(data.decode()).get("tool", {}).get("holdfast")
    except (ValueError, RecursionError, MemoryError, AttributeError) as error:
        raise SettingsInvalid(f"it is not valid TOML ({error})", str(path)) from error
