"""The state machine of the SQLite store, over the other media: whatever can be seen is equal to the memory model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from holdfast.store.files import FilesStore
from holdfast.store.objects import ObjectShelf
from holdfast.store.postgres import PostgresStore
from object_server import shared_objects
from postgres_server import shared_server
from property.test_state_machine import RUNS, KeptOpen, Side, StoreAgainstModel


class OtherStoreAgainstModel(StoreAgainstModel):
    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        model = KeptOpen()
        self.real = Side(self.opener())
        self.model = Side(lambda: model)
        self.live = {run: {"messages": [], "n": 0} for run in RUNS}
        self.saved = {}


class FilesAgainstModel(OtherStoreAgainstModel):
    def opener(self):
        path = Path(self.folder.name) / "store"
        return lambda: FilesStore(path)

    @invariant()
    def everything_that_can_be_seen_is_equal(self):
        """Compare all but stored sizes: documents hold plain contents."""
        self.both(lambda side: [(run.id, run.head, run.last_seq, run.checkpoints) for run in side.holdfast.runs()])
        for run in RUNS:
            self.compare(run)
        self.both(lambda side: set(side.store.chunk_ids()))
        self.both(lambda side: side.holdfast.stats().chunks)


class PostgresAgainstModel(OtherStoreAgainstModel):
    def opener(self):
        self.url = shared_server().database()
        return lambda: PostgresStore(self.url, pool_size=2)

    def teardown(self):
        super().teardown()
        shared_server().drop(self.url)


class ObjectsAgainstModel(PostgresAgainstModel):
    def opener(self):
        self.url = shared_server().database()
        place = f"s3://{shared_objects().bucket()}/prefix"
        shelf = ObjectShelf(place, from_bytes=0, grace_s=0, options=shared_objects().options)
        return lambda: PostgresStore(self.url, pool_size=2, shelf=shelf)


def moderate(examples, steps):
    return settings(derandomize=True, deadline=None, database=None, max_examples=examples, stateful_step_count=steps)


def test_the_files_store_behaves_as_the_model():
    """Proves A15, C11."""
    run_state_machine_as_test(FilesAgainstModel, settings=moderate(12, 15))


def test_the_postgres_store_behaves_as_the_model():
    """Proves E2, E5."""
    run_state_machine_as_test(PostgresAgainstModel, settings=moderate(15, 16))


def test_the_postgres_store_with_objects_behaves_as_the_model():
    """Proves E2, E5."""
    run_state_machine_as_test(ObjectsAgainstModel, settings=moderate(3, 12))
