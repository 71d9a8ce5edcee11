"""Benchmarks: Holdfast beside its peers, in one run on one machine; never part of the tests."""
