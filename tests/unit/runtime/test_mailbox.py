import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import RunWaiting, SectionInvalid, UsageError
from holdfast.model.runtime_sections import Reply
from holdfast.runtime.mailbox import Mailbox
from unit.runtime.lives import Disk, Killed, Life, every_death, every_two_deaths, same_through_bytes, unbroken

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)

AGENTS = ["planner", "coder", "tester"]


def test_a_message_goes_to_its_reader_once():
    mailbox = Mailbox(agents=AGENTS)
    first = mailbox.send("planner", "coder", {"do": "login"})
    mailbox.send("planner", "tester", "wait")
    message = mailbox.receive("coder")
    assert (message.id, message.sender, message.to, message.body) == (first, "planner", "coder", {"do": "login"})
    assert mailbox.receive("coder") is None
    mailbox.ack(message)
    mailbox.ack(message)
    assert [one.to for one in mailbox.pending] == ["tester"]


def test_what_was_not_acknowledged_is_given_again_after_a_resume_and_nothing_else():
    """Proves C17: pending messages are sent again after a resume."""
    mailbox = Mailbox(agents=AGENTS)
    for body in ("one", "two", "three"):
        mailbox.send("planner", "coder", body)
    mailbox.ack(mailbox.receive("coder"))
    mailbox.receive("coder")
    again = Mailbox(agents=AGENTS)
    again.restore(mailbox.snapshot())
    assert [again.receive("coder").body, again.receive("coder").body] == ["two", "three"]
    assert again.receive("coder") is None


def test_reading_acknowledges_at_the_end_and_not_after_an_error():
    mailbox = Mailbox()
    mailbox.send("a", "b", 1)
    with pytest.raises(ValueError, match="no"), mailbox.reading("b") as message:
        raise ValueError("no")
    with mailbox.reading("b") as message:
        assert message.body == 1
    with mailbox.reading("b") as message:
        assert message is None
    assert mailbox.pending == []


def test_what_is_pending_and_awaited_is_what_is_stored():
    """Proves C6."""
    mailbox = Mailbox(agents=AGENTS)
    mailbox.send("planner", "coder", "hello")
    asked = mailbox.send("coder", "planner", "which?", expects_answer=True)
    mailbox.ack(mailbox.receive("planner"))
    mailbox.conflicts.start("naming", ["coder", "tester"])
    value = mailbox.snapshot()
    assert [one["body"] for one in value.pending] == ["hello"]
    assert [one["id"] for one in value.awaiting_response] == [asked]
    assert [one["name"] for one in value.conflicts] == ["naming"]


def test_the_first_answer_stays_and_acknowledges_its_message():
    mailbox = Mailbox()
    asked = mailbox.send("a", "b", "?", expects_answer=True)
    message = mailbox.receive("b")
    assert mailbox.answer(message, "first")
    assert not mailbox.answer(asked, "second")
    assert mailbox.await_answer(asked) == mailbox.await_answer(message) == "first"
    assert mailbox.pending == mailbox.awaiting_response == []


def test_none_is_an_answer_too():
    mailbox = Mailbox()
    asked = mailbox.send("a", "b", "?", expects_answer=True)
    assert not mailbox.has_answer(asked)
    mailbox.answer(asked, None)
    assert mailbox.await_answer(asked) is None


def test_an_answer_is_not_lost_by_a_resume():
    """Proves C17: received answers are not lost."""
    mailbox = Mailbox()
    asked = mailbox.send("a", "b", "?", expects_answer=True)
    mailbox.answer(asked, [1])
    again = Mailbox()
    again.restore(mailbox.snapshot())
    assert again.await_answer(asked) == [1]
    assert again.receive("b") is None


def test_an_answer_may_come_from_another_thread():
    mailbox, waits = Mailbox(), threading.Event()
    asked = mailbox.send("a", "b", "?", expects_answer=True)

    def other():
        waits.wait(10)
        mailbox.answer(mailbox.receive("b"), 42)

    thread = threading.Thread(target=other)
    thread.start()
    waits.set()
    assert mailbox.await_answer(asked, within_s=None) == 42
    thread.join()


