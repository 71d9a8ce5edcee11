"""Which run or checkpoint a person means; what is not there comes with the nearest that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import InvalidId, NotFound
from holdfast.lazy import lazily
from holdfast.model.ids import check_run_id

with lazily():  # only what is not there has a nearest name
    import difflib

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast

_LOOKED_AT = 10_000


def existing_run(hf: Holdfast, run: str) -> str:
    """Return a run's id if it is there; NotFound with the nearest ones otherwise."""
    try:
        return hf.store.run(check_run_id(run)).id
    except (NotFound, InvalidId):
        known = [record.id for record in hf.runs(limit=_LOOKED_AT)]
        near = difflib.get_close_matches(run, known, n=3)
        none = "`holdfast ls` lists the runs" if known else "the store is empty"
        raise NotFound("run", run, f"did you mean {' or '.join(near)}?" if near else none) from None


def find(hf: Holdfast, spec: str) -> Checkpoint:
    """Return the checkpoint of an id or a part of it, a label, RUN, RUN@7, RUN~2 or latest; damage shows when read."""
    return hf.find(spec, sound=False)
