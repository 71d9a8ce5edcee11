"""The page in a real Chromium: the checks of its specification, by their numbers."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest

import holdfast
from holdfast.cli.graph import LogGraph
from web.browser_kit import Browser, needs_browser, picture, violations
from web.gallery import gallery, prepare, run, start_flow
from web.ui_kit import (
    CANARY,
    WAITING,
    Relay,
    damage_state,
    files_below,
    leaky,
    page,
    sealed,
    start_program,
    story,
    until,
)

pytestmark = needs_browser
QUIET = ("status of 409", "status of 423", "status of 404", "status of 401", "status of 422", "ERR_")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is one

    with sync_playwright() as playwright:
        started = Browser(playwright)
        yield started
        started.close()


@pytest.fixture(autouse=True)
def _no_message_and_no_error(browser):
    """Check 22, in every test; what the browser itself says of an answer that a test provokes is not ours."""
    browser.said.clear()
    yield
    said = [one for one in browser.said if not any(word in one[1] for word in QUIET)]
    assert said == []


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A working day, to be looked at."""
    folder = tmp_path_factory.mktemp("gallery") / "app"
    folder.mkdir()
    gallery(folder)
    with page(folder, write=True) as ui:
        yield ui


@pytest.fixture(scope="module")
def context(browser, shown):
    """A context that has the token."""
    made = browser.context()
    browser.open(shown, context=made)
    return made


def becomes(tab, claim):
    """Wait until something is so in a page; its policy forbids what Playwright would evaluate there itself."""
    until(lambda: tab.evaluate(claim))


def versions(ui, path):
    """Return the numbers of the checkpoints that first had each version of a file, newest first."""
    return [one["seq"] for one in ui.get(f"/api/runs/add-login/file-history?path={path}")["versions"]]


def opened(browser, ui, context, path, selector):
    tab = browser.open(ui, path, context=context)
    tab.wait_for_selector(selector)
    return tab


@pytest.fixture
def visit(browser, shown, context):
    tabs = []

    def go(path, selector="h1"):
        tabs.append(opened(browser, shown, context, path, selector))
        return tabs[-1]

    yield go
    for tab in tabs:
        tab.close()


def test_1_the_address_opens_it_once(browser, told):
    with page(told) as ui:
        code = ui.code
        tab = browser.open(ui)
        tab.wait_for_selector("tbody tr")
        assert "code" not in tab.url
        tab.reload()
        tab.wait_for_selector("tbody tr")
        other = browser.open(ui, "/r/add-login", context=tab.context)
        other.wait_for_selector("[role=option]")
        stranger = browser.context().new_page()
        stranger.goto(f"{ui.origin}/#code={code}")
        stranger.wait_for_selector("[role=alert]")
        assert stranger.locator("tbody tr").count() == 0
        for one in (tab, stranger):
            one.context.close()


def test_2_runs_are_filtered_ordered_and_linked_to(visit, shown):
    tab = visit("/", "tbody tr")
    picture(tab, "runs")
    assert tab.locator("tbody tr").count() == 5
    tab.keyboard.press("/")
    tab.keyboard.type("night")
    becomes(tab, "document.querySelectorAll('tbody tr').length === 1")
    assert "q=night" in tab.url
    again = visit("/" + tab.url.split("/", 3)[3], "tbody tr")
    assert again.locator("tbody th").all_inner_texts() == ["nightly-7"]
    assert visit("/?status=waiting", "tbody tr").locator("tbody th").all_inner_texts() == ["deploy-42"]
    assert visit("/?order=name", "tbody tr").locator("tbody th").all_inner_texts() == sorted(
        ["add-login", "deploy-42", "episode-9", "nightly-7", "try-passkeys"]
    )


def test_2_a_run_that_moves_comes_first_without_a_reload(browser, told):
    with page(told) as ui:
        tab = browser.open(ui)
        tab.wait_for_selector("tbody tr")
        assert tab.locator("tbody th").first.inner_text() == "try-2"
        hf = holdfast.open(told / ".holdfast")
        hf.run("add-login").checkpoint(reason="moved", state={"step": 8})
        hf.close()
        becomes(tab, "document.querySelector('tbody th').innerText === 'add-login'")
        tab.context.close()


def test_2_two_thousand_runs_are_paged_searched_and_ordered_on_the_server(browser, folder):
    hf = holdfast.open(folder / ".holdfast", durability="process")
    for number in range(2000):
        run = hf.run(f"run-{number:05}")
        run.checkpoint(state=number)
        run.close()
    with page(folder) as ui:
        tab = browser.open(ui)
        tab.wait_for_selector("tbody tr")
        assert tab.locator("tbody tr").count() == 50
        assert "of 2\u202f000" in tab.locator(".pager").inner_text()
        assert tab.locator("tbody th").first.inner_text() == "run-01999"
        hf.run("run-00000").checkpoint(state="moved")
        becomes(tab, "document.querySelector('tbody th').innerText === 'run-00000'")
        tab.keyboard.press("/")
        tab.keyboard.type("run-0123")
        becomes(tab, "document.querySelectorAll('tbody tr').length === 10")
        tab.context.close()
    hf.close()


def test_3_a_flow_of_another_process_grows_without_a_reload(browser, folder):
    holdfast.open(folder / ".holdfast").close()
    prepare(folder)
    with page(folder) as ui:
        tab = browser.open(ui)
        tab.wait_for_selector(".empty")
        flow = start_flow(folder, "login.yaml")
        tab.get_by_role("link", name="add-login").click()
        tab.wait_for_selector("[role=option]")
        tab.wait_for_selector(".timeline rect.bar")
        tab.wait_for_selector(".phases .b-completed")
        tab.wait_for_selector("h1 ~ .is-completed", timeout=60_000)
        assert flow.wait(60) == 0
        assert tab.locator(".phases .b-completed").count() == 3
        last = ui.get("/api/runs/add-login")["last_seq"]
        tab.wait_for_selector(f"#cp-{last}")
        tab.context.close()