def test_an_answer_may_come_from_outside_in_a_later_life():
    """Proves C17."""

    def program(life):
        mailbox = life.attach("messages", Mailbox(life, AGENTS))
        asked = mailbox.send("coder", "planner", "which?", expects_answer=True, key="which")
        return mailbox.await_answer(asked), len(mailbox.awaiting_response)

    disk = Disk()
    with pytest.raises(RunWaiting, match="coder waits for an answer of planner"):
        program(Life(disk))
    disk.answer = lambda _wait: Reply(choice="signal", at=Life(disk).now(), value={"use": "oauth"})
    assert program(Life(disk)) == ({"use": "oauth"}, 0)
    assert program(Life(disk)) == ({"use": "oauth"}, 0)
    assert list(disk.answered) == ["answer:m1"]


def test_a_message_with_a_key_is_sent_once():
    mailbox = Mailbox()
    first = mailbox.send("a", "b", "hello", key="greeting")
    mailbox.ack(first)
    again = Mailbox()
    again.restore(mailbox.snapshot())
    assert again.send("a", "b", "hello", key="greeting") == first
    assert again.pending == []


def test_a_broadcast_goes_to_all_others():
    mailbox = Mailbox(agents=AGENTS)
    ids = mailbox.broadcast("coder", "done", expects_answer=True, key="done")
    assert list(ids) == ["planner", "tester"]
    assert mailbox.broadcast("coder", "done", expects_answer=True, key="done") == ids
    assert len(mailbox.pending) == 2
    mailbox.join("writer")
    assert list(mailbox.broadcast("coder", "more")) == ["planner", "tester", "writer"]
    with pytest.raises(UsageError, match="nobody is known"):
        Mailbox().broadcast("a", 1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda box: box.send("planner", "codr", 1), r"there is no agent 'codr': did you mean 'coder'\?"),
        (lambda box: box.send("me", "coder", 1), "there is no agent 'me': there are 'coder', 'planner', 'tester'"),
        (lambda box: box.receive("code"), "did you mean 'coder'"),
        (lambda box: box.answer("m9", 1), "there is no message 'm9'"),
        (lambda box: box.answer("nonsense", 1), "there is no message 'nonsense'"),
        (lambda box: box.await_answer("m1"), "sent without expects_answer=True"),
        (lambda box: box.answer("m1", 1), "sent without expects_answer=True"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(call, says):
    mailbox = Mailbox(agents=AGENTS)
    mailbox.send("planner", "coder", "hello")
    before = mailbox.snapshot()
    with pytest.raises(UsageError, match=says):
        call(mailbox)
    assert mailbox.snapshot() == before


def talk(life):
    """Two agents: one asks five questions, the other answers each with what it counts."""
    mailbox = life.attach("messages", Mailbox(life, ["asker", "teller"]))
    ids = [mailbox.send("asker", "teller", i, expects_answer=True, key=f"q{i}") for i in range(5)]
    mailbox.send("teller", "asker", "bye", key="bye")
    while True:
        with mailbox.reading("teller") as message:
            if message is None:
                break
            life.do(f"asked {message.body}")
            mailbox.answer(message, message.body * 2)
    with mailbox.reading("asker") as message:
        if message is not None:
            life.do("bye")
    return [mailbox.await_answer(one) for one in ids], mailbox.snapshot().sent, len(mailbox.pending)


def test_killed_at_any_save_no_message_is_lost_or_doubled():
    """Proves C6, C17."""
    disk, end, _saves = unbroken(talk)
    assert end == ([0, 2, 4, 6, 8], 6, 0)
    told = disk.did
    for where, disk, again in every_death(talk):
        assert again == end, where
        # One that was being dealt with when the process died is dealt with again, in the same order.
        assert list(dict.fromkeys(disk.did)) == told, where
        assert len(disk.did) <= len(told) + 1, where
    assert all(again == end for _where, _disk, again in every_two_deaths(talk))


def test_killed_after_an_answer_was_saved_it_is_not_asked_for_again():
    """Proves C17."""
    disk = Disk()
    with pytest.raises(Killed):
        talk(Life(disk, 2, after=True))
    assert disk.did == ["asked 0", "asked 1"]
    talk(Life(disk))
    assert disk.did == ["asked 0", "asked 1", "asked 2", "asked 3", "asked 4", "bye"]


names = st.sampled_from("abc")


@some
@given(st.lists(st.one_of(st.tuples(names, names, st.integers()), st.tuples(names), st.just("resume"))))
def test_messages_between_two_agents_keep_their_order_and_come_once(events):
    """Proves C17: whatever is sent, read and resumed in whatever order."""
    mailbox = Mailbox(agents="abc")
    sent, read = {}, {}
    for event in events:
        if event == "resume":
            value = mailbox.snapshot()
            mailbox = Mailbox(agents="abc")
            mailbox.restore(value)
        elif len(event) == 3:
            sender, to, body = event
            mailbox.send(sender, to, body)
            sent.setdefault((sender, to), []).append(body)
        else:
            with mailbox.reading(event[0]) as message:
                if message is not None:
                    read.setdefault((message.sender, message.to), []).append(message.body)
    for agent in "abc":
        while (message := mailbox.receive(agent)) is not None:
            read.setdefault((message.sender, message.to), []).append(message.body)
    assert read == sent


def test_threads_read_each_message_once():
    mailbox = Mailbox()
    for i in range(200):
        mailbox.send("a", "b", i)
    got = []

    def work():
        while (message := mailbox.receive("b")) is not None:
            got.append(message.body)
            mailbox.ack(message)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(200))
    assert mailbox.pending == []


