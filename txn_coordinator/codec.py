"""Bytes of the transaction coordinator's records (storage/v1/transaction.proto). No other module here but the edge uses
protobuf."""

from __future__ import annotations

import struct
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from coordinator_api.storage.v1 import transaction_pb2 as storage
from coordinator_protocol.producers import is_plain
from coordinator_runtime.decision import Record, Turn
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.ports import OutcomeNumber
from coordinator_runtime.rows import EncodedRecord, StagedRows, StateRows, state_row
from txn_coordinator.counters import COUNTERS
from txn_coordinator.records import (
    CsnGiven,
    ProducerIdBlockTaken,
    ProducerIdGiven,
    SinkChanged,
    SinkForgotten,
    TransactionChanged,
    TransactionForgotten,
    TransactionRanThrough,
    TransactionUnreadable,
    UnownedMarkerWritten,
)
from txn_coordinator.sink_state import Sink
from txn_coordinator.state import DECIDED, Identity, InitAnswer, Member, Transaction, TransactionState
from txn_coordinator.steps import DecidedFor, StoredStep

TRANSACTION_TYPE: Final = 1
SINK_TYPE: Final = 2
PRODUCER_ID_BLOCK_TYPE: Final = 1
CSN_TYPE: Final = 2
UNOWNED_MARKER_TYPE: Final = 3
"""Type of rows that exist only in the history, without a value: the key has all fields."""
PLAIN_PRODUCER_ID_BLOCK_TYPE: Final = 4

_UNOWNED_MARKER_KEY: Final = struct.Struct(">HQIQ")
_CSN_ROW: Final = state_row(COUNTERS, CSN_TYPE, b"")
_CSN_KEY_BYTES: Final = len(_CSN_ROW[1])
_STATES: Final = frozenset(TransactionState)
_CAUSES: Final = (
    *("", "init", "add", "client", "timeout", "fence", "topic_deleted", "admin", "keep", "prepare", "lost_line"),
    *("join", "decision", "given_up"),
)
"""Causes of steps, by stored number: never change one, only add at the end."""
_NONE: Final[frozenset[Any]] = frozenset()


_NUMBERS_OF_CAUSES: Final = {cause: number for number, cause in enumerate(_CAUSES)}
_UNKNOWN_CAUSE: Final = "unknown cause "


def transaction_value(transaction: Transaction, cause: int) -> bytes:
    """Return the bytes of the message `TransactionValue` for an id; `cause` is the stored number of its cause.

    A field that cannot hold its value is a bug of ours, and raises."""
    # Set one by one: the constructor of a message takes more than twice as long for its keyword arguments.
    stored = storage.TransactionValue()
    stored.producer_id = transaction.producer_id
    stored.producer_epoch = transaction.producer_epoch
    stored.last_producer_epoch = transaction.last_producer_epoch
    stored.prev_producer_id = transaction.prev_producer_id
    stored.next_producer_id = transaction.next_producer_id
    stored.next_producer_epoch = transaction.next_producer_epoch
    stored.txn_timeout_ms = transaction.txn_timeout_ms
    stored.state = transaction.state
    if transaction.partitions:
        stored.partitions.extend(sorted(transaction.partitions))
    if transaction.groups:
        stored.groups.extend(sorted(transaction.groups))
    if transaction.shares:
        for group_id, shares in groupby(sorted(transaction.shares), attrgetter("group_id")):
            stored.shares.add(group=group_id, partitions=[share.ordinal for share in shares])
    stored.start_ms = transaction.start_ms
    stored.last_update_ms = transaction.last_update_ms
    stored.txn_epoch = transaction.txn_epoch
    stored.csn = transaction.csn
    stored.client_txn_version = transaction.client_txn_version
    stored.cause = cause
    init = transaction.init
    if init is None:
        stored.init_producer_id = stored.init_producer_epoch = -1
    else:
        stored.init_request_id = init.request_id
        stored.init_producer_id, stored.init_producer_epoch = init.identity
        if init.ongoing is not None:
            stored.init_ongoing_producer_id, stored.init_ongoing_producer_epoch = init.ongoing
    if transaction.prepared_ms is not None:
        stored.prepared_ms = transaction.prepared_ms
    if transaction.transact_id:
        stored.transact_id = transaction.transact_id
    if transaction.member is not None:
        stored.member_batch_id, stored.member_attempt = transaction.member.batch_id, transaction.member.attempt
    return stored.SerializeToString()


