from holdfast.capture.live import LiveSections


class Lagging:
    """Counts its changes, and may lag behind while it is told so."""

    may_lag = True

    def __init__(self):
        self.changes = 0

    def snapshot(self):
        return self.changes

    def restore(self, value):
        self.changes = value


def test_what_may_lag_is_carried_over_by_steps_alone_and_only_once_it_is_stored():
    sections, live = LiveSections(), Lagging()
    sections.register("s", live)
    assert sections.snapshots(is_step=True) == {"s": 0}, "nothing of it is stored yet"
    sections.stored()
    live.changes = 1
    assert sections.snapshots(is_step=True) == {}
    assert sections.snapshots() == {"s": 1}, "this checkpoint is of more than a step"
    sections.stored()
    live.changes = 2
    live.may_lag = False
    assert sections.snapshots(is_step=True) == {"s": 2}
    live.changes, live.may_lag = 3, True
    sections.forget()
    assert sections.snapshots(is_step=True) == {"s": 3}, "what is stored is not what the next one builds on"