def test_restoring_is_the_identity():
    mailbox = Mailbox(agents=AGENTS)
    mailbox.broadcast("coder", {"x": (1, 2)}, expects_answer=True, key="k")
    mailbox.answer("m1", b"yes")
    conflict = mailbox.conflicts.start("naming", ["coder", "tester"], "which name?")
    conflict.position("coder", "run")
    mailbox.conflicts.start("old", ["coder"]).resolve("so be it", by="ann")
    assert same_through_bytes("messages", mailbox, Mailbox(agents=AGENTS))


def test_a_body_that_its_sender_changes_afterwards_stays_as_it_was_sent():
    mailbox, body = Mailbox(), {"list": [1]}
    mailbox.send("a", "b", body)
    value = mailbox.snapshot()
    body["list"].append(2)
    mailbox.ack(mailbox.receive("b"))
    assert value.pending[0]["body"] == {"list": [1]}


def test_changes_grow_with_every_change_and_with_nothing_else():
    mailbox = Mailbox()
    seen = [mailbox.changes]
    mailbox.send("a", "b", 1, expects_answer=True)
    seen.append(mailbox.changes)
    mailbox.answer(mailbox.receive("b"), 1)
    seen.append(mailbox.changes)
    mailbox.conflicts.start("c", ["a", "b"])
    seen.append(mailbox.changes)
    assert seen == sorted(set(seen))
    mailbox.snapshot(), mailbox.pending, mailbox.receive("b"), mailbox.await_answer("m1")
    assert mailbox.changes == seen[-1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"pending": "none"},
        {"pending": [{"id": "m1"}]},
        {"awaiting_response": [5]},
        {"conflicts": [{"name": "c"}]},
        {"unknown": 1},
        5,
    ],
)
def test_a_section_that_does_not_fit_is_refused_and_nothing_is_taken(wrong):
    mailbox = Mailbox()
    mailbox.send("a", "b", 1)
    before = mailbox.snapshot()
    with pytest.raises(SectionInvalid, match="section 'messages'"):
        mailbox.restore(wrong)
    assert mailbox.snapshot() == before
