"""`python -m benchmarks conversation|listing|imports|all`, from the top of the repository."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import signal
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import apsw
import msgspec

from benchmarks.disk import file_system
from benchmarks.imports import import_lines, measure_imports
from benchmarks.listing import CHECKPOINTS, listing_lines, measure_listing
from benchmarks.rounds import Plan, Rounds
from benchmarks.subjects import FLOOR, NAMES
from benchmarks.table import conversation_table
from benchmarks.targets import target_lines

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("holdfast", "apsw", "msgspec", "langgraph", "langgraph-checkpoint-sqlite", "dbos")


def main() -> int:
    """Run the benchmarks asked for; 1 when a subject failed, 0 otherwise."""
    # As for Ctrl+C, so that the temporary directories go when a job is stopped from outside.
    signal.signal(signal.SIGTERM, _interrupt)
    options = _parser().parse_args()
    chosen = {
        "conversation": (_conversation,),
        "listing": (_listing,),
        "imports": (_imports,),
        "all": (_conversation, _listing, _imports),
    }[options.benchmark]
    return max([benchmark(options) for benchmark in chosen])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmark", choices=("conversation", "listing", "imports", "all"))
    parser.add_argument("--steps", type=_numbers, default=(200, 1_000, 3_000))
    parser.add_argument("--subjects", type=_subjects, default=NAMES, help=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-peer-steps", type=int, default=1_000, help="for langgraph-sqlite")
    parser.add_argument("--quick", action="store_true", help="200 steps, once; for CI")
    parser.add_argument("--fresh-objects", action="store_true", help="share no object between two states")
    parser.add_argument("--no-fsyncs", action="store_true", help="do not count fsync calls")
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS, help="for listing")
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, help="JSON file, benchmarks/results/… by default")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _subjects(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = ", ".join(sorted(set(names) - set(NAMES)))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {unknown}")
    # Without the floor there is nothing to compare with.
    return names if FLOOR in names else (FLOOR, *names)


def _conversation(options: argparse.Namespace) -> int:
    plan = Plan(
        subjects=options.subjects,
        steps=(200,) if options.quick else options.steps,
        repeats=1 if options.quick else options.repeats,
        max_peer_steps=options.max_peer_steps,
        workdir=options.workdir,
        count_fsyncs=not options.no_fsyncs,
        fresh_objects=options.fresh_objects,
    )
    rows = Rounds(plan, _say).run()
    print("\n".join(["", conversation_table(rows), "", *target_lines(rows)]))
    _write(options, "conversation", {"repeats": plan.repeats, "fresh_objects": plan.fresh_objects, "rows": rows})
    return int(any(row.failed for row in rows))


def _listing(options: argparse.Namespace) -> int:
    if _holdfast_is_missing():
        return 0
    checkpoints = min(2_000, options.checkpoints) if options.quick else options.checkpoints
    result = measure_listing(checkpoints, options.workdir, _say)
    print("\n".join(listing_lines(result)))
    _write(options, "listing", result)
    return 0


def _imports(options: argparse.Namespace) -> int:
    if _holdfast_is_missing():
        return 0
    result = measure_imports()
    print("\n".join(import_lines(result)))
    _write(options, "imports", result)
    return 0


def _holdfast_is_missing() -> bool:
    if importlib.util.find_spec("holdfast") is not None:
        return False
    _say("holdfast is not installed here: nothing to measure")
    return True


def _write(options: argparse.Namespace, name: str, result: dict[str, Any]) -> None:
    one = options.output if options.benchmark != "all" else None
    path = one or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": name, "machine": _machine(options.workdir), **result}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    _say(f"written: {path}")


def _machine(workdir: Path) -> dict[str, Any]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "file_system": file_system(workdir),
        "sqlite": apsw.sqlite_lib_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
