import json
from base64 import b64decode

import msgspec
import pytest
import yaml

from holdfast.encode.chunks import Chunk
from holdfast.encode.tree import leaf_id
from holdfast.store.files import FilesStore
from holdfast.store.files_value import packed
from holdfast.testing.contract import Line, StoreContract, chunk_of


class TestFilesStore(StoreContract):
    """Documents are read, edited and removed as a person would, with a YAML or JSON library."""

    form = "yaml"

    def open_store(self, folder):
        return FilesStore(folder / "store", form=self.form)

    def load(self, path):
        return yaml.safe_load(path.read_text()) if self.form == "yaml" else json.loads(path.read_text())

    def save(self, path, lines):
        path.write_text(yaml.safe_dump(lines, sort_keys=False) if self.form == "yaml" else json.dumps(lines))

    def documents(self, store, run=None, *, deleted=False):
        found = [
            (path, self.load(path))
            for path in sorted(store.folder.rglob(f"*-*.{self.form}"))
            if not path.name.startswith(("index", "."))
            if deleted or path.parent.name != "deleted"
        ]
        return [(path, lines) for path, lines in found if run in (None, lines["run"])]

    def contents(self, store, run=None):
        for path, lines in sorted(self.documents(store, run, deleted=True), key=lambda pair: -pair[1]["seq"]):
            for name, _, root, size, *_ in lines["section_roots"]:
                if name in lines["sections"]:
                    yield path, lines, name, b64decode(root), size

    def data(self, lines, name):
        shown, form = lines["sections"][name], lines["forms"].get(name, "value")
        if form == "value":
            return packed(shown)
        return shown.encode() if form == "text" else b64decode(shown)

    def raw_chunk(self, store, chunk):
        for _, lines, name, root, size in self.contents(store):
            if root == chunk:
                return Chunk(root, 0, size, self.data(lines, name))
        return None

    def raw_chunk_ids(self, store):
        return {root for *_, root, _ in self.contents(store)}

    def raw_holds(self, store, run):
        return {root for *_, root, _ in self.contents(store, run)}

    def raw_numbers(self, store, run):
        return sorted(lines["seq"] for _, lines in self.documents(store, run))

    def raw_tombstones(self, store, run):
        lists = [json.loads(path.read_bytes()) for path in store.folder.rglob("deleted.json")]
        return {grave["id"] for graves in lists if graves["run"] == run for grave in graves["checkpoints"]}

    def damage_chunk(self, store, chunk):
        for path, lines, name, root, _ in list(self.contents(store)):
            if root == chunk:
                lines["sections"][name] = lines["sections"][name][:-1] + "X"
                self.save(path, lines)

    def lose_chunk(self, store, chunk):
        for path, lines, name, root, _ in list(self.contents(store)):
            if root == chunk:
                del lines["sections"][name]
                self.save(path, lines)

    def find(self, store, checkpoint):
        return next((path, lines) for path, lines in self.documents(store) if lines["id"] == checkpoint)

    def damage_checkpoint(self, store, checkpoint):
        path, lines = self.find(store, checkpoint)
        lines["reason"] = "because"
        self.save(path, lines)

    def lose_checkpoint(self, store, checkpoint):
        self.find(store, checkpoint)[0].unlink()


class TestFilesStoreAsJson(TestFilesStore):
    form = "json"


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_a_compressed_document_holds_the_same(tmp_path, compression):
    """Proves A15."""
    store = FilesStore(tmp_path, compression=compression)
    record = Line(store).commit(chunk_of("something worth keeping " * 50))
    again = FilesStore(tmp_path, compression=compression)
    assert again.checkpoint(record.envelope.id) == record
    assert leaf_id(chunk_of("something worth keeping " * 50).data) in set(again.chunk_ids())
    assert msgspec.structs.asdict(again.stats())["checkpoints"] == 1
