"""Ports between packages that do not import each other, and to the outside.

The transaction coordinator must place markers in partitions and groups, and the partition log must ask whether a
partition is in a transaction. Neither imports the other: `coordinator_core.assembly` gives each the other's port.

Requests that concern several of them, in a call of their own or in a Transact, are here as frozen values. So are the
checks of permissions, which all of them use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.acls import Permission as Permission
from coordinator_protocol.acls import ResourceType as ResourceType
from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Decision, Operation


class KnownConnection(NamedTuple):
    """A connection of an authenticated caller."""

    principal: str
    connection: int | str


Connection = int | str | KnownConnection
"""Name of a caller's connection, as its transport names it."""


class CallContext(Struct, frozen=True, gc=False):
    """Identity of the caller, and its deadline."""

    principal: str = ANONYMOUS
    client_id: str = ""
    host: str = ""
    deadline_ms: int | None = None
    """Deadline on the monotonic clock (ms); None if the caller gave none."""
    request_id: bytes = b""
    """16 bytes; empty if a repetition of the request cannot be recognised."""
    client_txn_version: int = 2
    refuse_concurrent: bool = False
    method: str = ""
    """Name of the remote procedure, for metrics."""
    connection: Connection = ""
    """Connection of the call. The bytes of its answer count against the limit of that connection."""


INTERNAL: Final = CallContext(principal="server", client_id="", host="")
"""Context of operations that the server starts itself."""


class PartitionName(NamedTuple):
    """A partition as a request names it. `TopicCatalog.resolve` looks the name up."""

    topic: str
    """Name of the topic; may be empty if there is a topic id."""
    topic_id: bytes
    """16 bytes, or empty: then the name alone decides."""
    partition: int


class PartitionRef(Struct, frozen=True, gc=False):
    """An existing partition: its external names and its internal ordinal."""

    topic: str
    topic_id: bytes
    partition: int
    ordinal: int


class TopicCatalog(Protocol):
    """Names of partitions, from the live state. A topic can be used once its creation is durable, because no client
    learns of it earlier."""

    def resolve(self, topic: str, topic_id: bytes, partition: int) -> PartitionRef:
        """Return the partition of this name. Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID."""

    def by_ordinal(self, ordinal: int) -> PartitionRef | None:
        """Return the partition with this ordinal; None once the topic was deleted. Ordinals are never used again."""


class TopicShape(Struct, frozen=True):
    """The facts of a topic that the group coordinator needs."""

    topic: str
    topic_id: bytes
    partition_count: int


class TopicMetadata(Protocol):
    """All topics, from the live state. To follow changes, listen to the durable changes of the catalog's shard
    (`Runtime.on_durable_change`)."""

    def shape(self, topic: str) -> TopicShape | None:
        """Return the topic of this name; None if there is none."""

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        """Return the topic with this id; None once it was deleted."""

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics, in no order."""


class Membership(Struct, frozen=True, gc=False):
    """One transaction as a data partition sees it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class GroupVerifier(Protocol):
    """Checks that the group coordinator makes with the transaction coordinator before it keeps offsets of a
    transaction.

    They are joined into its operation, so nothing can happen in between."""

    def verify_group(
        self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]
    ) -> Operation:
        """Return an operation that refuses unless the group is in the open transaction (client version 1).

        It then does what `then` decides. `then` gets the number of the last outcome of the transactional id: a marker
        that may settle the offsets written now has a greater number."""

    def add_group(self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]) -> Operation:
        """Return an operation that adds the group to the transaction, opening it if none is open (client version 2).

        It then goes on as that of `verify_group`. It refuses as AddOffsetsToTxn does, with the data plane's codes."""


class TopicOffsets(Protocol):
    """Port of the log to the group coordinator, for deleted topics."""

    def forget_topic(self, topic_id: bytes) -> Sequence[Operation]:
        """Return operations that drop all offsets of the topic, committed or pending. Share groups then also forget
        which of its partitions have states. `share_ports.TopicShares` drops these states."""