PRINTING = """
flow: talk
phases:
  build:
    tasks:
      quiet: "true"
      loud: {needs: quiet, run: "for n in 1 2 3; do echo line $n; while [ ! -e go-$n ]; do sleep 0.05; done; done"}
"""


def test_3_what_a_task_prints_is_shown_as_it_comes(browser, folder):
    (folder / "talk.yaml").write_text(PRINTING)
    holdfast.open(folder / ".holdfast").close()
    with page(folder) as ui:
        flow = start_flow(folder, "talk.yaml")
        tab = browser.open(ui)
        tab.get_by_role("link", name="talk").click()
        tab.get_by_role("tab", name="output").click()
        for number in (1, 2, 3):
            becomes(tab, f"document.querySelector('.output pre')?.textContent.trim().endsWith('line {number}')")
            (folder / f"go-{number}").touch()
        assert flow.wait(60) == 0
        tab.wait_for_selector("h1 ~ .is-completed")
        picture(tab, "output")
        assert violations(tab) == []
        tab.context.close()


UNPROTECTED = """
import errno, sys, warnings
from pathlib import Path
import holdfast
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk
warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
wait = "while [ ! -e go ]; do sleep 0.05; done"
disk = FaultyDisk(folder, name="full")
full = Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True)
flow = flow_from({"flow": "full", "phases": {"one": "true", "two": "true", "three": wait, "four": "true"}})
def watch(event):
    if event.kind == "phase_done" and event.phase in ("one", "three"):
        disk.arm(full if event.phase == "one" else None)
with holdfast.Holdfast(SQLiteStore(folder / ".holdfast" / "holdfast.db", vfs=disk.vfs)) as hf:
    run_flow(hf, flow, observer=watch, workspace=folder)
"""


def test_3_a_run_that_is_not_protected_is_named_at_once(browser, folder):
    """Proves A14: the disk of the store is full while the flow continues; the page says so, and that it is over."""
    holdfast.open(folder / ".holdfast").close()
    with page(folder) as ui:
        tab = browser.open(ui)
        flow = start_program(UNPROTECTED, folder)
        try:
            tab.get_by_text("UNPROTECTED").wait_for()
            tab.get_by_role("link", name="full").click()
            tab.wait_for_selector("[role=alert] >> text=UNPROTECTED since")
            assert violations(tab) == []
            (folder / "go").touch()
            tab.wait_for_selector("h1 ~ .is-completed")
            tab.wait_for_selector("[role=alert]", state="detached")
            assert flow.wait(60) == 0
        finally:
            flow.kill()
            flow.communicate()
        tab.context.close()


MOVING = """
import sys, time
import holdfast
with holdfast.open(sys.argv[1]).run("worker") as run:
    run.checkpoint(state=1)
    print("moving", flush=True)
    time.sleep(600)
"""


def test_3_a_run_whose_process_is_killed_is_open_without_a_reload(browser, told):
    program = start_program(MOVING, told / ".holdfast")
    try:
        assert program.stdout.readline().strip() == "moving"
        with page(told) as ui:
            tab = browser.open(ui, "/r/worker")
            tab.wait_for_selector("h1 ~ .is-moving")
            program.kill()
            program.wait()
            tab.wait_for_selector("h1 ~ .is-open")
            tab.wait_for_selector(".waits >> text=holdfast resume worker")
            assert violations(tab) == []
            tab.context.close()
    finally:
        program.kill()
        program.communicate()


def test_3_a_run_whose_process_was_killed_is_open(visit):
    tab = visit("/?q=episode-9", "tbody tr")
    assert tab.locator("tbody .status").inner_text() == "○ open"


def test_4_an_address_of_a_deleted_checkpoint_shows_the_one_before_and_says_so(visit, shown):
    deleted = shown.get("/api/runs/add-login")["deleted"][-1]
    before = max(
        one["seq"] for one in shown.get("/api/runs/add-login/checkpoints?limit=200")["rows"] if one["seq"] < deleted
    )
    tab = visit(f"/r/add-login?at={deleted}", "[role=option]")
    tab.wait_for_selector(f"text=@{deleted} was deleted; this is @{before}.")
    assert tab.get_by_role("link", name=f"go back to @{before}").count() == 1
    assert tab.locator(".problem").count() == 0


@pytest.mark.parametrize("path", ["/r/nosuch", "/c/nosuch@1", "/plan/new?spec=nosuch@1", "/compare?a=nosuch@1&b=now"])
def test_what_is_not_there_is_a_screen_with_a_heading_and_a_way_out(visit, shown, path):
    tab = visit(path, ".problem")
    assert tab.locator("h1").inner_text() == "Nothing to show here"
    tab.get_by_role("link", name="All runs").click()
    tab.wait_for_selector("tbody tr")


def test_4_scrubbing_moves_state_and_files(visit, shown):
    tab = visit("/r/add-login", "[role=option]")
    picture(tab, "run")
    tab.wait_for_selector(".lanes .dot")
    tab.get_by_text("find the checkpoint that broke").click()
    tab.wait_for_selector("text=holdfast bisect add-login -- COMMAND")
    tab.locator("h1").click()
    written = versions(shown, "src/test_auth.py")[-1]
    for _ in range(shown.get("/api/runs/add-login")["last_seq"] - written):
        tab.keyboard.press("j")
    until(lambda: f"at={written}" in tab.url)
    becomes(tab, f"document.querySelector('.pane h2').innerText.includes('{written}')")
    tab.keyboard.press("f")
    tab.wait_for_selector(".pane .files")
    assert "test_auth.py" in tab.locator(".pane .changed").inner_text()
    tab.keyboard.press("g")
    tab.keyboard.press("h")
    until(lambda: "at=" not in tab.url)
    fixed = versions(shown, "src/auth.py")[0]
    whole = visit(f"/c/add-login@{fixed}", ".files")
    whole.get_by_role("button", name="src/").click()
    whole.get_by_role("button", name="agents").click()
    whole.wait_for_selector("text=auth.py")
    picture(whole, "checkpoint")
    whole.keyboard.press("[")
    whole.wait_for_url(f"**/c/add-login%40{fixed - 1}")


