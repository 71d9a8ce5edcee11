import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import GraphInvalid
from holdfast.runtime.batches import check_graph, find_circle, held_back, make_batches

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def test_a_batch_holds_all_whose_needs_are_met():
    needs = {"deploy": ["test", "build"], "build": ["plan"], "test": ["build"], "plan": [], "docs": ["plan"]}
    assert make_batches(needs) == [["plan"], ["build", "docs"], ["test"], ["deploy"]]


def test_batches_made_again_hold_only_what_is_not_done():
    """Proves C4, C12: batches are rebuilt from what is still pending."""
    needs = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["b"]}
    assert make_batches(needs, done={"a", "b"}) == [["c", "e"], ["d"]]
    assert make_batches(needs, done=set(needs)) == []


def test_what_needs_a_task_that_is_left_out_is_left_out_too():
    needs = {"a": [], "b": ["a"], "c": ["b"], "x": [], "y": ["x"]}
    assert make_batches(needs, without={"a"}) == [["x"], ["y"]]
    assert held_back(needs, ["a"]) == {"b", "c"}


@pytest.mark.parametrize(
    ("needs", "circle"),
    [
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"a": ["a"]}, "a -> a"),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, "a -> b -> c -> a"),
        ({"ok": [], "z": ["ok", "y"], "y": ["z"]}, "z -> y -> z"),
    ],
)
def test_a_circle_is_refused_and_named(needs, circle):
    with pytest.raises(GraphInvalid, match=circle):
        make_batches(needs)


def test_an_unknown_need_is_refused_with_the_nearest():
    with pytest.raises(GraphInvalid, match=r"'deploy' needs 'biuld', which is not a task: did you mean 'build'\?"):
        check_graph({"build": [], "deploy": ["biuld"]})
    with pytest.raises(GraphInvalid, match="there is none yet"):
        check_graph({"deploy": ["something"]})


def test_a_chain_of_ten_thousand_is_no_deeper_than_one_of_ten():
    needs = {f"t{i}": [f"t{i - 1}"] if i else [] for i in range(10_000)}
    assert len(make_batches(needs)) == 10_000
    needs["t0"] = ["t9999"]
    assert len(find_circle(needs)) == 10_001


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 12))
    return {f"t{i}": [f"t{j}" for j in range(i) if draw(st.booleans())] for i in range(size)}


@some
@given(graphs(), st.data())
def test_every_task_comes_once_and_after_all_that_it_needs(needs, data):
    done = data.draw(st.sets(st.sampled_from(sorted(needs))))
    seen = set(done)
    for batch in make_batches(needs, done=done):
        for name in batch:
            assert all(other in seen for other in needs[name])
        assert seen.isdisjoint(batch)
        seen.update(batch)
    assert seen == set(needs)
