import json

from blake3 import blake3

from holdfast.encode.chunks import Chunk
from holdfast.store.files import FilesMedium
from holdfast.store.store import Store
from holdfast.testing.contract import StoreContract


class TestFilesStore(StoreContract):
    """Logs and chunk files are read and changed as a person with an editor would, checks included."""

    def open_store(self, folder):
        return Store(FilesMedium(folder / "store"))

    def lines(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def save(self, store, path, lines):
        """Write a log again as if nothing had happened to it: numbers, checks and witness fit."""
        prev, whole = lines[0]["prev"], b""
        for line in lines:
            body = json.dumps({**{k: v for k, v in line.items() if k != "check"}, "prev": prev}).encode()[:-1]
            prev = blake3(body).hexdigest(length=16)
            whole += body + b',"check":"' + prev.encode() + b'"}\n'
        path.write_bytes(whole)
        said, run = f"{lines[-1]['number']:016d} {len(whole):016d} {prev}", lines[0]["run"]
        end = blake3(f"{said} {run}".encode()).hexdigest(length=8)
        (store.folder / "witness" / path.parent.name).write_text(f"{said} {end}\n{run}\n")

    def logs(self, store):
        return sorted((store.folder / "runs").glob("*/journal.jsonl"))

    def rows(self, store, table, run):
        found = {}
        width = {"checkpoint": 3, "tombstone": 3, "run": 1, "record": 2}[table]
        for path in self.logs(store):
            for line in self.lines(path):
                for name, cells in line.get("rows", ()):
                    if line["run"] == run and name == table:
                        found[tuple(cells[:width])] = cells
                    if line["run"] == run and name == f"-{table}":
                        found = {key: row for key, row in found.items() if list(key[: len(cells)]) != cells}
        return found

    def raw_chunk(self, store, chunk):
        path = store.folder / "chunks" / chunk.hex()[:2] / chunk.hex()
        if not path.exists():
            return None
        data = path.read_bytes()
        return Chunk(chunk, data[0], int.from_bytes(data[1:5], "big"), data[5:])

    def raw_chunk_ids(self, store):
        return {bytes.fromhex(path.name) for path in (store.folder / "chunks").glob("*/*")}

    def raw_holds(self, store, run):
        held = set()
        for path in self.logs(store):
            for line in self.lines(path):
                if line["run"] == run:
                    held = (held | set(line.get("hold", ()))) - set(line.get("release", ()))
        return set(map(bytes.fromhex, held))

    def raw_numbers(self, store, run):
        return sorted(key[2] for key in self.rows(store, "checkpoint", run))

    def raw_tombstones(self, store, run):
        return {row[3] for row in self.rows(store, "tombstone", run).values()}

    def damage_chunk(self, store, chunk):
        path = store.folder / "chunks" / chunk.hex()[:2] / chunk.hex()
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    def lose_chunk(self, store, chunk):
        (store.folder / "chunks" / chunk.hex()[:2] / chunk.hex()).unlink()

    def change_rows(self, store, checkpoint, change):
        self.change_all(store, lambda name, cells: name == "checkpoint" and checkpoint in cells, change)

    def change_all(self, store, is_meant, change):
        for path in self.logs(store):
            lines = self.lines(path)
            for line in lines:
                line["rows"] = [
                    row
                    for name, cells in line.get("rows", ())
                    for row in (change(name, cells) if is_meant(name, cells) else [[name, cells]])
                ]
            self.save(store, path, lines)

    def damage_checkpoint(self, store, checkpoint):
        self.change_rows(store, checkpoint, self.flipped)

    def flipped(self, name, cells):
        value = cells[-2]
        return [[name, [*cells[:-2], value[:20] + ("A" if value[20] != "A" else "B") + value[21:], cells[-1]]]]

    def lose_checkpoint(self, store, checkpoint):
        self.change_rows(store, checkpoint, lambda *_row: [])

    def raw_records(self, store, run):
        return sorted(key[1] for key in self.rows(store, "record", run))

    def change_record(self, store, number, change):
        self.change_all(store, lambda name, cells: name == "record" and cells[1] == number, change)

    def damage_record(self, store, run, number):
        self.change_record(store, number, self.flipped)

    def lose_record(self, store, run, number):
        self.change_record(store, number, lambda *_row: [])

    def swap_records(self, store, run, one, other):
        rows = {key[1]: row for key, row in self.rows(store, "record", run).items()}
        for number, taken in ((one, rows[other]), (other, rows[one])):
            self.change_record(store, number, lambda name, cells, taken=taken: [[name, [*cells[:-2], *taken[-2:]]]])