def test_5_the_graph_has_the_lanes_of_the_log(visit, shown):
    tab = visit("/r/add-login", ".lanes .dot")
    chains = shown.get("/api/runs/add-login/lanes")["chains"]
    assert {chain["lane"] for chain in chains} == {0, 1}
    tab.locator(".checkpoints .scroll").evaluate("one => one.scrollTop = 18 * 30")
    tab.wait_for_selector(".dot.lane-1")
    joins = next(chain["joins"] for chain in chains if chain["joins"])
    tab.locator(".checkpoints .scroll").evaluate("(one, y) => one.scrollTop = y", 30 * 30)
    tab.wait_for_selector(f"#cp-{joins} path.lane")
    tab.wait_for_selector(f"#cp-{joins} .tag.fork")


def test_5_rewinds_undos_forks_and_deleted_ones_are_drawn_as_the_log_draws_them(browser, told):
    hf = holdfast.open(told / ".holdfast")
    hf.undo("add-login", workspace=told)
    hf.recover("add-login@1", workspace=told)
    hf.delete(hf.find("add-login@3").id)
    listed = hf.checkpoints("add-login", archived=True)
    deleted = {one.id for one in hf.store.tombstones("add-login")}
    hf.close()
    graph = LogGraph(lambda name: name in deleted)
    drawn = {one.seq: graph.row(one.id, one.parent if one.seq > 1 else None).lanes.index("*") // 2 for one in listed}
    with page(told) as ui:
        tab = browser.open(ui, "/r/add-login")
        tab.wait_for_selector(".lanes .dot")
        for seq, lane in drawn.items():
            assert tab.locator(f"#cp-{seq} .dot").get_attribute("cx") == str(9 + 14 * lane), seq
        assert tab.locator(".lane.broken").count() == 1
        assert tab.locator("#cp-1 .tag.fork").inner_text().endswith("try-2")
        tab.context.close()


def test_6_any_two_points_are_compared(visit, shown):
    tab = visit("/r/add-login?at=13", "[role=option]")
    tab.locator("h1").click()
    tab.keyboard.press("x")
    tab.wait_for_selector(".marked")
    tab.keyboard.press("k")
    until(lambda: "at=14" in tab.url)
    tab.goto(tab.url.replace("at=14", "at=40"))
    tab.wait_for_selector(".pane h2")
    fixed, drafted = versions(shown, "src/auth.py")
    compared = visit(f"/compare?a=add-login@13&b=add-login@{fixed}", ".section")
    data = shown.get(f"/api/compare?a=add-login@13&b=add-login@{fixed}")
    counts = {one["name"] == "steps": 0 for one in data["sections"]}
    for one in data["sections"]:
        counts[one["name"] == "steps"] += one["count"]
    for name, is_calls in (("State", False), ("Calls", True)):
        assert compared.get_by_role("tab", name=name).inner_text().split()[-1] == str(counts[is_calls])
    picture(compared, "compare-state")
    compared.keyboard.press("f")
    compared.get_by_role("button", name="src/auth.py").click()
    compared.wait_for_selector(".diff >> text=class Denied")
    assert "class Denied" in compared.locator(".diff").inner_text()
    words = visit(f"/compare?a=add-login@{drafted}&b=add-login@{fixed}&tab=files&path=src/auth.py", ".diff mark")
    picture(words, "compare-files")
    across = visit("/compare?a=try-passkeys@1&b=add-login@40", ".overview")
    assert "common ancestor add-login@13" in across.locator(".overview").inner_text()
    now = visit("/compare?a=add-login@13&b=now&tab=files", ".overview")
    assert "now:" in now.locator(".bar").first.inner_text()


def test_6_messages_are_shown_beside_the_state_and_compared(browser, told):
    hf = holdfast.open(told / ".holdfast")
    with hf.run("add-login", workspace=told) as run:
        run.mailbox.send("coder", "reviewer", "does login refuse without a second factor?", expects_answer=True)
        said = hf.latest("add-login").section("state")["messages"]
        said = [*said, {"role": "assistant", "content": "auth.py refuses now", "tool_calls": []}]
        run.checkpoint(reason="asked", state={"step": 4, "messages": said})
    with page(told) as ui:
        tab = browser.open(ui, "/r/add-login")
        tab.wait_for_selector("[role=option]")
        tab.locator("h1").click()
        tab.keyboard.press("m")
        tab.wait_for_selector(".messages >> text=does login refuse")
        assert "tab=messages" in tab.url
        assert tab.locator(".messages li").count() == 50
        picture(tab, "messages")
        assert violations(tab) == []
        tab.get_by_role("button", name="50 older messages").click()
        tab.wait_for_selector(".messages >> text=message 40")
        tab.goto(f"{ui.origin}/compare?a=add-login@2&b=add-login&tab=messages")
        tab.wait_for_selector(".messages .s-added >> text=auth.py refuses now")
        assert tab.locator(".messages li").count() == 2
        assert "2" in tab.get_by_role("tab", name="Messages").inner_text()
        assert "messages +2" in tab.locator(".overview").inner_text()
        assert violations(tab) == []
        tab.goto(f"{ui.origin}/c/add-login@2?tab=messages")
        tab.wait_for_selector(".messages >> text=message 119")
        tab.context.close()
    hf.close()


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request):
    """Where the store is: in the project (None), or a database of its own."""
    if request.param == "sqlite":
        yield None
        return
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    url = shared_server().database()
    yield url
    shared_server().drop(url)


def project(folder):
    """Return the files of a project but for the store's own."""
    return {name: data for name, data in files_below(folder).items() if not name.startswith(".holdfast")}


def sections(place):
    with holdfast.open(place) as hf:
        head = hf.latest("add-login")
        return {name: head.section(name) for name in ("state", "budget")}


