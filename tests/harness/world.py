"""A whole server's inside on one thread: every shard, both coordinators' services, no loop, no network, no time.

A test calls what a client would call and gets a `Pending`; nothing is durable, and so nothing is answered, until it
flushes. It may let the process crash at any moment, with any part of what was not flushed surviving, and let time pass.
The same world runs over the memory store and over RocksDB.

The world itself speaks of transactions and their records. Groups, their members, offsets and sinks are asked through
its views, which hold it and no state of the server.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from google.protobuf.message import Message

from coordinator_core.assembly import Core
from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    CallContext,
    ClientBatch,
    Committer,
    GroupOffsets,
    Membership,
    NamedOffset,
)
from coordinator_runtime.store import Store, StoreFailed
from coordinator_server.metrics.readings import TIMER_KINDS
from group_coordinator.share_partitions.places import share_shard
from partition_log.catalog.state import MorePartitions, NewTopic
from partition_log.requests import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeProducers,
    Fetch,
    FetchItem,
    Produce,
    ProduceResult,
    TopicName,
    TopicResult,
)
from partition_log.shard import LogShard
from partition_log.state import Isolation, ProducerEntry
from tests.harness.calls import called
from tests.harness.calls import partition_name as partition_name
from tests.harness.classic_members import ClassicGroups
from tests.harness.committed_offsets import CommittedOffsets
from tests.harness.consumers import ConsumerGroups
from tests.harness.engines import new_shelf, skip_in_bucket
from tests.harness.entries import LogEntry as LogEntry
from tests.harness.entries import Reading, entries_of
from tests.harness.fast_path_calls import end_txn, produce, transact
from tests.harness.group_calls import ANYBODY
from tests.harness.groups import Groups
from tests.harness.inside import Inside, WorldOptions
from tests.harness.manual_clock import ManualClock
from tests.harness.payloads import EVERY_ENCODING, UNREADABLE_PAYLOADS, records_payload, words_payload
from tests.harness.shelf import MemoryShelf, Shelf
from tests.harness.sinks import Sinks
from tests.harness.unwritten import Unwritten
from txn_coordinator.outcomes import Ended
from txn_coordinator.requests import (
    AddedPartitions,
    AddPartitions,
    EndTxn,
    InitProducerId,
    PrepareTransaction,
    Transact,
)
from txn_coordinator.service import TransactResult
from txn_coordinator.shard import Initialised
from txn_coordinator.state import Identity, Transaction
from txnctl.stopped.history_audit import audit_history
from txnctl.stopped.store_verify import Check, verify_store
from txnctl.stopped.stored import heads, stretches

T = TypeVar("T")

_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactContents:
    """The contents of a Transact."""

    batches: Sequence[tuple[str, Sequence[str], int]] = ()
    """Partition, values and first sequence of each batch."""
    offsets: Sequence[tuple[str, str, int]] = ()
    """Group, partition and offset."""


class World:
    """The server, and what can happen to it. Requests return a Pending; flush to get it answered."""

    def __init__(
        self,
        options: WorldOptions | None = None,
        shelf: Shelf | None = None,
        on_assembled: Callable[[Core], None] | None = None,
    ) -> None:
        """`on_assembled` is called in every life of the process, before anything is loaded."""
        self.options = options if options is not None else WorldOptions()
        self.clock = ManualClock()
        self.shelf: Shelf = shelf if shelf is not None else new_shelf()
        self.lives = 0
        self._on_assembled = on_assembled
        self._start()

    # Views of it

    @cached_property
    def groups(self) -> Groups:
        """Groups of whatever kind, as administrators see them."""
        return Groups(self)

    @cached_property
    def classic(self) -> ClassicGroups:
        """Groups whose members join and sync."""
        return ClassicGroups(self)

    @cached_property
    def consumers(self) -> ConsumerGroups:
        """Groups whose members send heartbeats alone."""
        return ConsumerGroups(self)

    @cached_property
    def offsets(self) -> CommittedOffsets:
        """The offsets that groups have committed."""
        return CommittedOffsets(self)

    @cached_property
    def sinks(self) -> Sinks:
        """The sink of an engine."""
        return Sinks(self)

    # Events of the server

    def flush(self, count: int | None = None) -> bool:
        """Make durable what is staged (or its first groups), answer, and stage what follows; False if nothing was."""
        return self.inside.driver.flush(count)

    def settle(self) -> None:
        """Flush until nothing follows. The clock stays."""
        self.inside.driver.settle()

    def seal(self) -> None:
        """End a turn of the loop: what was staged becomes one group."""
        self.inside.runtime.groups.seal()

    @property
    def undurable_groups(self) -> int:
        """Groups that a crash may lose."""
        return self.inside.driver.undurable_groups

    def crash(self, *, kept_groups: int = 0, down_ms: int = 0) -> None:
        """Lose the process, and all but the first few of the groups that are not durable. No call is answered any more.
        Then start again; the new process serves when its coordinator epochs are durable, and may still have to finish
        what the old one left."""
        self.inside.driver.write_unsynced(kept_groups)
        self.shelf.crash()
        self._start_anew(down_ms)

    def restart(self) -> None:
        """Make everything durable, then lose the process and start again, until all is served."""
        self.settle()
        self.crash()
        self.settle()

    def back_up(self) -> Any:
        """A backup of what is written now, for `restore`."""
        skip_in_bucket("makes no backups")
        return self.shelf.back_up(self.clock.wall_ms())

    def restore(self, backup: Any, cause: IncarnationCause = IncarnationCause.RESTORE) -> None:
        """Lose the process, and all that was written since the backup was made. Then start again: on the backup, or on
        what is left, where the operator accepts the loss."""
        self.shelf.restore(backup, self.clock.wall_ms(), cause)
        self._start_anew(down_ms=1_000)

    def fail_disk(self, *, kept_groups: int = 0) -> None:
        """Fail the next sync. Calls that wait end with an unknown outcome, the process ends and starts again, and the
        disk has the first of the written groups, or none."""
        skip_in_bucket("has no disk")
        assert isinstance(self.shelf, MemoryShelf), "only the memory store fails when told to"
        self.shelf.store.fail_next_sync(OSError(errno.EIO, "the disk"))
        try:
            self.flush()
        except StoreFailed as failure:
            self.inside.runtime.fail(failure)
        self.shelf.crash_after_failure(kept_groups)
        self._start_anew(down_ms=0)

    def unload(self, name: str) -> Pending[None]:
        """Let go of the shard that a transactional id, a partition (`t-0`), a group (`group:name`), or the share
        partitions of a partition (`share:t-0`) are in."""
        return self.inside.driver.loader.unload(self.shard_of(name))

    def load(self, name: str) -> Pending[None]:
        """Read that shard from the store once more. It goes on when time passes, or when all is settled."""
        return self.inside.driver.loader.load(self.shard_of(name))

    def shard_of(self, name: str) -> ShardKey:
        """Return the shard of a transactional id, a partition or a group."""
        if name.startswith("group:"):
            return self.inside.groups.router.shard_key(name.removeprefix("group:"))
        if name.startswith("share:"):
            return share_shard(self.shard_of(name.removeprefix("share:")).number)
        topic, _, number = name.rpartition("-")
        if topic and number.isdigit():
            return self.inside.catalog.place(*partition_name(name)).shard
        return self.inside.transactions.shard_key(name)

    def _start_anew(self, down_ms: int) -> None:
        # The monotonic clock begins anew, so that a stored time of it is found out.
        self.clock = ManualClock(wall_ms=self.clock.wall_ms() + down_ms, monotonic_ms=7)
        self._start()

    def tick(self, elapsed_ms: int) -> None:
        """Let time pass and timers expire, each at its time. What they stage is not flushed."""
        self._pass(elapsed_ms, lambda: None)

    def _pass(self, elapsed_ms: int, then: Callable[[], object]) -> None:
        """`then` comes after each timer, and in the end."""
        runtime = self.inside.runtime
        end_ms = self.clock.monotonic_ms() + elapsed_ms
        while (deadline_ms := runtime.timers.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.advance(max(0, deadline_ms - self.clock.monotonic_ms()))
            runtime.run_due_timers()
            then()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        then()

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass and timers expire, each at its time; what they stage is flushed, and before all that what was
        staged before."""
        self.settle()
        runtime = self.inside.runtime
        # "client" are those that a test arms to let its clients act.
        known = {*TIMER_KINDS, "client", *(kind for part in self.options.group_parts for kind in part.timers)}
        unknown = runtime.timers.by_kind().keys() - known
        assert not unknown, f"the metric of timers does not know these kinds: {unknown}"
        self._pass(elapsed_ms, self.settle)

    # Calls of clients

    def call(self, request: Message, context: CallContext | None = None) -> Pending[Any]:
        """Ask with a request of GroupService; the Pending response has error fields, as on the wire."""
        return self.inside.group_wire.call(request, context)

    def ask(self, request: Message) -> Any:
        """The response once all is settled; the call must not wait for anything else."""
        reply = self.call(request)
        if not reply.is_settled:
            self.settle()
        assert reply.is_settled, f"{request.DESCRIPTOR.name} waits, and it should not"
        return reply.result()

    def create_topic(
        self, name: str, partition_count: int, *, config: Mapping[str, str] = UNREADABLE_PAYLOADS
    ) -> TopicResult:
        """Make a topic, durable when this returns."""
        topic = NewTopic(name, partition_count, config)
        created = self.inside.topics.create_topics(CreateTopics([topic]), ANYBODY)
        self.settle()
        return created.result()[0]

    def add_partitions(self, name: str, partition_count: int, *, is_durable: bool = True) -> None:
        command = CreatePartitions([MorePartitions(name, b"", partition_count)])
        self.inside.topics.create_partitions(command, ANYBODY)
        if is_durable:
            self.settle()

    def delete_topic(self, name: str) -> Pending[TopicResult]:
        return self.inside.topics.delete_topics(DeleteTopics([TopicName(name)]), ANYBODY).map(
            lambda results: results[0]
        )

    def init(
        self,
        transactional_id: str,
        context: CallContext = ANYBODY,
        *,
        timeout_ms: int = _TIMEOUT_MS,
        expected: Identity | None = None,
    ) -> Pending[Identity]:
        return self.recover(transactional_id, context, timeout_ms=timeout_ms, expected=expected).map(_identity_of)

    def recover(
        self,
        transactional_id: str,
        context: CallContext = ANYBODY,
        *,
        timeout_ms: int = _TIMEOUT_MS,
        expected: Identity | None = None,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> Pending[Initialised]:
        """InitProducerId with all that it can be asked."""
        command = InitProducerId(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            expected=expected,
            enable_2pc=enable_2pc,
            keep_prepared=keep_prepared,
        )
        return called(lambda: self.inside.transactions.init_producer_id(command, context))

    def init_plain(self, context: CallContext = ANYBODY) -> Pending[Identity]:
        """InitProducerId without a transactional id."""
        command = InitProducerId(transactional_id=None)
        return called(lambda: self.inside.transactions.init_producer_id(command, context)).map(_identity_of)

    def prepare(self, transactional_id: str, identity: Identity, context: CallContext = ANYBODY) -> Pending[Identity]:
        """PrepareTransaction."""
        command = PrepareTransaction(transactional_id=transactional_id, identity=identity)
        return called(lambda: self.inside.transactions.prepare_transaction(command, context))

    def add(
        self, transactional_id: str, identity: Identity, partitions: Sequence[str], context: CallContext = ANYBODY
    ) -> Pending[bool]:
        command = AddPartitions(
            transactional_id=transactional_id, identity=identity, partitions=list(map(partition_name, partitions))
        )
        return self.inside.transactions.add_partitions(command, context).map(_is_added)

    def commit_offset(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        offset: int,
        context: CallContext = ANYBODY,
        *,
        partition: str = "t-0",
    ) -> Pending[int]:
        """TxnOffsetCommit of one offset, by a caller that is no member."""
        membership = Membership(transactional_id, *identity)
        return self.inside.groups.commit_in_transaction(membership, group, offset, partition, context)

    def produce(
        self,
        transactional_id: str | None,
        identity: Identity,
        partition: str,
        values: Sequence[str],
        *,
        sequence: int,
        context: CallContext = ANYBODY,
    ) -> Pending[ProduceResult]:
        """Append one batch. The result carries the refusal, as on the wire."""
        now_ms = self.clock.wall_ms()
        header = BatchHeader(
            base_offset=0,
            record_count=len(values),
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            encoding=Encoding.RECORDS_V1,
            is_transactional=transactional_id is not None,
        )
        item = ClientBatch(partition_name(partition), header, self._payload(partition, values), None)
        request = Produce(transactional_id, (item,))
        core, log = self.inside.core, self.inside.log
        # A test may have put another service in its place.
        lane = core.fast_path if log is core.log.records else None
        return produce(lane, log, request, context).map(lambda results: results[0])

    def end(
        self,
        transactional_id: str,
        identity: Identity,
        outcome: Outcome,
        context: CallContext = ANYBODY,
        *,
        last_sequences: Sequence[tuple[str, int]] = (),
    ) -> Pending[Ended]:
        command = EndTxn(
            transactional_id=transactional_id,
            identity=identity,
            outcome=outcome,
            last_sequences=[(partition_name(name), sequence) for name, sequence in last_sequences],
        )
        core, transactions = self.inside.core, self.inside.transactions
        lane = core.fast_path if transactions is core.transactions.service else None
        return end_txn(lane, transactions, command, context)

    def transact(
        self,
        transactional_id: str,
        identity: Identity,
        contents: TransactContents,
        outcome: Outcome,
        context: CallContext = ANYBODY,
    ) -> Pending[TransactResult]:
        """A whole transaction in one request."""
        now_ms = self.clock.wall_ms()
        command = Transact(
            transactional_id,
            identity,
            outcome,
            [self._client_batch(*batch, now_ms) for batch in contents.batches],
            [_group_offset(*offset) for offset in contents.offsets],
        )
        return called(lambda: transact(self.inside.core, command, context))

    def _client_batch(self, partition: str, values: Sequence[str], sequence: int, now_ms: int) -> ClientBatch:
        header = BatchHeader(
            base_offset=0,
            record_count=len(values),
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            base_sequence=sequence,
            encoding=Encoding.RECORDS_V1,
        )
        return ClientBatch(partition_name(partition), header, self._payload(partition, values), None)

    def _payload(self, partition: str, values: Sequence[str]) -> bytes:
        if self.options.writes_records:
            return records_payload(values, self.clock.wall_ms(), self.key_count(partition))
        return words_payload(values)

    def key_count(self, partition: str) -> int:
        """Return the number of keys that the records of a partition share; 0 if each has its own."""
        return self.options.key_counts.get(partition_name(partition).topic, 0)

    def read(
        self,
        partition: str,
        *,
        fetch_offset: int = 0,
        isolation: Isolation = Isolation.READ_COMMITTED,
        is_raw: bool = False,
        last_read_epoch: int | None = None,
    ) -> Reading:
        """Read as a reader does at this moment, from durable state. Raises Refused."""
        item = FetchItem(partition_name(partition), fetch_offset, last_read_epoch=last_read_epoch)
        request = Fetch((item,), isolation, is_raw=is_raw, accepted_encodings=EVERY_ENCODING)
        reply = self.inside.log.fetch(request, ANYBODY)
        if not reply.is_settled:
            # A refusal that rests on an undurable change of the catalog; nothing else makes a read wait.
            self.settle()
        (result,) = reply.result()
        if result.error is not None:
            raise result.error
        assert result.head is not None
        return Reading(
            tuple(entry for header, stored in result.batches for entry in entries_of(header, stored)),
            result.next_offset,
            result.head.log_end_offset,
            result.head.last_stable_offset,
            result.aborted_records_hidden,
            result.head.log_start_offset,
            result.last_read_epoch,
        )

    def describe(self, transactional_id: str) -> Transaction:
        """The durable state of an id. Raises Refused."""
        (described,) = self.inside.reader.describe([transactional_id], ANYBODY).result()
        if described.error is not None:
            raise described.error
        assert described.transaction is not None
        return described.transaction

    def remembered(self, partition: str) -> Sequence[tuple[int, ProducerEntry]]:
        """Describe the producers of a partition: producer ids and entries. Raises Refused."""
        (described,) = self.inside.log.describe_producers(
            DescribeProducers([partition_name(partition)]), ANYBODY
        ).result()
        if described.error is not None:
            raise described.error
        return described.producers

    def partition_of(self, ordinal: int) -> str:
        """`topic-partition`, or `#ordinal` once the topic is deleted."""
        ref = self.inside.catalog.by_ordinal(ordinal)
        return f"#{ordinal}" if ref is None else f"{ref.topic}-{ref.partition}"

    def send_marker(self, partition: str, marker: Marker) -> Pending[object]:
        """Send a marker that this server's coordinators did not send, as a coordinator elsewhere may."""
        ordinal = self.inside.catalog.resolve(*partition_name(partition)).ordinal
        return self.inside.runtime.write(self.inside.markers.partition_marker(ordinal, marker), is_urgent=True)

    def counted(self, partition: str) -> list[tuple[int, int, int, int]]:
        """Return the stored totals before the ends of the finished stretches and of the log: offset, records, markers,
        aborted transactions."""
        store = self.shelf.store
        ordinal = self.inside.catalog.resolve(*partition_name(partition)).ordinal
        ends = [(stretch.last_offset + 1, stretch.totals) for stretch in stretches(store, ordinal)]
        head = heads(store)[ordinal]
        return [
            (offset, totals.record_count, totals.marker_count, totals.abort_count)
            for offset, totals in (*ends, (head.log_end_offset, head.totals))
        ]

    def clean_to(self, partition: str) -> int:
        """Return the offset up to which a partition is compacted, durably. Raises Refused where its shard is away."""
        placed = self.inside.catalog.place(*partition_name(partition))
        shard: LogShard = self.inside.runtime.shard(placed.shard)
        head = shard.durable_head(placed.ref.ordinal)
        assert head is not None
        return head.compaction.clean_to

    # Checks

    def check_replay(self) -> None:
        """The store alone rebuilds every shard (promise 2): a process that loads it now knows what this one holds
        durable, in the shards that it serves."""
        rebuilt = Inside(Unwritten(self.shelf.store), self.clock, self.options)
        rebuilt.driver.flush()
        is_served = self.inside.runtime.table.served.__contains__
        assert rebuilt.state(is_served) == self.inside.state(is_served)
        _check_history(self.shelf.store)

    def check_stored(self) -> None:
        """Every promise that the rows of the store make to each other holds, as `txnctl store verify` tests them: what
        the history says was decided is what the markers in the partitions say, above all."""
        violations = [f"{check.name}: {each}" for check in verify_store(self.shelf.store) for each in check.violations]
        assert not violations, "\n".join(violations)

    def _start(self) -> None:
        self.lives += 1
        self.inside = Inside(self.shelf.store, self.clock, self.options, self._on_assembled)
        self.inside.driver.flush()


def _check_history(store: Store) -> None:
    """Assert that the newest step of every key, if one is left, agrees with its state (design 5)."""
    check = Check("history", "what it tells is true", "steps")
    audit_history(store, check)
    assert not check.violations, "\n".join(check.violations)


def _is_added(added: AddedPartitions) -> bool:
    if added.error is not None:
        raise added.error
    return True


def _identity_of(initialised: Initialised) -> Identity:
    return initialised.identity


def _group_offset(group: str, partition: str, offset: int) -> GroupOffsets:
    return GroupOffsets(group, Committer(), (NamedOffset(partition_name(partition), offset, None, ""),))