class TransactionCodec:
    """Records of the TRANSACTIONS shards; the key is the transactional id, or the name of a sink, in UTF-8."""

    def encode(
        self, value: TransactionChanged | TransactionRanThrough | TransactionForgotten | SinkChanged | SinkForgotten
    ) -> EncodedRecord:
        if isinstance(value, TransactionForgotten):
            return EncodedRecord(TRANSACTION_TYPE, value.transactional_id.encode(), None)
        if isinstance(value, SinkChanged):
            # Without history: the step of each member has its decision, with the csn.
            return EncodedRecord(SINK_TYPE, value.sink.name.encode(), _encode_sink(value.sink), has_history=False)
        if isinstance(value, SinkForgotten):
            return EncodedRecord(SINK_TYPE, value.name.encode(), None, has_history=False)
        transaction = value.transaction
        cause = _NUMBERS_OF_CAUSES.get(transaction.cause)
        if cause is None:
            cause = int(transaction.cause.removeprefix(_UNKNOWN_CAUSE))
        stored = transaction_value(transaction, cause)
        told = step_of(value) if isinstance(value, TransactionChanged) else _step_through(value)
        key = transaction.transactional_id.encode()
        return EncodedRecord(TRANSACTION_TYPE, key, stored, told=told)

    def decode(
        self, record_type: int, key: bytes, value: bytes
    ) -> TransactionChanged | TransactionUnreadable | SinkChanged | None:
        if record_type == SINK_TYPE:
            return SinkChanged(_decode_sink(key.decode(), storage.SinkValue.FromString(value)))
        if record_type != TRANSACTION_TYPE:
            return None
        stored = storage.TransactionValue.FromString(value)
        if stored.state not in _STATES:
            return TransactionUnreadable(key.decode(), stored.producer_id, stored.state)
        return TransactionChanged(_decode(key.decode(), stored))


class CountersRows(StateRows):
    """Rows of the COUNTERS shard. Every outcome takes a csn, and only the newest one matters: it is encoded once per
    group."""

    def __init__(self) -> None:
        super().__init__(CountersCodec())

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        given = record.value
        if isinstance(given, CsnGiven):
            staged.encoded_later[_CSN_ROW] = storage.CsnValue(csn=given.csn).SerializeToString
            # Each csn counts, so that a commit group holds as much as if all had been given one by one.
            staged.size_bytes += given.count * _CSN_KEY_BYTES
        else:
            super().stage(record, turn, staged)


class CountersCodec:
    """Codec of the other records of the COUNTERS shard, and of all that are read back. Only the newest value of a
    number matters."""

    def encode(self, value: ProducerIdBlockTaken | ProducerIdGiven | UnownedMarkerWritten) -> EncodedRecord | None:
        match value:
            case ProducerIdGiven():
                return None
            case ProducerIdBlockTaken(next_unassigned_producer_id=block_end):
                block = storage.ProducerIdBlockValue(next_unassigned_producer_id=block_end)
                record_type = PLAIN_PRODUCER_ID_BLOCK_TYPE if is_plain(block_end - 1) else PRODUCER_ID_BLOCK_TYPE
                return EncodedRecord(record_type, b"", block.SerializeToString(), has_history=False)
            case UnownedMarkerWritten(number=number, ordinal=ordinal, producer_id=producer_id):
                key = _UNOWNED_MARKER_KEY.pack(*number, ordinal, producer_id)
                return EncodedRecord(UNOWNED_MARKER_TYPE, key, None)

    def decode(self, record_type: int, key: bytes, value: bytes) -> ProducerIdBlockTaken | CsnGiven | None:
        if record_type in (PRODUCER_ID_BLOCK_TYPE, PLAIN_PRODUCER_ID_BLOCK_TYPE):
            return ProducerIdBlockTaken(storage.ProducerIdBlockValue.FromString(value).next_unassigned_producer_id)
        if record_type == CSN_TYPE:
            return CsnGiven(storage.CsnValue.FromString(value).csn)
        return None


def decode_unowned_marker(key: bytes) -> UnownedMarkerWritten:
    """Decode a history row of UNOWNED_MARKER_TYPE."""
    coordinator_shard, csn, ordinal, producer_id = _UNOWNED_MARKER_KEY.unpack(key)
    return UnownedMarkerWritten(OutcomeNumber(coordinator_shard, csn), ordinal, producer_id)


