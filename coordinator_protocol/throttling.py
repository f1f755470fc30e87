"""What both ends agree on about `throttle_ms`: which calls bring or fetch records, and which are never put off.

A server that has served a call may ask in its answer that no more come for so long. To put off what ends or settles
something would hold others up: a transaction that stays open holds back every committed reader of its partitions, a
member that is not heard of takes its group with it. Such calls are counted, and what they took too much is waited for
by the calls after them.

Source: spec security 7.4 and 7.5; KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import Method

PAUSE_MS_MAX: Final = 30_000
"""The longest pause that is asked for at once; who owes more is asked again."""

PRODUCING: Final = frozenset({Method.PRODUCE, Method.TRANSACT})
"""Calls that bring records."""

FETCHING: Final = frozenset({Method.FETCH})
"""Calls whose answers bring records."""

NEVER_REFUSED: Final = frozenset(
    {
        # They end a transaction, or decide on it.
        Method.END_TXN,
        Method.PREPARE_TRANSACTION,
        Method.WRITE_TXN_MARKERS,
        Method.SEAL_MEMBER,
        Method.COMMIT_BATCH,
        Method.ABORT_BATCH,
        Method.ABORT_TRANSACTIONS,
        Method.FENCE_PRODUCERS,
        Method.ABORT_HANGING_TRANSACTIONS,
        # A group waits for them.
        Method.JOIN_GROUP,
        Method.SYNC_GROUP,
        Method.HEARTBEAT,
        Method.LEAVE_GROUP,
        Method.CONSUMER_GROUP_HEARTBEAT,
        Method.OFFSET_COMMIT,
        Method.TXN_OFFSET_COMMIT,
        # They keep or give back what is held.
        Method.RENEW_SNAPSHOT,
        Method.RELEASE_SNAPSHOT,
    }
)
"""Calls that quotas neither refuse nor put off."""