def test_7_a_plan_does_what_the_command_does_to_a_twin_and_is_undone(browser, folder, tmp_path, kept):
    twin = tmp_path / "twin"
    twin.mkdir()
    for place, store in ((folder, kept), (twin, None)):
        story(place, store)
        (place / "README.md").write_text("# Mine\n")
    store = kept or folder / ".holdfast"
    before, state = project(folder), sections(store)
    with page(folder, store=kept, write=True) as ui:
        tab = browser.open(ui, "/c/add-login@1")
        tab.keyboard.press("p")
        tab.wait_for_selector(".items")
        assert tab.evaluate("document.activeElement.innerText") == "Cancel"
        assert tab.locator(".ghosts li").count() == 3  # the new head as a ghost, the head now, the target
        assert tab.locator(".ghosts .dot.ghost").count() == 1
        assert "@5" in tab.locator(".ghosts li").nth(1).inner_text()
        tab.locator(".items button.file", has_text="src/auth.py").click()
        tab.wait_for_selector(".sides .result pre")
        result = tab.locator(".sides .result pre").text_content()
        picture(tab, "plan")
        tab.get_by_role("button", name="Run exactly this plan").click()
        tab.wait_for_selector("text=stands at a new head")
        run(twin, "resume", "add-login@1", "--yes", code=14)  # put back; there is no flow to continue
        assert (folder / "src" / "auth.py").read_bytes() == result.encode()
        assert project(folder) == project(twin) != before
        assert sections(store) == sections(twin / ".holdfast") != state
        tab.get_by_role("link", name="Undo").click()
        tab.wait_for_selector(".do")
        tab.get_by_role("button", name="Run exactly this plan").click()
        tab.wait_for_selector("text=stands at a new head")
        assert project(folder) == before
        assert sections(store) == state
        tab.context.close()


def test_8_a_world_that_moves_while_the_plan_is_open_takes_the_button_away(browser, told):
    with page(told, write=True) as ui:
        tab = browser.open(ui, "/plan/new?spec=add-login@1")
        tab.wait_for_selector(".good")
        (told / "src" / "auth.py").write_text("mine\n")
        tab.wait_for_selector("text=is not as it was")
        assert tab.get_by_role("button", name="Run exactly this plan").is_disabled()
        tab.get_by_role("button", name="plan again").click()
        tab.wait_for_selector(".a-conflict")
        assert (told / "src" / "auth.py").read_text() == "mine\n"
        tab.context.close()


def test_9_a_conflict_is_decided_and_the_result_is_what_is_written(browser, told):
    (told / "src" / "auth.py").write_text("def login(user, mfa, mine):\n    return mine\n")
    with page(told, write=True) as ui:
        tab = browser.open(ui, "/plan/new?spec=add-login@1")
        tab.wait_for_selector(".a-conflict")
        assert tab.get_by_role("button", name="Run exactly this plan").is_disabled()
        tab.locator(".items button.file").first.click()
        tab.get_by_role("button", name="keep both").click()
        tab.wait_for_selector(".items .a-both")
        tab.wait_for_selector(".sides .result pre")
        picture(tab, "plan-conflict")
        tab.get_by_role("button", name="Run exactly this plan").click()
        tab.wait_for_selector("text=stands at a new head")
        tab.context.close()
    assert "mine" in (told / "src" / "auth.py").read_text()
    assert (told / "src" / "auth.py.checkpoint").read_text() == "def login(user):\n    return True\n"


CHOICES = {"a.py": "take", "b.py": "keep", "c.py": "merge", "d.py": "both"}
LINES = [f"line {number}\n" for number in range(9)]


def conflicted(folder):
    """Make a run whose files a person changed as well, in the same line."""
    with holdfast.open(folder / ".holdfast") as hf:
        made = hf.run("r", workspace=folder)
        for change, first in enumerate((LINES[0], "changed by the run\n")):
            for name in CHOICES:
                (folder / name).write_text("".join([first, *LINES[1:]]))
            made.checkpoint(state=change)
        made.close()
    for name in CHOICES:
        (folder / name).write_text("".join(["mine\n", *LINES[1:]]))


def test_9_conflicts_and_four_choices_write_what_the_result_showed(browser, folder, tmp_path):
    """The decisions can be taken away in a file, with which the command does the same to a twin."""
    twin = tmp_path / "twin"
    twin.mkdir()
    conflicted(folder)
    conflicted(twin)
    labels = {"take": "take the checkpoint's", "keep": "keep mine", "merge": "merge", "both": "keep both"}
    with page(folder, write=True) as ui:
        tab = browser.open(ui, "/plan/new?spec=r@1")
        tab.wait_for_selector(".a-conflict")
        assert tab.locator(".items .a-conflict").count() == 4
        results = {}
        for number, (name, choice) in enumerate(CHOICES.items(), 1):
            assert tab.get_by_role("button", name="Run exactly this plan").is_disabled()
            group = tab.get_by_role("group", name=f"Decide {name}")
            group.get_by_role("button", name=labels[choice], exact=True).click()
            becomes(tab, f"document.querySelectorAll('.items li.a-conflict').length === {4 - number}")
        other = browser.open(ui, tab.url.removeprefix(ui.origin), context=tab.context)  # knows what was decided
        other.wait_for_selector(".items")
        assert other.locator(".choices [aria-pressed=true]").all_inner_texts() == [
            labels[one] for one in CHOICES.values()
        ]
        other.close()
        for name in CHOICES:
            tab.get_by_role("button", name=name, exact=True).click()
            becomes(tab, f"document.querySelector('.items [aria-expanded=true]')?.innerText === '{name}'")
            tab.wait_for_selector(".sides .result pre")
            results[name] = tab.locator(".sides .result pre").text_content()
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="download decisions.json").click()
        saved.value.save_as(tmp_path / "decisions.json")
        assert tab.locator("p code, p .command").filter(has_text="--decisions decisions.json").count()
        tab.get_by_role("button", name="Run exactly this plan").click()
        tab.wait_for_selector("text=stands at a new head")
        tab.context.close()
    for name, result in results.items():
        assert (folder / name).read_bytes() == result.encode(), name
    assert "mine" in results["c.py"]
    assert (folder / "d.py.checkpoint").read_text() == "".join(LINES)
    run(twin, "resume", "r@1", "--decisions", str(tmp_path / "decisions.json"), "--yes", code=14)
    assert project(folder) == project(twin)


