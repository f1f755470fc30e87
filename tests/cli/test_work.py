"""Progress of commands: of a verification without a server; those with one are in `test_with_a_server`."""

from __future__ import annotations

import io
from pathlib import Path

from tests.cli.damaged_store import Damaged
from txnctl.commands.work import bytes_left
from txnctl.stopped.counted_rows import CountedRows
from txnctl.stopped.store_verify import verify_store


def test_a_verification_counts_the_offsets_of_all_logs_once() -> None:
    store, seen = Damaged().store, list[int]()
    rows = CountedRows(store, seen.append)
    assert verify_store(rows) == verify_store(store)
    assert seen == sorted(seen)
    assert rows.total == seen[-1] == 8


def test_a_file_has_bytes_left_and_a_pipe_has_none(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        file.read(2)
        assert bytes_left(file) == 3
    assert bytes_left(io.BytesIO(b"12345")) is None
