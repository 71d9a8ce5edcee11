"""Long lists, as a program that appends to them and changes their last items sees them."""

import pathlib

import pytest

import holdfast


def message(number, **more):
    return {"id": number, "text": f"{number:04d} " * 100, **more}


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (0, 0.0), (0.0, -0.0), ([1], [True]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ("a", "b"), (b"a", "a")],
)
def test_the_last_item_comes_back_to_the_letter(before, after):
    with holdfast.open("memory:") as hf:
        run = hf.run("r")
        messages = [message(number) for number in range(300)]
        messages.append(message(300, done=before))
        run.checkpoint(state={"messages": messages})
        messages[-1]["done"] = after
        messages.append(message(301))
        run.checkpoint(state={"messages": messages})
        assert repr(hf.latest("r").section("state")["messages"]) == repr(messages)


def test_items_removed_inserted_and_changed_in_place_come_back():
    with holdfast.open("memory:") as hf:
        run = hf.run("r")
        messages = [message(number) for number in range(300)]
        edits = [
            messages.pop,
            lambda: messages.append(message(1000)),
            lambda: messages.insert(3, message(2000)),
            lambda: messages[-1].update(text="changed"),
            lambda: messages[-2]["more"].append(4) if "more" in messages[-2] else messages[-2].update(more=[1]),
            lambda: messages.__setitem__(-1, {"path": pathlib.PurePosixPath("a")}),
            lambda: messages.append(message(3000)),
            lambda: messages.__delitem__(slice(0, 5)),
            messages.clear,
        ]
        for edit in edits:
            edit()
            run.checkpoint(state={"messages": messages})
            assert hf.latest("r").section("state")["messages"] == messages


def test_secrets_of_items_that_are_not_packed_again_stay_listed():
    with holdfast.open("memory:") as hf:
        run = hf.run("r")
        messages = [message(number) for number in range(300)]
        messages[-1]["password"] = "hunter2-and-more"
        for number in range(3):
            messages.append(message(number))
            run.checkpoint(state={"messages": messages})
            assert "hunter2" not in repr(hf.latest("r").section("state"))
            assert [one.path for one in hf.latest("r").redacted] == ["state.messages[299].password"]
