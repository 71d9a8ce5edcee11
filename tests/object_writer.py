"""A writer that is spawned: it commits to one run of a store whose chunks are objects."""

from holdfast.errors import HeadMoved
from holdfast.store.objects import ObjectShelf
from holdfast.store.postgres import PostgresMedium
from holdfast.store.store import Store
from holdfast.testing.contract import Line, chunk_of


def write(database, place, options, number):
    store = Store(PostgresMedium(database, shelf=ObjectShelf(place, from_bytes=0, grace_s=0, options=options)))
    line = Line(store)
    for turn in range(6):
        while True:
            try:
                line.commit(chunk_of(f"{number} {turn}"))
            except HeadMoved:
                line.follow()
            else:
                break
    store.close()