class TransactionVerifier(Protocol):
    """Checks that the log makes with the transaction coordinator.

    They are joined into the append, so nothing can happen in between (spec log-and-runtime 1.4)."""

    def verify(self, membership: Membership, ordinal: int) -> Operation:
        """Return an operation that refuses unless the partition is in the open transaction (client version 1)."""

    def add(self, membership: Membership, ordinals: frozenset[int]) -> Operation:
        """Return an operation that adds the partitions to the transaction, opening it if none is open (client version
        2).

        It refuses as AddPartitionsToTxn does, with the data plane's codes."""

    def refuse_if_open(self, membership: Membership, ordinal: int, refusal: Refused) -> Operation:
        """Return an operation that raises the refusal if the partition is in the producer's open transaction.

        It refuses nothing else: a producer that may not write any more is not its concern."""

    def check_plain(self, producer_id: int) -> Operation:
        """Return an operation that refuses a producer id which a transactional id may have, or have had:
        INVALID_TXN_STATE.

        Used before an append outside a transaction."""

    def abort_touching(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        """Return operations that abort every open transaction with one of these partitions (cause: topic_deleted)."""


class PartitionSequences(Protocol):
    """Check that the transaction coordinator makes with the log before a commit. The partition log implements it."""

    def check_last_sequence(self, ordinal: int, producer_id: int, producer_epoch: int, last_sequence: int) -> Operation:
        """Return an operation that checks the sequence number of a producer's last record in a partition, in this
        epoch.

        It refuses with TRANSACTION_ABORTABLE if that is not `last_sequence`."""


class OutcomeNumber(NamedTuple):
    """The csn of an outcome, and the coordinator shard that assigned it. Only csns of one shard are comparable."""

    coordinator_shard: int
    csn: int


class EndIdentity(NamedTuple):
    """Identity of a transaction's end, the same in every partition: the shard that decided it, its csn there, and the
    producer."""

    coordinator_shard: int
    csn: int
    producer_id: int


class PartitionWrite(Protocol):
    """Batches of a Transact for one partition, with every check done that does not need the partition. Refusals name
    it."""

    @property
    def ordinal(self) -> int: ...

    def append(self, coordinator_shard: int, marker: Marker | None) -> Operation:
        """Return an operation that appends the batches, and after them the marker that ends the transaction, if there
        is one.

        The partition is in the transaction by then. The shard is that of the transactional id. The reply is the offset
        of the transaction's first record in the partition."""

    def first_offset(self, identity: EndIdentity) -> Operation:
        """Return an operation that finds the first offset of an ended transaction in the partition, for a repetition.

        The reply is -1 if the transaction has no records there. It is None if the partition has forgotten the producer:
        then ask `TransactedPartitions.remembered_offset`."""


class GroupWrite(Protocol):
    """Offsets that a Transact brings for one group. Refusals name the group."""

    @property
    def group_id(self) -> str: ...

    def hold(self, last: OutcomeNumber, marker: Marker | None) -> Operation:
        """Return an operation that holds the offsets until the transaction ends. The group is in the transaction by
        then.

        A marker with a greater number than `last` settles them; `marker`, if given, does so at once. No reply."""


class ShareWrite(Protocol):
    """Acknowledgements that a Transact brings for one share group. Refusals name the group."""

    @property
    def group_id(self) -> str: ...

    @property
    def shares(self) -> frozenset[tuple[str, int]]:
        """Group and ordinal of the share partitions."""

    def hold(self, last: OutcomeNumber) -> Operation:
        """Return an operation that lets the records wait for the marker of the transaction, which the share partitions
        are in by then. A marker with a greater number than `last` settles them. No reply."""


class OpenInPartition(Struct, frozen=True):
    """A transaction with records in a partition and without a marker there, as the partition knows it."""

    ordinal: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Coordinator epoch of the producer's newest marker; -1 before the first one."""
    coordinator_shard: int
    """Shard of the producer's transactional id; -1 if the partition does not know it."""
    first_offset: int
    started_ms: int
    """Wall time of the transaction's first append in the partition; 0 for acknowledgements, which keep no time."""
    group_id: str = ""
    """Share group whose records in the partition the transaction has acknowledged. Empty for a transaction with records
    of its own there."""


class OpenTransactions(Protocol):
    """Questions to the log for finding hanging transactions. The partition log implements it."""

    def all_open(self) -> Iterator[OpenInPartition]:
        """Yield the open transactions of all partitions, from live state. Changes are allowed meanwhile: each partition
        is yielded as it is when its turn comes.

        Together with the live state of the transaction coordinator this is one view, as long as nothing runs in
        between."""

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        """Return an operation on the partition's shard that does what `then` decides about the open transactions of one
        partition."""


class UnfinishedTransaction(Struct, frozen=True):
    """A decided transaction that may have its marker in some of its partitions and not in others.

    Where one decision ends several transactions under one csn, each of them is unfinished until all are finished."""

    producer_id: int
    coordinator_shard: int
    csn: int
    partitions: frozenset[int] | None
    """Ordinals of the transaction's partitions; None if they are no longer known."""
    writes_once: bool = False
    """True if the producer id never has another transaction, so that a partition may forget it with its marker."""


class UnfinishedTransactions(Protocol):
    """Question of a snapshot about decided transactions. The transaction coordinator implements it."""

    def unfinished(self) -> Sequence[UnfinishedTransaction]:
        """Return every decided transaction of which durable state may show only a part at this moment.

        Raises Refused if that is not known of all transactions: COORDINATOR_LOAD_IN_PROGRESS, KAFKA_STORAGE_ERROR."""


class OffsetLeases(Protocol):
    """Old records that readers still need, so that they are not removed."""

    def oldest(self, ordinal: int) -> int | None:
        """Return the first offset of a partition that a lease holds, from live state; None if no lease holds any."""

    def note_due(self, ordinal: int, offset: int) -> None:
        """Note that the log of a partition should begin at this offset: leases taken from now on hold nothing before
        it."""


class NoLeases:
    """Leases of a server on which nothing is ever held."""

    def oldest(self, ordinal: int) -> int | None:
        return None

    def note_due(self, ordinal: int, offset: int) -> None:
        """Do nothing: there are no leases to limit."""


NO_LEASES: Final = NoLeases()


class MarkerGuard(Protocol):
    """Check that the log makes before it takes a marker from outside. The transaction coordinator implements it."""

    def check(self, ordinal: int, marker: Marker) -> Operation:
        """Return an operation that refuses a marker which contradicts the state of this server.

        INVALID_TXN_STATE: a transactional id of this server owns the producer id and did not decide exactly this
        outcome. INVALID_REQUEST: the producer id or the csn was never assigned."""


class Authorizer(Protocol):
    """Decides on the permissions of callers. Services ask it (`require`), so that no front can bypass it."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool: ...

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Called for each denial returned to the caller. Items filtered from a list do not count."""


COUNTED_BYTES_MIN: Final = 4_096
"""Size below which answers are not counted, nor refused because the limit is reached. Noting when each was read would
cost more than they do. Their number is bounded by the streams of a connection."""


class AnswerLimit(Protocol):
    """Limits of the bytes of answers that wait to be read: for each connection, for each authenticated principal, and
    in total."""

    is_scarce: bool
    """True if answers must be shorter than their callers want; otherwise `allowance_bytes` need not be asked."""

    def check(self, connection: Connection) -> None:
        """Return only if a large answer may be made for the connection. Raises Refused THROTTLING_QUOTA_EXCEEDED."""

    def allowance_bytes(self, connection: Connection) -> int:
        """Return the size that the next answer for the connection should not exceed, if its size can be chosen."""

    def check_answer(self, size_bytes: int) -> None:
        """Return only if an answer of this size is within the total limit. Raises Refused THROTTLING_QUOTA_EXCEEDED."""

    def hold(self, connection: Connection, size_bytes: int) -> None:
        """Count bytes that wait for the connection. `release` must follow."""

    def release(self, connection: Connection, size_bytes: int) -> None:
        """Take bytes off the count of the connection, because they need no memory any more."""


class Level(StrEnum):
    """Things that one principal may hold only a limited number of at a time."""

    CONNECTIONS = "connections"
    SESSIONS = "sessions"
    CALLS = "calls"
    """Calls that wait for their answer, except for those of the next two kinds."""
    LONG_POLLS = "long_polls"
    """Calls that wait for records."""
    GROUP_WAITS = "group_waits"
    """Calls that wait for other members of a group, or for its news."""
    OPEN_TRANSACTIONS = "open_transactions"
    TRANSACTIONAL_IDS = "transactional_ids"
    SNAPSHOTS = "snapshots"
    TOPICS = "topics"


class Levels(Protocol):
    """Number of things that each principal holds, and its limits."""

    def check(self, level: Level, principal: str, held: Callable[[], int] | None = None) -> None:
        """Return only if the principal may hold one more. Raises Refused THROTTLING_QUOTA_EXCEEDED.

        `held` returns the number that it holds, for levels that `add` does not count."""

    def add(self, level: Level, principal: str, more: int = 1) -> None:
        """Add `more`, which may be negative, to the number that the principal holds."""


_BOUNDLESS_BYTES: Final = 1 << 62


class NoAnswerLimit:
    """Implements `AnswerLimit` without a limit, for callers that do not use a network."""

    is_scarce: bool = False

    def check(self, connection: Connection) -> None: ...

    def allowance_bytes(self, connection: Connection) -> int:
        return _BOUNDLESS_BYTES

    def check_answer(self, size_bytes: int) -> None: ...

    def hold(self, connection: Connection, size_bytes: int) -> None: ...

    def release(self, connection: Connection, size_bytes: int) -> None: ...


NO_ANSWER_LIMIT: Final = NoAnswerLimit()


_CODES: Final = {
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def require(
    authorizer: Authorizer, context: CallContext, permission: Permission, resource: ResourceType, name: str
) -> None:
    """Return only if the caller has the permission. Raises Refused with the resource's authorization code."""
    if not authorizer.is_allowed(context, permission, resource, name):
        raise denial(authorizer, context, permission, resource, name)


def denial(
    authorizer: Authorizer, context: CallContext, permission: Permission, resource: ResourceType, name: str
) -> Refused:
    """Return the refusal of a caller that lacks the permission. It repeats only what the caller sent."""
    authorizer.on_refused(context, permission, resource, name)
    return Refused(
        _CODES[resource],
        f"{context.principal} may not {permission.value} {resource.value} {name!a}; ask for that permission",
    )


def require_by_id(
    authorizer: Authorizer, context: CallContext, permission: Permission, topic: str, topic_id: bytes
) -> None:
    """Return only if the caller has the permission for a topic that was found by its id. Raises Refused.

    A caller that may not even describe the topic gets the refusal of an unknown id, and does not learn the topic's
    name."""
    if authorizer.is_allowed(context, permission, ResourceType.TOPIC, topic):
        return
    if authorizer.is_allowed(context, Permission.DESCRIBE, ResourceType.TOPIC, topic):
        raise denial(authorizer, context, permission, ResourceType.TOPIC, topic)
    authorizer.on_refused(context, permission, ResourceType.TOPIC, topic)
    raise unknown_topic_id(topic_id)


def unknown_topic_id(topic_id: bytes) -> Refused:
    """Return the refusal of a topic id that no topic has."""
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"there is no topic with the id {topic_id.hex()}: it was deleted; look it up by name",
    )


class AllowAll:
    """Authorizer that allows every caller everything, for a server without access control."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return True

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None: ...


ALLOW_ALL: Final = AllowAll()


class ClientBatch(Struct, frozen=True):
    """One batch of records for one partition, as a client sent it: by Produce, or in a Transact."""

    name: PartitionName
    header: BatchHeader | Refused
    """Header of the batch; the refusal if the batch cannot be understood at all."""
    payload: bytes
    crc: int | None
    """Checksum that the client computed; None if it left that to the server."""


class Committer(Struct, frozen=True):
    """The member that a request about offsets claims to come from, or the claim of no member."""

    member_id: str = ""
    generation_or_epoch: int = -1
    """Generation of a classic member, epoch of a consumer member; -1 if not a member."""
    instance_id: str | None = None


class NamedOffset(Struct, frozen=True):
    """One offset to be committed, as the request gives it."""

    name: PartitionName
    committed_offset: int
    leader_epoch: int | None
    metadata: str


class GroupAcknowledgements(Struct, frozen=True):
    """Acknowledgements of records of one share group."""

    group_id: str
    committer: Committer
    partitions: tuple[tuple[PartitionName, tuple[tuple[int, int, Sequence[int]], ...]], ...]
    """Partitions, each with first offset, last offset and types of its batches."""


class GroupOffsets(Struct, frozen=True):
    """Offsets for one group."""

    group_id: str
    committer: Committer
    offsets: tuple[NamedOffset, ...]
