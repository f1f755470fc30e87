"""Where siblings meet without knowing each other, and where the world comes in.

The transaction coordinator must place markers in partitions and groups, the partition log must ask whether a partition
is in a transaction. Neither imports the other: `coordinator_core.assembly` hands each the other's port.

What clients send to more than one of them, by a call of its own or in a Transact, is here as frozen values; so is the
question whether a caller may do it, which all of them ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """A connection of a caller who was asked who it is."""

    principal: str
    connection: int | str


Connection = int | str | KnownConnection
"""Names a connection of a caller, in the words of its transport."""


class CallContext(Struct, frozen=True, gc=False):
    """Who calls, and how long the answer is wanted."""

    principal: str = ANONYMOUS
    client_id: str = ""
    host: str = ""
    deadline_ms: int | None = None
    """Monotonic milliseconds; None = no deadline was given."""
    request_id: bytes = b""
    """16 bytes, or empty when the request cannot be recognised again."""
    client_txn_version: int = 2
    refuse_concurrent: bool = False
    method: str = ""
    """Name of the remote procedure, for whoever counts."""
    connection: Connection = ""
    """What the call came by: its answer takes room there."""


INTERNAL: Final = CallContext(principal="server", client_id="", host="")
"""The context of operations that the server starts itself."""


class PartitionName(NamedTuple):
    """A partition as a request names it. What a name stands for, the catalog says (`TopicCatalog.resolve`)."""

    topic: str
    """May be empty when there is a topic id."""
    topic_id: bytes
    """16 bytes, or empty: then the name alone decides."""
    partition: int


class PartitionRef(Struct, frozen=True, gc=False):
    """A partition that exists: its names outside and its ordinal inside."""

    topic: str
    topic_id: bytes
    partition: int
    ordinal: int


class TopicCatalog(Protocol):
    """Names of partitions, from the live state (a topic is usable once its creation is durable, because nobody learned
    of it earlier)."""

    def resolve(self, topic: str, topic_id: bytes, partition: int) -> PartitionRef:
        """Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID."""

    def by_ordinal(self, ordinal: int) -> PartitionRef | None:
        """None once the topic was deleted; ordinals are never used again."""


class TopicShape(Struct, frozen=True):
    """What the group coordinator must know of a topic."""

    topic: str
    topic_id: bytes
    partition_count: int


class TopicMetadata(Protocol):
    """The topics there are, from the live state. Whoever wants to hear of changes listens to the durable changes of the
    catalog's shard (`Runtime.on_durable_change`)."""

    def shape(self, topic: str) -> TopicShape | None:
        """None if there is no topic of this name."""

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        """None once the topic was deleted."""

    def topic_names(self) -> Iterable[str]:
        """The names of all topics, in no order."""


class MarkerPort(Protocol):
    """Places a transaction's end into a participant. `coordinator_core.assembly` makes it of the halves of the
    partition log and of the group coordinator (`GroupParticipant`)."""

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        """Ends the transaction in a partition. Idempotent by csn; success for a deleted partition."""

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        """Lets the producer's open transaction take no more records in a partition: it awaits somebody else's decision.
        Idempotent; success for a deleted partition and for one without records of the transaction."""

    def group_marker(self, group: str, marker: Marker) -> Operation:
        """Settles the transaction's pending offsets of a group. Idempotent by csn."""


class GroupParticipant(Protocol):
    """The group coordinator's half of the marker port."""

    def group_marker(self, group: str, marker: Marker) -> Operation: ...


class Membership(Struct, frozen=True, gc=False):
    """One transaction as a data partition sees it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class GroupVerifier(Protocol):
    """What the group coordinator asks the transaction coordinator before it keeps offsets of a transaction. Joined into
    that operation, so nothing can happen in between."""

    def verify_group(
        self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]
    ) -> Operation:
        """Refuses unless the group is in the open transaction (client version 1). Goes on with what `then` decides,
        which is told the number of the last outcome of the transactional id: a marker that may settle what is written
        now has a greater one."""

    def add_group(self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]) -> Operation:
        """Adds the group to the transaction, opening it if none is open (client version 2), and goes on the same way.
        Refuses as AddOffsetsToTxn does, with the data plane's codes."""