def test_9_every_file_of_a_long_plan_can_be_seen(browser, folder):
    with holdfast.open(folder / ".holdfast") as hf:
        made = hf.run("r", workspace=folder)
        for text in ("one\n", "two\n"):
            for number in range(450):
                (folder / f"f{number:03}.py").write_text(text)
            made.checkpoint(state=text)
        made.close()
    (folder / "f444.py").write_text("mine\n")
    with page(folder) as ui:
        tab = browser.open(ui, "/plan/new?spec=r@1")
        tab.wait_for_selector(".a-conflict")
        seen = tab.locator(".items button.file").all_inner_texts()
        assert seen[0] == "f444.py"  # conflicts come first
        for first in ("f199.py", "f399.py"):
            tab.get_by_role("button", name="next", exact=True).click()
            becomes(tab, f"document.querySelector('.items button.file').innerText === '{first}'")
            seen += tab.locator(".items button.file").all_inner_texts()
        assert sorted(seen) == [f"f{number:03}.py" for number in range(450)]
        tab.context.close()


def test_10_of_two_tabs_one_carries_the_plan_out(browser, told):
    with page(told, write=True) as ui:
        one = browser.open(ui, "/plan/new?spec=add-login@1")
        one.wait_for_selector(".items")
        two = browser.open(ui, one.url.removeprefix(ui.origin), context=one.context)
        two.wait_for_selector(".items")
        two.evaluate("window.fetchSaved = window.fetch")
        one.get_by_role("button", name="Run exactly this plan").click()
        one.wait_for_selector("text=stands at a new head")
        two.wait_for_selector("text=has moved on since")
        assert two.get_by_role("button", name="Run exactly this plan").is_disabled()
        one.context.close()


def test_11_a_run_that_a_process_has_names_its_owner(browser, told):
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            tab = browser.open(ui, "/plan/new?spec=deploy-42")
            tab.wait_for_selector("text=A process has this run now")
            assert tab.get_by_role("button", name="Run exactly this plan").is_disabled()
            tab.context.close()
    finally:
        program.kill()
        program.communicate()


def test_12_an_answer_in_one_tab_takes_the_card_from_the_other(browser, told):
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            one = browser.open(ui, "/approvals")
            one.wait_for_selector(".card")
            picture(one, "approvals")
            two = browser.open(ui, "/approvals", context=one.context)
            two.wait_for_selector(".card")
            two.bring_to_front()
            two.get_by_label("note").fill("looks good")
            two.get_by_role("button", name="approve", exact=True).click()
            two.wait_for_selector("text=Nothing waits for you")
            one.bring_to_front()
            one.wait_for_selector("text=Nothing waits for you")
            assert program.stdout.readline().split() == ["answered", "approve"]
            one.context.close()
    finally:
        program.kill()
        program.communicate()


BUDGET = """
import holdfast, sys
hf = holdfast.open(sys.argv[1])
with hf.run("spender") as run:
    run.budget.limit(tokens=100)
    run.checkpoint(state={})
    print("spending", flush=True)
    run.budget.spend(tokens=120)
    run.budget.check()
    print("raised", flush=True)
"""


def test_13_a_raised_budget_ends_the_wait(browser, told):
    program = start_program(BUDGET, told / ".holdfast")
    try:
        assert program.stdout.readline().strip() == "spending"
        with page(told, write=True) as ui:
            tab = browser.open(ui, "/approvals")
            tab.wait_for_selector(".card")
            tab.get_by_label("more").fill("500")
            tab.locator(".answer button.primary").click()
            tab.wait_for_selector("text=Nothing waits for you")
            assert program.stdout.readline().strip() == "raised"
            tab.context.close()
    finally:
        program.kill()
        program.communicate()


def test_14_a_fork_with_an_edited_state(browser, told):
    with page(told, write=True) as ui:
        tab = browser.open(ui, "/c/add-login@2")
        tab.get_by_role("button", name="fork…").click()
        tab.get_by_label("new run").fill("try-9")
        tab.get_by_label("edit a section").select_option("state")
        becomes(tab, "document.querySelector('textarea')?.value.includes('step')")
        tab.locator("textarea").fill('{"step": ')
        tab.get_by_role("button", name="Fork", exact=True).click()
        tab.wait_for_selector("dialog .problem")
        assert "state" in tab.locator("dialog .problem").inner_text()
        tab.locator("textarea").fill('{"step": 99}')
        tab.get_by_role("button", name="Fork", exact=True).click()
        tab.wait_for_url("**/r/try-9")
        tab.context.close()
    assert holdfast.open(told / ".holdfast").latest("try-9").section("state") == {"step": 99}


def test_15_a_damaged_section_is_named_and_the_rest_is_shown(browser, told):
    """Proves X3: the section says that it is damaged; files and other sections are there."""
    damage_state(told, "add-login@3")
    with page(told) as ui:
        tab = browser.open(ui, "/c/add-login@3")
        tab.wait_for_selector(".tree .problem")  # the state is open from the start
        assert "section 'state' of checkpoint" in tab.locator(".tree .problem").inner_text()
        tab.get_by_role("button", name="budget").click()
        tab.wait_for_selector("text=spending")
        tab.wait_for_selector("text=README.md")
        # That the browser tells of the one answer that is damaged is meant here, and nowhere else.
        browser.said[:] = [one for one in browser.said if "status of 500" not in one[1]]
        tab.context.close()


def test_16_an_encrypted_store_is_shown_with_its_key(browser, folder, tmp_path):
    sealed(folder, tmp_path / "key", {"deep": "sealed words"})
    with page(folder) as ui:
        tab = browser.open(ui, "/c/sealed")
        tab.wait_for_selector("text=sealed words")
        tab.context.close()
    (tmp_path / "key").write_text(holdfast.generate_key())
    with pytest.raises(AssertionError, match="did not start"), page(folder):
        pass


