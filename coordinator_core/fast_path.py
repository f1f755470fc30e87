"""The fast path: serves calls of the common shape, a whole message at once, beside the general path.

The general path (operation, decision, joins, replay) handles every call and is the reference. The fast path takes the
most frequent calls, and leaves all unusual ones to the general path, in their order. It takes:

- a Transact of an id without an open transaction, with at most one batch per partition and the offsets of at most one
  group;
- a Produce in an id's own transaction, with at most one batch per partition;
- an EndTxn that commits an open transaction;
- an InitProducerId of an id that is new, or has no open transaction.

Clients of version 1 add partitions before they produce, by calls for the general path, and keep their epoch at the end
of a transaction. Each call has the version that it names, so one transaction may have calls of both.

All calls taken since the last `end` are of one method. The gatekeeper sees to that: it ends a run of calls at the first
of another method (`Gatekeeper._take`).

`transact`, `produce`, `commit` and `initialise` read and check by the rules of the general path. They gather, and
change no stored state. A position of a group's offsets is counted at once, because an unused one only leaves a gap.
`end` replays and stages what was gathered, all of it or nothing. It makes one record per transaction and one per
partition. If five transactions wrote to one partition, the general path makes five records of that partition. The
stored rows are the same.

Some rules of the general path are repeated here instead of called, to save a call in each commit. `_commit` repeats
`judge_end`, `TransactionShard.init_at_once` the conditions of `decide_init`, and `Outcomes.commit_in_one_step` the
three steps of a Transact. Tests hold each to its rule (`tests/fast_path`,
`tests/transactions/test_commit_in_one_step.py`).

The arguments are columns, plain values that any front can make, and not protobuf messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeVar

from coordinator_core.fast_batches import (
    CALL_BYTES,
    ID_BYTES,
    PART_BYTES,
    FastBatch,
    FastName,
    Target,
    admits_at_once,
    may_append_and_end,
    size_bytes_of,
)
from coordinator_protocol.batch import HEADER_BYTES
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_protocol.names import check_transactional_id
from coordinator_runtime.decision import (
    Decision,
    Effect,
    NotCommon,
    Record,
    ShardKey,
    ShardRouter,
    TransactionInTheWay,
    Turn,
)
from coordinator_runtime.participants import GroupParticipant
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    GroupOffsets,
    Membership,
    OutcomeNumber,
    PartitionRef,
    Permission,
    ResourceType,
    require,
)
from coordinator_runtime.runtime import Runtime
from group_coordinator.committed.offsets import Offsets
from group_coordinator.committed.state import OffsetCommitted
from group_coordinator.committed.transacted import TransactedGroups
from group_coordinator.shard import GroupShard
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import PlacedPartition
from partition_log.requests import ProduceResult
from partition_log.rules import appending, marking
from partition_log.rules.marking import MarkerVerdict
from partition_log.transacted import in_transaction
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.outcomes import Ended
from txn_coordinator.records import CsnGiven, ProducerIdGiven, TransactionChanged, TransactionRanThrough
from txn_coordinator.rules.adding import Additions, verify
from txn_coordinator.rules.ending import Ending
from txn_coordinator.rules.initialising import InitRequest
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Identity, Transaction, TransactionState

TakenT = TypeVar("TakenT")

# Module-level alias: enum attribute lookup is slow on CPython 3.11.
_APPEND_MARKER: Final = MarkerVerdict.APPEND

CLIENT_TXN_VERSION: Final = 2
"""Version from which a client sends Transact, adds partitions by Produce, and gets a new epoch with each outcome."""

Taken = tuple[Transaction, list[tuple[PartitionRef, int]]]
"""State of an id after its transaction, and the transaction's first offset in each partition, in the order of the
batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathParts:
    """Parts of the core that the fast path uses."""

    runtime: Runtime
    catalog: CatalogShard
    counters: CountersShard
    transaction_router: ShardRouter
    """Finds the shards of transactional ids."""
    authorizer: Authorizer
    checks: BatchChecks
    groups: TransactedGroups
    group_markers: GroupParticipant


