"""Random ignore rules on random names: the own matcher agrees with git."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.workspace.kit import Box, git, repository, write

PART = st.text(alphabet="ab.x*?[]!-\\ ", min_size=1, max_size=4)
PATTERN = st.builds(
    lambda negated, anchored, parts, directory: negated + anchored + "/".join(parts) + directory,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(st.one_of(PART, st.just("**"), st.just("*")), min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**"]),
)
NAME = st.text(alphabet="abx.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATTERN, min_size=1, max_size=5), st.lists(PATTERN, max_size=2), st.sets(PATH, min_size=1, max_size=12))
def test_what_git_ignores_is_ignored_and_nothing_else(top, nested, names):
    """Proves A6: untracked files that git would not ignore are captured, ignored ones are not."""
    chosen: list[str] = []
    for name in sorted(names):
        if not any(name.startswith(other + "/") or other.startswith(name + "/") for other in chosen):
            chosen.append(name)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "w"
        repository(root)
        write(root, dict.fromkeys(chosen, "x"))
        (root / ".gitignore").write_bytes("\n".join(top).encode())
        inner = root / chosen[0].split("/")[0]
        if nested and inner.is_dir():
            (inner / ".gitignore").write_bytes("\n".join(nested).encode())
        expected = set(git(root, "ls-files", "-z", "-o", "--exclude-standard").split("\0")) - {""}
        box = Box(root)
        assert set(box.paths(box.capture())) == expected
