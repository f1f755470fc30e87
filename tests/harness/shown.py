"""Lines of a script's transcript for identities, records, producers and transactions, each in a few words."""

from __future__ import annotations

from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM, is_plain
from partition_log.state import ProducerEntry
from tests.harness.world import LogEntry, World
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity, Transaction


def shown_identity(identity: Identity) -> str:
    """Plain producer ids are counted from where they begin."""
    producer_id, epoch = identity
    number = f"plain{producer_id - PLAIN_PRODUCER_IDS_FROM}" if is_plain(producer_id) else str(producer_id)
    return f"{number}/{epoch}"


def shown_entry(entry: LogEntry) -> str:
    if entry.marker is None:
        return f"{entry.offset}:{entry.value}"
    return f"{entry.offset}:[{entry.marker.outcome.name.lower()} {entry.producer_id}/{entry.marker.txn_epoch}]"


def shown_producer(producer_id: int, entry: ProducerEntry) -> str:
    shown = f"{shown_identity(Identity(producer_id, entry.epoch))} last sequence {entry.last_sequence}"
    return shown if entry.open_transaction is None else f"{shown} open"


def shown_transaction(world: World, transaction: Transaction) -> str:
    parts = [f"{transaction.transactional_id}: {transaction.state.api_name} {shown_identity(transaction.identity)}"]
    if transaction.last_producer_epoch != NO_EPOCH:
        parts.append(f"last {transaction.last_producer_epoch}")
    if transaction.prev_producer_id != NO_PRODUCER_ID:
        parts.append(f"was {transaction.prev_producer_id}")
    if transaction.is_kept:
        parts.append(f"kept by {shown_identity(transaction.client_identity)}")
    elif transaction.next_producer_id != NO_PRODUCER_ID:
        parts.append(f"next {transaction.next_producer_id}/{transaction.next_producer_epoch}")
    waiting = sorted(world.partition_of(ordinal) for ordinal in transaction.partitions)
    waiting += [f"group:{group}" for group in sorted(transaction.groups)]
    waiting += [f"share:{group}:{world.partition_of(ordinal)}" for group, ordinal in sorted(transaction.shares)]
    if waiting:
        parts.append("in " + " ".join(waiting))
    if transaction.prepared_ms is not None:
        parts.append("prepared")
    parts.append(f"({transaction.cause})")
    return " ".join(parts)
