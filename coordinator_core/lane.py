"""The lane: calls of the common shape, a whole message at once, beside the general path.

The general path (operation, decision, joins, replay) handles everything, and is the reference. The lane takes
a Transact that commits batches to partitions, one each, and perhaps the offsets of one group, for an id that has
nothing open. Whatever is unusual in any way it leaves to the general path, in its place among the others.

`transact` reads and checks, by the rules of the general path, and changes nothing: it gathers. `end` replays and stages
what was gathered, all of it or nothing, in one record for each partition where the general path has one for each
transaction; of each transaction there is the one record that the general path has. So the rows are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from coordinator_protocol.batch import BatchHeader, OffsetlessBatch
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Decision, NotCommon, Record, ShardKey, ShardRouter, TransactionInTheWay, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    ClientBatch,
    Membership,
    OutcomeNumber,
    Permission,
    ResourceType,
    require,
)
from coordinator_runtime.runtime import Runtime
from group_coordinator.committed.offsets import Offsets
from group_coordinator.committed.transacted import TransactedGroups
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import PlacedPartition
from partition_log.growth import Growth
from partition_log.transacted import in_transaction
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.outcomes import Ended, Run
from txn_coordinator.records import CsnGiven, TransactionChanged
from txn_coordinator.requests import Transact
from txn_coordinator.rules.adding import Additions
from txn_coordinator.rules.transacting import TransactRequest
from txn_coordinator.service import TransactResult

_COMMIT: Final = Outcome.COMMIT
_WRITE: Final = Permission.WRITE
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

CLIENT_TXN_VERSION: Final = 2
"""Clients of version 1 send no Transact."""

_CALL_BYTES: Final = 1_024
_PART_BYTES: Final = 512
"""More than a transaction stages besides ids, payloads and metadata: in all, and for each batch or offset."""
_ID_BYTES: Final = 16
"""More than a character of an id or of metadata takes in all places where it is staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneParts:
    """The parts of the core that the lane asks."""

    runtime: Runtime
    catalog: CatalogShard
    counters: CountersShard
    router: ShardRouter
    """Finds the shards of transactional ids."""
    authorizer: Authorizer
    checks: BatchChecks
    groups: TransactedGroups


