"""HoldfastSaver: LangGraph's own conformance suite, and what it does not ask for."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sqlite3

import pytest

pytest.importorskip("langgraph.checkpoint.conformance")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import UsageError, ValueRefused
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import StoreUnavailable


@pytest.fixture
def saver(hf):
    return HoldfastSaver(hf)


@pytest.fixture
def local(place):
    with HoldfastSaver.open(place) as saver:
        yield saver
        assert saver.holdfast.verify().sound


def config(thread="thread", checkpoint=None, namespace=""):
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def checkpoint(values, versions=None, **changes):
    made = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values}
    return {**made, "channel_versions": versions or dict.fromkeys(values, 1), **changes}


def put(saver, values, *, parent=None, thread="thread", namespace="", new=None, versions=None, **changes):
    made = checkpoint(values, versions, **changes)
    new = made["channel_versions"] if new is None else new
    return saver.put(config(thread, parent, namespace), made, {"source": "loop", "step": 1}, new)


def key_of(stored):
    return stored["configurable"]["checkpoint_id"]


def values_of(saver, stored):
    return saver.get_tuple(stored).checkpoint["channel_values"]


def test_langgraphs_own_conformance_suite_passes_whole(hf):
    """Proves X6."""

    @checkpointer_test(name="holdfast")
    async def factory():
        yield HoldfastSaver(hf)

    report = asyncio.run(validate(factory))
    failures = [failure for result in report.results.values() for failure in result.failures or ()]
    assert failures == []
    passed = sum(result.tests_passed for result in report.results.values())
    print(f"{passed} tests of the suite passed")  # `make test-langgraph` shows it: the repository's head has more
    assert passed >= 81
    assert all(result.detected for result in report.results.values())


def test_writes_may_come_before_their_checkpoint(saver):
    made = checkpoint({"a": 1})
    saver.put_writes(config(checkpoint=made["id"]), [("a", "early")], "task", "path")
    assert saver.get_tuple(config()) is None
    saver.put(config(), made, {}, {"a": 1})
    assert saver.get_tuple(config()).pending_writes == [("task", "a", "early")]


def test_ordinary_writes_count_once_and_special_ones_last(saver):
    stored = put(saver, {"a": 1})
    for value in ("first", "second"):
        saver.put_writes(stored, [("a", value), ("__error__", value)], "task")
    assert saver.get_tuple(stored).pending_writes == [("task", "__error__", "second"), ("task", "a", "first")]


def test_the_latest_is_the_greatest_id_and_not_the_last_put(saver):
    ids = sorted(str(uuid6()) for _ in range(3))
    for number in (0, 2, 1):
        put(saver, {"a": number}, id=ids[number])
    assert values_of(saver, config()) == {"a": 2}
    assert [one.checkpoint["id"] for one in saver.list(config())] == ids[::-1]


def test_a_checkpoint_that_is_put_again_replaces_the_first(saver):
    put(saver, {"a": 1}, id="one")
    put(saver, {"a": 2}, id="one")
    assert [one.checkpoint["channel_values"] for one in saver.list(config())] == [{"a": 2}]


@pytest.mark.parametrize(
    "value",
    [
        None, "", "nul \0 in it", b"\0\xff", [], {}, [None], {"a": {"b": [1, 2.5, True, None]}}, {1: "int key"},
        list(range(5000)), "x" * 100_000, {"big": ["y" * 50] * 3000},
        [HumanMessage("hi", id="1"), AIMessage("", tool_calls=[{"name": "t", "args": {"q": [1]}, "id": "c"}], id="2")],
        [ToolMessage("out", tool_call_id="c", artifact={"rows": [1, 2]}, status="error")],
        [HumanMessage([{"type": "text", "text": "part"}], extra_field="kept")],
    ],
)  # fmt: skip
def test_a_value_comes_back_as_it_went_in(local, value):
    stored = put(local, {"a": value})
    assert values_of(local, stored) == {"a": value}
    assert values_of(local, stored) == {"a": value}  # from what is remembered of it


@pytest.mark.parametrize("channel", ["", "x" * 400, "a b/c|d", "branch:to:node", "ünïcode"])
def test_a_channel_may_have_any_name(local, channel):
    stored = put(local, {channel: "y" * 2000, "other": 1})
    assert values_of(local, stored) == {channel: "y" * 2000, "other": 1}


def test_a_channel_without_a_version_does_not_come_back(saver):
    stored = put(saver, {"a": 1, "b": 2}, versions={"a": 1})
    assert values_of(saver, stored) == {"a": 1}


def test_what_did_not_change_is_carried_over_and_what_left_is_gone(saver):
    text = "x" * 20_000
    first = put(saver, {"a": text, "b": 1}, versions={"a": 1, "b": 1})
    second = put(saver, {"a": text, "b": 2}, parent=key_of(first), versions={"a": 1, "b": 2}, new={"b": 2})
    third = put(saver, {"b": 2}, parent=key_of(second), versions={"b": 2}, new={})
    assert values_of(saver, second) == {"a": text, "b": 2}
    assert values_of(saver, third) == {"b": 2}
    assert saver.get_tuple(third).parent_config == {**config(checkpoint=key_of(second))}


def test_a_message_that_was_changed_in_place_is_noticed(saver):
    messages = [HumanMessage("x" * 3000, id=str(number)) for number in range(20)]
    messages.append(AIMessage("y", additional_kwargs={"deep": {"list": [1]}}))
    first = put(saver, {"messages": messages}, versions={"messages": 1})
    messages[3].content = "changed"
    messages[-1].additional_kwargs["deep"]["list"].append(2)
    second = put(saver, {"messages": messages}, parent=key_of(first), versions={"messages": 2})
    assert values_of(saver, first)["messages"][3].content == "x" * 3000
    assert values_of(saver, first)["messages"][-1].additional_kwargs == {"deep": {"list": [1]}}
    assert values_of(saver, second)["messages"][3].content == "changed"
    assert values_of(saver, second)["messages"][-1].additional_kwargs == {"deep": {"list": [1, 2]}}


def test_a_growing_list_costs_what_is_added(local):
    messages, parent = [], None
    for number in range(300):
        messages = [*messages, HumanMessage(os.urandom(1000).hex(), id=str(number))]
        stored = put(local, {"messages": messages}, parent=parent, versions={"messages": number + 1})
        parent = key_of(stored)
    added = [one.envelope.stored_bytes for one in local.holdfast.store.checkpoints("thread")]
    assert sum(added) < 3 * 300 * 2000


def _conversation():
    """Messages of every size and kind: some end in the middle of a chunk, one is larger than a chunk may be."""
    chance = random.Random(3)
    for number in range(160):
        text = chance.randbytes(chance.choice((0, 40, 900, 9_000))).hex()
        yield (
            HumanMessage(text, id=f"h{number}", extra_field={"n": [number]}) if number % 7 == 0 else HumanMessage(text)
        )
        if number % 5 == 0:
            call = {"name": "search", "args": {"q": [number, None, 0.5]}, "id": f"c{number}", "type": "tool_call"}
            yield AIMessage(
                "", tool_calls=[call], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
            )
            yield ToolMessage([{"type": "text", "text": text}], tool_call_id=f"c{number}", artifact={"at": (number,)})
    yield HumanMessage("x" * 2_500_000)
    yield AIMessage("the last")


def test_messages_of_every_kind_and_size_come_back_from_a_cold_store_and_a_list(place):
    """Proves X6."""
    messages = list(_conversation())
    lengths = [*range(1, 12), *range(20, len(messages), 40), len(messages) - 1, len(messages)]
    with HoldfastSaver.open(place) as saver:
        parent, stored = None, []
        for number, length in enumerate(lengths):
            values = {"messages": messages[:length], "mixed": [*messages[:3], {"a": 1}, "b"] * 200}
            stored.append(put(saver, values, parent=parent, versions=dict.fromkeys(values, number + 1)))
            parent = key_of(stored[-1])
    for one, length in zip(stored, lengths, strict=True):
        with HoldfastSaver.open(place) as cold:
            assert values_of(cold, one)["messages"] == messages[:length]
    with HoldfastSaver.open(place) as saver:
        listed = list(saver.list(config()))
        assert [one.checkpoint["channel_values"]["messages"] for one in listed] == [
            messages[:length] for length in reversed(lengths)
        ]
        for one in listed:
            assert one.checkpoint["channel_values"]["mixed"] == [*messages[:3], {"a": 1}, "b"] * 200
            for message in one.checkpoint["channel_values"]["messages"]:
                message.content = "changed"
                message.additional_kwargs["changed"] = message.response_metadata["changed"] = True
                message.__pydantic_extra__["n"] = 1
        again = next(saver.list(config())).checkpoint["channel_values"]["messages"]
        assert again == messages
        assert saver.holdfast.verify().sound


def test_what_is_handed_out_is_the_callers_own(saver):
    stored = put(saver, {"messages": [HumanMessage("one", additional_kwargs={"a": [1]})] * 3})
    for _ in range(3):
        message = values_of(saver, stored)["messages"][0]
        message.content = "changed"
        message.additional_kwargs["a"].append(2)
    kept = values_of(saver, stored)["messages"][0]
    assert (kept.content, kept.additional_kwargs) == ("one", {"a": [1]})


def test_a_paused_list_holds_nothing_up(local):
    for number in range(120):
        put(local, {"a": number})
    found = local.list(config())
    assert next(found).checkpoint["channel_values"] == {"a": 119}
    put(local, {"a": 120})
    local.delete_thread("other")
    assert len(list(found)) == 119


def test_filters_are_values_and_nested_ones_are_compared(saver):
    for number in range(3):
        made = checkpoint({"a": number})
        saver.put(
            config(), made, {"source": "loop", "step": number, "parents": {"": str(number)}, "x' OR 1": 1}, {"a": 1}
        )
    assert [one.metadata["step"] for one in saver.list(config(), filter={"step": 1})] == [1]
    assert [one.metadata["step"] for one in saver.list(config(), filter={"parents": {"": "2"}})] == [2]
    assert len(list(saver.list(config(), filter={"x' OR 1": 1}, limit=2))) == 2
    assert list(saver.list(config(), filter={"no": 1})) == []


@pytest.mark.parametrize("thread", ["x" * 5000, "nul\0in", "user:42/ü", "latest", "thread-1", " "])
def test_a_thread_may_be_any_text(saver, thread):
    stored = put(saver, {"a": 1}, thread=thread, namespace="child:é\0|x")
    saver.put_writes(stored, [("a", 2)], "task")
    assert saver.get_tuple(stored).config == stored
    assert [one.config for one in saver.list({"configurable": {"thread_id": thread}})] == [stored]
    saver.delete_thread(thread)
    assert saver.get_tuple(stored) is None


def test_an_empty_thread_id_is_refused(saver):
    with pytest.raises(UsageError):
        put(saver, {"a": 1}, thread="")


def test_a_run_that_is_not_a_thread_is_left_alone(hf):
    hf.run("mine").checkpoint(state={"own": 1})
    saver = HoldfastSaver(hf)
    with pytest.raises(UsageError):
        put(saver, {"a": 1}, thread="mine")
    with pytest.raises(UsageError):
        saver.delete_thread("mine")
    assert saver.get_tuple(config("mine")) is None
    assert hf.latest("mine").section("state") == {"own": 1}


def test_a_pasted_key_is_taken_out_and_the_thread_stays_readable(saver):
    secret = "AKIA" + "IOSFODNN7" + "QWERTYU"
    stored = put(saver, {"messages": [HumanMessage(secret), HumanMessage(f"my key is {secret}, keep it")]})
    saver.put_writes(stored, [("messages", HumanMessage(secret))], "task")
    first, second = values_of(saver, stored)["messages"]
    assert type(first.content) is str
    assert secret not in first.content + second.content
    assert second.content.startswith("my key is ")
    assert secret not in saver.get_tuple(stored).pending_writes[0][2].content


def test_bytes_of_the_serializer_are_never_edited(saver):
    """An object that only the serializer knows is opaque: a key in it does not break it."""
    secret = "AKIA" + "IOSFODNN7" + "QWERTYU"
    value = _DeltaSnapshot([secret, "x" * 1000])
    stored = put(saver, {"a": value, "b": {"in": value}})
    assert values_of(saver, stored)["a"].value == value.value
    assert values_of(saver, stored)["b"]["in"].value == value.value


def test_configuration_that_langgraph_copies_into_metadata_holds_no_secret(saver):
    made = checkpoint({"a": 1})
    asked = config()
    asked["configurable"]["api_key"] = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    saver.put(asked, made, {"source": "loop", "step": 1}, {"a": 1})
    assert "a1B2c3D4" not in str(saver.get_tuple(config()).metadata)


class Scrambled(JsonPlusSerializer):
    """A serializer set from outside, as one that encrypts is."""

    def dumps_typed(self, obj):
        kind, data = super().dumps_typed(obj)
        return f"{kind}+scrambled", bytes(byte ^ 0x55 for byte in data)

    def loads_typed(self, data):
        kind, scrambled = data
        return super().loads_typed((kind.removesuffix("+scrambled"), bytes(byte ^ 0x55 for byte in scrambled)))


def test_a_serializer_set_from_outside_is_asked_for_every_value(place):
    with HoldfastSaver.open(place) as saver:
        plain = put(saver, {"messages": [HumanMessage("plain words")]})
        saver.serde = Scrambled()
        stored = put(
            saver,
            {"messages": [HumanMessage("hidden words")], "n": 1},
            parent=key_of(plain),
            versions={"messages": 2, "n": 1},
        )
        saver.put_writes(stored, [("messages", HumanMessage("hidden write"))], "task")
        assert values_of(saver, stored)["messages"][0].content == "hidden words"
        assert saver.get_tuple(stored).pending_writes[0][2].content == "hidden write"
        assert values_of(saver, plain)["messages"][0].content == "plain words"
        data = b"".join(chunk.data for chunk in _chunks(saver)) + _rows(place)
        assert b"hidden" not in data


def _chunks(saver):
    store = saver.holdfast.store
    return store.fetch(list(store.chunk_ids())).values()


def _rows(place):
    with sqlite3.connect(place) as connection:
        return b"".join(bytes(value) for (value,) in connection.execute("SELECT value FROM record"))


def test_a_copy_of_the_saver_shares_its_store(local):
    strict = HoldfastSaver(local.holdfast, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    clone = strict.with_allowlist([("some.module", "Name")])
    assert clone is not strict
    stored = put(clone, {"a": 1})
    assert values_of(strict, stored) == {"a": 1}


def test_an_object_that_cannot_be_stored_is_named(saver):
    with pytest.raises(ValueRefused) as refused:
        put(saver, {"a": {"deep": [object()]}})
    assert "deep" in str(refused.value)
    with pytest.raises(ValueRefused):
        saver.put_writes(config(checkpoint="one"), [("a", object())], "task")
    assert saver.get_tuple(config()) is None
    stored = put(saver, {"a": 1})
    assert values_of(saver, stored) == {"a": 1}


def test_a_store_that_cannot_be_written_says_so(place):
    with HoldfastSaver.open(place) as saver:
        stored = put(saver, {"a": 1})
    with HoldfastSaver.open(place, read_only=True) as saver:
        assert values_of(saver, stored) == {"a": 1}
        with pytest.raises(StoreUnavailable):
            put(saver, {"a": 2})


def _put_many(place, number):
    with HoldfastSaver.open(place) as saver:
        parent = None
        for step in range(20):
            stored = put(
                saver,
                {"messages": [HumanMessage(f"{number} {step}" * 300)] * (step + 1)},
                parent=parent,
                versions={"messages": step + 1},
            )
            parent = key_of(stored)
            saver.put_writes(stored, [("messages", f"{number} {step}")], f"task {number}")


def test_two_processes_on_one_thread_lose_nothing(place):
    HoldfastSaver.open(place).close()
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_put_many, args=(place, number)) for number in range(2)]
    for one in others:
        one.start()
    for one in others:
        one.join()
        assert one.exitcode == 0
    with HoldfastSaver.open(place) as saver:
        found = list(saver.list(config()))
        assert len(found) == 40
        for one in found:
            assert len({message.content for message in one.checkpoint["channel_values"]["messages"]}) == 1
            assert len(one.pending_writes) == 1
        assert saver.holdfast.verify().sound


def test_a_thread_that_was_deleted_elsewhere_begins_again(place):
    with HoldfastSaver.open(place) as saver, HoldfastSaver.open(place) as other:
        stored = put(saver, {"n": 1})
        other.delete_thread("thread")
        saver.put_writes(stored, [("n", 2)], "task")  # of a step that was under way
        assert saver.get_tuple(config()) is None
        again = put(saver, {"n": 3}, parent=key_of(stored))
        assert values_of(other, again) == {"n": 3}
        other.delete_thread("thread")
        assert list(saver.list(None)) == []


def test_pruning_gives_space_back_and_the_next_put_stands_on_what_is_left(saver):
    parent = None
    for number in range(6):
        stored = put(
            saver,
            {"messages": [HumanMessage(f"{number}" * 5000)] * 8},
            parent=parent,
            versions={"messages": number + 1},
        )
        parent = key_of(stored)
    before = saver.holdfast.stats().chunks
    saver.prune(["thread"])
    assert saver.holdfast.stats().chunks < before
    after = put(saver, {"messages": [HumanMessage("5" * 5000)] * 9}, parent=parent, versions={"messages": 7})
    assert len(values_of(saver, after)["messages"]) == 9
    assert len(list(saver.list(config()))) == 2


def test_pruning_keeps_what_delta_channels_are_rebuilt_from(saver):
    parent, metadata = None, {"source": "loop", "counters_since_delta_snapshot": {"log": (1, 1)}}
    for number in range(5):
        values = {"log": _DeltaSnapshot([number])} if number == 2 else {}
        made = checkpoint(values, {"log": number + 1})
        stored = saver.put(config(checkpoint=parent), made, metadata, {"log": number + 1})
        saver.put_writes(stored, [("log", f"w{number}")], f"task {number}")
        parent = key_of(stored)
    saver.prune(["thread"])
    assert len(list(saver.list(config()))) == 3
    history = saver.get_delta_channel_history(config=config(), channels=["log"])["log"]
    assert history["seed"].value == [2]
    assert [write[2] for write in history["writes"]] == ["w2", "w3"]


def test_a_copied_thread_is_its_own(saver):
    first = put(saver, {"messages": [HumanMessage("x" * 2000)] * 10})
    saver.put_writes(first, [("messages", "w")], "task")
    put(saver, {"a": 1}, namespace="child:1")
    saver.copy_thread("thread", "copy")
    saver.delete_thread("thread")
    copied = saver.get_tuple(config("copy"))
    assert len(copied.checkpoint["channel_values"]["messages"]) == 10
    assert copied.pending_writes == [("task", "messages", "w")]
    assert values_of(saver, config("copy", namespace="child:1")) == {"a": 1}
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"copy"}


def test_versions_of_other_savers_go_on(local):
    assert local.get_next_version(None, None) == 1
    assert local.get_next_version(1, None) == 2
    text = local.get_next_version("00000000000000000000000000000007.0.123", None)
    assert text > "00000000000000000000000000000007.9"


def test_messages_can_be_read_and_compared_with_the_store_itself(local):
    first = put(local, {"messages": [HumanMessage("x" * 1000, id="1")]})
    second = put(
        local, {"messages": [HumanMessage("y" * 1000, id="1")]}, parent=key_of(first), versions={"messages": 2}
    )
    hf = local.holdfast
    before, after = local.checkpoint_of(first), local.checkpoint_of(second)
    assert hf.get(before.id).section("channel:messages")[0].content == "x" * 1000
    assert after.parent == before.id
    assert [one.id for one in hf.checkpoints("thread")] == [after.id, before.id]
