"""Threat 10, with raw requests to a real `holdfast ui`: who may ask, and what an answer carries."""

from __future__ import annotations

import hashlib
import socket
import time

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


def test_a_large_body_is_refused_at_once(writing):
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", writing.port), timeout=10) as connection:
        connection.sendall(
            f"POST /api/plans HTTP/1.1\r\nHost: 127.0.0.1:{writing.port}\r\nOrigin: {writing.origin}\r\n"
            "Sec-Fetch-Site: same-origin\r\n"
            f"Authorization: Holdfast {writing.token}\r\nContent-Type: application/json\r\n"
            "Content-Length: 10000000000\r\n\r\n".encode()
        )
        assert b" 413 " in connection.recv(100)
    assert time.monotonic() - started < 10
    body = {"spec": "x" * (2 << 20)}
    chunked = writing.request("POST", "/api/plans", body=body)
    assert chunked.status == 413


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
    assert writing.post(f"/api/plans/{'0' * 64}/run", {"plan": {"run": "add-login"}}).status == 404


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
