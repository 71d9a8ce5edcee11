"""What a person sees of a flow, from its events alone."""

import json
import threading
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from holdfast.flow.events import Event
from holdfast.flow.progress import Progress, clean, fit, line_of, render
from holdfast.flow.view import View, fold

AT = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
NOW = AT.timestamp()


def event(kind, seconds=0, **fields):
    return Event(kind=kind, at=datetime.fromtimestamp(NOW + seconds, UTC), **fields)


STORY = [
    event(
        "flow_started",
        data={"flow": "login", "run": "r1", "phases": {"research": ["a", "b"], "code": ["code"], "ship": ["ship"]}},
    ),
    event("phase_started", phase="research", data={"visit": 1}),
    event("task_started", phase="research", task="a"),
    event("task_done", phase="research", task="a", text="found", data={"duration_s": 1.5}),
    event("task_kept", phase="research", task="b"),
    event("phase_done", phase="research", text="all found", data={"duration_s": 3}),
    event("phase_started", phase="code", data={"visit": 1}),
    event("task_started", 5, phase="code", task="code", data={"agent": "coder"}),
    event("task_output", 6, phase="code", task="code", text="line 1\nline 2\n"),
    event("gate_done", 7, phase="code", task="code", gate="ruff", data={"level": 1}),
    event("gate_failed", 7, phase="code", task="code", gate="pytest", data={"level": 2}),
    event("fix_started", 8, phase="code", task="code", data={"attempt": 1}),
    event("gate_started", 8, phase="code", task="code", gate="ruff", data={"level": 1}),
    event("budget", 8, data={"tokens": [150, 200], "time": [30, 7200]}),
    event("budget_warning", 8, data={"budget": "tokens"}),
    event("checkpoint", 9, text="code/code: fix_1", data={"seq": 9}),
    event("unprotected", 9, text="since 12:00:09"),
]


def view_of(events):
    view = View()
    for one in events:
        view = fold(view, one)
    return view


def test_the_live_view_shows_phases_tasks_gates_budgets_checkpoint_and_danger():
    assert render(view_of(STORY), 80, now=NOW + 10) == [
        "login · run r1 · 10s · running",
        "✓ research  2/2  3.0s  - all found",
        "▸ code",
        "    ▸ code (coder) gates ▸ fix 1 5.0s",
        "· ship",
        "    tokens [###############-----] 150 of 200 (75%)  !",
        "      time [--------------------] 30s of 2h0m (0%)",
        "  | line 1",
        "  | line 2",
        "saved: code/code: fix_1 (1.0s ago)",
        "! UNPROTECTED since 12:00:09",
    ]


def test_a_waiting_flow_shows_its_question():
    view = view_of([*STORY, event("waiting", text="Push?")])
    assert render(view, 80)[0] == "login · run r1 · waiting"
    assert "? waiting: Push?" in render(view, 80)
    assert "? waiting: Push?" not in render(fold(view, event("answered")), 80)


def test_what_ends_a_wait_is_shown_below_it():
    asks = event("waiting", text="Push?\nIt is final.", data={"hint": "say \x1b yes"})
    assert line_of(asks).split("\n")[1:] == ["  say � yes"]
    view = view_of([*STORY, asks])
    assert "  say � yes" in render(view, 80)
    assert not any("yes" in line for line in render(fold(view, event("answered")), 80))


def test_of_a_thousand_tasks_those_under_way_are_shown():
    names = [f"t{n}" for n in range(1000)]
    events = [
        event("flow_started", data={"flow": "f", "run": "r", "phases": {"p": names}}),
        event("phase_started", phase="p"),
    ]
    events += [event("task_started", phase="p", task="t900")]
    lines = render(view_of(events), 80)
    assert any("t900" in line for line in lines)
    assert lines[-1] == "    … 988 more"


def test_a_new_round_begins_with_fresh_tasks():
    view = view_of([*STORY, event("phase_started", phase="research", data={"visit": 2})])
    assert {task.status for task in view.phases["research"].tasks.values()} == {"pending"}
    assert "▸ research  0/2  round 2  3.0s" in render(view, 80)


def test_text_of_agents_cannot_move_the_cursor():
    hostile = "\x1b[2J\x1b]0;title\x07 red\x1b[31m \u202e backwards \r over"
    assert "\x1b" not in clean(hostile)
    assert "\u202e" not in clean(hostile)
    assert "\r" not in line_of(event("task_failed", phase="p", task="t", text=hostile))
    view = view_of([*STORY, event("task_output", phase="code", task="code", text=hostile)])
    assert all("\x1b" not in line for line in render(view, 80))


@given(st.text(max_size=100), st.integers(0, 60))
def test_every_line_fits_its_width(text, width):
    shown = fit(text, width)
    assert len(shown) <= max(width, len(shown.encode()))
    wide = fit("漢" * 50, width)
    assert sum(2 if char == "漢" else 1 for char in wide) <= max(width, 0)


@given(st.lists(st.sampled_from(STORY), max_size=30), st.integers(1, 120))
def test_events_in_any_order_can_be_folded_and_drawn(events, width):
    render(view_of(events), width, now=NOW + 10)


