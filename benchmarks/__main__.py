"""`python -m benchmarks [PART ...] [--quick]`, from the top of the repository: one table of all figures."""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from benchmarks.table import Row, Scale, load_line, summary, table

PARTS = (
    "steps", "checkpoints", "startup", "many", "redaction", "flows", "recovery", "files", "langgraph", "postgres",
)  # fmt: skip
PACKAGES = ("holdfast", "apsw", "msgspec", "langgraph", "langgraph-checkpoint-sqlite", "dbos", "psycopg")


def main() -> int:
    """Measure what is asked for and print the table; 1 if a part failed."""
    signal.signal(signal.SIGTERM, _interrupt)  # as for Ctrl+C: temporary directories go when it is stopped
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small: shows that it runs, says nothing of speed")
    parser.add_argument("--workdir", default=tempfile.gettempdir(), help="where the stores lie: a disk, or a tmpfs")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    print(_machine(options.workdir), load_line("at the start"), sep="\n", file=sys.stderr, flush=True)
    begun, first_line = time.monotonic(), load_line("at the start")
    rows: list[Row] = []
    failed = []
    for name in options.parts or PARTS:
        started = time.monotonic()
        try:
            rows += measured(name, Scale(options.quick, options.workdir))
        except Exception as error:  # noqa: BLE001 - the other parts are worth their time
            failed.append(f"{name}: {type(error).__name__}: {error}")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"{_machine(options.workdir)}; {first_line}; {time.monotonic() - begun:.0f} s", "", table(rows), sep="\n")
    print("", summary(rows), *(f"FAILED {one}" for one in failed), sep="\n")
    if options.json is not None:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1, ensure_ascii=False) + "\n")
    return int(bool(failed))


def measured(part: str, scale: Scale) -> list[Row]:
    """Return the rows of one part."""
    return list(import_module(f"benchmarks.{part}").rows(scale))


def _machine(workdir: str) -> str:
    packages = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    return f"Python {platform.python_version()}, {_file_system(Path(workdir))}, {packages}"


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a directory, or "unknown"."""
    best, kind = Path(), "unknown"
    for mount in Path("/proc/mounts").read_text().splitlines():
        point, mount_kind = mount.split()[1:3]
        if folder.resolve().is_relative_to(point) and len(point) >= len(str(best)):
            best, kind = Path(point), mount_kind
    return kind


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
