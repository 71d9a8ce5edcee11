"""A store, a workspace beside it, and a flow resumed in them with everything that was observed."""

import pytest

import holdfast
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow


class Bench:
    """One store and one workspace; `log` is a file outside of it that commands can write to."""

    def __init__(self, folder):
        self.folder = folder
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.log = folder / "log"
        self.store = folder / "store.db"
        self.events = []
        self.settings = holdfast.Settings()

    def open(self):
        return holdfast.open(self.store, settings=self.settings, durability="process")

    def run(self, data, *, observer=None, waiting="leave", hf=None, files=True, **options):
        flow = flow_from(data) if isinstance(data, dict) else data
        options.setdefault("run_id", flow.name)
        self.events = []
        opened = hf or self.open()
        try:
            return run_flow(
                opened,
                flow,
                workspace=self.workspace if files else None,
                observer=observer or self.events.append,
                waiting=waiting,
                **options,
            )
        finally:
            if hf is None:
                opened.close()

    def say(self, text):
        """Return a command that adds a line to the log."""
        return f"echo {text} >> '{self.log}'"

    @property
    def said(self):
        return self.log.read_text().split("\n")[:-1] if self.log.exists() else []

    def kinds(self, *only):
        return [
            (event.kind, "/".join(filter(None, (event.phase, event.task))))
            for event in self.events
            if not only or event.kind in only
        ]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)
