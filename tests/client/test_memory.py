"""Memory that a bulk producer uses in its process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_client import Producer
from coordinator_client.process import keep_memory_of_batches
from tests.client.world import World


@pytest.fixture(autouse=True)
def _undecided() -> Iterator[None]:
    keep_memory_of_batches.cache_clear()
    yield
    keep_memory_of_batches.cache_clear()


def send(records: int) -> None:
    producer = Producer(World().connection(), transactional_id="p", batch_bytes=8_192)
    with producer.transaction() as txn:
        for _ in range(records):
            txn.send("t", b"x" * 1_000, partition=0)


def test_small_transactions_leave_the_allocator_alone() -> None:
    send(3)
    assert keep_memory_of_batches.cache_info().currsize == 0


def test_the_first_full_batch_decides_for_good() -> None:
    send(20)
    assert keep_memory_of_batches.cache_info().misses == 1


def test_a_setting_of_the_allocator_by_the_user_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory_of_batches()