def test_17_a_secret_is_on_no_screen_and_in_no_answer(browser, folder):
    """Every answer that the page gets while somebody looks round, the stream of events included."""
    leaky(folder)
    bodies = []

    def keep(route):
        answer = route.fetch()
        bodies.append(answer.text())
        route.fulfill(response=answer)

    with page(folder) as ui:
        tab = browser.open(ui)
        tab.route(re.compile(r"/api/(?!live)"), keep)
        for path, awaited in (
            ("/r/leaky", "[role=option]"),
            ("/r/leaky?tab=events", ".events"),
            ("/r/leaky?tab=files", "text=notes.txt"),
            ("/c/leaky@1", "text=header"),
            ("/compare?a=leaky@1&b=leaky@2", "h1"),
            ("/compare?a=leaky@1&b=leaky@2&tab=files&path=notes.txt", "text=notes.txt"),
            ("/r/leaky/file?path=notes.txt", "h1"),
            ("/approvals", "h1"),
            ("/storage", "h1"),
        ):
            tab.goto(ui.origin + path)
            tab.wait_for_selector(awaited)
            assert CANARY not in tab.content(), path
        with ui.live() as told:
            hf = holdfast.open(folder / ".holdfast")
            hf.run("leaky").checkpoint(reason=f"Bearer {CANARY}", state={"x": CANARY})
            hf.close()
            bodies.append(str([told(), told()]))
        tab.unroute_all(behavior="wait")
        tab.context.close()
    assert len(bodies) > 10
    assert not [body for body in bodies if CANARY in body]


def test_18_without_write_no_button_changes_anything(browser, told):
    with page(told) as ui:
        tab = browser.open(ui, "/r/add-login")
        tab.wait_for_selector("[role=option]")
        for path in ("/r/add-login", "/c/add-login@2", "/plan/new?spec=add-login@1", "/approvals", "/storage"):
            tab.goto(ui.origin + path)
            tab.wait_for_selector("h1")
            tab.wait_for_timeout(300)
            words = " ".join(tab.locator("main button").all_inner_texts())
            assert not re.search(r"fork|Run exactly|pause|approve|pin|label|Delete", words), (path, words)
        tab.context.close()


SCREENS = {
    "/": "tbody tr",
    "/r/add-login": ".lanes .dot",
    "/r/nightly-7": ".why",
    "/c/add-login@13": ".tree",
    "/compare?a=add-login@13&b=add-login@40&tab=files": ".diff",
    "/compare?a=add-login@13&b=add-login@40&tab=state": ".differences li",
    "/plan/new?spec=add-login@13": ".do",
    "/approvals": ".card",
    "/storage": ".figures",
    "/r/add-login/file?path=src/auth.py": ".blame li",
}
PICTURED = {
    ("dark", "/r/add-login"): "run-dark",
    ("light", "/storage"): "storage",
    ("light", "/r/add-login/file?path=src/auth.py"): "file-history",
}
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "zoomed": {"viewport": {"width": 680, "height": 430}},
    "forced": {"forced_colors": "active"},
}


@pytest.mark.parametrize("look", LOOKS)
def test_19_nothing_stands_against_accessibility(browser, shown, context, look):
    state = context.storage_state()
    other = browser.context(storage_state=state, reduced_motion="reduce", **LOOKS[look])
    tab = other.new_page()
    found = {}
    for path, selector in SCREENS.items():
        tab.goto(shown.origin + path)
        tab.wait_for_selector(selector)
        tab.wait_for_timeout(150)
        told = violations(tab)
        if told:
            found[path] = told
        if (look, path) in PICTURED:
            picture(tab, PICTURED[look, path])
    tab.keyboard.press("Control+k")
    tab.wait_for_selector("dialog[open] [role=option]")
    found |= {"palette": told} if (told := violations(tab)) else {}
    other.close()
    assert found == {}


def test_19_the_keyboard_is_enough(visit):
    tab = visit("/", "tbody tr")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    assert tab.evaluate("document.activeElement.innerText") == "add-login"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[role=option]")
    tab.keyboard.press("Control+k")
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("nightly")
    becomes(tab, "document.querySelector('dialog [aria-selected=true]')?.innerText.includes('nightly')")
    picture(tab, "palette")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".why")
    picture(tab, "failed")
    tab.keyboard.press("g")
    tab.keyboard.press("a")
    tab.wait_for_selector(".card")
    tab.keyboard.press("?")
    tab.wait_for_selector("dialog[open] .keys")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("dialog", state="detached")


def test_19_a_plan_is_run_and_an_answer_given_with_keys_alone(browser, told):
    program = start_program(WAITING, told / ".holdfast", told)
    try:
        assert program.stdout.readline().strip() == "waiting"
        with page(told, write=True) as ui:
            tab = browser.open(ui, "/c/add-login@1")
            tab.wait_for_selector(".files")
            tab.keyboard.press("p")
            tab.wait_for_selector(".items")
            becomes(tab, "document.activeElement.innerText === 'Cancel'")
            tab.keyboard.press("Tab")
            tab.keyboard.press("Enter")
            tab.wait_for_selector("text=stands at a new head")
            assert "return True" in (told / "src" / "auth.py").read_text()
            tab.keyboard.press("g")
            tab.keyboard.press("a")
            tab.wait_for_selector(".card")
            tab.keyboard.press("j")
            for _ in range(9):
                if tab.evaluate("document.activeElement.innerText") == "approve":
                    break
                tab.keyboard.press("Tab")
            tab.keyboard.press("Enter")
            assert program.stdout.readline().split() == ["answered", "approve"]
            tab.context.close()
    finally:
        program.kill()
        program.communicate()