class TopicOffsets(Protocol):
    """The port of the log to the group coordinator, for topics that are deleted."""

    def forget_topic(self, topic_id: bytes) -> Sequence[Operation]:
        """Operations that drop every offset of the topic, committed or pending, in all groups."""


class TransactionVerifier(Protocol):
    """What the log asks the transaction coordinator. Joined into the append, so nothing can happen in between
    (spec log-and-runtime 1.4)."""

    def verify(self, membership: Membership, ordinal: int) -> Operation:
        """Refuses unless the partition is in the open transaction (client version 1)."""

    def add(self, membership: Membership, ordinals: frozenset[int]) -> Operation:
        """Adds the partitions to the transaction, opening it if none is open (client version 2). Refuses as
        AddPartitionsToTxn does, with the data plane's codes."""

    def check_plain(self, producer_id: int) -> Operation:
        """Refuses a producer id that may have been given to a transactional id, whatever has become of that since:
        INVALID_TXN_STATE. Asked before it appends outside a transaction."""

    def abort_touching(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        """Operations that abort every open transaction with one of these partitions (cause: topic_deleted)."""


class PartitionSequences(Protocol):
    """What the transaction coordinator asks the log before a commit. The partition log implements it."""

    def check_last_sequence(self, ordinal: int, producer_id: int, producer_epoch: int, last_sequence: int) -> Operation:
        """Refuses with TRANSACTION_ABORTABLE unless the last record that this producer appended to the partition in
        this epoch has this sequence number."""


class OutcomeNumber(NamedTuple):
    """The csn of an outcome, and the coordinator shard that gave it: only within one shard are two compared."""

    coordinator_shard: int
    csn: int


class EndIdentity(NamedTuple):
    """What the end of one transaction is known by, in every partition: its csn, among those of the shard that decided
    it, and its producer."""

    coordinator_shard: int
    csn: int
    producer_id: int


class PartitionWrite(Protocol):
    """What a Transact appends to one partition, checked as far as that goes without looking at the partition. Its
    refusals name it."""

    @property
    def ordinal(self) -> int: ...

    def append(self, coordinator_shard: int, marker: Marker | None) -> Operation:
        """Appends it, and right behind it the marker that ends the transaction, if there is one; the partition is in
        the transaction by now. The shard is that of the transactional id. The reply is the offset of the transaction's
        first record there."""

    def first_offset(self, identity: EndIdentity) -> Operation:
        """Asks, for a repetition, where the records of a transaction that has ended begin in the partition. The reply
        is -1 where it has none, and None where the partition has forgotten the producer: then
        `TransactedPartitions.remembered_offset` knows."""


class GroupWrite(Protocol):
    """Offsets that a Transact brings for one group. Its refusals name it."""

    @property
    def group_id(self) -> str: ...

    def hold(self, last: OutcomeNumber, marker: Marker | None) -> Operation:
        """Hold the offsets until the transaction ends, in which the group is by now: a marker with a greater number
        than this settles them, this one at once if there is one. No reply."""


class OpenInPartition(Struct, frozen=True):
    """A transaction with records in a partition and no marker yet, as the partition knows it."""

    ordinal: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Coordinator epoch of the producer's newest marker; -1 before its first."""
    coordinator_shard: int
    """Shard of the producer's transactional id, as far as the partition knows; -1 = it does not."""
    first_offset: int
    started_ms: int
    """Wall time of its first append there."""


class OpenTransactions(Protocol):
    """What finds hanging transactions asks the log. The partition log implements it."""

    def all_open(self) -> Sequence[OpenInPartition]:
        """The open transactions of all partitions, from live state: one view together with the live state of the
        transaction coordinator, as long as nothing runs in between."""

    def ask_open(self, ordinal: int, then: Callable[[Sequence[OpenInPartition]], Decision]) -> Operation:
        """An operation on the partition's shard that does what `then` decides about those of one partition."""


class UnfinishedTransaction(Struct, frozen=True):
    """A transaction that is decided and may have its marker in some partitions and not in others. Where one decision
    ends several transactions, under one csn, each of them is unfinished until all are finished."""

    producer_id: int
    coordinator_shard: int
    csn: int
    partitions: frozenset[int] | None
    """Ordinals of its partitions; None: it is not known any more which they were."""
    writes_once: bool = False
    """The producer id has no other transaction, ever, so a partition may forget it with its marker."""


class UnfinishedTransactions(Protocol):
    """What a snapshot asks of those that decide outcomes. The transaction coordinator implements it."""

    def unfinished(self) -> Sequence[UnfinishedTransaction]:
        """Every decided transaction that durable state may show in part, at this moment. Raises Refused where that is
        not known of all: COORDINATOR_LOAD_IN_PROGRESS, KAFKA_STORAGE_ERROR."""


class OffsetLeases(Protocol):
    """Says which old records somebody still reads, so that they are not removed."""

    def oldest(self, ordinal: int) -> int | None:
        """The first offset of a partition that somebody holds, live state; None: nobody holds any."""

    def note_due(self, ordinal: int, offset: int) -> None:
        """Somebody wants the log of a partition to begin there: who comes from now on holds nothing before it."""


class NoLeases:
    """Nobody holds anything."""

    def oldest(self, ordinal: int) -> int | None:
        return None

    def note_due(self, ordinal: int, offset: int) -> None:
        """There is nothing to be noted."""


NO_LEASES: Final = NoLeases()


class MarkerGuard(Protocol):
    """What the log asks before it takes a marker from outside. The transaction coordinator implements it."""

    def check(self, ordinal: int, marker: Marker) -> Operation:
        """Refuses a marker that contradicts what is decided or undecided here: INVALID_TXN_STATE where a transactional
        id of this server owns the producer id and did not decide just this; INVALID_REQUEST where the producer id or
        the csn was never given away."""


class Authorizer(Protocol):
    """Decides who may do what. Services ask it (`require`), so that no front can go around it."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool: ...

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Told of every refusal that the caller gets to see; what is left out of a list is none."""


COUNTED_BYTES_MIN: Final = 4_096
"""Smaller answers are not counted, nor refused for want of room: to learn when each of them was taken would cost more
than they do. How many of them may wait, the streams of a connection bound."""


class AnswerRoom(Protocol):
    """How many bytes of answers there may be that nobody has taken yet, by connection, by principal where callers are
    asked who they are, and in all."""

    is_scarce: bool
    """Whether answers have to be shorter than their callers want; else `allowance_bytes` need not be asked."""

    def check(self, connection: Connection) -> None:
        """Return only if a large answer may be made for the connection. Raises Refused THROTTLING_QUOTA_EXCEEDED."""

    def allowance_bytes(self, connection: Connection) -> int:
        """Return how large the next answer for the connection should be at most, if that can be chosen."""

    def check_answer(self, size_bytes: int) -> None:
        """Return only if there is room for an answer of this size. Raises Refused THROTTLING_QUOTA_EXCEEDED."""

    def hold(self, connection: Connection, size_bytes: int) -> None:
        """Count bytes that wait for the connection. `release` must follow."""

    def release(self, connection: Connection, size_bytes: int) -> None:
        """They need no memory any more."""


class Level(StrEnum):
    """What a principal may hold only so many of at a time."""

    CONNECTIONS = "connections"
    SESSIONS = "sessions"
    CALLS = "calls"
    """Without an answer, but for those that follow."""
    LONG_POLLS = "long_polls"
    """Calls that wait for records."""
    GROUP_WAITS = "group_waits"
    """Calls that wait for other members of a group, or for its news."""
    OPEN_TRANSACTIONS = "open_transactions"
    TRANSACTIONAL_IDS = "transactional_ids"
    SNAPSHOTS = "snapshots"
    TOPICS = "topics"


class Levels(Protocol):
    """How many each principal holds, and may hold."""

    def check(self, level: Level, principal: str, held: Callable[[], int] | None = None) -> None:
        """Return only if the principal may hold one more. `held` says how many it holds where those are not counted by
        `add`. Raises Refused THROTTLING_QUOTA_EXCEEDED."""

    def add(self, level: Level, principal: str, more: int = 1) -> None:
        """It holds so many more; fewer, if the number is negative."""


_BOUNDLESS_BYTES: Final = 1 << 62


class BoundlessRoom:
    """Room without a limit, for callers that come by no network."""

    is_scarce: bool = False

    def check(self, connection: Connection) -> None: ...

    def allowance_bytes(self, connection: Connection) -> int:
        return _BOUNDLESS_BYTES

    def check_answer(self, size_bytes: int) -> None: ...

    def hold(self, connection: Connection, size_bytes: int) -> None: ...

    def release(self, connection: Connection, size_bytes: int) -> None: ...


BOUNDLESS_ROOM: Final = BoundlessRoom()


_CODES: Final = {
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def require(
    authorizer: Authorizer, context: CallContext, permission: Permission, resource: ResourceType, name: str
) -> None:
    """Return only if the caller may do it. Raises Refused with the resource's authorization code."""
    if not authorizer.is_allowed(context, permission, resource, name):
        raise denial(authorizer, context, permission, resource, name)


def denial(
    authorizer: Authorizer, context: CallContext, permission: Permission, resource: ResourceType, name: str
) -> Refused:
    """The refusal for a caller who may not do it. It repeats only what the caller sent."""
    authorizer.on_refused(context, permission, resource, name)
    return Refused(
        _CODES[resource],
        f"{context.principal} may not {permission.value} {resource.value} {name!a}; ask for that permission",
    )


def require_by_id(
    authorizer: Authorizer, context: CallContext, permission: Permission, topic: str, topic_id: bytes
) -> None:
    """Return only if the caller may do it with a topic that was found by its id. Raises Refused: who may not even
    describe the topic is told what everybody is told of an id that no topic has, and does not learn its name."""
    if authorizer.is_allowed(context, permission, ResourceType.TOPIC, topic):
        return
    if authorizer.is_allowed(context, Permission.DESCRIBE, ResourceType.TOPIC, topic):
        raise denial(authorizer, context, permission, ResourceType.TOPIC, topic)
    authorizer.on_refused(context, permission, ResourceType.TOPIC, topic)
    raise unknown_topic_id(topic_id)


def unknown_topic_id(topic_id: bytes) -> Refused:
    """What a caller is told who names a topic by an id that none has."""
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"there is no topic with the id {topic_id.hex()}: it was deleted; look it up by name",
    )


class AllowAll:
    """Allows everybody everything: the authorizer of a server that knows nobody apart."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return True

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None: ...


ALLOW_ALL: Final = AllowAll()


class ClientBatch(Struct, frozen=True):
    """One batch of records for one partition, as a client sent it: by Produce, or in a Transact."""

    name: PartitionName
    header: BatchHeader | Refused
    """A batch that cannot be understood at all is its own refusal."""
    payload: bytes
    crc: int | None
    """What the client computed; None: it left that to us."""


class Committer(Struct, frozen=True):
    """The member, or nobody, that a request about offsets claims to come from."""

    member_id: str = ""
    generation_or_epoch: int = -1
    """Generation of a classic member, epoch of a consumer member; -1 = not a member."""
    instance_id: str | None = None


class NamedOffset(Struct, frozen=True):
    """One offset to be committed, as the request has it."""

    name: PartitionName
    committed_offset: int
    leader_epoch: int | None
    metadata: str


class GroupOffsets(Struct, frozen=True):
    """Offsets for one group."""

    group_id: str
    committer: Committer
    offsets: tuple[NamedOffset, ...]
