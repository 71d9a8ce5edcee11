import pytest

from holdfast.errors import InvalidId
from holdfast.model.ids import check_checkpoint_id, check_run_id, check_section_name, make_checkpoint_id

SOUND = ["a", "issue-42", "A", "_x", "0", "a.b", "a+b=c", "x" * 200, "CON", "a..b", "plan.yaml"]
HOSTILE = [
    "", "../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "C:\\x", "a\0b", "\0", "a\n", "\na", "a\r\nb",
    "a b", " a", "a ", "-rf", "--help", "%2e%2e", "a%", "a*", "a?", "a[b]", "a'b", 'a"b', "a;b", "a`b", "$a", "~",
    "a|b", "a<b", "#a", "a,b", "x" * 201, "x" * 4096, "\u0430dmin", "\uff41", "a\u200b", "a\u202e", "\u0130",
    "\u00df", "\ud800", "a\x1b[31m", ".hidden", ":a", "@a", "=a", None, 5, b"bytes", ["a"], object(),
]  # fmt: skip


@pytest.mark.parametrize("check", [check_run_id, check_section_name])
@pytest.mark.parametrize("name", SOUND)
def test_a_name_inside_the_grammar_is_returned_as_it_is(check, name):
    assert check(name) == name


@pytest.mark.parametrize("check", [check_run_id, check_section_name, check_checkpoint_id])
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:15])
def test_a_name_outside_the_grammar_is_refused_in_printable_words(check, name):
    """Proves D11."""
    with pytest.raises(InvalidId) as caught:
        check(name)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 400


@pytest.mark.parametrize("name", ["_holdfast.keys", "_holdfast.inbox.r", "_holdfast."])
def test_a_name_of_the_engines_own_is_refused_for_a_run_and_says_so(name):
    with pytest.raises(InvalidId, match=r"begin with _holdfast\. are Holdfast's own"):
        check_run_id(name)
    assert check_section_name(name) == name


@pytest.mark.parametrize("name", ["a@1", "a:good", "latest", "before", f"cp_{'0' * 32}", "team:run@host"])
def test_what_means_a_checkpoint_is_no_run(name):
    with pytest.raises(InvalidId, match="is not a run id"):
        check_run_id(name)
    assert check_section_name(name) == name


@pytest.mark.parametrize("name", ["latest", "before", f"cp_{'0' * 32}"])
def test_a_name_within_the_grammar_that_means_a_checkpoint_is_told_so(name):
    with pytest.raises(InvalidId, match="it means a checkpoint; choose another"):
        check_run_id(name)


ZEROS = "0" * 32


@pytest.mark.parametrize(
    "name",
    [
        "cp_",
        f"cp_0{ZEROS}",
        f"cp_{ZEROS[1:]}",
        "cp_" + "A" * 32,
        "cp_" + "g" * 32,
        f"CP_{ZEROS}",
        f"cp_{ZEROS}\n",
        "run",
    ],
)
def test_only_a_checkpoint_id_is_a_checkpoint_id(name):
    with pytest.raises(InvalidId):
        check_checkpoint_id(name)


@pytest.mark.parametrize("time_ms", [0, 1, 1_900_000_000_000, (1 << 48) - 1, 1 << 48, -1])
def test_a_made_id_is_inside_the_grammar_whatever_the_clock_says(time_ms):
    assert check_checkpoint_id(make_checkpoint_id(time_ms, b"\xff" * 10))


def test_ids_made_later_sort_later_and_differ_by_chance_alone():
    assert make_checkpoint_id(1, b"\xff" * 10) < make_checkpoint_id(2, b"\0" * 10)
    assert make_checkpoint_id(1, b"\1" * 10) != make_checkpoint_id(1, b"\2" * 10)
