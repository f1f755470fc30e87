"""Counts of a store in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import SlateOptions, open_slate_store
from coordinator_runtime.slate.store import SlateStore
from coordinator_runtime.store import CommitGroup, Family
from coordinator_runtime.store_statistics import ObjectStoreNumbers
from tests.harness.manual_clock import ManualClock
from tests.harness.object_store import ObjectServer


@pytest.fixture
def store(server: ObjectServer, address: str, tmp_path: Path) -> Iterator[SlateStore]:
    options = SlateOptions(tmp_path / "cache", 1 << 20)
    clock = ManualClock(wall_ms=1_800_000_000_000)
    opened = open_slate_store(parse_location(address), shard_count=1, options=options, clock=clock)
    yield opened
    opened.close()


def numbers(store: SlateStore) -> ObjectStoreNumbers:
    found = store.statistics().objects
    assert found is not None
    return found


def flush(store: SlateStore, count: int) -> None:
    for _ in range(count):
        store.write([CommitGroup(store.version() + 1, [(Family.LOG, b"key", b"value")])])
        store.sync()


def test_a_flush_is_one_put_with_its_duration(store: SlateStore) -> None:
    before = numbers(store)
    flush(store, 5)
    after = numbers(store)
    assert after.log_flushes - before.log_flushes == 5
    assert after.requests["put", "ok"] - before.requests["put", "ok"] == 5
    took, took_before = after.seconds["put"], before.seconds["put"]
    assert sum(took.numbers) - sum(took_before.numbers) >= 5
    assert took.total > took_before.total
    assert len(took.numbers) == len(took.bounds) + 1
    assert after.written_bytes["log"] > before.written_bytes["log"]
    assert {cache for cache, _result in after.cache_reads} == {"memory", "disk"}


def test_an_absent_object_is_an_error_and_what_the_client_below_repeats_is_one_request(
    store: SlateStore, server: ObjectServer
) -> None:
    before = numbers(store)
    assert before.requests["get", "error"] > 0, "a new store looks for objects that are not there"
    server.fail_next["PUT"] = 1
    flush(store, 1)
    after = numbers(store)
    assert after.requests["put", "ok"] == before.requests["put", "ok"] + 1
    assert after.requests["put", "error"] == before.requests["put", "error"]
