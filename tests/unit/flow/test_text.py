"""Hostile and odd flow files, before anything is made of them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import FlowInvalid
from holdfast.flow.text import BOUNDS, read_text


def read(text):
    return read_text(text.encode() if isinstance(text, str) else text, "flow.yaml")


def refusal(text):
    with pytest.raises(FlowInvalid) as caught:
        read(text)
    return str(caught.value)


def test_everything_has_its_line():
    document = read("flow: x\nphases:\n  one:\n    run: a\n    gates:\n      - b\n      - c\n")
    assert document.lines[("phases", "one", "gates", 1)] == 7
    assert document.line(("phases", "one", "nothing", "there")) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-11-15", "2026-11-15"),
        ("0x1f", "0x1f"),
        ("12_000", 12000),
        ("true", True),
        ("~", None),
        ("", None),
        ("1.5", 1.5),
        ("-3", -3),
        ("1e3", 1000.0),
        ("'1'", "1"),
        ('"true"', "true"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 40, "9" * 40),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("<<", "<<"),
        ("! x", "x"),
    ],
)
def test_plain_words_mean_what_they_look_like(text, value):
    assert read(f"k: {text}").data == {"k": value}


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
    )
    assert "line 1: anchors and aliases" in refusal(bomb)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: *x", "line 1: anchors"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("!!set {a}", "tags"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("? [a, b]\n: c", "a key is a plain word"),
        ("a:\n\tb: 1", "line 2"),
        ("a: [1, 2", "line "),
        ("a: 'x", "line 1"),
        ("a: @x", "line 1"),
        ("k: " + "[" * 30 + "]" * 30, "nested deeper"),
        ("k: " + "[" * 100_000, "nested deeper"),
        ("{" * 50_000, ""),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "line 1: nested deeper"),
        ('{"a":\n' * 30 + "1" + "}" * 30, "line 26: nested deeper"),
        (b"flow: x\nb: \xff\xfe", "line 2: byte 0xff"),
        (b"flow: \x00", ""),
        (b"x" * (BOUNDS.size_bytes + 1), "the limit is"),
    ],
)
def test_what_is_no_plain_document_is_refused_with_its_place(text, said):
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("text", "path", "line", "said"),
    [
        ("a: 1\nb: 3\na: 2", ("a",), 3, "'a' is there twice, first on line 1"),
        ("a:\n  - b: 1\n    b: 2", ("a", 0, "b"), 3, "'b' is there twice, first on line 2"),
        ('{"x": [{},\n {"a": 1, "b": [1, 2],\n "a": 2}]}', ("x", 1, "a"), 3, "'a' is there twice, first on line 2"),
        ('{"x":\n{"b": [1, NaN]}}', ("x", "b", 1), 2, "NaN is not a JSON number"),
        ('{"x": "NaN, \\"{", "y":\n-Infinity}', ("y",), 2, "-Infinity is not a JSON number"),
    ],
)
def test_a_key_that_is_there_twice_and_a_number_that_is_none_have_their_place(text, path, line, said):
    document = read(text)
    ((where, detail),) = document.problems
    assert (where, said in detail) == (path, True)
    assert document.line(path) in (line, line - 1)  # of a value below its key, the key's
    assert document.data is not None


def test_json_keeps_its_own_meaning_and_has_lines_too():
    document = read('{\n\t"flow": "x",\n\t"text": "a\\tb \\u00e9 \\ud83d\\ude00",\n\t"n": 12.0\n}')
    assert document.data == {"flow": "x", "text": "a\tb é 😀", "n": 12.0}
    assert document.lines[("n",)] == 4


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert read(b"\xef\xbb\xbfflow: x").data == {"flow": "x"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
        max_leaves=12,
    )
)
def test_json_is_read_as_json(value):
    assert read(json.dumps({"v": value})).data == {"v": value}


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(FlowInvalid):
        read(data)
