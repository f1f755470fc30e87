"""Logs in the directory of a stopped server: batches of a topic, and the history of the transaction coordinator."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import datetime

from coordinator_client.encodings import decode_rows, unpack
from coordinator_client.errors import CorruptBatch, TransactionError
from coordinator_protocol.batch import BatchHeader, verify_batch
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator
from coordinator_server.exits import CommandFailed, ExitStatus
from partition_log.batches import OFFSET_END, LogDamaged
from partition_log.catalog.state import Topic, TopicSet
from partition_log.record_times import NotOpened, first_at_or_after
from partition_log.state import PartitionHead
from txn_coordinator.codec import TRANSACTION_TYPE
from txn_coordinator.steps import decode_step
from txnctl.commands.log_rows import Fate, LoggedBatch, Placed, chosen_partitions
from txnctl.commands.remote_log import Position
from txnctl.output import NOTHING, Row, moment
from txnctl.stopped import stored
from txnctl.stopped.counted_rows import known_heads
from txnctl.stopped.stored import StoredBatch, StoredRows

_FATES = {Outcome.COMMIT: Fate.COMMITTED, Outcome.ABORT: Fate.ABORTED, None: Fate.OPEN}


class StoppedLog:
    """Iterator over the batches of a topic, partition by partition, with an error in place of a damaged one."""

    def __init__(self, rows: StoredRows, name: str, partitions: list[int] | None, start: Position) -> None:
        """Raises CommandFailed for a topic or partition that does not exist."""
        topic = _topic(rows, name)
        self._rows, self._name, self._start = rows, name, start
        self._ordinals = {
            partition: topic.partition_ordinals[partition]
            for partition in chosen_partitions(name, len(topic.partition_ordinals), partitions)
        }
        first_offset = start if isinstance(start, int) else 0
        found = known_heads(rows)
        heads = {partition: found.get(ordinal, PartitionHead()) for partition, ordinal in self._ordinals.items()}
        self.starts = {partition: max(first_offset, head.log_start_offset) for partition, head in heads.items()}
        """First offset to read of each partition, or one before it if the read starts at a time."""
        ends = (max(0, head.log_end_offset - self.starts[partition]) for partition, head in heads.items())
        self.offset_count = sum(ends) or None
        """Number of offsets to read; None if it is not known."""

    def __iter__(self) -> Iterator[LoggedBatch | CorruptBatch]:
        for partition, ordinal in self._ordinals.items():
            yield from self._batches(partition, ordinal)

    def _batches(self, partition: int, ordinal: int) -> Iterator[LoggedBatch | CorruptBatch]:
        fates = stored.Fates(self._rows, ordinal)
        for found in _from(self._rows, ordinal, self._start):
            if isinstance(found, LogDamaged):
                yield _unreadable(self._name, partition, found)
                continue
            batch, first_offset = found
            try:
                verify_batch(batch.encoded)
                fate = _fate(fates, batch.header)
            except Refused as damage:
                yield _corrupt(self._name, partition, batch, damage.message)
            except LogDamaged as unknown:
                yield _unreadable(self._name, partition, unknown)
            else:
                yield _logged(self._name, partition, batch, first_offset, fate)


def transaction_history(
    rows: StoredRows, transactional_id: str | None, *, on_step: Callable[[int], None] = lambda _count: None
) -> Iterator[list[Row]]:
    """Yield the steps of transactional ids, in the order of each shard. With an id, yield only the steps of that one.

    `on_step` is called with 1 after each step that was read."""
    wanted = None if transactional_id is None else transactional_id.encode()
    for step in stored.history(rows, Coordinator.TRANSACTIONS):
        on_step(1)
        if step.record_type != TRANSACTION_TYPE or (wanted is not None and step.key != wanted):
            continue
        row: dict[str, str | int | list[int] | list[str] | None] = {
            "shard": step.shard.number,
            "step": step.number,
            "wall_ms": step.wall_ms,
            "transactional_id": step.key.decode("utf-8", "replace"),
            "cause": step.cause,
            "client_id": step.client_id,
            "host": step.host,
            "state": None,
        }
        after = decode_step(step.told)
        if after is not None:
            row |= {
                "state": after.state_name,
                "producer_id": after.producer_id,
                "producer_epoch": after.producer_epoch,
                "csn": after.csn or None,
                "participants": after.participant_count,
            }
            if after.decided is not None:
                row |= {
                    "decided_partition_ordinals": list(after.decided.partitions),
                    "decided_groups": list(after.decided.groups),
                    "decided_shares": [f"{share.group_id}:{share.ordinal}" for share in after.decided.shares],
                }
        yield [row]


def transaction_line(row: Row) -> str:
    """Return a row of `transaction_history` as a line of text."""
    state = row["state"] or "forgotten"
    identity = f"producer {row['producer_id']}/{row['producer_epoch']}" if "producer_id" in row else ""
    csn = f"  csn {row['csn']}" if row.get("csn") else ""
    who = f"  by {row['client_id'] or NOTHING}@{row['host'] or NOTHING}" if row["client_id"] or row["host"] else ""
    cause = row["cause"] or NOTHING
    return f"{moment(row['wall_ms'])}  {row['transactional_id']}  {state:<14}  {cause:<14}  {identity}{csn}{who}"


def _topic(rows: StoredRows, name: str) -> Topic:
    topics = {record.topic.name: record.topic for record in stored.catalog(rows) if isinstance(record, TopicSet)}
    found = topics.get(name)
    if found is None:
        near = difflib.get_close_matches(name, topics, n=1)
        advice = f"did you mean {near[0]}?" if near else f"it holds {', '.join(sorted(topics)[:10]) or 'no topic'}"
        raise CommandFailed(ExitStatus.PROBLEM, f"there is no topic {name!r} in this directory; {advice}")
    return found


def _from(rows: StoredRows, ordinal: int, start: Position) -> Iterator[tuple[StoredBatch, int] | LogDamaged]:
    """Yield the batches from a position on, each with its first requested offset. A time stands for the first record of
    that time or later, as for a running server."""
    if start == "latest":
        return
    first_offset = start if isinstance(start, int) else 0
    since_ms = round(start.timestamp() * 1000) if isinstance(start, datetime) else None
    while first_offset < OFFSET_END:
        try:
            for batch in stored.batches(rows, ordinal, first_offset):
                at = max(batch.header.base_offset, first_offset)
                if since_ms is not None:
                    since = _first_since(batch, since_ms)
                    if since is None:
                        continue
                    at, since_ms = since, None
                yield batch, at
        except LogDamaged as damage:
            yield damage
            first_offset = damage.next_offset
        else:
            return


def _first_since(batch: StoredBatch, since_ms: int) -> int | None:
    """Return the offset of the first record of a batch of this time or later; None if there is none. For a batch that
    cannot be decoded, return its base offset."""
    header = batch.header
    if header.is_control or header.max_timestamp_ms < since_ms:
        return None
    try:
        found = first_at_or_after(header, batch.encoded, since_ms)
    except NotOpened:
        return header.base_offset
    return None if found is None else found[0]


def _fate(fates: stored.Fates, header: BatchHeader) -> Fate:
    return _FATES[fates.of(header)] if header.is_transactional and not header.is_control else Fate.PLAIN


def _logged(topic: str, partition: int, batch: StoredBatch, first_offset: int, fate: Fate) -> LoggedBatch:
    header = batch.header
    return LoggedBatch(
        topic=topic,
        partition=partition,
        header=header,
        marker=batch.marker,
        fate=fate,
        size_bytes=len(batch.encoded),
        first_offset=first_offset,
        records=_records_of(topic, partition, batch, first_offset),
    )


def _records_of(topic: str, partition: int, batch: StoredBatch, first_offset: int) -> Callable[[], Placed]:
    def records() -> Placed:
        header = batch.header
        where = f"{topic}-{partition} at offset {header.base_offset}"
        try:
            payload = unpack(batch.payload, header, where)
            offsets, found = decode_rows(payload, header, where)
        except TransactionError as error:
            raise _corrupt(topic, partition, batch, error.reason) from error
        start = bisect_left(offsets, first_offset)
        return offsets[start:], found[start:]

    return records


def _unreadable(topic: str, partition: int, damage: LogDamaged) -> CorruptBatch:
    return CorruptBatch(
        ErrorCode.CORRUPT_MESSAGE,
        damage.reason,
        topic=topic,
        partition=partition,
        offset=damage.offset,
        next_offset=damage.next_offset,
    )


def _corrupt(topic: str, partition: int, batch: StoredBatch, why: str) -> CorruptBatch:
    header = batch.header
    return CorruptBatch(
        ErrorCode.CORRUPT_MESSAGE,
        why,
        topic=topic,
        partition=partition,
        offset=header.base_offset,
        next_offset=header.last_offset + 1,
    )
