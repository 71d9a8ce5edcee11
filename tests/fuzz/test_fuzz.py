"""Every decoder under changed bytes; and for a moment under atheris, where that is installed."""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS, one, seeds

ROUNDS = 1_000


def changed(chance, data, others):
    """Return bytes with a few things about them changed."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0:
                made[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 1:
                del made[at : at + chance.randrange(1, 9)]
            case 2:
                made[at:at] = chance.choice(others)
            case 3:
                made[at:at] = made[at : at + 9] * chance.randrange(1, 300)
            case 4:
                made[at : at + 4] = chance.choice(
                    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), b"\xdd\xff\xff\xff"]
                )
            case _:
                made[at : at + 1] = chance.randbytes(1)
    return bytes(made)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_decoded_or_refused_with_a_type(name):
    """Threats 1, 2 and 8: the decoders, over 20,000 payloads in all."""
    chance, known = random.Random(f"fuzz {name}"), seeds()
    for data in known:
        one(name, data)
    for _ in range(ROUNDS):
        one(name, changed(chance, chance.choice(known), known))


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed: make fuzz")
@pytest.mark.parametrize("name", TARGETS)
def test_atheris_finds_nothing_in_a_moment(name):
    command = [sys.executable, str(Path(__file__).with_name("targets.py")), name, "-runs=2000", "-max_total_time=2"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
