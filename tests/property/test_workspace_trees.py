"""Random trees are restored equal, wherever and from whatever they are restored."""

# ruff: noqa: PTH101, PTH103, PTH118, PTH123, PTH211 - names are bytes here

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.workspace import compare
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.paths import fault
from unit.workspace.kit import Box, seen

NAME = st.binary(min_size=1, max_size=6).filter(lambda name: fault(name) is None)
FILE = st.tuples(st.just("file"), st.sampled_from([0o644, 0o755, 0o600, 0o444]), st.binary(max_size=200))
LINK = st.tuples(st.just("link"), st.binary(min_size=1, max_size=8).filter(lambda target: 0 not in target))
TREE = st.recursive(
    st.dictionaries(NAME, st.one_of(FILE, LINK), max_size=4),
    lambda below: st.dictionaries(NAME, st.one_of(FILE, LINK, below), max_size=4),
    max_leaves=12,
)
ALL = WorkspaceOptions(secrets=(), generated=(), use_gitignore=False)


def _make(root: bytes, tree: dict) -> None:
    os.makedirs(root, exist_ok=True)
    for name, what in tree.items():
        path = os.path.join(root, name)
        if isinstance(what, dict):
            _make(path, what)
        elif what[0] == "link":
            os.symlink(what[1], path)
        else:
            with open(path, "wb") as file:
                file.write(what[2])
            os.chmod(path, what[1])


def _replace(root: Path, tree: dict) -> None:
    for item in root.iterdir():
        if item.name == ".holdfast":
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()
    _make(os.fsencode(root), tree)


@settings(max_examples=80, deadline=None)
@given(TREE)
def test_captured_and_restored_elsewhere_the_tree_is_equal(tree):
    """Proves A6 and X1."""
    with tempfile.TemporaryDirectory() as place:
        box = Box(Path(place) / "w", ALL)
        _make(os.fsencode(box.root), tree)
        taken = box.capture()
        assert not taken.skips
        other = Box(Path(place) / "o", ALL, store=box.store)
        report = other.restore(taken, in_place=False, allow_outside_links=True)
        assert report.verified
        assert seen(other.root) == seen(box.root)
        assert other.capture().root == taken.root


@settings(max_examples=120, deadline=None)
@given(TREE, TREE, TREE)
def test_after_any_edits_a_restore_brings_the_tree_back_and_another_undoes_it(first, second, third):
    """Proves X1 and X4: from a tree we know to any checkpoint, whatever became a directory, a link or nothing."""
    with tempfile.TemporaryDirectory() as place:
        box = Box(Path(place) / "w", ALL)
        shots = []
        for tree in (first, second, third):
            _replace(box.root, tree)
            shots.append((box.capture(), seen(box.root)))
        for taken, content in (shots[0], shots[1], shots[2], shots[0]):
            plan = box.plan(taken, allow_outside_links=True)
            assert not plan.conflicts
            assert box.restore(taken, allow_outside_links=True).verified
            assert seen(box.root) == content
            box.capture()


@settings(max_examples=80, deadline=None)
@given(TREE, TREE)
def test_two_trees_differ_in_exactly_the_paths_that_differ(first, second):
    with tempfile.TemporaryDirectory() as place:
        box = Box(Path(place) / "w", ALL)
        _replace(box.root, first)
        one, before = box.capture(), seen(box.root)
        _replace(box.root, second)
        two, after = box.capture(), seen(box.root)
        found = compare.changes(box.tree(one), box.tree(two), renames=False)
        expected = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        assert {os.fsencode(change.path) for change in found} == expected
        disk, _ = box.workspace.look(box.reader, one)
        assert compare.changes(box.tree(two), disk) == []