def test_plain_lines_say_what_happened_and_leave_out_chatter():
    lines = []
    shown = Progress(lines.append, style="lines")
    for one in STORY:
        shown(one)
    assert lines[3] == "12:00:00 task done research/a [1.5s] found\n"
    assert not any("line 1" in line for line in lines)
    loud = []
    shown = Progress(loud.append, style="lines", output=True)
    shown(STORY[8])
    assert loud == ["  | line 1\n  | line 2\n"]


def test_machines_get_one_json_object_a_line():
    lines = []
    shown = Progress(lines.append, style="json")
    for one in STORY:
        shown(one)
    read = [json.loads(line) for line in lines]
    assert len(read) == len(STORY)
    assert read[3] == {
        "kind": "task_done",
        "at": "2026-11-15T12:00:00Z",
        "phase": "research",
        "task": "a",
        "text": "found",
        "data": {"duration_s": 1.5},
    }


def test_a_live_view_draws_over_itself():
    written = []
    shown = Progress(written.append, style="live", width=lambda: 40)
    for one in STORY:
        shown(one)
    shown.close()
    assert written[0].startswith("\x1b[2Klogin")
    height = written[-2].count("\n")
    assert written[-1].startswith(f"\x1b[{height}F")


def test_a_flow_tells_its_progress(bench):
    lines = []
    bench.run(
        {"flow": "p", "phases": {"one": "echo hi", "two": "false"}},
        observer=Progress(lines.append, style="lines", output=True),
    )
    text = "".join(lines)
    for part in ("flow started", "phase done one", "| hi", "phase failed two", "waiting two Phase two failed"):
        assert part in text


def test_phases_of_an_earlier_life_are_shown_as_over():
    """Proves B3 as a person sees it."""
    data = {"flow": "f", "run": "r", "phases": {"a": ["a"], "b": ["b"], "c": ["c"]}}
    view = view_of([event("flow_resumed", data={**data, "over": {"a": "kept", "b": "skipped"}})])
    assert render(view, 80)[1:] == ["= a  kept from before", "- b", "· c"]


def test_a_flow_that_goes_on_after_a_question_is_the_same_one_to_who_watches():
    """Proves B3 as a person sees it: its clock continues, and what was done is done."""
    begun = {"flow": "f", "run": "r", "phases": {"a": ["a"], "b": ["b"]}}
    view = view_of(
        [
            event("flow_started", data=begun),
            event("phase_done", phase="a"),
            event("waiting", 5, text="Ok?"),
            event("flow_resumed", 60, data={**begun, "over": {"a": "kept"}}),
        ]
    )
    assert render(view, 80, now=NOW + 90) == ["f · run r · 1m30s · running", "✓ a", "· b"]


def test_a_view_that_is_higher_than_the_screen_shows_what_runs():
    """Proves B3 as a person sees it."""
    phases = {f"p{number}": [f"t{task}" for task in range(8)] for number in range(20)}
    events = [event("flow_started", data={"flow": "f", "run": "r", "phases": phases})]
    events += [event("phase_done", phase=f"p{number}") for number in range(10)]
    events += [event("phase_started", phase="p10"), event("task_started", phase="p10", task="t6")]
    events += [event("task_output", text="said"), event("waiting", text="Ok?")]
    view = view_of(events)
    whole = render(view, 80)
    assert len(whole) > 20
    for most in range(2, 30):
        lines = render(view, 80, most=most)
        assert len(lines) == min(most, len(whole))
        assert lines[0] == whole[0]
    cut = render(view, 80, most=8)
    assert cut[-1] == f"… {len(whole) - 7} more lines"
    assert [line for line in whole if line in cut] == cut[:-1]
    assert {"▸ p10  0/8", "    ▸ t6", "? waiting: Ok?"} <= set(cut)


def test_a_live_view_goes_on_while_nothing_happens_and_ends_with_it():
    """Proves B3 as a person sees it."""
    clock = [0.0]
    drawn = threading.Event()

    def write(text):
        if "f · run r · 1m5s · running" in text:
            drawn.set()

    progress = Progress(write, style="live", monotonic=lambda: clock[0], tick_s=0.001)
    progress(event("flow_started", data={"flow": "f", "run": "r", "phases": {"a": ["a"]}}))
    clock[0] = 65.0
    assert drawn.wait(30)
    progress.close()
    assert "holdfast-view" not in [thread.name for thread in threading.enumerate()]


def test_the_live_view_keeps_what_is_said_once_above_itself():
    """Proves F1: what runs again and why, an effect that happens again, and what was ended or deleted."""
    written = []
    shown = Progress(written.append, style="live", width=lambda: 40)
    shown(STORY[0])
    shown(event("flow_changed", text="code: changed, it runs again (prompt.md changed)"))
    shown(event("task_started", phase="ship", task="ship", text="this has happened, and happens again: pushes"))
    shown(event("background_ended", phase="code", task="code", text="sleep was ended"))
    for said in ("prompt.md changed", "happens again: pushes", "sleep was ended"):
        assert sum(said in one for one in written) == 1
    notice = next(one for one in written if "sleep was ended" in one)
    assert notice.startswith("\x1b[")
    assert notice.endswith("sleep was ended\n")
    after = written[written.index(notice) + 1]
    assert not after.startswith("\x1b[5F"), "the view is drawn below it"
    assert after.startswith("\x1b[2K")
