"""Looking: ls, log, show, files, cat, diff, stats."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast.cli.escape import safe, safe_line
from holdfast.cli.graph import LogGraph
from holdfast.cli.ids import Short
from holdfast.cli.main import main
from holdfast.cli.output import columns
from holdfast.cli.times import age, parse_span, size


def without_ids(text):
    """Replace what chance made, so that the rest can be compared."""
    return re.sub(r"\b[0-9a-f]{8}\b", "########", text)


def test_ls_shows_each_run_and_where_it_stands(hf, story):
    assert hf("ls").out == (
        "RUN       STATUS  WHEN      CHECKPOINTS  LAST            WHERE IT STANDS\n"
        "issue-42  -       just now            3  agent_complete  BUILD\n"
    )
    (run,) = hf("ls", "--json").json["runs"]
    assert (run["id"], run["checkpoints"], run["state"], run["can_resume"]) == ("issue-42", 3, "BUILD", True)


def test_ls_limits_and_tells_what_is_left(hf, project):
    store = holdfast.open()
    for i in range(5):
        store.run(f"r{i}").checkpoint()
    store.close()
    done = hf("ls", "-n", "2")
    assert len(done.out.splitlines()) == 3
    assert done.err == "There are more; --limit or --all shows them.\n"
    assert len(hf("ls", "--all", "--json").json["runs"]) == 5


def test_log_is_one_line_a_checkpoint_newest_first(hf, story):
    assert without_ids(hf("log", "issue-42").out) == (
        "* ######## @3 (head) agent_complete BUILD just now\n"
        "* ######## @2 (good) manual second just now\n"
        "* ######## @1 manual first just now\n"
    )
    assert len(hf("log", "issue-42", "-n", "1").out.splitlines()) == 1
    assert hf("log", "issue-42", "-n", "0").out == ""
    assert "@3" in hf("log", "issue-42", "--trigger", "agent_complete").out
    assert [one["seq"] for one in hf("log", "issue-42", "--json").json["checkpoints"]] == [3, 2, 1]


def test_log_of_an_unknown_run_offers_the_nearest(hf, story):
    done = hf("log", "isue-42")
    assert (done.code, done.out) == (3, "")
    assert "did you mean issue-42?" in done.err
    assert hf("log", "issue-42", "-n", "-1").code == 2
    assert hf("log", "../etc").code == 3


def test_log_reads_on_page_by_page(hf, project):
    (project / "holdfast.yaml").write_text("retention: {live: null}\n")
    store = holdfast.open()
    run = store.run("long")
    for i in range(230):
        run.checkpoint(reason=f"step {i}")
    store.close()
    assert len(hf("log", "long").out.splitlines()) == 230


def test_log_draws_what_was_rewound_beside_the_line(hf, project):
    store = holdfast.open()
    run = store.run("r")
    first = run.checkpoint(reason="one")
    run.checkpoint(reason="two")
    run.checkpoint(reason="three")
    run.checkpoint(reason="back", onto=first, trigger="recovery")
    run.checkpoint(reason="on")
    store.close()
    assert without_ids(hf("log", "r").out) == (
        "* ######## @5 (head) manual on just now\n"
        "* ######## @4 recovery back just now\n"
        "| * ######## @3 manual three just now\n"
        "| * ######## @2 manual two just now\n"
        "|/\n"
        "* ######## @1 manual one just now\n"
    )


def test_log_bridges_what_was_deleted(hf, project):
    store = holdfast.open()
    run = store.run("r")
    made = [run.checkpoint(reason=f"c{i}") for i in range(4)]
    store.delete(made[1].id, made[2].id)
    store.close()
    assert without_ids(hf("log", "r").out) == (
        "* ######## @4 (head) manual c3 just now\n:\n* ######## @1 manual c0 just now\n"
    )


def test_the_graph_joins_lanes_past_others():
    graph = LogGraph()
    rows = [graph.row(*pair) for pair in (("f", "a"), ("e", "b"), ("d", "a"), ("b", "a"), ("a", None))]
    assert [row.lanes for row in rows] == ["*", "| *", "| | *", "| * |", "*"]
    assert rows[4].above == ("|_|/", "|/")


def test_show_tells_what_is_in_a_checkpoint(hf, story):
    done = hf("show", "good")
    assert done.code == 0
    for words in (
        r"\(good\)",
        r"run +issue-42 @2",
        r"trigger +manual",
        r"reason +second",
        r"resume +yes",
        r"files +2 files",
    ):
        assert re.search(words, done.out), words
    assert re.search(r'^state +\d+ B +{"step": 2}$', done.out, re.MULTILINE)
    assert hf("show", "issue-42@1", "state").out == '{\n  "step": 1\n}\n'
    shown = hf("show", "issue-42", "--json").json
    assert shown["seq"] == 3
    assert set(shown["sections"]) == {"state", "workflow", "workspace"}
    assert shown["workspace"]["files"] == 2
    assert (
        hf("show", "issue-42", "state", "workflow", "--json").json["sections"]["workflow"]["current_state"] == "BUILD"
    )


def test_show_of_a_section_that_is_not_there_names_those_that_are(hf, story):
    done = hf("show", "issue-42", "stat")
    assert done.code == 3
    assert "issue-42@3 has state, workflow, workspace" in done.err


def test_values_of_a_programs_own_classes_are_shown_and_compared_by_their_fields(hf, project):
    @dataclasses.dataclass
    class Plan:
        steps: int

    store = holdfast.open(types=[Plan])
    run = store.run("r")
    for steps in (3, 4):
        run.checkpoint(state={"plan": Plan(steps)})
    store.close()
    plan = hf("show", "r", "state", "--json").json["sections"]["state"]["plan"]
    assert plan.pop("@type").endswith("Plan")
    assert plan == {"steps": 4}
    assert "plan.steps: 3 -> 4" in hf("diff", "r@1", "r@2").out


def test_a_checkpoint_is_named_by_id_part_label_number_and_steps_back(hf, story):
    rows = hf("log", "issue-42", "--json").json["checkpoints"]
    short = hf("log", "issue-42").out.splitlines()[1].split()[1]
    for spec in (rows[1]["id"], short, "good", "issue-42:good", "issue-42@2", "issue-42~1", rows[1]["id"][:30]):
        assert hf("show", spec, "--json").json["seq"] == 2, spec
    assert hf("show", "latest", "--json").json["seq"] == 3
    assert hf("show", "nothing-like-it").code == 3
    assert hf("show", "issue-42@9").code == 3
    assert hf("show", "").code == 2


def test_files_lists_what_was_captured_and_what_was_not(hf, story):
    assert hf("files", "issue-42").out == "a.txt\nsrc/main.py\n"
    assert hf("files", "issue-42", "src").out == "src/main.py\n"
    assert hf("files", "issue-42", "*.txt").out == "a.txt\n"
    missing = hf("files", "issue-42", "main.py")
    assert (missing.code, missing.out) == (3, "")
    assert "did you mean 'src/main.py'?" in missing.err
    assert re.search(r"^-0644 +6 B +[0-9a-f]{12} +a.txt$", hf("files", "issue-42", "-l").out, re.MULTILINE)
    files = hf("files", "issue-42", "--json").json["files"]
    assert [one["path"] for one in files if one["kind"] == "file"] == ["a.txt", "src/main.py"]
    assert hf("files", "issue-42", "--left-out").code == 0


def test_a_checkpoint_without_files_says_how_to_capture_them(hf, project):
    store = holdfast.open()
    store.run("r").checkpoint()
    store.close()
    for words in (["files", "r"], ["cat", "r:a"], ["restore", "r"]):
        done = hf(*words)
        assert done.code == 2
        assert "--workspace DIR" in done.err


def test_cat_gives_every_byte_as_it_was(hf, project):
    data = bytes(range(256)) + b"\r\nlast line without an end"
    (project / "blob").write_bytes(data)
    store = holdfast.open()
    store.run("r", workspace=project).checkpoint()
    store.close()
    before, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        assert main(["cat", "r:blob"]) == 0
        assert sys.stdout.buffer.getvalue() == data
    finally:
        sys.stdout = before
    shown = hf("cat", "r:blob", terminal=True).out
    assert "\x1b" not in shown
    assert r"\e" in shown


def test_cat_of_what_is_not_there(hf, story):
    assert hf("cat", "issue-42:no.txt").code == 3
    assert hf("cat", "issue-42").code == 2
    assert hf("cat", "issue-42:").code == 2
    assert hf("cat", "nobody:a.txt").code == 3
    assert hf("cat", "issue-42@1:a.txt").out == "one\n"
    assert hf("cat", "good:a.txt", "--json").json["size_bytes"] == 4


def test_diff_compares_two_checkpoints(hf, story):
    assert hf("diff", "issue-42@1", "issue-42@2", "--path", "a.txt").out == (
        "modified a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    )
    assert hf("diff", "issue-42@1", "issue-42", "--names").out.startswith("M a.txt\n")
    assert "1 file changed" in hf("diff", "issue-42@1", "issue-42", "--stat").out
    assert hf("diff", "issue-42", "--parent", "--names").out.startswith("M a.txt\n")
    (one,) = hf("diff", "issue-42@1", "issue-42@2", "--json").json["files"]
    assert (one["path"], one["status"], one["added"], one["removed"]) == ("a.txt", "modified", 1, 1)
    assert hf("diff", "issue-42@1", "issue-42@2", "--exit-code").code == 1
    assert hf("diff", "issue-42", "issue-42", "--exit-code").code == 0
    assert hf("diff", "a", "b", "--parent").code in (2, 3)


def test_diff_shows_state_by_structure(hf, story):
    """Proves X5 as a person sees it."""
    shown = hf("diff", "issue-42@1", "issue-42")
    assert "~ state.step: 1 -> 3" in shown.out
    assert "+three" in shown.out
    assert "+three" not in hf("diff", "issue-42@1", "issue-42", "--only", "state").out
    assert "state.step" not in hf("diff", "issue-42@1", "issue-42", "--only", "files").out
    state = hf("diff", "issue-42@1", "issue-42", "--json").json["state"]
    assert {one["name"] for one in state["sections"]} == {"state", "workflow"}
    assert "state.step" in hf("diff", "issue-42@1").out, "until now is until the head"


def test_diff_with_one_checkpoint_is_against_the_directory_now(hf, story):
    (story / "new.txt").write_text("new\n")
    assert hf("diff", "issue-42", "--names").out == "A new.txt\n"


def test_stats_counts_what_is_stored(hf, story):
    done = hf("stats", "--json").json
    assert (done["runs"], done["checkpoints"]) == (1, 3)
    assert "checkpoints 3" in hf("stats").out


def test_ids_are_as_short_as_tells_them_apart():
    one, two = "cp_" + "0" * 12 + "abcdef0123456789abcd", "cp_" + "1" * 12 + "abcdef01f3456789abcd"
    assert Short([one])(one) == "abcdef01"
    short = Short([one, two])
    assert (short(one), short(two)) == ("abcdef0123", "abcdef01f3")


NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (42, "42 s ago"), (200, "3 min ago"), (7300, "2 h ago"), (5 * 86400, "5 days ago"),
     (100 * 86400, "2025-10-07"), (-200, "in 3 min")],
)  # fmt: skip
def test_ages_are_said_as_a_person_says_them(seconds, said):
    assert age(NOW - timedelta(seconds=seconds), NOW) == said


def test_sizes_and_lengths_of_time():
    assert [size(n) for n in (0, 812, 4_900, 1_200_000, 3 * 10**12)] == ["0 B", "812 B", "4.9 KB", "1.2 MB", "3.0 TB"]
    assert parse_span("7d") == timedelta(days=7)
    assert parse_span("1.5h") == timedelta(minutes=90)
    for text in ("", "7", "d", "-7d", "7 years", "9" * 400 + "d"):
        with pytest.raises(holdfast.UsageError):
            parse_span(text)


def test_text_is_made_harmless_and_no_more_than_that():
    assert safe("plain äöü 漢字\tand\nlines") == "plain äöü 漢字\tand\nlines"
    assert safe_line("a\tb\nc") == r"a\tb\nc"
    assert safe_line("\x1b[2J\x9b\udcff\u200f\U000e0041") == r"\e[2J\x9b\xff\u200f\U000e0041"
    printable = "".join(one for one in map(chr, range(0x110000)) if one.isprintable())
    assert safe(printable) == printable  # so a line of such letters is shown without a search
    assert columns("漢字") == 4


def test_a_file_is_named_by_run_label_and_path(hf, story):
    assert hf("cat", "issue-42:good:a.txt").out == "two\n"
    assert hf("cat", "issue-42:a.txt").out == "three\n"
    assert hf("cat", "no-run:good:a.txt").code == 3


def test_diff_stat_has_one_line_for_a_section_and_a_file(hf, story):
    lines = hf("diff", "issue-42@1", "issue-42", "--stat").out.splitlines()
    assert "~ state (1 difference)" in lines
    assert not any(line.startswith("  ~") for line in lines)
    assert any("a.txt" in line for line in lines)
