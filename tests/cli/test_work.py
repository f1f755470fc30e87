"""Progress of commands: of a verification without a server; those with one are in `test_with_a_server`."""

from __future__ import annotations

import io
from pathlib import Path

from coordinator_client.clock import SystemClock
from coordinator_client.progress import ProgressShown, WorkProgress
from tests.cli.damaged_store import Damaged
from txnctl.commands.log_rows import watched
from txnctl.commands.stopped_log import StoppedLog, transaction_history
from txnctl.commands.work import bytes_left
from txnctl.stopped.counted_rows import CountedRows
from txnctl.stopped.store_verify import verify_store


def test_a_verification_counts_the_offsets_of_all_logs_once() -> None:
    store, seen = Damaged().store, list[int]()
    rows = CountedRows(store, seen.append)
    assert verify_store(rows) == verify_store(store)
    assert seen == sorted(seen)
    assert rows.total == seen[-1] == 8


def test_a_dump_of_a_stopped_log_counts_its_own_offsets() -> None:
    store = Damaged().store
    for start, count in (("earliest", 5), (3, 2)):
        log = StoppedLog(store, "t", [0], start)
        shown = WorkProgress(
            "dumped", "offsets", clock=SystemClock(), stream=io.StringIO(), shown=ProgressShown.EVERYWHERE
        )
        assert len(list(watched(log, log.starts, shown))) == {5: 4, 2: 2}[count]
        assert shown.done == log.offset_count == count


def test_a_history_counts_every_step_that_is_read() -> None:
    read: list[int] = []
    assert list(transaction_history(Damaged().store, "nobody", on_step=read.append)) == []
    assert sum(read) == len(list(transaction_history(Damaged().store, None))) > 0


def test_a_file_has_bytes_left_and_a_pipe_has_none(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        file.read(2)
        assert bytes_left(file) == 3
    assert bytes_left(io.BytesIO(b"12345")) is None