class SilentAuthorizer:
    """Asks an authorizer but reports no refusal to it. The general path asks again, and reports it."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.is_allowed = authorizer.is_allowed

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None: ...


class FastPath:
    """Takes the calls of one message in order. No other code may write between the first call taken and `end`."""

    def __init__(self, parts: FastPathParts) -> None:
        self._parts = parts
        self._served = parts.runtime.table.served
        self.take_back()

    def take_back(self) -> None:
        """Discard everything gathered since the last `end`."""
        self._context: CallContext | None = None
        """Context of the first call. All others have the same caller."""
        self._turn = Turn(0)
        self._csn: int | None = None
        """Last csn that was given; None if none was needed so far."""
        self._csns_given = 0
        self._producer_ids: Iterator[int] | None = None
        """Rest of the block of producer ids; None if none was needed so far."""
        self._producer_ids_given: list[int] = []
        self._bytes_left = 0
        self._names: set[str] = set()
        """Transactional ids of the gathered calls."""
        self._records: list[Record] = []
        self._events: list[object] = []
        self._effects: list[tuple[Effect, ShardKey]] = []
        self._targets: dict[FastName, Target] = {}
        """Targets by the name that requests use for the partition."""
        self._target_of: dict[int, Target] = {}
        """Targets by ordinal, because a partition may be named in two ways."""
        self._offsets: list[Decision] = []
        self._settled_groups: set[str] = set()
        """Groups whose pending offsets were decided on."""

    def transact(
        self,
        transactional_id: str,
        identity: tuple[int, int],
        batches: Sequence[FastBatch],
        groups: Sequence[GroupOffsets],
        context: CallContext,
    ) -> Taken | None:
        """Commit a transaction that brings its batches and offsets. The reply may be sent once the `end` of the message
        is settled. Returns None, and changes nothing, if the call is not of the common shape."""
        return self._take(partial(self._transact, transactional_id, identity, batches, groups, context))

    def produce(
        self, transactional_id: str, batches: Sequence[FastBatch], context: CallContext
    ) -> list[ProduceResult] | None:
        """Append batches to the open transaction of an id, which a client of version 2 may open so. Otherwise as
        `transact`."""
        return self._take(partial(self._produce, transactional_id, batches, context))

    def commit(
        self,
        transactional_id: str,
        identity: tuple[int, int],
        last_sequences: Sequence[tuple[FastName, int]],
        context: CallContext,
    ) -> Ended | None:
        """Commit the open transaction of an id, if the log holds the last sequences that the client names. Otherwise as
        `transact`."""
        return self._take(partial(self._commit, transactional_id, identity, last_sequences, context))

    def initialise(self, transactional_id: str, timeout_ms: int, context: CallContext) -> Identity | None:
        """Return a new identity for an id whose caller names no older identity and keeps no open transaction. Otherwise
        as `transact`."""
        return self._take(partial(self._initialise, transactional_id, timeout_ms, context))

    def _take(self, take: Callable[[], TakenT]) -> TakenT | None:
        try:
            return take()
        except (Refused, NotCommon):
            # The general path refuses the same call, and replies once the state behind the refusal is durable.
            if not self._names:
                # The general path runs next, and what was looked up would be stale after it.
                self.take_back()
            return None

    def end(self) -> Pending[None]:
        """Stage everything gathered since the last `end`. The reply comes when it is durable.

        Errors: UnknownOutcome. Any exception raised is a defect of ours; nothing is staged then.
        """
        records, events = self._records, self._events
        assert self._context is not None, "nothing was taken"
        if self._csn is not None and self._csns_given:
            records.append(Record(COUNTERS, CsnGiven(self._csn, self._csns_given)))
        if self._producer_ids_given:
            given = ProducerIdGiven(self._producer_ids_given[-1], len(self._producer_ids_given))
            records.append(Record(COUNTERS, given))
        for placed, draft in self._target_of.values():
            if draft.rows:
                appended, grew = draft.record()
                records.append(Record(placed.shard, appended))
                events.append(grew)
        for decision in self._offsets:
            records += decision.records
            events += decision.events
        try:
            return self._parts.runtime.write_decided(records, events, self._turn, self._effects)
        finally:
            self.take_back()

    def _transact(
        self,
        name: str,
        identity: tuple[int, int],
        batches: Sequence[FastBatch],
        groups: Sequence[GroupOffsets],
        context: CallContext,
    ) -> Taken:
        if len(groups) > 1 or not context.request_id or context.client_txn_version < CLIENT_TXN_VERSION:
            raise NotCommon
        size_bytes = size_bytes_of(name, batches, groups)
        targets, ordinals, shard, current = self._look_up(name, batches, size_bytes, context)
        participants = tuple(sorted(ordinals)), tuple([group.group_id for group in groups])
        csn, now_ms = self._next_csn(), self._turn.now_ms
        ran, marker = shard.outcomes.commit_in_one_step(
            current, identity, context.request_id, participants, csn=csn, now_ms=now_ms
        )
        check, checked = self._parts.checks.take, []
        for (placed, draft), (_name, header, payload, crc) in zip(targets, batches, strict=True):
            if (header.producer_id, header.producer_epoch) != identity or not header.is_transactional:
                # A batch of a Transact may leave its producer to the request.
                header = in_transaction(header, *identity)
            # Negative for no limit (FOR_EVER).
            limit_ms = placed.timestamp_after_max_ms
            if not may_append_and_end(draft, header, marker) or 0 <= limit_ms < header.max_timestamp_ms - now_ms:
                raise NotCommon
            if HEADER_BYTES + len(payload) > placed.batch_bytes_max:
                raise NotCommon
            offsetless, _none = check(
                header,
                payload,
                crc=crc,
                validates_payload=placed.validates_payload,
                may_wait=False,
                needs_keys=placed.needs_keys,
            )
            checked.append((header, offsetless))
        if groups:
            self._settle(ran, marker, groups, context)
        # From here on nothing can refuse the call.
        self._csn, self._csns_given = csn, self._csns_given + 1
        self._bytes_left -= size_bytes
        self._names.add(name)
        self._records.append(Record(shard.key, ran, ran.transaction.cause))
        self._events.append(ran)
        return ran.transaction, [
            (placed.ref, draft.append_and_end(header, offsetless, marker))
            for (placed, draft), (header, offsetless) in zip(targets, checked, strict=True)
        ]

    def _produce(self, name: str, batches: Sequence[FastBatch], context: CallContext) -> list[ProduceResult]:
        size_bytes = size_bytes_of(name, batches)
        targets, ordinals, shard, current = self._look_up(name, batches, size_bytes, context)
        identity, check, checked = current.client_identity, self._parts.checks.take, []
        is_admitted, now_ms = True, self._turn.now_ms
        for (placed, draft), (_name, header, payload, crc) in zip(targets, batches, strict=True):
            if (header.producer_id, header.producer_epoch) != identity or not header.is_transactional:
                # A Produce names its producer in its batches alone. The general path judges any other producer.
                raise NotCommon
            # The limit is negative for no limit (FOR_EVER).
            admits, limit_ms = admits_at_once(draft, header), placed.timestamp_after_max_ms
            if admits is None or 0 <= limit_ms < header.max_timestamp_ms - now_ms:
                raise NotCommon
            if HEADER_BYTES + len(payload) > placed.batch_bytes_max:
                raise NotCommon
            is_admitted = is_admitted and admits
            offsetless, _none = check(
                header,
                payload,
                crc=crc,
                validates_payload=placed.validates_payload,
                may_wait=False,
                needs_keys=placed.needs_keys,
            )
            checked.append((header, offsetless))
        if not is_admitted and context.client_txn_version >= CLIENT_TXN_VERSION:
            additions, version = Additions(partitions=frozenset(ordinals)), context.client_txn_version
            added = shard.decide_add(name, identity, additions, self._turn, client_txn_version=version)
            self._records += added.records
            self._events += added.events
            self._effects += zip(added.effects, repeat(shard.key))
        elif not is_admitted and len(verify(current, identity, frozenset(ordinals))) < len(ordinals):
            raise NotCommon
        self._bytes_left -= size_bytes
        self._names.add(name)
        results = []
        for (placed, draft), (header, offsetless) in zip(targets, checked, strict=True):
            offset = draft.append(header, offsetless, shard.key.number)
            results.append(ProduceResult(placed.name, offset, draft.head.log_start_offset))
        return results

    def _commit(
        self,
        name: str,
        identity: tuple[int, int],
        last_sequences: Sequence[tuple[FastName, int]],
        context: CallContext,
    ) -> Ended:
        shard, current = self._find(name)
        # These conditions repeat `judge_end`, which answers DECIDE to clients of both versions whenever all of them
        # hold. Keep the two together: a commit that `judge_end` newly refuses must be NotCommon here.
        if current.state is not TransactionState.ONGOING or current.client_identity != identity:
            raise NotCommon
        if current.shares:
            # Acknowledged records are settled by the general path alone.
            raise NotCommon
        size_bytes = CALL_BYTES + ID_BYTES * len(name) + PART_BYTES * len(current.partitions)
        self._check_common(name, size_bytes, context)
        for called, sequence in last_sequences:
            placed = self._parts.catalog.find(*called)
            if placed is None or placed.ref.ordinal not in current.partitions or sequence < 0:
                raise NotCommon
            require(self._parts.authorizer, context, Permission.DESCRIBE, ResourceType.TOPIC, placed.ref.topic)
            entry = self._target(placed)[1].entry(current.producer_id)
            producer_id, producer_epoch = current.producer_id, current.producer_epoch
            appending.check_last_sequence(
                entry, producer_id=producer_id, producer_epoch=producer_epoch, last_sequence=sequence
            )
        csn = self._next_csn()
        bumps_epoch = context.client_txn_version >= CLIENT_TXN_VERSION
        ending = Ending(Outcome.COMMIT, bumps_epoch=bumps_epoch, cause="client", csn=csn)
        decision, marker = shard.outcomes.end_at_once(current, ending, self._turn)
        drafts = []
        for ordinal in current.partitions:
            placed = self._parts.catalog.placed(ordinal)
            if placed is None:
                raise NotCommon
            _placed, draft = self._target(placed)
            entry, forgotten = draft.entry(marker.producer_id), draft.head.forgotten
            if marking.judge_marker(entry, marker, forgotten=forgotten) is not _APPEND_MARKER:
                raise NotCommon
            drafts.append(draft)
        settled = []
        for group in current.groups:
            ended, settled_bytes = self._settle_pending(group, marker)
            settled.append(ended)
            size_bytes += settled_bytes
        if size_bytes > self._bytes_left:
            raise NotCommon
        # From here on nothing can refuse the call.
        for draft in drafts:
            draft.end(marker)
        self._csn, self._csns_given = csn, self._csns_given + 1
        self._bytes_left -= size_bytes
        self._names.add(name)
        self._settled_groups |= current.groups
        self._offsets += settled
        self._records += decision.records
        self._events += decision.events
        self._effects += zip(decision.effects, repeat(shard.key))
        reply: Ended = decision.reply
        return reply

    def _initialise(self, name: str, timeout_ms: int, context: CallContext) -> Identity:
        check_transactional_id(name)
        request = InitRequest(
            transactional_id=name,
            txn_timeout_ms=timeout_ms,
            request_id=context.request_id,
            client_txn_version=context.client_txn_version,
        )
        size_bytes = size_bytes_of(name)
        self._check_common(name, size_bytes, context)
        key = self._parts.transaction_router.shard_key(name)
        shard: Any = self._served.get(key)
        if shard is None:
            raise NotCommon
        stepped = shard.init_at_once(request, self._turn, self._allocate)
        if stepped is None:
            raise NotCommon
        initialised: Transaction = stepped.after
        self._bytes_left -= size_bytes
        self._names.add(name)
        self._records.append(Record(key, TransactionChanged(initialised), initialised.cause))
        self._events.append(stepped)
        return initialised.identity

    def _next_csn(self) -> int:
        return self._parts.counters.next_csn()[0] if self._csn is None else self._csn + 1

    def _allocate(self) -> int:
        """Return the next producer id. The caller must not refuse after this. Raises NotCommon if the block is used
        up."""
        if self._producer_ids is None:
            self._producer_ids = iter(self._parts.counters.unused_producer_ids())
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            raise NotCommon
        self._producer_ids_given.append(producer_id)
        return producer_id

    def _look_up(
        self, name: str, batches: Sequence[FastBatch], size_bytes: int, context: CallContext
    ) -> tuple[list[Target], set[int], TransactionShard, Transaction]:
        """Return the partitions of batches, their ordinals, the shard of the id and its transaction. Raises NotCommon,
        and Refused for a caller without WRITE on the id or on a topic."""
        if not batches:
            raise NotCommon
        self._check_common(name, size_bytes, context)
        targets, ordinals = [], set()
        for called, _header, _payload, _crc in batches:
            target = self._targets.get(called)
            if target is None:
                placed = self._parts.catalog.find(*called)
                if placed is None:
                    raise NotCommon
                require(self._parts.authorizer, context, Permission.WRITE, ResourceType.TOPIC, placed.ref.topic)
                target = self._targets[called] = self._target(placed)
            targets.append(target)
            ordinals.add(target[1].ordinal)
        shard, current = self._find(name)
        # A member of a sink's batch also needs the permission for its sink, which the general path checks.
        if current.member is not None or len(ordinals) < len(batches):
            raise NotCommon
        return targets, ordinals, shard, current

    def _find(self, name: str) -> tuple[TransactionShard, Transaction]:
        """Return the shard of an id and its transaction. Raises NotCommon for an unknown id, and if the shard is not
        served; Refused as `TransactionShard.acting`."""
        shard: Any = self._served.get(self._parts.transaction_router.shard_key(name))
        current: Transaction | None = None if shard is None else shard.acting(name)
        if current is None:
            raise NotCommon
        return shard, current

    def _check_common(self, name: str, size_bytes: int, context: CallContext) -> None:
        """Return only if id, caller and size are common. Raises NotCommon for an id with another call in the message or
        with parked calls, for another caller, or beyond the capacity. Raises Refused for a caller without WRITE on the
        id."""
        first = self._context or self._begin(context)
        queues = self._parts.runtime.parking.queues
        if (
            name in self._names
            or (queues and TransactionInTheWay(name) in queues)
            or context.client_id != first.client_id
            or context.host != first.host
            or context.principal != first.principal
            or size_bytes > self._bytes_left
        ):
            raise NotCommon
        require(self._parts.authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, name)

    def _begin(self, context: CallContext) -> CallContext:
        parts = self._parts
        self._context, now_ms = context, parts.runtime.clock.wall_ms()
        self._turn = Turn(now_ms, context.client_id, context.host, context.principal)
        self._bytes_left = parts.runtime.bytes_left() if parts.checks.disk.refusal is None else 0
        return context

    def _target(self, placed: PlacedPartition) -> Target:
        """Return the partition with its draft. Raises NotCommon if the partition is not served."""
        ordinal = placed.ref.ordinal
        target = self._target_of.get(ordinal)
        if target is None:
            shard: Any = self._served.get(placed.shard)
            draft = None if shard is None else shard.draft(ordinal, self._turn.now_ms)
            if draft is None:
                raise NotCommon
            target = self._target_of[ordinal] = placed, draft
        return target

    def _settle_pending(self, group: str, marker: Marker) -> tuple[Decision, int]:
        """Return the decision on the offsets that a transaction holds in a group, and an upper bound of its staged
        bytes. Raises NotCommon, Refused."""
        operation = self._parts.group_markers.group_marker(group, marker)
        shard: Any = self._served.get(operation.shard)
        # Of two commits of an offset, the newer one is only known once the first is replayed.
        if shard is None or group in self._settled_groups:
            raise NotCommon
        decision, size_bytes = operation.decide(shard, self._turn), 0
        for record in decision.records:
            changed: Any = record.value
            size_bytes += PART_BYTES + ID_BYTES * len(group)
            if isinstance(changed, OffsetCommitted):
                size_bytes += ID_BYTES * len(changed.offset.metadata)
        return decision, size_bytes

    def _settle(
        self, ran: TransactionRanThrough, marker: Marker, groups: Sequence[GroupOffsets], context: CallContext
    ) -> None:
        """Decide on the offsets, as the last step that may refuse. Raises NotCommon, Refused."""
        before = ran.before
        membership = Membership(before.transactional_id, *before.identity)
        (write,) = self._parts.groups.place(groups, membership, context)
        operation = write.hold(OutcomeNumber(marker.coordinator_shard, before.csn), marker)
        shard: Any = self._served.get(operation.shard)
        if not isinstance(shard, GroupShard) or shard.group(write.group_id) is None:
            # A new group has one `GroupCreated`. Two calls of a message would each emit it.
            raise NotCommon
        decision = operation.decide(shard, self._turn)
        if decision.joins:
            raise NotCommon
        if decision.records:
            shard.part(Offsets).take_position()
        self._offsets.append(decision)
