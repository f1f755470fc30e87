"""Values that a row has no place for: making its bytes fails, and nothing is cut off or wrapped around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from partition_log.codec import producer_rows
from partition_log.state import BATCHES_CACHED_MAX, CachedBatch, LastMarker, OpenTransaction, ProducerEntry
from txn_coordinator.codec import transaction_value
from txn_coordinator.state import Identity, InitAnswer, Member, Transaction

WHOLE: Final = Transaction(
    transactional_id="t",
    producer_id=0,
    txn_timeout_ms=0,
    last_update_ms=0,
    producer_epoch=0,
    client_txn_version=0,
    init=InitAnswer(b"", Identity(1, 1)),
    member=Member(1, "a"),
)


def too_large(made: Struct) -> Iterator[Any]:
    """The value with each of its numbers larger or smaller than any field, and with text that UTF-8 cannot encode."""
    for field in made.__struct_fields__:
        value = getattr(made, field)
        if isinstance(value, int) and not isinstance(value, bool):
            yield from (replace(made, **{field: number}) for number in (2**64, -(2**63) - 1))
        elif isinstance(value, str):
            yield replace(made, **{field: "\ud800"})
        elif isinstance(value, Struct):
            yield from (replace(made, **{field: larger}) for larger in too_large(value))


def test_a_transactional_id_with_a_value_out_of_range_has_no_row() -> None:
    wrong = [each for each in too_large(WHOLE) if each.transactional_id == "t" and not each.cause]
    wrong += [replace(WHOLE, partitions=frozenset({2**32})), replace(WHOLE, partitions=frozenset({-1}))]
    wrong += [replace(WHOLE, groups=frozenset({"\ud800"})), replace(WHOLE, producer_epoch=2**31)]
    assert len(wrong) > 30
    for transaction in wrong:
        with pytest.raises((ValueError, OverflowError, TypeError)):
            transaction_value(transaction, 0)


def test_a_producer_with_a_value_out_of_range_has_no_row() -> None:
    entry = ProducerEntry(1, batches=(CachedBatch(1, 1, 1),), open_transaction=OpenTransaction(1, 1))
    entries = [*too_large(entry), *too_large(replace(entry, last_marker=LastMarker(1, Outcome.COMMIT, 1)))]
    entries = [each for each in entries if each.last_marker is None or each.forgotten_csn == 0]
    entries += [replace(entry, batches=entry.batches * (BATCHES_CACHED_MAX + 1)), replace(entry, coordinator_shard=-2)]
    entries += [replace(entry, coordinator_shard=2**16), replace(entry, epoch=2**15)]
    for each in entries:
        with pytest.raises(Exception):  # noqa: B017  struct.error or IndexError
            producer_rows(0, [(1, each)])
