"""The age of what a reader has not read yet: the timestamp of the first batch it would be given.

Lag in records says how much is left, and this how long it has waited. It is the batch's own time, so a producer whose
clock is wrong makes it wrong too.
"""

from __future__ import annotations

from coordinator_runtime.store import Store
from partition_log.batches import batches
from partition_log.reading import SEEK_COST_BATCHES, AbortedIndex, Budget
from partition_log.state import Isolation, PartitionHead


def oldest_unread_ms(
    store: Store, ordinal: int, head: PartitionHead, offset: int, isolation: Isolation, budget: Budget
) -> int | None:
    """Timestamp of the first batch that a reader at the offset would be shown under the view; None where there is none.

    Where a long stretch of hidden batches spends the budget, the timestamp of the last one looked at: what lies behind
    it was written later, so the true age is not greater. Raises LogDamaged, StoreUnreadable.
    """
    start, end = max(offset, head.log_start_offset), isolation.bound(head)
    if start >= end:
        return None
    budget.batches -= SEEK_COST_BATCHES
    aborted = AbortedIndex(store, ordinal, head, budget)
    is_committed = isolation is Isolation.READ_COMMITTED
    for header, encoded in batches(store, ordinal, start, end):
        is_hidden = header.is_control or (is_committed and header.is_transactional and aborted.hides(header))
        budget.batches -= 1
        budget.read_bytes -= len(encoded)
        if not is_hidden or budget.is_spent:
            return header.max_timestamp_ms
    return None