class SilentAuthorizer:
    """Asks an authorizer, and tells it of no refusal: the general path asks again, and does."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.is_allowed = authorizer.is_allowed

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None: ...


class Lane:
    """Takes calls of one message, one after the other. From the first one taken until `end` nobody else may write."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts
        self._served = parts.runtime.table.served
        self.take_back()

    def take_back(self) -> None:
        """Forget all that was taken since the last end."""
        self._turn: Turn | None = None
        self._csn = 0
        self._size_bytes = 0
        self._runs: dict[str, tuple[ShardKey, Run]] = {}
        """By transactional id."""
        self._growths: dict[int, tuple[ShardKey, Growth]] = {}
        """By ordinal."""
        self._offsets: list[Decision] = []

    def transact(self, command: Transact, context: CallContext) -> TransactResult | None:
        """The transaction has ended, with all that it brings, and the caller may hear of it once the `end` of the
        message is settled. None: it is not of the common shape, and nothing has happened."""
        try:
            return self._transact(command, context)
        except (Refused, NotCommon):
            # What is refused the general path refuses too, and says so once what that rests on is durable.
            if not self._runs:
                # What was looked up for it is out of date once the general path went on.
                self.take_back()
            return None

    def end(self) -> Pending[None]:
        """All that was taken since the last end is staged. The reply comes when it is durable.

        Errors: UnknownOutcome. Raises what is a bug of ours; then nothing is staged."""
        turn = self._turn
        assert turn is not None, "nothing was taken"
        records = [Record(COUNTERS, CsnGiven(self._csn, len(self._runs)))]
        events: list[object] = []
        for key, run in self._runs.values():
            steps = run.steps
            records.append(Record(key, TransactionChanged(steps.after, steps.decided), cause=steps.after.cause))
            events.append(steps)
        for key, growth in self._growths.values():
            if growth.rows:
                ended, grew = growth.record(turn.now_ms)
                records.append(Record(key, ended))
                events.append(grew)
        for decision in self._offsets:
            records += decision.records
            events += decision.events
        try:
            return self._parts.runtime.write_decided(records, events, turn)
        finally:
            self.take_back()

    def _transact(self, command: Transact, context: CallContext) -> TransactResult:
        size_bytes = self._check_common(command, context)
        turn = self._turn or self._begin(context)
        placed = [self._place(batch, context) for batch in command.batches]
        run = self._run_through(command, placed, context, turn)
        marker = run.marker
        taken = [self._take(*each, marker) for each in zip(command.batches, placed, strict=True)]
        if command.groups:
            self._settle(command, run, context, turn)
        # Nothing can be in the way any more.
        self._csn += 1
        self._size_bytes += size_bytes
        self._runs[command.transactional_id] = self._parts.router.shard_key(command.transactional_id), run
        first_offsets = [
            (each.ref, growth.append_and_end(header, offsetless, marker, turn.now_ms))
            for each, (growth, header, offsetless) in zip(placed, taken, strict=True)
        ]
        return TransactResult(Ended(run.steps.after.client_identity, run.steps.after.csn), first_offsets)

    def _begin(self, context: CallContext) -> Turn:
        turn = self._turn = Turn(self._parts.runtime.clock.wall_ms(), context.client_id, context.host)
        self._csn = self._parts.counters.next_csn()[0] - 1
        return turn

    def _check_common(self, command: Transact, context: CallContext) -> int:
        """How many bytes it stages at most. Raises NotCommon, Refused for a caller who may not use the id."""
        name, runtime, turn = command.transactional_id, self._parts.runtime, self._turn
        size_bytes = self._size_bytes + _CALL_BYTES + _ID_BYTES * len(name)
        for batch in command.batches:
            size_bytes += _PART_BYTES + len(batch.payload)
        for group in command.groups:
            for offset in group.offsets:
                size_bytes += _PART_BYTES + _ID_BYTES * (len(group.group_id) + len(offset.metadata))
        queues = runtime.parking.queues
        if (
            not command.batches
            or command.outcome is not _COMMIT
            or len(command.groups) > 1
            or not context.request_id
            or context.client_txn_version < CLIENT_TXN_VERSION
            or name in self._runs
            or (queues and TransactionInTheWay(name) in queues)
            or (turn is not None and (turn.client_id != context.client_id or turn.host != context.host))
            or not runtime.room_for(size_bytes)
            or self._parts.checks.disk.refusal is not None
        ):
            raise NotCommon
        require(self._parts.authorizer, context, _WRITE, _TRANSACTIONAL_ID, name)
        return size_bytes - self._size_bytes

    def _place(self, batch: ClientBatch, context: CallContext) -> PlacedPartition:
        placed = self._parts.catalog.find(*batch.name)
        if placed is None:
            raise NotCommon
        require(self._parts.authorizer, context, _WRITE, _TOPIC, placed.ref.topic)
        return placed

    def _run_through(
        self, command: Transact, placed: Sequence[PlacedPartition], context: CallContext, turn: Turn
    ) -> Run:
        ordinals = frozenset([each.ref.ordinal for each in placed])
        additions = Additions(partitions=ordinals, groups=frozenset([group.group_id for group in command.groups]))
        request = TransactRequest(
            command.transactional_id, command.identity, command.outcome, context.request_id, additions
        )
        shard: Any = self._served.get(self._parts.router.shard_key(command.transactional_id))
        if shard is None or len(ordinals) < len(placed):
            raise NotCommon
        run: Run = shard.run_through(request, csn=self._csn + 1, now_ms=turn.now_ms)
        return run

    def _take(
        self, batch: ClientBatch, placed: PlacedPartition, marker: Marker
    ) -> tuple[Growth, BatchHeader, OffsetlessBatch]:
        """A batch that can be appended, and where."""
        ordinal, checks = placed.ref.ordinal, self._parts.checks
        header = in_transaction(batch.header, marker.producer_id, marker.txn_epoch)
        growth = self._growth(ordinal, placed.shard)
        if not growth.takes(header, marker):
            raise NotCommon
        offsetless = checks.encode(header, batch.payload, crc=batch.crc)
        if placed.validates_payload and not checks.taken_here(header, batch.payload):
            raise NotCommon
        return growth, header, offsetless

    def _growth(self, ordinal: int, key: ShardKey) -> Growth:
        if ordinal in self._growths:
            return self._growths[ordinal][1]
        shard: Any = self._served.get(key)
        growth: Growth | None = None if shard is None else shard.growth(ordinal)
        if growth is None:
            raise NotCommon
        self._growths[ordinal] = key, growth
        return growth

    def _settle(self, command: Transact, run: Run, context: CallContext, turn: Turn) -> None:
        """Decide on the offsets, as the last thing that may be in the way."""
        membership = Membership(command.transactional_id, *command.identity)
        (write,) = self._parts.groups.place(command.groups, membership, context)
        marker = run.marker
        operation = write.hold_and_settle(OutcomeNumber(marker.coordinator_shard, run.steps.before.csn), marker)
        shard: Any = self._served.get(operation.shard)
        if shard is None or shard.group(write.group_id) is None:
            # A group that comes into being is told of, once.
            raise NotCommon
        decision = operation.decide(shard, turn)
        if decision.joins:
            raise NotCommon
        if decision.records:
            offsets = shard.part(Offsets)
            offsets.take_position(offsets.next_position)
        self._offsets.append(decision)
