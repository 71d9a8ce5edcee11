"""The page's figures: `python -m benchmarks.web`, over a store of many checkpoints, a large state and many files.

CPU of the server process is what is compared; wall times are beside it. Each figure is the median of five. With
`--browser` a real Chromium looks at it, too (`.venv/web/bin/python -m benchmarks.web --browser`, after `make web`).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import holdfast

TICKS = os.sysconf("SC_CLK_TCK")


class Page:
    """A running `holdfast ui`."""

    def __init__(self, folder):
        started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "ui", "--no-open", "--workspace", "work"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        parts = urlsplit(self.process.stdout.readline().strip())
        self.port = parts.port
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.headers = {}
        self.headers = {
            "Authorization": f"Holdfast {self.ask('POST', '/api/session', {'code': parts.fragment[5:]})['token']}"
        }
        self.start_cpu, self.start_s = self.cpu(), time.monotonic() - started

    def ask(self, method, path, body=None):
        own = {"Origin": f"http://127.0.0.1:{self.port}", "Sec-Fetch-Site": "same-origin"}
        headers = {**self.headers, **({**own, "Content-Type": "application/json"} if method == "POST" else {})}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        data = answer.read()
        assert answer.status == 200, (path, answer.status, data[:300])
        return json.loads(data)

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def build(folder, checkpoints, files):
    work = folder / "work"
    work.mkdir()
    for number in range(files):
        place = work / f"d{number // 250}"
        place.mkdir(exist_ok=True)
        (place / f"f{number}.py").write_text(f"value = {number}\n")
    hf = holdfast.open(folder / ".holdfast", durability="process")
    run = hf.run("large", workspace=work)
    state = {"messages": [{"role": "user", "n": n, "text": "word " * 40} for n in range(25_000)], "plan": "first"}
    run.checkpoint(reason="one", state=state)
    for number in range(10):
        (work / "d0" / f"f{number}.py").write_text("value = None\n")
    state["messages"][7]["text"] = "changed"
    run.checkpoint(reason="two", state={**state, "plan": "second"})
    run.close()
    run = hf.run("long")
    for number in range(checkpoints):
        budget = {"spending": {"tokens": {"used": number, "limit": checkpoints}}}
        run.checkpoint(reason=f"step {number}", state={"number": number}, budget=budget)
    run.close()
    hf.close()


def measured(page, name, path, *, method="GET", body=None, goal=""):
    page.ask(method, path, body)  # the first look opens a handle
    walls, cpus = [], []
    for _ in range(5):
        cpu, at = page.cpu(), time.perf_counter()
        page.ask(method, path, body)
        walls.append(time.perf_counter() - at)
        cpus.append(page.cpu() - cpu)
    print(f"{name:44} {statistics.median(walls) * 1000:8.0f} ms  {statistics.median(cpus) * 1000:6.0f} ms CPU   {goal}")


def told_after(page, folder):
    """Return how long after a commit of another handle an open page has heard of it, in ms."""
    hf = holdfast.open(folder / ".holdfast", durability="process")
    run = hf.run("heard")
    run.checkpoint(state=0)
    heard = []
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.request("GET", "/api/live", headers=page.headers)
    stream = connection.getresponse()
    arrived = threading.Event()

    def listen():
        while True:
            line = stream.readline()
            if not line:
                return
            if b'"run":"heard"' in line:
                heard.append(time.perf_counter())
                arrived.set()

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(1)
    waits = []
    for number in range(5):
        arrived.clear()
        run.checkpoint(state=number + 1)
        at = time.perf_counter()
        assert arrived.wait(30)
        waits.append((heard[-1] - at) * 1000)
        time.sleep(0.3)
    connection.sock.close()
    hf.close()
    return statistics.median(waits), max(waits)


WATCH = """
new MutationObserver((_, watching) => {
  if (!document.querySelector('[role=option]')) return;
  window.rowsAt = performance.now();
  watching.disconnect();
}).observe(document, {childList: true, subtree: true});
"""
JUMP = """async (share) => {
  const box = document.querySelector('.checkpoints .scroll');
  const began = performance.now(), there = box.scrollHeight * share;
  box.scrollTop = there;
  for (;;) {
    await new Promise(requestAnimationFrame);
    const top = box.getBoundingClientRect();
    const rows = [...box.querySelectorAll('[role=option]')].map(one => one.getBoundingClientRect());
    if (rows.some(one => one.top >= top.top && one.bottom <= top.bottom)) return performance.now() - began;
  }
}"""


def looked_at(page, folder, live_s):
    """Print what a browser sees: time to paint, rows and jumps, heap and nodes, and what an open page costs a flow."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only with --browser

    origin = f"http://127.0.0.1:{page.port}"
    token = page.headers["Authorization"].removeprefix("Holdfast ")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        context = browser.new_context(viewport={"width": 1360, "height": 860})
        context.add_init_script(f"if (origin !== 'null') localStorage.setItem('holdfast-token', '{token}');" + WATCH)
        paints, rows = [], []
        tab = context.new_page()
        for _ in range(5):
            tab.goto(f"{origin}/r/long")
            tab.wait_for_selector("[role=option]")
            paints.append(tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            rows.append(tab.evaluate("window.rowsAt"))
        tab.wait_for_selector(".lanes .dot", timeout=120_000)
        jumps = [tab.evaluate(JUMP, share) for share in (0.5, 0.1, 0.9, 0.3, 0.7)]
        for name, found, goal in (
            ("browser: first contentful paint", paints, "<= 400"),
            ("browser: rows on screen", rows, "<= 700"),
            ("browser: jump anywhere", jumps, "<= 300"),
        ):
            print(f"{name:44} {statistics.median(found):8.0f} ms  (most {max(found):.0f})          {goal}")
        print(f"{'browser: heap and DOM nodes':44} {weight(context, tab)}   <= 40 MB, <= 1,500 nodes")
        commits, ends = 0, time.monotonic() + live_s
        hf = holdfast.open(folder / ".holdfast", durability="process")
        run = hf.run("long")
        while time.monotonic() < ends:
            commits += 1
            run.checkpoint(reason=f"live {commits}", state={"number": commits})
            time.sleep(0.1)
        print(f"{f'  after {commits} commits in {live_s} s':44} {weight(context, tab)}   flat")
        run.close()
        slowed(tab, origin, hf)
        hf.close()
        browser.close()


def weight(context, tab):
    session = context.new_cdp_session(tab)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return f"{used / 1e6:8.1f} MB  {tab.evaluate('document.querySelectorAll(`*`).length'):6} nodes"


def slowed(tab, origin, hf):
    """Print how long commits take with and without an open page of the run, in turns."""
    run = hf.run("flow")
    run.checkpoint(state={"number": 0})
    took = {"without": [], "with": []}
    for turn in range(6):
        kind = ("without", "with")[turn % 2]
        tab.goto(
            f"{origin}/r/flow" if kind == "with" and turn > 1 else f"{origin}/" if kind == "with" else "about:blank"
        )
        if kind == "with":
            tab.wait_for_selector("h1")
        for number in range(150):
            at = time.perf_counter()
            run.checkpoint(state={"number": number})
            took[kind].append((time.perf_counter() - at) * 1000)
            time.sleep(0.01)
    run.close()
    for kind, found in took.items():
        found.sort()
        middle, high = found[len(found) // 2], found[int(len(found) * 0.99)]
        print(f"{f'commit of a flow, {kind} a page open':44} {middle:8.2f} ms  (p99 {high:.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--browser", action="store_true", help="what Chromium sees, too")
    parser.add_argument("--live-seconds", type=int, default=120, help="how long the browser follows commits")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-web-") as place:
        folder = Path(place)
        began = time.monotonic()
        build(folder, given.checkpoints, given.files)
        print(f"built in {time.monotonic() - began:.0f} s: {given.checkpoints:,} checkpoints, {given.files:,} files")
        page = Page(folder)
        try:
            wall, cpu = page.start_s * 1000, page.start_cpu * 1000
            print(f"{'start to the first answer':44} {wall:8.0f} ms  {cpu:6.0f} ms CPU   <= 700 CPU")
            measured(page, "runs", "/api/runs")
            measured(page, "page of 200 checkpoints", "/api/runs/long/checkpoints?limit=200", goal="<= 10 CPU")
            jump = f"/api/runs/long/checkpoints?limit=100&offset={given.checkpoints // 2}"
            measured(page, "jump to the middle", jump, goal="<= 300")
            cpu, at = page.cpu(), time.perf_counter()
            page.ask("GET", "/api/runs/long/lanes")
            wall, cpu = (time.perf_counter() - at) * 1000, (page.cpu() - cpu) * 1000
            print(f"{'lanes, the first time':44} {wall:8.0f} ms  {cpu:6.0f} ms CPU")
            measured(page, "lanes, from then on", "/api/runs/long/lanes")
            measured(page, "budget line, 300 samples", "/api/runs/long/samples?n=300", goal="<= 150")
            measured(
                page,
                "5 MB state: first 50 entries",
                "/api/c/large@2/section/state?path=%5B%22messages%22%5D",
                goal="<= 150",
            )
            measured(page, "50,000 files: first directory", "/api/c/large@2/files", goal="<= 100")
            measured(page, "one directory of 250", "/api/c/large@2/files?under=d1")
            measured(page, "compare, 10 files and a 5 MB state", "/api/compare?a=large@1&b=large@2", goal="<= 150")
            measured(page, "messages that differ, 5 MB state", "/api/compare/messages?a=large@1&b=large@2")
            measured(
                page, "plan over 50,000 files", "/api/plans", method="POST", body={"spec": "large@1"}, goal="<= 500"
            )
            middle, most = told_after(page, folder)
            print(f"{'commit to event on an open page':44} {middle:8.0f} ms  (most {most:.0f})          <= 500")
            if given.browser:
                looked_at(page, folder, given.live_seconds)
            print(f"{'load of the machine':44} {os.getloadavg()[0]:8.1f}")
            print(f"{'server RSS':44} {page.rss() / 1e6:8.0f} MB                   <= 120")
        finally:
            page.stop()


if __name__ == "__main__":
    main()
