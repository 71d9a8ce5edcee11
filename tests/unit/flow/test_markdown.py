import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import FlowInvalid
from holdfast.flow.markdown import flow_from_plan, plan_phases, plan_run_id
from holdfast.model.ids import check_run_id

PLAN = """\
# Implementation plan

## Overview
Phase 0: this is not a heading.

## Phase 1: Research the *options*
- [x] read
- [ ] write

### Phase 9: a note inside
text

```sh
# Phase 3: a comment, no heading
echo "research {x}"
```

## Phase 2 \u2013 Build
~~~
## Phase 4: in code
~~~

## Appendix
## Phase 3
"""


def test_the_phases_of_a_plan_are_its_headings():
    """Proves B1."""
    phases = plan_phases(PLAN)
    assert [(one.name, one.number, one.title, one.line) for one in phases] == [
        ("1-research-the-options", "1", "Research the *options*", 6),
        ("2-build", "2", "Build", 18),
        ("3-phase-3", "3", "Phase 3", 24),
    ]
    assert phases[0].checklist == (("read", True), ("write", False))
    assert phases[0].command == 'set -e\n# Phase 3: a comment, no heading\necho "research {x}"'
    assert phases[1].command is None


def test_a_plan_becomes_a_flow_whose_texts_are_handed_over(bench):
    flow = flow_from_plan(PLAN, "plans/my-plan.md", run='printf %s "$HOLDFAST_INPUT"', on_failure="abort")
    assert flow.name == "my-plan"
    result = bench.run(flow)
    assert result.results["1-research-the-options"] == "research {x}"
    assert result.results["2-build"].startswith("Build\n\n~~~\n## Phase 4: in code")


def test_a_plan_that_does_not_say_what_to_run_is_refused_with_its_lines():
    with pytest.raises(FlowInvalid, match=r"line 18: phase 2 has no ```sh block"):
        flow_from_plan(PLAN)


@pytest.mark.parametrize(
    ("text", "said"), [("", "no heading like"), ("## Phase 1: a\n## Phase 1: b\n", "line 2: phase 1 stands on line 1")]
)
def test_a_plan_without_phases_or_with_one_twice_is_refused(text, said):
    with pytest.raises(FlowInvalid, match=said):
        plan_phases(text)


def test_the_run_of_a_plan_follows_from_its_place(tmp_path, monkeypatch):
    """Proves B4."""
    monkeypatch.chdir(tmp_path)
    first = plan_run_id("specs/027_auth/plan.md", root=tmp_path)
    assert first == plan_run_id("./specs/x/../027_auth/plan.md", root=tmp_path)
    assert first == plan_run_id(tmp_path / "specs/027_auth/plan.md", root=tmp_path)
    assert first == plan_run_id("specs/027_auth/plan.md", root=".")
    assert first != plan_run_id("specs/028_auth/plan.md", root=tmp_path)
    assert first.startswith("plan-")


@given(st.text(max_size=80))
def test_any_path_gives_a_run_id_that_stores_take(path):
    check_run_id(plan_run_id(path.replace("\0", "0"), root="/"))


@given(
    st.text(max_size=300)
    | st.lists(
        st.sampled_from(["## Phase 1: a", "```sh", "```", "# x", "text", "### Phase 2: b", "- [ ] t"]), max_size=12
    ).map("\n".join)
)
def test_any_text_is_a_plan_or_refused(text):
    try:
        phases = plan_phases(text)
    except FlowInvalid:
        return
    flow_from_plan(text, run='cat "$HOLDFAST_INPUT_FILE"')
    assert len({one.name for one in phases}) == len(phases)


@pytest.mark.parametrize("heading", ["x" + " " * 400_000 + "a", " " * 400_000 + "a:" * 200_000, "x " + "# " * 300_000])
def test_a_long_heading_is_read_in_one_pass(heading):
    """It took the square of its length, which is minutes here."""
    assert len(plan_phases(f"## Phase 1: {heading}\n\n```sh\ntrue\n```\n")) == 1


@pytest.mark.parametrize("closing", ["", " ", " ##", "  ## \t", "\t#"])
def test_a_heading_may_be_closed(closing):
    assert plan_phases(f"## Phase 1: build C#{closing}\n")[0].name == plan_phases("## Phase 1: build C#\n")[0].name