def test_19_dialogs_stand_against_no_rule_and_files_have_addresses(browser, told):
    with page(told, write=True) as ui:
        tab = browser.open(ui, "/c/add-login@2?file=src/auth.py")
        tab.wait_for_selector("dialog[open] pre")
        assert "mfa.ok" in tab.locator("dialog pre").inner_text()
        assert violations(tab) == []
        tab.keyboard.press("Escape")
        until(lambda: "file=" not in tab.url)
        tab.get_by_role("button", name="fork…").click()
        tab.wait_for_selector("dialog[open] .fork")
        assert violations(tab) == []
        tab.goto(ui.origin + "/r/add-login")
        tab.wait_for_selector("[role=option]")
        tab.keyboard.press("Control+k")
        tab.keyboard.type("good pl")
        tab.wait_for_selector("dialog [role=option] >> text=add-login@2")
        tab.keyboard.press("Enter")
        until(lambda: "at=2" in tab.url)
        tab.context.close()


def test_19_screen_readers_are_told_at_most_once_in_five_seconds(browser, told):
    hf = holdfast.open(told / ".holdfast")
    with page(told) as ui:
        tab = browser.open(ui, "/r/try-2")
        tab.wait_for_selector("[role=option]")
        tab.evaluate("""() => {
          window.told = 0;
          const region = document.querySelector('.hidden[aria-live]');
          const kinds = {childList: true, characterData: true, subtree: true};
          new MutationObserver(() => window.told++).observe(region, kinds);
        }""")
        run = hf.run("try-2")
        for number in range(6):
            run.checkpoint(state=number)
            tab.wait_for_timeout(250)
        tab.wait_for_selector("#cp-7")
        assert tab.evaluate("window.told") == 1
        tab.context.close()
    hf.close()


def test_20_it_can_be_used_on_a_telephone(browser, shown, context):
    other = browser.context(storage_state=context.storage_state(), viewport={"width": 320, "height": 640})
    tab = other.new_page()
    for path, selector in SCREENS.items():
        tab.goto(shown.origin + path)
        tab.wait_for_selector(selector if selector != ".lanes .dot" else "[role=option]")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= 320, (path, wide)
        if path == "/r/nightly-7":
            assert tab.locator(".why").bounding_box()["y"] < 640
            picture(tab, "phone")
    other.close()


def test_21_a_server_that_stops_is_told_and_nothing_is_missed(browser, told):
    with page(told) as ui:
        port = ui.port
        tab = browser.open(ui)
        tab.wait_for_selector("tbody tr")
        tab.wait_for_selector(".live.is-live")
    tab.wait_for_selector(".banner")
    hf = holdfast.open(told / ".holdfast")
    hf.run("meanwhile").checkpoint(state=1)
    hf.close()
    with page(told, "--port", str(port)):
        tab.wait_for_selector("text=another start of the server")  # its token is of another start: never reused
    tab.context.close()


def test_21_a_stream_that_broke_is_taken_up_where_it_was(browser, told):
    with page(told) as ui, Relay() as relay:
        tab = browser.open(ui, proxy={"server": relay.address, "bypass": "<-loopback>"})
        asked = []
        tab.on("request", lambda request: asked.append(request.url) if "/api/live" in request.url else None)
        tab.wait_for_selector(".live.is-live")
        hf = holdfast.open(told / ".holdfast")
        hf.run("add-login").checkpoint(state="moved")  # so that the page knows a place in the stream
        becomes(tab, "document.querySelector('tbody th').innerText === 'add-login'")
        relay.cut()
        tab.wait_for_selector(".banner")
        hf.run("try-2").checkpoint(state="meanwhile")
        hf.close()
        relay.allow()
        becomes(tab, "document.querySelector('tbody th').innerText === 'try-2'")
        tab.wait_for_selector(".banner", state="detached")
        assert "after=" in asked[-1]
        tab.context.close()


def test_23_ten_tabs_share_one_stream(browser, told):
    """A browser allows six connections to one server: tabs must not take one each."""
    streams = []
    with page(told) as ui:
        context = browser.context()
        context.on("request", lambda request: streams.append(request.url) if "/api/live" in request.url else None)
        tabs = [browser.open(ui, context=context) for _ in range(10)]
        for tab in tabs:
            tab.wait_for_selector(".live.is-live")
            tab.wait_for_selector("tbody tr")
        assert len(streams) == 1
        tabs[0].close()  # the one that held it: another takes over
        hf = holdfast.open(told / ".holdfast")
        hf.run("add-login").checkpoint(reason="moved", state={"step": 8})
        hf.close()
        for tab in tabs[1:]:
            becomes(tab, "document.querySelector('tbody th').innerText === 'add-login'")
        context.close()


XSS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
    "${alert(1)}",
    "{{7*7}}",
    "\u202egnp.exe",
    "\x1b[31mred\x1b[0m",
    "a\u200bb",
    '"><b>bold</b>',
    "x" * 100_000,
]
MADE = "document.querySelectorAll('main script, main img, main b, main [onerror], main [onload]').length"


def test_stored_text_stays_text(browser, folder):
    hf = holdfast.open(folder / ".holdfast")
    run = hf.run("hostile", workspace=folder)
    (folder / "<img src=x onerror=alert(1)>.txt").write_text("\n".join(XSS[:-1]))
    state = {text[:80]: text for text in XSS} | {"list": XSS}
    run.checkpoint(reason=XSS[1], state=state, label="<b>label</b>")
    (folder / "<img src=x onerror=alert(1)>.txt").write_text("<script>alert(2)</script>\n")
    run.checkpoint(reason=XSS[2], state={**state, "new": XSS[0]})
    hf.close()
    with page(folder) as ui:
        tab = browser.open(ui, "/r/hostile")
        dialogs = []
        tab.on("dialog", lambda one: dialogs.append(one.dismiss()))
        tab.wait_for_selector("[role=option]")
        tab.wait_for_selector(".tree .value")
        for path, selector in {
            "/c/hostile@2": ".tree .value", "/compare?a=hostile@1&b=hostile@2&tab=files": ".diff .code",
            "/compare?a=hostile@1&b=hostile@2&tab=state": ".differences li", "/plan/new?spec=hostile@1": ".do",
        }.items():  # fmt: skip
            tab.goto(ui.origin + path)
            tab.wait_for_selector(selector)
            assert tab.evaluate(MADE) == 0, path
            assert "\u202e" not in tab.locator("main").inner_text()
        with pytest.raises(Exception, match="TrustedHTML"):
            tab.evaluate("document.body.innerHTML = '<b>x</b>'")
        browser.said.clear()  # the browser says so, too
        assert dialogs == []
        tab.context.close()


