"""The one process that may have the directory of a store open, and the refusal of the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.store import CommitGroup, Family, StoreRefused
from tests.harness import forked
from tests.store.test_rocks_recovery import SHARDS, contents

CHILD = """
import sys
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import CommitGroup, Family
store = open_store(sys.argv[1], shard_count=64)
store.write([CommitGroup(1, [(Family.LOG, b"a", b"written, not synced")])])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    with pytest.raises(StoreRefused, match=rf"another process \(pid {os.getpid()}\) has the directory .* open"):
        open_store(tmp_path, shard_count=SHARDS)
    with pytest.raises(StoreRefused, match=rf"another process \(pid {os.getpid()}\)"):
        open_read_only(tmp_path)
    store.close()
    open_store(tmp_path, shard_count=SHARDS).close()


def test_a_refused_opening_leaves_the_directory_free(tmp_path: Path) -> None:
    open_store(tmp_path, shard_count=SHARDS).close()
    with pytest.raises(StoreRefused, match="shards"):
        open_store(tmp_path, shard_count=1)
    open_store(tmp_path, shard_count=SHARDS).close()


@pytest.mark.slow
def test_another_process_keeps_us_out_until_it_dies(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", CHILD, str(tmp_path)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    with forked.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(StoreRefused, match=rf"another process \(pid {child.pid}\) has the directory .* open"):
            open_store(tmp_path, shard_count=SHARDS)
        child.kill()
    store = open_store(tmp_path, shard_count=SHARDS)
    assert store.get(Family.LOG, b"a") == b"written, not synced"
    store.close()


def test_tools_read_a_stopped_store_together_and_change_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=SHARDS)
    store.write([CommitGroup(1, [(Family.LOG, b"a", b"1"), (Family.LOG, b"b", b"2")])])
    store.close()
    before = contents(tmp_path)
    first, second = open_read_only(tmp_path), open_read_only(tmp_path)
    for tool in (first, second):
        assert list(tool.scan(Family.LOG, b"", b"\xff")) == [(b"a", b"1"), (b"b", b"2")]
        assert tool.get(Family.LOG, b"a") == b"1"
        assert tool.last(Family.LOG, b"") == (b"b", b"2")
        assert (tool.version(), tool.loss, tool.shard_count) == (1, None, SHARDS)
    with pytest.raises(StoreRefused, match="another process that reads"):
        open_store(tmp_path, shard_count=SHARDS)
    first.close()
    first.close()
    second.close()
    assert contents(tmp_path) == before
    open_store(tmp_path, shard_count=SHARDS).close()


def test_there_is_nothing_to_read_where_no_store_is(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="there is no store in"):
        open_read_only(tmp_path / "nothing")
    with pytest.raises(StoreRefused, match="there is no store in"):
        open_read_only(tmp_path)
    assert list(tmp_path.iterdir()) == []
