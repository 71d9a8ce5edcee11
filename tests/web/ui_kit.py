"""A real `holdfast ui` process, raw requests to it, and stores with a story to look at."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import apsw

import holdfast


class Answer:
    """One answer as it came over the wire."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Ui:
    """A running page; as a test sees it from outside."""

    def __init__(self, folder, *words, store=None, write=False, env=None):
        command = [sys.executable, "-m", "holdfast", *(["--store", store] if store else []), "ui", "--no-open", *words]
        environment = {**os.environ, **(env or {}), "HOME": str(folder.parent), "USER": "ann"}
        environment.pop("HOLDFAST_STORE", None)
        self.process = subprocess.Popen(
            [*command, *(["--write"] if write else [])],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self._first_line()
        parts = urlsplit(self.address)
        self.port = parts.port
        self.origin = f"http://127.0.0.1:{self.port}"
        self.code = parts.fragment.removeprefix("code=")
        self._token = None
        self.folder, self.store = folder, store

    def _first_line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline().strip() if ready else ""
        if not line:
            self.process.kill()
            raise AssertionError(f"holdfast ui did not start: {self.process.communicate()[1]}")
        return line

    @property
    def token(self):
        if self._token is None:
            answer = self.request("POST", "/api/session", body={"code": self.code}, token=None)
            self._token = answer.json["token"]
        return self._token

    def request(self, method, path, *, body=None, token="own", headers=None, host=None, timeout=20):
        """Send one request with just these headers."""
        sent = {"Host": host if host is not None else f"127.0.0.1:{self.port}"}
        if token == "own":
            token = self.token
        if token:
            sent["Authorization"] = f"Holdfast {token}"
        data = b""
        if method == "POST":
            data = json.dumps(body if body is not None else {}).encode()
            sent |= {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
            sent["Content-Length"] = str(len(data))
        sent |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data if sent.get("Content-Length") else None)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def get(self, path, **options):
        answer = self.request("GET", path, **options)
        assert answer.status == 200, (path, answer.status, answer.body[:500])
        return answer.json

    def post(self, path, body=None, **options):
        return self.request("POST", path, body=body, **options)

    @contextlib.contextmanager
    def live(self, after=""):
        """Open the stream of events; gives a function that returns the next one within a time."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        request = (
            f"GET /api/live?after={after} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Holdfast {self.token}\r\n\r\n"
        )
        connection.sendall(request.encode())
        file = connection.makefile("rb")
        while file.readline().strip():
            pass

        def next_event(timeout=10):
            connection.settimeout(timeout)
            while True:
                line = file.readline().strip()
                if line.startswith(b"data: "):
                    return json.loads(line[6:])

        try:
            yield next_event
        finally:
            connection.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.err = self.process.stderr.read()
        self.process.stderr.close()


class Relay:
    """A proxy between a browser and a page, whose connections can be cut."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = []
        self._refuses = False

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self._listener.close()
        self.cut()

    def cut(self):
        """End every connection, and let none begin."""
        self._refuses = True
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def allow(self):
        self._refuses = False

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        """Hand on one request and all of its answer."""
        with connection, contextlib.suppress(OSError, ValueError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65_536) or b"\r\n\r\n"
            method, url, rest = head.split(b" ", 2)
            if self._refuses:
                return
            parts = urlsplit(url.decode())
            with socket.create_connection((parts.hostname, parts.port)) as there:
                self._open += [connection, there]
                path = parts.path + (f"?{parts.query}" if parts.query else "")
                version, _, fields = rest.partition(b"\r\n")
                there.sendall(b" ".join([method, path.encode(), version]) + b"\r\nConnection: close\r\n" + fields)
                threading.Thread(target=self._pump, args=(connection, there), daemon=True).start()
                self._pump(there, connection)

    def _pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)


@contextlib.contextmanager
def page(folder, *words, **options):
    ui = Ui(folder, *words, **options)
    try:
        yield ui
    finally:
        ui.stop()


def story(folder, place=None):
    """A run with files, a rewind, a label and a secret; a fork; one that waits; one that failed."""
    store = holdfast.open(place) if place else holdfast.open(folder / ".holdfast")
    run = store.run("add-login", workspace=folder)
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "auth.py").write_text("def login(user):\n    return True\n")
    (folder / "README.md").write_text("# App\n")
    run.checkpoint(reason="first", state={"step": 1, "plan": ["cookies"]})
    (folder / "src" / "auth.py").write_text("def login(user, mfa):\n    return mfa.ok(user)\n")
    budget = {"spending": {"tokens": {"used": 142_000, "limit": 200_000}}}
    messages = [{"role": "user", "content": f"message {n}"} for n in range(120)]
    run.checkpoint(
        reason="research is done",
        state={"step": 2, "plan": ["tokens"], "messages": messages},
        label="good plan",
        budget=budget,
    )
    (folder / "src" / "auth.py").write_text("def login(user, mfa):\n    raise NotImplementedError\n")
    (folder / "src" / "api.py").write_text("import auth\n")
    run.checkpoint(
        trigger="agent_complete", state={"step": 3, "plan": ["tokens", "tests"], "messages": messages}, budget=budget
    )
    run.close()
    store.recover("add-login@2", workspace=folder)
    store.fork("add-login@1", "try-2", sections={"state": {"step": 1, "plan": ["passkeys"]}})
    store.close()
    return folder


WAITING = """
import holdfast, sys
hf = holdfast.open(sys.argv[1])
with hf.run("deploy-42", workspace=sys.argv[2]) as run:
    run.checkpoint(reason="built", state={"artifact": "app.tar"})
    print("waiting", flush=True)
    reply = run.approve("Push to main?", name="push")
    print("answered", reply.choice, flush=True)
"""


def start_program(source, *words):
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until(condition, timeout=15):
    """Wait until something is so; the time is a bound, not an expectation."""
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not become so")


def files_below(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }


CANARY = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


def leaky(folder):
    """A run whose secrets older settings let through: state and a file have them."""
    (folder / "holdfast.yaml").write_text("redaction:\n  enabled: false\n")
    hf = holdfast.open(folder / ".holdfast", settings=folder / "holdfast.yaml")
    run = hf.run("leaky", workspace=folder)
    (folder / "notes.txt").write_text(f"token {CANARY}\n")
    run.checkpoint(reason="first", state={"header": f"Bearer {CANARY}", "other": [f"x {CANARY}"]})
    (folder / "notes.txt").write_text(f"more {CANARY}\n")
    run.checkpoint(reason="second", state={"header": f"Bearer {CANARY}", "other": ["y", CANARY]})
    hf.close()
    (folder / "holdfast.yaml").unlink()


def sealed(folder, key, state):
    """An encrypted store whose settings the user trusts."""
    key.write_text(holdfast.generate_key())
    hf = holdfast.open(folder / ".holdfast", key_file=str(key))
    hf.run("sealed").checkpoint(state=state)
    hf.close()
    (folder / "holdfast.yaml").write_text(f"encryption:\n  key_file: {key}\n")
    subprocess.run([sys.executable, "-m", "holdfast", "trust", "-y"], cwd=folder, check=True)


def damage_state(folder, spec):
    """Overwrite the chunk that one checkpoint's state begins with."""
    hf = holdfast.open(folder / ".holdfast")
    root = next(one.root for one in hf.find(spec).record.envelope.sections if one.name == "state")
    hf.close()
    with apsw.Connection(str(folder / ".holdfast" / "holdfast.db")) as raw:
        raw.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE id = ?", (root,))
        assert raw.changes() == 1