EVIL = """<!doctype html><h1>evil</h1><iframe src="ORIGIN/"></iframe><script>
  const plain = {method: "POST", body: "{}", headers: {"Content-Type": "text/plain"}};
  window.done = Promise.allSettled([
    fetch("ORIGIN/api/runs").then(answer => answer.text()),
    fetch("ORIGIN/api/runs/add-login/tell/pause", plain).then(answer => answer.text()),
  ]).then(all => all.map(one => one.status));
</script>"""


def test_another_page_can_neither_read_nor_frame_nor_post(browser, told):
    import http.server  # noqa: PLC0415
    import threading  # noqa: PLC0415

    with page(told, write=True) as ui:
        own = browser.open(ui)
        own.wait_for_selector("tbody tr")
        evil = EVIL.replace("ORIGIN", ui.origin).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(evil)

            def log_message(self, *_words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            tab = own.context.new_page()
            tab.goto(f"http://127.0.0.1:{server.server_port}/")
            assert tab.evaluate("window.done") == ["rejected", "rejected"]
            assert tab.evaluate("Object.keys(localStorage).length") == 0
            assert all("/#" not in frame.url and frame.name == "" for frame in tab.frames)
            assert not [frame for frame in tab.frames[1:] if frame.url.startswith(ui.origin)]
        finally:
            server.shutdown()
            server.server_close()
        own.context.close()


MILLION = 1_000_000
SEEN = """one => {
  const box = one.closest('.scroll').getBoundingClientRect(), row = one.getBoundingClientRect();
  return row.top >= box.top - 1 && row.bottom <= box.bottom + 1;
}"""


def pretend(told):
    """Return what the server would say of a million checkpoints, made from one real row."""
    row = told["rows"][0]

    def answer(route):
        asked = dict(parse_qsl(urlsplit(route.request.url).query))
        offset = int(asked.get("offset", 0))
        seqs = range(MILLION - offset, max(0, MILLION - offset - int(asked["limit"])), -1)
        rows = [{**row, "seq": seq, "id": f"cp_{seq}", "is_head": seq == MILLION, "files": None} for seq in seqs]
        route.fulfill(json={**told, "rows": rows, "total": MILLION, "last_seq": MILLION, "offset": offset})

    return answer


def test_a_million_rows_can_be_scrolled_and_stepped_through(browser, told):
    """A browser makes no page as tall as that: the list scrolls by more than it shows, and every row is reached."""
    with page(told) as ui:
        tab = browser.open(ui)
        run = ui.get("/api/runs/try-2")
        tab.route(re.compile(r"/api/runs/try-2$"), lambda route: route.fulfill(json={**run, "last_seq": MILLION}))
        tab.route(re.compile(r"/api/runs/try-2/checkpoints"), pretend(ui.get("/api/runs/try-2/checkpoints")))
        one = {"lane": 0, "ranges": [[MILLION, 1]], "joins": None, "gaps": []}
        lanes = {"run": "try-2", "chains": [one]}
        tab.route(re.compile(r"/api/runs/try-2/lanes"), lambda route: route.fulfill(json=lanes))
        tab.goto(ui.origin + "/r/try-2")
        tab.wait_for_selector(f"#cp-{MILLION}")
        assert tab.locator(".checkpoints .space").evaluate("one => one.offsetHeight") < 10_000_000
        tab.locator("[role=listbox]").focus()
        tab.keyboard.press("End")
        becomes(tab, f"(({SEEN})(document.querySelector('#cp-1') ?? document.querySelector('.row')))")
        tab.wait_for_selector("#cp-1[aria-selected=true]")
        for _ in range(3):  # a step of one row shows the next row, in the middle of the list as well
            tab.keyboard.press("PageUp")
        tab.wait_for_selector("#cp-31[aria-selected=true]")
        becomes(tab, f"({SEEN})(document.querySelector('#cp-31'))")
        tab.goto(f"{ui.origin}/r/try-2?at={MILLION // 2}")
        tab.wait_for_selector(f"#cp-{MILLION // 2}[aria-selected=true]")
        tab.locator("h1").click()
        for _ in range(25):
            tab.keyboard.press("j")
        tab.wait_for_selector(f"#cp-{MILLION // 2 - 25}[aria-selected=true]")
        becomes(tab, f"({SEEN})(document.querySelector('#cp-{MILLION // 2 - 25}'))")
        assert tab.locator("[role=option]").count() < 60
        tab.unroute_all(behavior="ignoreErrors")
        tab.context.close()


def test_long_runs_and_large_states_stay_quick_to_look_at(browser, folder):
    """Only what is on the screen exists: of two thousand checkpoints a few dozen rows, of a large state a page."""
    story(folder)
    hf = holdfast.open(folder / ".holdfast")
    run = hf.run("long")
    big = [{"n": n, "text": "x" * 80} for n in range(5000)]
    for number in range(600):
        run.checkpoint(reason=f"r{number}", state={"number": number, "big": big if number > 597 else []})
    run.close()
    hf.close()
    with page(folder) as ui:
        tab = browser.open(ui, "/r/long")
        tab.wait_for_selector("[role=option]")
        tab.locator("[role=listbox]").focus()
        tab.keyboard.press("End")
        tab.wait_for_selector("#cp-1")
        assert tab.locator("[role=option]").count() < 60
        tab.goto(ui.origin + "/c/long@600")
        tab.get_by_role("button", name=re.compile("^big")).click()
        tab.wait_for_selector("text=of 5")
        assert tab.evaluate("document.querySelectorAll('*').length") < 1500
        tab.context.close()
