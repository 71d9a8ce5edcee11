"""Lists: runs and checkpoints by trigger, phase, status, text, time, key, attribute and prefix, in every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import UsageError
from holdfast.engine import Holdfast
from holdfast.settings.values import Settings
from holdfast.store.keys import seal_store
from holdfast.store.open import open_store
from store_calls import counted
from store_kit import STORES, open_store_in

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
KEY = holdfast.generate_key()


class Clock:
    """A time that moves a minute a look, so that the order of moves is plain."""

    def __init__(self):
        self.now = NOON.timestamp()

    def __call__(self):
        self.now += 60
        return self.now


@pytest.fixture(params=STORES)
def hf(request, tmp_path):
    with open_store_in(request.param, tmp_path) as store, Holdfast(store, clock=Clock(), settings=Settings()) as opened:
        yield opened


def begin(hf, name, **given):
    """Store a run with one checkpoint."""
    run = hf.run(name, **given)
    run.checkpoint()
    run.close()


def ids(listing):
    return [run.id for run in listing]


def test_a_run_that_goes_back_stands_in_lists_as_it_did_there(hf):
    """Proves B1: else retention takes a run that is under way again for one that finished."""
    with hf.run("r") as run:
        run.step("one", lambda: 1)
        begun = run.checkpoint()
        run.complete()
    assert ids(hf.runs(status="completed")) == ["r"]
    assert hf.recover(begun.id, confirmed=True).success
    assert (ids(hf.runs(status="completed")), ids(hf.runs(status="running"))) == ([], ["r"])
    assert hf.undo("r").success
    assert ids(hf.runs(status="completed")) == ["r"]
    hf.fork(begun.id, "fork")
    assert hf.store.run("fork").status == hf.find("fork").summary.status
    hf.recovery.start_fresh("r")
    assert ids(hf.runs(status="completed")) == []


def test_runs_carry_a_key_and_attributes_and_are_found_by_them(hf):
    begin(hf, "a", key="issue/12", attributes={"issue": 12, "team": "core", "urgent": True})
    begin(hf, "b", key="issue/13", attributes={"issue": 13, "team": "core"})
    begin(hf, "c")
    assert ids(hf.runs(key="issue/12")) == ["a"]
    assert ids(hf.runs(attributes={"team": "core"})) == ["b", "a"]
    assert ids(hf.runs(attributes={"team": "core", "issue": 12})) == ["a"]
    assert ids(hf.runs(attributes={"issue": "12"})) == []
    assert ids(hf.runs(attributes={"urgent": 1})) == []
    assert ids(hf.runs(text="CORE")) == ["b", "a"]
    (found,) = hf.runs(key="issue/13")
    assert (found.key, found.attributes) == ("issue/13", {"issue": 13, "team": "core"})


def test_attributes_that_are_given_later_are_kept_beside_those_there_are(hf):
    begin(hf, "a", attributes={"issue": 12})
    begin(hf, "a", attributes={"team": "core"})
    assert hf.store.row_of("a").attributes == {"issue": 12, "team": "core"}
    begin(hf, "a")
    assert hf.store.row_of("a").attributes == {"issue": 12, "team": "core"}


def test_runs_are_listed_by_their_last_move_a_page_at_a_time(hf):
    for name in ("a", "b", "c", "d", "e"):
        begin(hf, name)
    begin(hf, "b")
    assert ids(hf.runs()) == ["b", "e", "d", "c", "a"]
    pages, after = [], None
    while True:
        page = hf.runs(limit=2, after=after)
        pages.append(ids(page))
        after = page.after
        if after is None:
            break
    assert [name for page in pages for name in page] == ["b", "e", "d", "c", "a"]
    with pytest.raises(UsageError):
        hf.runs(after="nonsense")


def test_runs_are_filtered_by_prefix_status_and_time(hf):
    begin(hf, "issue-1")
    begin(hf, "issue-2")
    half = datetime.fromtimestamp(hf.internals.clock(), UTC)
    begin(hf, "issue-3")
    begin(hf, "other")
    with hf.run("issue-1") as run:
        run.complete()
    assert ids(hf.runs(prefix="issue-")) == ["issue-1", "issue-3", "issue-2"]
    assert ids(hf.runs(prefix="issue-", limit=1)) == ["issue-1"]
    assert ids(hf.runs(status="completed")) == ["issue-1"]
    assert ids(hf.runs(since=half)) == ["issue-1", "other", "issue-3"]
    assert ids(hf.runs(until=half)) == ["issue-2"]
    assert ids(hf.runs(prefix="issue-", since=half, status="completed")) == ["issue-1"]
    assert ids(hf.runs(status="completed' OR 1=1 --")) == []


def test_checkpoints_are_found_by_what_they_carry(hf):
    run = hf.run("r")
    run.checkpoint(reason="first look", phase="plan")
    half = datetime.fromtimestamp(hf.internals.clock(), UTC)
    run.checkpoint(reason="coded", phase="build", key="step/1", attributes={"score": 0.5}, trigger="agent_complete")
    run.checkpoint(reason="tested", phase="build", key="step/2", attributes={"score": 0.9}, label="good")
    run.close()

    def seqs(**filters):
        return [one.seq for one in hf.checkpoints("r", **filters)]

    assert seqs(trigger="agent_complete") == [2]
    assert seqs(trigger="manual") == [3, 1]
    assert seqs(phase="build") == [3, 2]
    assert seqs(phase="build", trigger="manual") == [3]
    assert seqs(key="step/1") == [2]
    assert seqs(prefix="step/") == [3, 2]
    assert seqs(prefix="goo") == [3]
    assert seqs(text="LOOK") == [1]
    assert seqs(attributes={"score": 0.9}) == [3]
    assert seqs(since=half) == [3, 2]
    assert seqs(until=half) == [1]
    assert seqs(status="valid", limit=2) == [3, 2]
    assert seqs(status="valid", limit=2, before_seq=2) == [1]
    hf.mark(hf.find("r@2").id, status="archived")
    assert seqs(phase="build") == [3]
    assert seqs(phase="build", archived=True) == [3, 2]
    assert seqs(status="archived") == [2]
    found = hf.find("r@3")
    assert (found.key, found.attributes) == ("step/2", {"score": 0.9})


@pytest.mark.parametrize("attributes", [{"a": [1]}, {"": 1}, {"a": "x" * 2_000}, {"a": float("nan")}, "a=1"])
def test_attributes_that_are_not_small_scalars_are_refused_where_they_are_given(hf, attributes):
    with pytest.raises(UsageError):
        hf.run("r", attributes=attributes)
    with pytest.raises(UsageError):
        hf.run("r").checkpoint(attributes=attributes)
    with pytest.raises(UsageError):
        hf.runs(attributes=attributes)


def test_a_mistyped_filter_is_refused_with_the_nearest(hf):
    with pytest.raises(UsageError, match="status"):
        hf.runs(statuss="completed")
    with pytest.raises(UsageError):
        hf.checkpoints("r", since=5)


def test_secrets_in_keys_and_attributes_are_kept_out(hf):
    secret = "sk-ant-" + "api03-" + "x7Gh2Kd9Lp3Qw8Zr5Tn1Vb6Ym4Xc0Js" * 3
    begin(hf, "a", key=f"k {secret}", attributes={"token": secret})
    row = hf.store.row_of("a")
    assert secret not in f"{row.key} {row.attributes}"


def test_an_encrypted_store_shows_neither_keys_nor_attributes(tmp_path):
    store = seal_store(open_store(str(tmp_path / "store")), KEY, sign=False)
    with Holdfast(store, settings=Settings()) as hf:
        begin(hf, "a", key="the-key-of-it", attributes={"customer": "the-customer"})
        hf.run("a").checkpoint(key="the-step", attributes={"customer": "the-customer"}, phase="the-phase")
        assert ids(hf.runs(key="the-key-of-it")) == ["a"]
        assert ids(hf.runs(attributes={"customer": "the-customer"})) == ["a"]
        assert [one.seq for one in hf.checkpoints("a", phase="the-phase")] == [2]
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for text in (b"the-key-of-it", b"the-customer", b"the-step", b"the-phase"):
        assert text not in stored


def calls_with(tmp_path, runs, work):
    """Return how often the store is asked by some work, in a store of so many runs."""
    store = open_store(str(tmp_path / f"store-{runs}-{work.__name__}"))
    with Holdfast(store, clock=Clock(), settings=Settings()) as hf:
        for number in range(runs):
            with hf.run(f"r-{number:04}", attributes={"even": number % 2 == 0}) as run:
                run.complete()
        with counted(hf.store.medium) as calls:
            work(hf)
        return calls.count


def page(hf):
    assert len(hf.runs(limit=5)) == 5


def by_status(hf):
    assert len(hf.runs(limit=5, status="completed")) == 5


def by_prefix(hf):
    assert ids(hf.runs(prefix="r-0003")) == ["r-0003"]


def by_attribute(hf):
    assert len(hf.runs(limit=5, attributes={"even": True})) == 5


def points(hf):
    assert hf.recovery.points("r-0002", limit=20)


def newest(hf):
    assert hf.find("latest").run


def prune_one(hf):
    hf.prune("r-0002", keep=1)


def verdict(hf):
    assert hf.recovery.status("r-0002").is_complete


@pytest.mark.parametrize("work", [page, by_status, by_prefix, by_attribute, points, newest, prune_one, verdict])
def test_store_calls_do_not_grow_with_the_number_of_runs(tmp_path, work):
    few, many = (calls_with(tmp_path, runs, work) for runs in (12, 90))
    assert many <= few + 2


def test_a_few_recovery_points_do_not_walk_all_checkpoints(tmp_path):
    counts = []
    for checkpoints in (60, 400):
        with holdfast.open(tmp_path / f"store-{checkpoints}", settings=Settings()) as hf:
            run = hf.run("r")
            for number in range(checkpoints):
                run.checkpoint(state=number, pinned=True)
            run.close()
            with counted(hf.store.medium) as calls:
                assert len(hf.recovery.points("r", limit=20)) == 20
            counts.append(calls.count)
    assert counts[1] <= counts[0] + 2


def test_times_compare_with_their_zone(hf):
    begin(hf, "a")
    assert ids(hf.runs(since=NOON - timedelta(days=1))) == ["a"]
    with pytest.raises(UsageError):
        hf.runs(since=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake that is refused
