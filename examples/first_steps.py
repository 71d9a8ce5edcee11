"""A first look: checkpoint a growing conversation, lose the process, damage the store, and get it all back.

This one shows the store alone; `examples/demo.py` runs a whole flow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import apsw

import holdfast

STEPS = 40
WRITER = """
import os, signal, sys
import holdfast

run = holdfast.open(sys.argv[1]).run("issue-42")
messages = []
for step in range(int(sys.argv[2])):
    messages.append({"role": "assistant", "content": f"step {step}: " + "thinking " * 200})
    checkpoint = run.checkpoint(reason=f"step {step}", state={"messages": messages, "step": step})
    print(checkpoint.seq, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def main() -> None:
    """Tell the story on a store in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / ".holdfast"
        acknowledged = lose_a_process(place)
        with holdfast.open(place) as hf:
            latest = hf.latest("issue-42", required=True)
            state = latest.section("state")
            print(f"The writer was killed after acknowledging checkpoint {acknowledged}.")
            print(f"Found: {latest!r} with {len(state['messages'])} messages. Nothing acknowledged was lost.\n")
            show_costs(hf)
            show_list(hf)
            damage_newest(place, latest)
        with holdfast.open(place) as hf:
            survive_damage(hf)


def lose_a_process(place: Path) -> int:
    """Let another process take checkpoints until it is killed with SIGKILL; return the last it acknowledged."""
    child = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", textwrap.dedent(WRITER), str(place), str(STEPS)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ,
    )
    if child.returncode != -signal.SIGKILL:
        sys.exit(f"the writer ended with {child.returncode} instead of being killed")
    return int(child.stdout.split()[-1])


def show_costs(hf: holdfast.Holdfast) -> None:
    """Compare what is stored with what full copies would have taken."""
    rows = hf.checkpoints("issue-42")
    full = sum(row.size_bytes for row in rows)
    stored = sum(row.stored_bytes for row in rows)
    print(f"{len(rows)} checkpoints: full copies would be {full:,} bytes, stored are {stored:,}.")
    print(f"Kept by {hf.stats().engine}, verified: {hf.verify().sound}\n")


def show_list(hf: holdfast.Holdfast) -> None:
    """List the newest few, which reads no payload."""
    for row in hf.checkpoints("issue-42", limit=3):
        print(f"  {row.seq:>3}  {row.id}  {row.trigger:<8} {row.reason:<10} {row.size_bytes:>8,} bytes")
    print()


def damage_newest(place: Path, latest: holdfast.Checkpoint) -> None:
    """Flip one bit of the newest checkpoint's data, behind the store's back."""
    root = latest.record.envelope.sections[0].root
    connection = apsw.Connection(str(place / "holdfast.db"))
    stored: Any = connection.execute("SELECT data FROM chunk WHERE id = ?", (root,)).fetchall()[0][0]
    data = bytearray(stored)
    data[len(data) // 2] ^= 1
    connection.execute("UPDATE chunk SET data = ? WHERE id = ?", (bytes(data), root))
    connection.close()


def survive_damage(hf: holdfast.Holdfast) -> None:
    """Show that damage is refused by name, and that the newest sound checkpoint is one call away."""
    try:
        hf.latest("issue-42", required=True).section("state")
    except holdfast.ChunkCorrupt as error:
        print(f"One bit was flipped. Reading it: {error}\n")
    else:
        sys.exit("damage was handed out as data")
    sound = hf.latest("issue-42", required=True, sound=True)
    messages = sound.section("state")["messages"]
    print(f"Newest sound one: {sound!r} with {len(messages)} messages, passing over {len(sound.skipped)}.")


if __name__ == "__main__":
    main()
