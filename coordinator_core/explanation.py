"""Reasons that keep committed readers from the end of a partition. Only log and transaction coordinator together know
them.

`explain` is the rule: it turns the knowledge of both, and the rights of the caller, into the answer. Both parts are
durable state, read in one turn of the loop, so no transaction ends between two lookups.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.next_event import NextEvent
from coordinator_runtime.decision import CATALOG_KEY, once_durable
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, PartitionName, PartitionRef, Permission, ResourceType
from coordinator_runtime.runtime import Runtime
from partition_log.requests import PartitionStanding
from partition_log.service import LogService
from partition_log.state import PartitionHead
from txn_coordinator.hanging import HangingReason, ProducerOwners, judge
from txn_coordinator.history import check_history_limit
from txn_coordinator.reading import TransactionReader
from txn_coordinator.requests import Description
from txn_coordinator.state import DECIDED, Identity, Transaction


class ExplainPartition(Struct, frozen=True):
    """ExplainPartition as the edge hands it in."""

    partition: PartitionName
    history_limit: int = 0
    """Number of most recent steps to return of the id that owns the transaction."""


class View(Struct, frozen=True, kw_only=True):
    """Knowledge about a partition at one moment, and the part of it that the caller may see."""

    standing: PartitionStanding
    owner: Transaction | Refused | None = None
    """Transactional id that has the producer id of the oldest open transaction. A Refused says why the owner is
    unknown. None means that no id has it, or that nothing is open."""
    may_read_topic: bool = True
    may_describe_owner: bool = True
    now_ms: int


class Blocking(Struct, frozen=True, kw_only=True):
    """The oldest open transaction of a partition, as far as the caller may see it."""

    start_offset: int
    """Offset of its first record here."""
    start_ms: int
    age_ms: int
    identity: Identity | None
    """Identity under which its records were written; None if the caller may not read the topic."""
    owner: Transaction | None = None
    """Transactional id that will end it; None if there is none, if it is unknown, or if the caller may not describe
    it."""
    description: Description | None = None
    """Description of the owner, if the caller may see it."""
    is_owner_hidden: bool = False
    """True if an id has the producer id and the caller may not describe that id."""
    time_left_ms: int | None = None
    """Time until the server aborts it (ms); None if the server will not abort it."""
    hanging_reason: HangingReason | None = None
    transactional_id: str = ""
    """For a hanging transaction: the id that currently has its producer id; empty if none has, or if it is hidden."""
    owner_unknown_reason: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Position of the committed readers of a partition, and the transaction that blocks them."""

    ref: PartitionRef
    head: PartitionHead
    next_event: NextEvent
    blocking: Blocking | None = None


def explain(view: View) -> Explanation:
    """Return the explanation for a view. A visible owner is still to be described."""
    standing, owner = view.standing, view.owner
    ref, head, opened = standing.ref, standing.head, standing.oldest_open
    if opened is None:
        return Explanation(ref=ref, head=head, next_event=NextEvent.NOTHING_IN_THE_WAY)
    shown = owner if isinstance(owner, Transaction) and view.may_describe_owner else None
    blocking = Blocking(
        start_offset=opened.first_offset,
        start_ms=opened.started_ms,
        age_ms=max(0, view.now_ms - opened.started_ms),
        identity=Identity(opened.producer_id, opened.producer_epoch) if view.may_read_topic else None,
        is_owner_hidden=isinstance(owner, Transaction) and not view.may_describe_owner,
    )
    if isinstance(owner, Refused):
        next_event, blocking = NextEvent.OWNER_UNKNOWN, replace(blocking, owner_unknown_reason=owner.message)
    elif (hanging := judge(opened, owner)) is not None:
        transactional_id = "" if shown is None else shown.transactional_id
        next_event = NextEvent.HANGING
        blocking = replace(blocking, hanging_reason=hanging.reason, transactional_id=transactional_id)
    else:
        assert owner is not None, "a transaction without an owner hangs"
        next_event, blocking = _next_event(owner), replace(blocking, owner=shown)
        if next_event is NextEvent.CLIENT_OR_TIMEOUT:
            left_ms = owner.start_ms + owner.txn_timeout_ms - view.now_ms
            blocking = replace(blocking, time_left_ms=max(0, left_ms))
    return Explanation(ref=ref, head=head, next_event=next_event, blocking=blocking)


def _next_event(owner: Transaction) -> NextEvent:
    if owner.state in DECIDED:
        return NextEvent.MARKER_BEING_WRITTEN
    return NextEvent.OUTSIDE_DECISION if owner.never_times_out else NextEvent.CLIENT_OR_TIMEOUT


class PartitionExplainer:
    """The use case: gathers the input of `explain`, and describes the owner."""

    def __init__(
        self,
        runtime: Runtime,
        log: LogService,
        owners: ProducerOwners,
        reader: TransactionReader,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._owners = owners
        self._reader = reader
        self._authorizer = authorizer

    def explain_partition(self, command: ExplainPartition, context: CallContext) -> Pending[Explanation]:
        """Explain why committed readers of a partition do not advance. The caller needs DESCRIBE on the topic. It needs
        READ on the topic to see the producer, and DESCRIBE on the transactional id to see the owner.

        Raises Refused INVALID_REQUEST for an invalid partition name, and for a history that is too long. Refused:
        TOPIC_AUTHORIZATION_FAILED, and if there is no such partition or its shard does not serve.
        """
        check_history_limit(command.history_limit)
        standing = self._log.standing(command.partition, context)
        if isinstance(standing, Refused):
            # The refusal may rest on a change of the catalog that is not durable yet.
            return self._runtime.write(once_durable(CATALOG_KEY, standing), is_urgent=True)
        explanation = explain(self._view(standing, context))
        blocking = explanation.blocking
        if blocking is None or blocking.owner is None:
            return settled(explanation)
        described = self._reader.describe_as_seen(blocking.owner, context, history_limit=command.history_limit)
        return described.map(
            lambda description: replace(explanation, blocking=replace(blocking, description=description))
        )

    def _view(self, standing: PartitionStanding, context: CallContext) -> View:
        may, now_ms = self._authorizer.is_allowed, self._runtime.clock.wall_ms()
        may_read_topic = may(context, Permission.READ, ResourceType.TOPIC, standing.ref.topic)
        opened = standing.oldest_open
        if opened is None:
            return View(standing=standing, may_read_topic=may_read_topic, now_ms=now_ms)
        owner: Transaction | Refused | None
        try:
            owner = self._owners.durable_owner_of(opened.producer_id)
        except Refused as refusal:
            owner = refusal
        may_describe_owner = not isinstance(owner, Transaction) or may(
            context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, coordinator_key(owner.transactional_id)
        )
        return View(
            standing=standing,
            owner=owner,
            may_read_topic=may_read_topic,
            may_describe_owner=may_describe_owner,
            now_ms=now_ms,
        )
