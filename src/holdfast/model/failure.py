"""Errors as they are stored: message, code and stack."""

from __future__ import annotations

import errno
import traceback

from holdfast.errors import CommandFailed
from holdfast.model.sections import Failure

_LONGEST_STACK = 50


def failure_of(error: BaseException) -> Failure:
    """Return an error as it is stored."""
    stack = "".join(traceback.format_exception(error, limit=-_LONGEST_STACK))
    return Failure(message=_storable(str(error)), code=_storable(_code(error)), stack=_storable(stack))


def _code(error: BaseException) -> str:
    """Return what tells one error from another: its own code, its errno by name, an exit code, or else its class."""
    own = error.status if isinstance(error, CommandFailed) else getattr(error, "code", None)
    if type(own) in (str, int) and own != "":
        return str(own)
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, str(error.errno))
    returned = getattr(error, "returncode", None)  # of subprocess.CalledProcessError
    return str(returned) if type(returned) is int else type(error).__name__


def _storable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
