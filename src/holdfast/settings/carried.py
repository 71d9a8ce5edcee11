"""Settings that travel with a submitted run: what is captured of it, when, and what is kept.

They are put over those of the worker, as a repository's are put over a user's own: what needs trust stays behind, and
where the store is, its key, its lease and its queue are the worker's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import SettingsInvalid
from holdfast.settings.file import join_settings, make_settings
from holdfast.settings.trust import wishes_of
from holdfast.settings.values import Settings

_OF_A_WORKER = frozenset({"enabled", "location", "lease_s", "encryption", "mirror", "workers"})
_NOWHERE = Path("/")


def carried_by(settings: Settings) -> dict[str, Any]:
    """Return what a run takes along of settings: what is not the default, and needs no trust where it is used."""
    usual, said = (msgspec.to_builtins(one) for one in (Settings(), settings))
    given: dict[str, Any] = {}
    for name, value in said.items():
        if name in _OF_A_WORKER or value == usual[name]:
            continue
        is_part = isinstance(value, dict) and isinstance(usual[name], dict) and usual[name]
        given[name] = {key: one for key, one in value.items() if one != usual[name][key]} if is_part else value
    for wish in wishes_of(given, _NOWHERE):
        part, _, name = wish.name.partition(".")
        if name:
            given[part].pop(name, None)
        else:
            given.pop(part)
    return {name: value for name, value in given.items() if value != {}}


def with_carried(own: Settings, carried: dict[str, Any]) -> Settings:
    """Return a worker's settings with those of a run put over them; SettingsInvalid if the run asks for more."""
    if not carried:
        return own
    place = "the run's settings"
    make_settings(carried, place)
    if wishes_of(carried, _NOWHERE) or _OF_A_WORKER & carried.keys():
        raise SettingsInvalid("they ask for what only a worker's own settings may say", place)
    return make_settings(join_settings(msgspec.to_builtins(own), carried), place)
