"""The new process of the workspace benchmark: loads the cache, captures, and imports nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.encode.chunks import Chunk, ChunkReader
from holdfast.encode.compress import Compressor
from holdfast.encode.tree import Ref, encode_node, node_id
from holdfast.workspace import snapshot
from holdfast.workspace.spill import SpillingWriter
from holdfast.workspace.workspace import Workspace


def main(tree: Path, scratch: Path) -> None:
    parts = json.loads((scratch / "snapshot").read_text())
    node = [
        bytes.fromhex(part) if isinstance(part, str) else Ref(part[0], part[1], bytes.fromhex(part[2]))
        for part in parts
    ]
    data, size = encode_node(node)
    ref = Ref(2, size, node_id(data))
    taken = snapshot.load(ChunkReader(lambda ids: dict.fromkeys(ids, Chunk(ref.id, 0, len(data), data))), ref)
    workspace = Workspace(tree)
    assert workspace.load_cache((scratch / "cache").read_bytes(), taken)
    with SpillingWriter(Compressor().quick()) as writer:
        assert workspace.capture(writer, taken) == taken
        assert not writer.chunks


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
