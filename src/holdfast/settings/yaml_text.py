"""YAML as plain data: no tags, no anchors (a few lines of them unfold into gigabytes), no key twice."""

from __future__ import annotations

from typing import Any

from holdfast.errors import SettingsInvalid

_DEEPEST = 32


def read_yaml(data: bytes, file: str) -> Any:
    """Return the document's value; SettingsInvalid with line and column if it is no plain YAML."""
    try:
        import yaml  # noqa: PLC0415
    except ImportError:
        raise SettingsInvalid("reading YAML needs PyYAML: pip install pyyaml, or use pyproject.toml", file) from None

    try:
        _check_events(yaml, data)
        _check_keys(yaml.compose(data, Loader=yaml.SafeLoader))
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise SettingsInvalid(f"it is no valid YAML ({error})", file) from error
    except (ValueError, RecursionError) as error:
        raise SettingsInvalid(str(error) or "it is nested too deeply", file) from error


def _check_events(yaml: Any, data: bytes) -> None:
    depth = 0
    for event in yaml.parse(data, Loader=yaml.SafeLoader):
        place = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError(f"{place}: anchors and aliases (& and *) are not used here; write it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"{place}: nested deeper than {_DEEPEST} levels")


def _check_keys(node: Any) -> None:
    pairs = node.value if node is not None and node.id == "mapping" else []
    seen: set[str] = set()
    for key, item in pairs:
        if key.value in seen:
            raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r:.80} is there twice")
        if isinstance(key.value, str):
            seen.add(key.value)
        _check_keys(item)
    for item in node.value if node is not None and node.id == "sequence" else []:
        _check_keys(item)
