"""Credential files are left out of capture and listed; files whose names only look alike are captured."""

from credential_corpus import CREDENTIAL_FILES, INNOCENT_FILES
from unit.workspace.kit import Box

LEFT_OUT_AT_LEAST = 0.9


def fill(root, names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")


def left_out(box, taken, names):
    skipped = {path: reason for path, reason in box.skipped(taken).items() if reason == "secret"}
    return {name for name in names if any(name == path or name.startswith(f"{path}/") for path in skipped)}


def test_nine_of_ten_credential_files_are_left_out_and_listed(tmp_path):
    assert len(CREDENTIAL_FILES) >= 73
    box = Box(tmp_path / "w")
    fill(box.root, CREDENTIAL_FILES)
    taken = box.capture()
    captured = set(box.paths(taken)) & set(CREDENTIAL_FILES)
    assert len(captured) <= (1 - LEFT_OUT_AT_LEAST) * len(CREDENTIAL_FILES), captured
    assert left_out(box, taken, CREDENTIAL_FILES) == set(CREDENTIAL_FILES) - captured


def test_nine_of_ten_are_left_out_deeper_down_too(tmp_path):
    box = Box(tmp_path / "w")
    names = [f"home/ann/{name}" for name in CREDENTIAL_FILES]
    fill(box.root, names)
    captured = set(box.paths(box.capture())) & set(names)
    assert len(captured) <= (1 - LEFT_OUT_AT_LEAST) * len(names), captured


def test_files_that_only_look_alike_are_captured(tmp_path):
    box = Box(tmp_path / "w")
    fill(box.root, INNOCENT_FILES)
    taken = box.capture()
    assert set(INNOCENT_FILES) - set(box.paths(taken)) == set()


COPIES = (
    "{0}~", "{0}.~1~", "{0}.bak", "{0}.bak2", "{0}.old", "{0}.orig", "{0}.swp", ".{0}.swp", "#{0}#", "{0}-backup",
    "{0}_old", "{0}.1", "{0}.20261118", "{0}.bak.1",
)  # fmt: skip


def test_backups_and_editors_copies_are_left_out_where_the_file_is(tmp_path):
    """`.env~`, `#.env#` and `id_rsa.old` went into the checkpoint beside a file that did not."""
    box = Box(tmp_path / "w")
    fill(box.root, CREDENTIAL_FILES)
    taken = box.capture()
    names = [name for name in CREDENTIAL_FILES if name in left_out(box, taken, CREDENTIAL_FILES)]
    copies = []
    for name in names:
        above, slash, last = name.rpartition("/")
        copies += [above + slash + form.format(last) for form in COPIES]
    fill(box.root, copies)
    assert set(box.paths(box.capture())) & set(copies) == set()


def test_backups_of_innocent_files_are_captured(tmp_path):
    box = Box(tmp_path / "w")
    copies = [f"{name}{suffix}" for name in INNOCENT_FILES for suffix in ("~", ".bak", ".old", "-backup", ".1")]
    copies = [name for name in copies if ".env." not in name]  # which is one whatever follows
    fill(box.root, copies)
    assert set(copies) - set(box.paths(box.capture())) == set()
