"""What every store must do for those who follow it, as tests; StoreContract includes them. Needs pytest."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.engine import Holdfast
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.journal.feed import FeedItem
    from holdfast.store.store import Store


class FeedContract:
    """The obligations of a store towards its followers."""

    def open_store(self, folder: Path) -> Store:
        """Open the store of this folder: the same one each time, if it is durable."""
        raise NotImplementedError

    def test_a_feed_yields_records_and_checkpoints_in_the_order_of_their_line(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        run = hf.run("r")
        run.log("x").extend(["a", "b"])
        run.checkpoint(state={"n": 1})
        run.log("x").append("c")
        run.checkpoint(state={"n": 2})
        found = told(hf.follow("r", wait_s=0))
        assert found == [
            ("r", 1, "appended"),
            ("r", 2, "appended"),
            ("r", 2, "@1"),
            ("r", 3, "appended"),
            ("r", 3, "@2"),
        ]
        hf.close()

    def test_a_cursor_resumes_where_the_feed_stood(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        run = hf.run("r")
        for number in range(7):
            run.log("x").append(number)
            if number % 3 == 0:
                run.checkpoint(state={"n": number})
        whole = told(hf.follow(wait_s=0))
        cursor, found = None, []
        for _ in whole:  # one item a feed, each in another feed
            feed = hf.follow(after=cursor, wait_s=0)
            found += told([next(feed)])
            cursor = feed.cursor
        assert found == whole
        assert told(hf.follow(after=cursor, wait_s=0)) == []
        hf.close()

    def test_a_feed_sees_what_others_commit_while_it_waits(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        hf.run("r").log("x").append(0)
        feed = hf.follow(["r", "s"], after="end", wait_s=20)

        def write() -> None:
            time.sleep(0.05)
            for name in ("r", "s", "not-followed"):
                hf.run(name).log("x").append(1)

        writer = threading.Thread(target=write)
        writer.start()
        assert sorted(told([next(feed), next(feed)])) == [("r", 2, "appended"), ("s", 1, "appended")]
        writer.join()
        hf.close()

    def test_writers_in_parallel_lose_nothing_and_repeat_nothing(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))

        def write(name: str) -> None:
            log = hf.run(name).log("x")
            for number in range(20):
                log.append(number)

        writers = [threading.Thread(target=write, args=(f"r{number}",)) for number in range(3)]
        for writer in writers:
            writer.start()
        feed = hf.follow(wait_s=20)
        found = told([next(feed) for _ in range(60)])
        for writer in writers:
            writer.join()
        assert sorted(found) == [(f"r{run}", number, "appended") for run in range(3) for number in range(1, 21)]
        assert told(hf.follow(after=feed.cursor, wait_s=0)) == []
        hf.close()

    def test_a_run_that_is_begun_again_is_followed_from_its_beginning(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        hf.run("r").log("x").extend([1, 2, 3])
        feed = hf.follow("r", wait_s=0)
        assert len(told(feed)) == 3
        hf.delete_run("r")
        assert told(hf.follow("r", after=feed.cursor, wait_s=0)) == []
        hf.run("r").log("x").append("new")
        assert told(hf.follow("r", after=feed.cursor, wait_s=0)) == [("r", 1, "appended")]
        hf.close()

    def test_deleted_checkpoints_and_runs_are_passed_over(self, tmp_path: Path) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        run = hf.run("r")
        kept = [run.checkpoint(state={"n": number}) for number in range(3)]
        feed = hf.follow("r")
        assert told([next(feed)]) == [("r", 0, "@1")]
        cursor = feed.cursor
        hf.delete(kept[1].id)
        assert told(hf.follow("r", after=cursor, wait_s=0)) == [("r", 0, "@3")]
        assert told(hf.follow("nobody", wait_s=0)) == []
        hf.close()

    @pytest.mark.parametrize("cursor", ["", "x", "{}", "7", '[["r"]]', '[["r", "main", "a", 1, 1]]', "[" * 5000])
    def test_what_is_no_cursor_is_refused(self, tmp_path: Path, cursor: str) -> None:
        hf = Holdfast(self.open_store(tmp_path))
        with pytest.raises(UsageError):
            hf.follow(after=cursor)
        hf.close()


def told(feed: Iterable[FeedItem]) -> list[tuple[str, int, str]]:
    """Return what a feed yields, in short: run, number, and the kind of a record or the number of a checkpoint."""
    found = []
    for one in feed:
        seq = f"@{one.checkpoint.envelope.seq}" if one.checkpoint is not None else ""
        found.append((one.run, one.number, one.record.kind if one.record is not None else seq))
    return found
