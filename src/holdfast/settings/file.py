"""Settings from `holdfast.yaml`, or `[tool.holdfast]` in pyproject.toml.

Whatever is not understood is refused by name: a setting that is silently ignored is a checkpoint that is silently
missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.errors import SettingsInvalid, UsageError
from holdfast.model.triggers import Trigger
from holdfast.model.verdicts import check_verdicts
from holdfast.settings.values import Part, Settings
from holdfast.settings.yaml_text import read_yaml

FILES = ("holdfast.yaml", "holdfast.yml", "pyproject.toml")
_LARGEST_FILE = 1 << 20


def find_settings(folder: Path) -> Path | None:
    """Return the settings file of a folder, None if it has none."""
    for name in FILES:
        path = folder / name
        if path.is_file() and (name != "pyproject.toml" or b"[tool.holdfast" in _read(path)):
            return path
    return None


def load_settings(path: Path) -> Settings:
    """Read a settings file; SettingsInvalid names the place of what is wrong, and the nearest known setting."""
    data = _read(path)
    if path.suffix == ".toml":
        return make_settings(_toml(data, path), str(path))
    return make_settings(read_yaml(data, str(path)), str(path))


def make_settings(data: Any, file: str = "settings") -> Settings:
    """Return settings from plain data; SettingsInvalid if it has anything that is not understood."""
    if data is None:
        return Settings()
    if not isinstance(data, dict):
        raise SettingsInvalid(f"settings are a mapping, not a {type(data).__name__}", file)
    _refuse_unknown(data, Settings, "", file)
    try:
        settings = msgspec.convert(data, Settings)
        _check_names(settings)
        _ = settings.policy
    except (msgspec.ValidationError, UsageError) as error:
        raise SettingsInvalid(str(error).replace(" - at `$.", " - at `") + _choices(str(error)), file) from None
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
    try:
        place = settings.location.format(project=root.name, root=str(root))
    except (KeyError, IndexError, ValueError) as error:
        detail = f"location {settings.location!r}: only {{project}} and {{root}} are filled in ({error})"
        raise SettingsInvalid(detail, str(file or "settings")) from None
    is_path = ":" not in place.partition("/")[0]
    return str(root / place) if is_path else place


def _choices(refusal: str) -> str:
    """Return what can be chosen where a choice was refused."""
    match = re.search(r"enum value .* at `\$\.([\w.]+)`", refusal)
    hint: Any = Settings
    for name in match[1].split(".") if match else ():
        hint = get_type_hints(hint)[name]
    return "; use " + ", ".join(get_args(hint)) if match else ""


def _check_names(settings: Settings) -> None:
    known = [*Trigger]
    for place, names in (
        ("triggers", settings.triggers),
        ("workspace_on", settings.workspace_on),
        ("retention.triggers", [name for name in settings.retention.triggers if name != "*"]),
    ):
        for name in names:
            if name not in known:
                raise UsageError(f"{place}: there is no trigger {name!r}{_nearest(name, known)}")
    if settings.encryption.key_file and settings.encryption.key_env:
        raise UsageError("encryption: give key_file or key_env, not both")
    for name, pattern in settings.redaction.patterns.items():
        _check_pattern(name, pattern)
    try:
        check_verdicts(settings.recovery.verdicts)
    except UsageError as error:
        raise UsageError(f"recovery.verdicts: {error}") from None


def _check_pattern(name: str, pattern: str) -> None:
    try:
        matches_nothing = re.compile(pattern).match("") is not None
    except re.error as error:
        raise UsageError(f"redaction.patterns: {name!r} is no regular expression ({error})") from None
    if matches_nothing:
        raise UsageError(f"redaction.patterns: {name!r} matches empty text, so it would match everywhere")


def _refuse_unknown(data: dict[Any, Any], cls: type[msgspec.Struct], path: str, file: str) -> None:
    hints = get_type_hints(cls)
    for key, value in data.items():
        if key not in hints:
            hint = _nearest(str(key), list(hints))
            raise SettingsInvalid(f"there is no setting {path + str(key)!r}{hint}", file)
        part = next((one for one in (hints[key], *get_args(hints[key])) if _is_part(one)), None)
        if part is not None and isinstance(value, dict):
            _refuse_unknown(value, part, f"{path}{key}.", file)


def _is_part(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Part)


def _nearest(name: str, known: list[Any]) -> str:
    import difflib  # noqa: PLC0415 - only for those who mistyped something

    near = difflib.get_close_matches(name, [str(one) for one in known], n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(map(str, known)))}"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise SettingsInvalid(f"it cannot be read ({error.strerror})", str(path)) from error
    if len(data) > _LARGEST_FILE:
        raise SettingsInvalid(f"it is larger than {_LARGEST_FILE:,} bytes, which no settings need", str(path))
    return data


def _toml(data: bytes, path: Path) -> Any:
    import tomllib  # noqa: PLC0415 - only for those who keep settings in pyproject.toml

    try:
        return tomllib.loads(data.decode()).get("tool", {}).get("holdfast")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"it is no valid TOML ({error})", str(path)) from error