def cause_of_number(number: int) -> str:
    """Return the cause of a step. A cause that only a newer program knows keeps its number."""
    return _CAUSES[number] if number < len(_CAUSES) else f"{_UNKNOWN_CAUSE}{number}"


def is_known_cause(cause: str) -> bool:
    """Return False for a cause that only a newer program knows."""
    return cause in _NUMBERS_OF_CAUSES


def step_of(value: TransactionChanged) -> StoredStep:
    """Return the step that the history stores for a change."""
    after = value.transaction
    decided = after if after.state in DECIDED else value.decided
    producer_id, producer_epoch = after.client_identity
    return StoredStep(
        int(after.state),
        producer_id,
        producer_epoch,
        after.last_producer_epoch,
        after.csn,
        after.participant_count,
        None
        if decided is None
        else DecidedFor(
            producer_id=decided.producer_id,
            txn_epoch=decided.txn_epoch,
            next_epoch=decided.producer_epoch,
            partitions=tuple(sorted(decided.partitions)),
            groups=tuple(sorted(decided.groups)),
            is_transact=bool(decided.transact_id),
            shares=tuple(sorted(decided.shares)),
        ),
    )


def _step_through(ran: TransactionRanThrough) -> StoredStep:
    """Return the step that the history stores for a whole transaction."""
    before, after = ran.before, ran.transaction
    decided = DecidedFor(
        before.producer_id, before.producer_epoch, after.producer_epoch, ran.partitions, ran.groups, is_transact=True
    )
    return StoredStep(
        int(after.state), after.producer_id, after.producer_epoch, before.producer_epoch, after.csn, 0, decided
    )


def _decode(transactional_id: str, value: storage.TransactionValue) -> Transaction:
    init = None
    if value.init_producer_id != -1:
        ongoing = None
        if value.HasField("init_ongoing_producer_id"):
            ongoing = Identity(value.init_ongoing_producer_id, value.init_ongoing_producer_epoch)
        identity = Identity(value.init_producer_id, value.init_producer_epoch)
        init = InitAnswer(value.init_request_id, identity, ongoing)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=value.last_producer_epoch,
        prev_producer_id=value.prev_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        txn_timeout_ms=value.txn_timeout_ms,
        state=TransactionState(value.state),
        # Most ids are idle: this test is cheaper than an empty set.
        partitions=frozenset(value.partitions) if value.partitions else _NONE,
        groups=frozenset(value.groups) if value.groups else _NONE,
        shares=frozenset(ShareKey(each.group, ordinal) for each in value.shares for ordinal in each.partitions)
        if value.shares
        else _NONE,
        start_ms=value.start_ms,
        last_update_ms=value.last_update_ms,
        client_txn_version=value.client_txn_version,
        txn_epoch=value.txn_epoch,
        csn=value.csn,
        init=init,
        cause=cause_of_number(value.cause),
        prepared_ms=value.prepared_ms if value.HasField("prepared_ms") else None,
        transact_id=value.transact_id,
        member=Member(value.member_batch_id, value.member_attempt) if value.HasField("member_batch_id") else None,
    )


def _encode_sink(sink: Sink) -> bytes:
    return storage.SinkValue(
        run_id=sink.run_id,
        fenced_run_ids=sink.fenced_run_ids,
        batch_id=sink.batch_id,
        last_batch_id=sink.last_batch_id,
        last_csn=sink.last_csn,
        given_up_below=sink.given_up_below,
        txn_timeout_ms=sink.txn_timeout_ms,
        last_update_ms=sink.last_update_ms,
        committing_producer_ids=sorted(sink.committing),
    ).SerializeToString()


def _decode_sink(name: str, value: storage.SinkValue) -> Sink:
    return Sink(
        name=name,
        run_id=value.run_id,
        fenced_run_ids=tuple(value.fenced_run_ids),
        batch_id=value.batch_id,
        last_batch_id=value.last_batch_id,
        last_csn=value.last_csn,
        given_up_below=value.given_up_below,
        txn_timeout_ms=value.txn_timeout_ms,
        last_update_ms=value.last_update_ms,
        committing=frozenset(value.committing_producer_ids),
    )
