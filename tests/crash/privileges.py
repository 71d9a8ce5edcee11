"""Letting go of root's right to pass by permission bits, so that they bind in a test that runs as root."""

from __future__ import annotations

import ctypes
import os

_VERSION_3 = 0x20080522
_OVERRIDE = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def give_up_privileges() -> None:
    """Make permission bits bind for this process from now on; call it in a child only."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) or not all(sets[:2]):
        raise OSError(ctypes.get_errno(), "capget")
    for index in range(3):
        sets[index] &= ~_OVERRIDE & 0xFFFFFFFF
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
