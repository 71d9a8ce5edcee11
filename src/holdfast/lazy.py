"""Lazy imports: modules that are named at the top of a file and loaded when they are first used.

    with lazily():
        import asyncio
        from holdfast.runtime import agents

Only `import module` and `from package import module`: what a proxy stands for is a module, so that a type checker, a
reader and `grep` see an ordinary import. Nothing is found on disk and nothing is put into `sys.modules` before the
first use. `pattern` does the same for a regular expression: it is compiled when it is first used.
"""

from __future__ import annotations

import builtins
import re
import threading
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_one_block = threading.RLock()  # nothing is imported for good inside a block, so nobody waits for it long


class _Module(ModuleType):
    """Stands for a module until one of its names is asked for; the import system itself keeps threads apart."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)


@contextmanager
def lazily() -> Iterator[None]:
    """Let the imports of the block give modules that are loaded when they are used."""
    thread = threading.get_ident()

    def lazy_import(
        name: str,
        globals: Any = None,  # noqa: A002 - the signature of __import__
        locals: Any = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if threading.get_ident() != thread:
            return before(name, globals, locals, fromlist or (), level)
        if not fromlist:
            return _Module(name)
        return SimpleNamespace(**{one: _Module(f"{name}.{one}") for one in fromlist})

    with _one_block:  # two that took each other's function for the original would leave one of them behind
        before, builtins.__import__ = builtins.__import__, lazy_import
        try:
            yield
        finally:
            builtins.__import__ = before


class _Pattern:
    """Stands for a compiled regular expression; each method is looked up once."""

    def __init__(self, text: Any, flags: int) -> None:
        self._made = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._made), name)
        setattr(self, name, value)
        return value


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used, for its methods alone."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))
