"""Forty tasks that need each other, some of which fail.

    python examples/task_graph.py DIRECTORY

Nine packages are fetched, built, tested and published, four at a time. Two tests fail: they hold back what needs them
and nothing else. Somebody fixes the cause, and only what failed or was held back is done again. Kill it whenever you
like and start it again: it continues at the exact task.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime.graph import Progress, TaskGraph

PACKAGES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"]
BROKEN = {"gamma", "theta"}


class World:
    """What the tasks work on; each piece of work is written down, as a real one would take its time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tries: dict[str, int] = {}

    def log(self, line: str) -> None:
        """Write a line down."""
        with (self.directory / "calls.log").open("a") as log:
            log.write(f"{line}\n")

    def work(self, task: str, results: dict[str, str]) -> str:
        """Do most tasks; the network fails now and then."""
        self.log(task)
        self.tries[task] = self.tries.get(task, 0) + 1
        if task in ("fetch beta", "fetch iota") and self.tries[task] == 1:
            raise ConnectionError("the network is down")  # transient, so it is tried again
        return f"{task} from {len(results)}"

    def test(self, package: str, results: dict[str, str]) -> str:
        """Test a package."""
        self.log(f"test {package}")
        if package in BROKEN and not (self.directory / f"fixed {package}").exists():
            raise ValueError(f"{package} is broken")
        return f"tested {results[f'build {package}']}"

    def publish(self, package: str, _results: dict[str, str]) -> str:
        """Publish a package: once it is out, doing it again changes nothing."""
        self.log(f"publish {package}")
        (self.directory / f"{package}.published").touch()
        return f"{package} is out"

    def fix(self, failed: list[str]) -> list[str]:
        """Do what a person would do about failed tests."""
        self.log("fix")
        for task in failed:
            (self.directory / f"fixed {task.removeprefix('test ')}").touch()
        return failed


def declare(graph: TaskGraph, world: World) -> None:
    """Say what there is to do, and what needs what."""

    def work(task: str) -> Callable[[dict[str, str]], str]:
        return partial(world.work, task)

    graph.add("prepare", work("prepare"))
    for package, before in zip(PACKAGES, [None, *PACKAGES], strict=False):
        needs = [f"fetch {package}"] + ([f"fetch {before}"] if before else [])
        graph.add(f"fetch {package}", work(f"fetch {package}"), needs=["prepare"], retries=2, backoff_s=0.01)
        graph.add(f"build {package}", work(f"build {package}"), needs=needs)
        graph.add(f"test {package}", partial(world.test, package), needs=[f"build {package}"])
        graph.add(
            f"publish {package}",
            partial(world.publish, package),
            needs=[f"test {package}"],
            effect=f"publishes {package}",
            on_unknown="retry",
        )
    graph.add("index", work("index"), needs=[f"build {package}" for package in PACKAGES])
    graph.add("report", work("report"), needs=[f"publish {package}" for package in PACKAGES])
    graph.add("announce", work("announce"), needs=["index", "report"])


def show(progress: Progress) -> None:
    """Say what begins and what failed."""
    if progress.task is None:
        print(f"batch {progress.batch}: {progress.done} of {progress.total} tasks are settled")
    elif progress.status == "failed":
        print(f"  {progress.task} failed")


def main(arguments: list[str]) -> int:
    """Do all tasks; return the exit code."""
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    world = World(directory)
    with holdfast.open(directory / ".holdfast") as hf, hf.run("release") as run:
        graph = run.graph("release")
        declare(graph, world)
        result = graph.run(limit=4, progress=show)
        if not result.is_whole:
            print(f"failed: {', '.join(result.failed)}; held back: {', '.join(result.blocked)}")
            run.step("fix", world.fix, list(result.failed))
            graph.retry_failed()
            result = graph.run(limit=4, progress=show)
        print(f"{len(result.completed)} tasks done, {len(result.failed)} failed, {len(result.blocked)} held back")
        run.complete()
    return 0 if result.is_whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
