from functools import partial

from holdfast.model.sections import Graph
from holdfast.runtime.graphs import Graphs
from unit.runtime.lives import every_death, same_through_bytes, unbroken


def two_phases(life):
    graphs = life.attach("graph", Graphs(life))
    ends = []
    for phase in ("plan", "build"):
        graph = graphs.graph(phase)
        for name in "ab":
            graph.add(name, partial(life.do, f"{phase} {name}"), needs=[] if name == "a" else ["a"])
        ends.append(graph.run(limit=1).completed)
    return ends, graphs.snapshot().id


def test_each_phase_has_a_graph_of_its_own_killed_at_any_save():
    """Proves C4, C16."""
    disk, end, _saves = unbroken(two_phases)
    assert end == ([("a", "b"), ("a", "b")], "build")
    told = disk.did
    for where, disk, again in every_death(two_phases):
        assert again == end, where
        assert list(dict.fromkeys(disk.did)) == told, where
        assert len(disk.did) <= len(told) + (where[1] == "before"), where


def test_restoring_is_the_identity_and_keeps_graphs_that_nobody_asked_for():
    graphs = Graphs()
    for name in ("one", "two", "three"):
        graphs.graph(name).add("a", dict)
        graphs.graph(name).run()
    assert same_through_bytes("graph", graphs, Graphs())
    in_use = Graphs()
    in_use.graph("two")
    assert same_through_bytes("graph", graphs, in_use)
    assert in_use.graph("two").result.completed == ("a",)
    assert in_use.snapshot().others.keys() == {"one", "three"}
    assert Graphs().snapshot() == Graph(id="graph")


def test_a_single_graph_is_read_by_the_part_that_has_several():
    graphs = Graphs()
    graphs.restore({"id": "old", "tasks": {"a": {"status": "completed", "result": 3}}})
    assert graphs.graph("old").result.results == {"a": 3}


def test_changes_grow_with_every_change_and_with_nothing_else():
    graphs = Graphs()
    graph = graphs.graph("one")
    before = graphs.changes
    assert graphs.graph("one") is graph
    graphs.snapshot()
    assert graphs.changes == before
    graph.add("a", dict)
    assert graphs.changes > before
