"""What is the files store's own: documents for people, rebuilt indexes, edits by hand, names on disk."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

import holdfast
from holdfast.errors import CheckpointCorrupt, LimitExceeded, UsageError
from holdfast.store.files import FilesStore
from holdfast.store.files_names import run_name
from holdfast.testing.contract import Line, chunk_of

SECTIONS = {
    "state": {"plan": ["read", "write"], "note": "first line\nsecond line\n", "$odd": {1: (2, 3)}, "blob": b"\0\1"},
    "workflow": {"current_state": "IMPLEMENT"},
}


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(f"file://{tmp_path}/store") as hf:
        yield hf


def folder(hf, run="issue-42"):
    return hf.store.folder / run


def document(hf, run="issue-42"):
    return next(path for path in folder(hf, run).glob("*-*.yaml"))


def test_a_checkpoint_is_a_document_that_a_person_can_read(hf):
    """Proves C11, C1, A15."""
    checkpoint = hf.run("issue-42").checkpoint(**SECTIONS, reason="before lunch")
    path = document(hf)
    lines = yaml.safe_load(path.read_text())
    assert path.name.startswith("implement-20")
    assert path.name.endswith(f"-{checkpoint.id[-12:]}.yaml")
    assert lines["reason"] == "before lunch"
    assert lines["sections"]["state"]["plan"] == ["read", "write"]
    assert lines["sections"]["state"]["note"] == "first line\nsecond line\n"
    assert "    first line\n" in path.read_text()
    assert lines["sections"]["workflow"]["current_state"] == "IMPLEMENT"
    assert hf.latest("issue-42").section("state") == SECTIONS["state"]


def test_latest_and_index_point_at_the_newest(hf):
    """Proves C11."""
    run = hf.run("issue-42")
    run.checkpoint(state=1)
    second = run.checkpoint(state=2, label="here")
    assert (folder(hf) / "latest").resolve().name.endswith(f"-{second.id[-12:]}.yaml")
    index = yaml.safe_load((folder(hf) / "index.yaml").read_text())
    newest = index["checkpoints"][0]
    assert (newest["seq"], newest["id"], newest["label"]) == (2, second.id, "here")


@pytest.mark.parametrize("harm", ["missing", "broken", "stale", "hostile"])
def test_a_missing_stale_or_broken_index_changes_nothing_and_is_made_anew(hf, harm):
    """Proves A15."""
    run = hf.run("issue-42")
    first = run.checkpoint(state=1)
    index = folder(hf) / "index.yaml"
    stale = index.read_bytes()
    run.checkpoint(state=2)
    if harm == "missing":
        index.unlink()
        (folder(hf) / "latest").unlink()
    elif harm == "stale":
        index.write_bytes(stale)
    else:
        index.write_text("{{{" if harm == "broken" else "!!python/object/apply:os.system [echo]")
    with closing(FilesStore(hf.store.folder)) as store:
        again = holdfast.Holdfast(store)
        assert [cp.seq for cp in again.checkpoints("issue-42")] == [2, 1]
        assert again.get(first.id).section("state") == 1
        again.run("issue-42").checkpoint(state=3)
    assert len(yaml.safe_load(index.read_text())["checkpoints"]) == 3
    assert (folder(hf) / "latest").exists()


def test_an_edit_by_hand_is_refused_with_the_section_and_how_to_accept_it(hf):
    """Proves D11, X3."""
    checkpoint = hf.run("issue-42").checkpoint(**SECTIONS)
    path = document(hf)
    path.write_text(path.read_text().replace("- write", "- think"))
    with pytest.raises(CheckpointCorrupt) as caught:
        hf.get(checkpoint.id)
    assert "section 'state'" in str(caught.value)
    assert path.name in str(caught.value)
    assert f"hf.store.accept('{checkpoint.id}')" in str(caught.value)
    assert not hf.verify().sound
    accepted = hf.store.accept(checkpoint.id)
    assert hf.latest("issue-42").id == accepted.envelope.id
    assert hf.latest("issue-42").section("state")["plan"] == ["read", "think"]
    assert hf.latest("issue-42").parent == checkpoint.id
    assert hf.latest("issue-42", sound=True).seq == 2


def test_an_edit_of_the_head_is_refused(hf):
    checkpoint = hf.run("issue-42").checkpoint(state=1, reason="why")
    path = document(hf)
    path.write_text(path.read_text().replace("reason: why", "reason: because"))
    with pytest.raises(CheckpointCorrupt, match=r"head of .* was changed"):
        hf.get(checkpoint.id)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [1",
        "a: &x [1]\nb: *x\n",
        "!!python/object/apply:os.system [echo]\n",
        "\0\0",
        "holdfast: 99\nid: cp_x\n",
    ],
)
def test_a_document_that_is_none_is_damage_and_the_others_stay_readable(hf, text):
    """Proves D11."""
    run = hf.run("issue-42")
    first = run.checkpoint(state=1)
    second = run.checkpoint(state=2)
    broken = next(path for path in folder(hf).glob("*.yaml") if second.id[-12:] in path.name)
    broken.write_text(text)
    with closing(FilesStore(hf.store.folder)) as store:
        assert [record.envelope.id for record in store.checkpoints("issue-42")] == [first.id]
        assert len(store.checkpoints("issue-42").damaged) == 1
        again = holdfast.Holdfast(store)
        assert again.latest("issue-42", sound=True).id == first.id
        with pytest.raises(holdfast.errors.IntegrityError):
            again.latest("issue-42")


def test_archived_checkpoints_move_to_the_archive_and_stay_readable(hf):
    """Proves A15."""
    checkpoint = hf.run("issue-42").checkpoint(state=1)
    hf.mark(checkpoint.id, status="archived")
    assert [path.name for path in (folder(hf) / "archive").iterdir()] == [
        path.name for path in (folder(hf) / "archive").glob(f"*-{checkpoint.id[-12:]}.yaml")
    ]
    assert hf.get(checkpoint.id).status == "archived"
    hf.mark(checkpoint.id, status="valid")
    assert list((folder(hf) / "archive").iterdir()) == []


def test_statistics_delete_and_delete_older_than_work(hf):
    """Proves A15, E2."""
    run = hf.run("issue-42")
    made = [run.checkpoint(state=n) for n in range(4)]
    stats = hf.stats()
    assert (stats.checkpoints, stats.oldest_at, stats.newest_at) == (4, made[0].created_at, made[3].created_at)
    hf.delete(made[1].id)
    assert not list((folder(hf) / "deleted").iterdir())
    hf.prune("issue-42", older_than=timedelta(0))
    assert [cp.seq for cp in hf.checkpoints("issue-42")] == [4]
    assert hf.verify().sound


def test_two_runs_write_equal_documents_for_equal_states(tmp_path):
    """Good in a git repository: the order of keys is fixed."""
    texts = []
    for name in ("a", "b"):
        with closing(FilesStore(tmp_path / name)) as store:
            Line(store).commit(chunk_of("same"))
            texts.append(
                [
                    line.split(":")[0]
                    for line in next((tmp_path / name / "run").glob("*-*.yaml")).read_text().splitlines()
                ]
            )
    assert texts[0] == texts[1]


def test_no_two_ids_share_a_folder_also_where_case_does_not_count():
    """Proves D11: case twins, devices, long ones."""
    ids = [
        "a",
        "A",
        "con",
        "CON",
        "a:b",
        "a_b",
        "nul.txt",
        "x" * 200,
        "x" * 199 + "y",
        "X" * 200,
        "index",
        "a.",
        "latest",
    ]
    names = [run_name(run) for run in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 120 and "/" not in name and ":" not in name and not name.startswith(".") for name in names)


def test_a_location_template_places_the_runs(tmp_path):
    """Proves C14."""
    with closing(FilesStore(tmp_path, location="issues/issue-{run}/checkpoints")) as store:
        Line(store, "42").commit()
        assert list((tmp_path / "issues" / "issue-42" / "checkpoints").glob("*.yaml"))
        assert [run.id for run in store.runs()] == ["42"]
    for bad in ("x", "../{run}", "/{run}", "{run}/{run}"):
        with pytest.raises(UsageError):
            FilesStore(tmp_path, location=bad)


def test_a_document_over_the_limit_is_refused_with_the_number(tmp_path):
    """Proves C14."""
    with closing(FilesStore(tmp_path, max_document_bytes=5000)) as store:
        line = Line(store)
        line.commit(chunk_of("small"))
        with pytest.raises(LimitExceeded, match="5,000"):
            line.commit(chunk_of("large" * 2000))
        assert store.run("run").last_seq == 1


def test_files_are_private_whatever_the_umask(tmp_path):
    with closing(FilesStore(tmp_path / "store")) as store:
        Line(store).commit(chunk_of("one"))
    modes = {path.lstat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*") if not path.is_symlink()}
    assert modes == {0o600, 0o700}


@pytest.mark.parametrize(
    "url", ["file://host/x", "file:///", "file:relative", "file:///x?unknown=1", "file:///x?form=xml"]
)
def test_what_is_no_place_for_files_is_refused(url):
    with pytest.raises(UsageError):
        holdfast.open(url)


def test_json_and_compression_are_chosen_in_the_url(tmp_path):
    """Proves A15, C14."""
    with holdfast.open(f"file://{tmp_path}?form=json&compression=gzip") as hf:
        hf.run("r").checkpoint(state={"x": float("nan"), "y": 10**30})
        assert hf.latest("r").section("state")["y"] == 10**30
    assert list(Path(tmp_path, "r").glob("*.json.gz"))
    assert json.loads((tmp_path / "r" / "index.json").read_text())["last_seq"] == 1


def test_a_versioned_file_holds_all_checkpoints_of_a_task(tmp_path):
    """Proves D1."""
    with closing(FilesStore(tmp_path, task_file=True)) as store:
        hf = holdfast.Holdfast(store)
        run = hf.run("task-1")
        made = [run.checkpoint(state={"gate": n}) for n in range(3)]
        task = yaml.safe_load((tmp_path / "task-1" / "task.yaml").read_text())
        assert (task["task"], task["version"], task["last_modified"]) == ("task-1", 3, made[2].created_at.isoformat())
        assert [each["sections"]["state"] for each in task["checkpoints"]] == [{"gate": n} for n in (2, 1, 0)]
        (tmp_path / "task-1" / "task.yaml").write_text("broken: [")
        hf.delete(made[0].id)
        assert yaml.safe_load((tmp_path / "task-1" / "task.yaml").read_text())["version"] == 3
        assert hf.verify().sound
