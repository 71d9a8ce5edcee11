"""Threat 10, with raw requests to a real `holdfast ui`: who may ask, and what an answer carries."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import json
import socket
from pathlib import Path

import pytest

from holdfast.web.guard import Sessions
from holdfast.web.handlers import ROUTES
from web.ui_kit import files_below, page, story


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard") / "app"
    folder.mkdir()
    story(folder)
    with page(folder) as started:
        started.folder = folder
        assert started.token
        yield started


@pytest.fixture(scope="module")
def writing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("writing") / "app"
    folder.mkdir()
    story(folder)
    with page(folder, write=True) as started:
        yield started


PLACES = ["/", "/api/about", "/api/live", "/static/app.js", "/r/add-login"]


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("host", ["evil.com", "", "127.0.0.1", "127.0.0.1:1", "localhost.:{port}", "evil.com:{port}"])
def test_another_host_is_refused_before_routing(ui, path, host):
    assert ui.request("GET", path, host=host.format(port=ui.port)).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_its_own_names_are_answered(ui, host):
    assert ui.request("GET", "/api/about", host=f"{host}:{ui.port}").status == 200


def test_no_token_or_another_one_is_refused(ui):
    for token in (None, "x", ui.token[:-1], ui.token + "x", "A" * 43):
        assert ui.request("GET", "/api/runs", token=token).status == 401
        assert ui.request("GET", "/api/live", token=token).status == 401
        assert ui.request("GET", "/api/nothing", token=token).status == 401
    assert ui.request("GET", f"/api/runs?token={ui.token}", token=None).status == 401
    assert ui.request("GET", "/api/runs", token=None, headers={"Cookie": f"token={ui.token}"}).status == 401
    assert ui.request("GET", "/api/runs", token=None, headers={"Authorization": f"Bearer {ui.token}"}).status == 401


def test_a_code_works_once(told):
    with page(told) as one:
        first = one.request("POST", "/api/session", body={"code": one.code}, token=None)
        again = one.request("POST", "/api/session", body={"code": one.code}, token=None)
        other = one.request("POST", "/api/session", body={"code": 7}, token=None)
    assert (first.status, again.status, other.status) == (200, 401, 401)
    assert "token" in first.json


def test_a_code_lives_for_a_minute():
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    early, late = sessions.new_code(), sessions.new_code()
    now[0] = 59.0
    assert sessions.exchange(early)
    now[0] = 61.0
    assert sessions.exchange(late) is None


FOREIGN = [
    {"Origin": "http://evil.com"},
    {"Origin": "null"},
    {"Origin": None},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": None},
    {"Origin": "http://evil.com", "Sec-Fetch-Site": None},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_post_of_another_page_is_refused(writing, headers):
    answer = writing.post("/api/runs/add-login/tell/pause", headers=headers)
    assert answer.status == 403
    assert writing.post("/api/session", {"code": "x"}, headers=headers, token=None).status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_post_that_is_no_json_is_refused(writing, kind):
    assert writing.post("/api/runs/add-login/tell/pause", headers={"Content-Type": kind}).status == 415


def test_other_methods_are_refused_and_no_origin_is_allowed_in(ui):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = ui.request(method, "/api/runs", headers={"Origin": "http://evil.com"})
        assert answer.status in (403, 405)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def posted(ui, path, body, **headers):
    """Send a POST of our own page with just these bytes; the answer as soon as it begins."""
    lines = {
        "Host": f"127.0.0.1:{ui.port}", "Origin": ui.origin, "Sec-Fetch-Site": "same-origin",
        "Authorization": f"Holdfast {ui.token}", "Content-Type": "application/json",
        **({} if "Transfer-Encoding" in headers else {"Content-Length": len(body)}), **headers,
    }  # fmt: skip
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection(("127.0.0.1", ui.port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all of it was sent
            connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())["error"]


def test_a_large_body_is_refused_at_once(writing):
    announced = posted(writing, "/api/plans", b"", **{"Content-Length": 10_000_000_000})
    assert announced == (413, "TooLarge")
    assert posted(writing, "/api/plans", b"x" * (2 << 20)) == (413, "TooLarge")
    pieces = (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 40 + b"0\r\n\r\n"
    assert posted(writing, "/api/plans", pieces, **{"Transfer-Encoding": "chunked"}) == (413, "TooLarge")


def nested(depth):
    return b'{"spec":"add-login@1","name":"n","sections":{"state":' + b"[" * depth + b"]" * depth + b"}}"


def wide(count, **more):
    return json.dumps({**more, "sections": dict.fromkeys(map(str, range(count)), 0)}).encode()


HOSTILE = {
    "a million keys": (lambda: wide(1_000_000), {}, (413, "TooLarge")),
    "ten thousand deep": (lambda: nested(10_000), {}, (400, "BadJson")),
    "half a million deep, cut": (lambda: b"[" * 500_000, {}, (400, "BadJson")),
    "deeper than a section may be": (lambda: nested(900), {}, (422, "ValueRefused")),
    "many sections": (lambda: wide(60_000, spec="add-login@1", name="n"), {}, (422, "UsageError")),
    "gzip": (lambda: gzip.compress(b" " * (200 << 20), 1), {"Content-Encoding": "gzip"}, (415, "NotJson")),
    "no JSON": (lambda: gzip.compress(b"{}"), {}, (400, "BadJson")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_within_memory(writing, name):
    body, headers, refusal = HOSTILE[name]
    assert posted(writing, "/api/fork", body(), **headers) == refusal
    assert writing.get("/api/runs/try-2")["id"] == "try-2"
    assert writing.request("GET", "/api/runs/n").status == 404
    status = Path(f"/proc/{writing.process.pid}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 200_000  # kB, at its peak


def test_every_answer_has_its_headers(ui):
    for path in ("/", "/api/about", "/nothing.png", "/api/nothing"):
        headers = ui.request("GET", path).headers
        policy = headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for"):
            assert part in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
        assert "set-cookie" not in headers
    assert ui.request("GET", "/api/about").headers["cache-control"] == "no-store"


def filled(path):
    return (
        path.replace("{run}", "add-login").replace("{spec}", "add-login@2").replace("{name}", "state")
        .replace("{digest}", "0" * 64).replace("{what}", "pause").replace("{wait:path}", "approve")
    )  # fmt: skip


QUERY = "?path=src/auth.py&a=add-login@1&b=now&under=src&seqs=1,2"


def test_every_get_leaves_the_store_byte_equal(ui):
    def digest():
        files = files_below(ui.folder)
        return hashlib.sha256(repr(sorted((name, data) for name, data in files.items() if "-shm" not in name)).encode())

    before = digest().hexdigest()
    for method, path, _ in ROUTES:
        if method == "GET":
            for query in ("", QUERY):
                assert ui.request("GET", filled(path) + query).status != 500
    assert ui.request("GET", "/api/c/add-login@2/download?path=src/auth.py").status == 200
    assert digest().hexdigest() == before


def test_without_write_every_change_is_refused(ui):
    """Check 18: plans can be looked at; nothing can be carried out."""
    before = files_below(ui.folder)
    for method, path, handler in ROUTES:
        if method == "POST" and handler.writes:
            assert ui.post(filled(path)).status == 403, path
    plan = ui.post("/api/plans", {"spec": "add-login@1"}).json
    assert ui.post(f"/api/plans/{plan['digest']}/run").status == 403
    after = files_below(ui.folder)
    assert {name: data for name, data in after.items() if "holdfast.db" not in name} == {
        name: data for name, data in before.items() if "holdfast.db" not in name
    }


WAYS_OUT = [
    "..",
    "%2e%2e",
    "..%2f..%2fapp.py",
    "%2e%2e%2fapp.py",
    "app.py",
    "a%00b",
    "%5c..%5capp.py",
    "/etc/passwd",
    "guard.py",
]


@pytest.mark.parametrize("name", WAYS_OUT)
def test_no_path_leads_out(ui, name):
    assert ui.request("GET", f"/static/{name}").status in (404, 405)
    for route in ("file", "download", "files"):
        given = "under" if route == "files" else "path"
        assert ui.request("GET", f"/api/c/add-login@2/{route}?{given}={name}").status in (404, 422)
    assert ui.request("GET", f"/api/runs/add-login/file-history?path={name}").status in (200, 404, 422)


@pytest.mark.parametrize(
    "run", ["..%2fx", "%2e%2e", "a%00", "a%0ab", "-x", "%25", "*", "_holdfast.keys", "x" * 4096, "CON%2f"]
)
def test_ids_outside_the_grammar_are_not_found(ui, run):
    assert ui.request("GET", f"/api/runs/{run}").status == 404
    assert ui.request("GET", f"/api/c/{run}").status in (404, 422)


def test_a_plan_of_the_client_is_never_carried_out(writing):
    assert writing.post(f"/api/plans/{'0' * 64}/run", {"plan": {"run": "add-login"}}).status == 422
    assert writing.post(f"/api/plans/{'0' * 64}/run").status == 404


def test_a_plan_made_elsewhere_is_not_found(ui, writing):
    """The digest of a plan of another store, of another kind, or not as it is written: nothing is carried out."""
    elsewhere = ui.post("/api/plans", {"spec": "add-login@1"}).json["digest"]
    own = writing.post("/api/plans", {"spec": "add-login@1"}).json["digest"]
    prune = writing.post("/api/prune", {"run": "add-login"}).json["digest"]
    before = writing.get("/api/runs/add-login")["last_seq"]
    for digest in (elsewhere, prune, own[:12], own.upper(), f"{own}0", f"%20{own}"):
        assert writing.request("GET", f"/api/plans/{digest}").status == 404
        assert writing.request("GET", f"/api/plans/{digest}/item?path=src/auth.py").status == 404
        assert writing.post(f"/api/plans/{digest}/run").status == 404
    assert writing.post(f"/api/prune/{own}/run", {"typed": "add-login"}).status in (404, 409)
    assert writing.post(f"/api/plans/{own}/run", {"spec": "try-2@1", "run": "try-2"}).status == 422
    assert writing.get("/api/runs/add-login")["last_seq"] == before


def test_a_download_is_an_attachment(ui):
    answer = ui.request("GET", "/api/c/add-login@1/download?path=src/auth.py")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.body == b"def login(user):\n    return True\n"


def test_a_thousand_idle_connections_do_not_stop_a_request(ui):
    idle = []
    try:
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", ui.port), timeout=5))  # noqa: PERF401 - closed below
        assert ui.request("GET", "/api/about").status == 200
    finally:
        for connection in idle:
            connection.close()


def test_the_log_has_no_token_and_no_payload(told):
    with page(told) as one:
        token = one.token
        one.request("GET", "/api/c/add-login@2/section/state")
        one.request("GET", "/api/runs", token="wrong")
    assert token not in one.err
    assert "message 1" not in one.err
    assert one.code not in one.err
