"""Recoveries in any order against a model: whatever was done before, state and files are those of the chosen moment."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from crash.children import TORTURE, scratch
from holdfast import Holdfast
from holdfast.store.sqlite import SQLiteStore
from recovery.recovery_kit import tree

if TYPE_CHECKING:
    from pathlib import Path

OPERATIONS = 400 if TORTURE else 40
NAMES = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]


class Walk:
    """A run that is edited, put back, undone, declined and forked at random, beside what it should be."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.random = random.Random(seed)
        self.moments: dict[str, tuple[Any, Any]] = {}
        self.before: tuple[Any, Any] | None = None  # what an undo goes back to
        self.number = 0
        self.forks = 0
        self.open()

    def open(self) -> None:
        self.hf = Holdfast(SQLiteStore(self.folder / "x.db", durability="process"))

    def now(self) -> tuple[Any, Any]:
        head = self.hf.latest("r")
        return head.section("state") if "state" in head.sections else None, tree(self.project)

    def edit(self) -> None:
        self.number += 1
        for name in self.random.sample(NAMES, self.random.randrange(3)):
            path = self.project / name
            if path.exists() and self.random.random() < 0.4:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{name} {self.number}\n" * self.random.randrange(3))
        run = self.hf.run("r", workspace=self.project)
        made = run.checkpoint(state=self.number)
        run.close()
        self.moments[made.id] = self.now()

    def recover(self) -> None:
        target = self.random.choice(list(self.moments))
        was = self.now()
        plan = self.hf.plan(target, workspace=self.project)
        result = self.hf.recover(plan)
        assert result.success, result.errors
        assert self.now() == self.moments[target]
        if result.undo is not None:
            self.before = was

    def undo(self) -> None:
        if self.before is None:
            return
        was = self.now()
        result = self.hf.undo("r", workspace=self.project)
        assert result.success, result.errors
        assert self.now() == self.before
        self.before = was

    def fresh(self) -> None:
        was = self.now()
        root = self.hf.recovery.start_fresh("r")
        assert self.now() == (None, was[1])
        if self.hf.latest("r").id == root.id and was[0] is not None:
            self.before = was
        self.edit()

    def fork(self) -> None:
        target = self.random.choice(list(self.moments))
        name = f"fork-{self.forks}"
        self.forks += 1
        made = self.hf.fork(target, name)
        state, files = self.moments[target]
        assert (made.section("state") if "state" in made.sections else None) == state
        assert {record.path for record in made.files()} == set(files)
        if self.random.random() < 0.5:
            self.hf.delete_run(name)

    def reopen(self) -> None:
        self.hf.close()
        self.open()


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_recoveries_gives_the_chosen_moment(seed) -> None:
    """Proves X1, X5, D9, B3."""
    with scratch() as folder:
        walk = Walk(folder, seed)
        walk.edit()
        for _ in range(OPERATIONS):
            operation = walk.random.choices(
                [walk.edit, walk.recover, walk.undo, walk.fresh, walk.fork, walk.reopen], [6, 4, 3, 1, 1, 1]
            )[0]
            operation()
        assert walk.hf.verify().sound
        walk.hf.close()
