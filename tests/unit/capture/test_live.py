from holdfast.capture.live import LiveSections


class Counter:
    """Counts its changes."""

    def __init__(self):
        self.changes = 0

    def snapshot(self):
        return {"count": self.changes, "name": "counter"}

    def restore(self, value):
        self.changes = value["count"]


def test_an_object_is_asked_again_only_after_it_changed():
    sections, live = LiveSections(), Counter()
    sections.register("s", live)
    assert sections.snapshots() == {"s": {"count": 0, "name": "counter"}}
    sections.stored()
    assert sections.snapshots() == {}
    live.changes = 1
    assert sections.snapshots() == {"s": {"count": 1, "name": "counter"}}
    sections.forget()
    assert "s" in sections.snapshots(), "what is stored is not what the next one builds on"


def test_the_journal_gets_what_changed_since_it_last_had_it():
    sections, live = LiveSections(), Counter()
    sections.register("s", live)
    sections.journal("s")
    deltas, after = sections.changes()
    assert deltas == {"s": [[[], "set", {"count": 0, "name": "counter"}]]}
    assert sections.changes()[0] == deltas, "it was not stored"
    sections.journaled(after)
    assert sections.changes() == ({}, {})
    live.changes = 5
    assert sections.changes()[0] == {"s": [[["count"], "set", 5]]}
    sections.rebase()
    assert sections.changes()[0] == {}
