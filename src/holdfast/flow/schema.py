"""The JSON Schema of flow files, for editors, made from the model itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from holdfast.flow import model
from holdfast.flow.keys import KEYS
from holdfast.flow.model import DURATION_EXAMPLES, Flow, Part

_SCALARS = ["string", "number", "boolean", "array"]


def flow_schema() -> dict[str, Any]:
    """Return the schema of a flow file, with every short form that the reader takes."""
    (root,), definitions = msgspec.json.schema_components([Flow], ref_template="#/$defs/{name}")
    _allow_durations(definitions)
    for name, definition in definitions.items():
        for key, field in definition.get("properties", {}).items():
            _allow_one_for_many(field)
            field["description"] = KEYS[key]
        short = _class(name).short
        if short is not None:
            plain = definition["properties"][short]
            words = ("default", "description")
            accepted = {"type": _SCALARS} if name == "Param" else {key: plain[key] for key in plain if key not in words}
            definitions[name] = {"anyOf": [_without_null(accepted), definition], "title": name}
    for mapping in (
        definitions["Flow"]["properties"]["phases"],
        definitions["Phase"]["anyOf"][1]["properties"]["tasks"],
    ):
        _allow_pairs(mapping)
    _allow_nothing(definitions["Flow"]["properties"]["params"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast flow",
        **root,
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the schema as the text of docs/flow.schema.json."""
    return json.dumps(flow_schema(), indent=1, ensure_ascii=False) + "\n"


def _class(name: str) -> type[Part]:
    return getattr(model, name)  # type: ignore[no-any-return]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" not in schema:
        return schema
    members = [one for one in schema["anyOf"] if one.get("type") != "null"]
    return members[0] if len(members) == 1 else {"anyOf": members}


def _allow_durations(schema: Any) -> None:
    """Let a number of seconds be written as a text with its unit."""
    if isinstance(schema, dict):
        if schema.get("examples") == DURATION_EXAMPLES:
            schema["type"] = ["number", "string"]
            schema["pattern"] = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
        for value in schema.values():
            _allow_durations(value)
    elif isinstance(schema, list):
        for item in schema:
            _allow_durations(item)


def _allow_one_for_many(field: dict[str, Any]) -> None:
    """Let a list of one item be written as that item."""
    if field.get("type") == "array" and field.get("items"):
        default = {"default": field.pop("default")} if "default" in field else {}
        listed = dict(field)
        field.clear()
        field.update({"anyOf": [listed["items"], listed], **default})


def _allow_pairs(field: dict[str, Any]) -> None:
    """Let a mapping in order be written as a list of one-key mappings, and an entry be empty."""
    _allow_nothing(field)
    mapping = dict(field)
    pair = {key: mapping[key] for key in mapping if key not in {"default", "minProperties"}}
    field.clear()
    field["description"] = mapping.pop("description")
    pair.pop("description")
    field["anyOf"] = [
        {key: value for key, value in mapping.items() if key != "default"},
        {"type": "array", "items": {**pair, "minProperties": 1, "maxProperties": 1}},
    ]


def _allow_nothing(field: dict[str, Any]) -> None:
    field["additionalProperties"] = {"anyOf": [field["additionalProperties"], {"type": "null"}]}
