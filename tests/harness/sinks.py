"""A sink as an engine sees it whose tasks write batches to it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.store import Family
from tests.harness.calls import called, partition_name
from txn_coordinator.shard import TransactionShard
from txn_coordinator.sinks.decisions import Decided, JoinedBatch
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.sinks.service import SealMember, SinkDescription
from txn_coordinator.state import Identity

if TYPE_CHECKING:
    from tests.harness.world import World

SINK: Final = "spark/query"
RUN: Final = "run 1"
TIMEOUT_MS: Final = 60_000

T = TypeVar("T")


@dataclass(slots=True)
class Task:
    """A member, as the task that writes as it knows it."""

    transactional_id: str
    identity: Identity
    sequences: dict[str, int] = field(default_factory=dict)


class Sinks:
    """The requests of an engine to a world; each call is settled before the next, unless it says that it is held."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._request_numbers = itertools.count(1)

    def ask_join(
        self, batch_id: int, *, run_id: str = RUN, request_id: bytes | None = None, sink: str = SINK
    ) -> Pending[JoinedBatch]:
        number = next(self._request_numbers)
        request = JoinRequest(
            sink=sink,
            run_id=run_id,
            batch_id=batch_id,
            attempt=f"task {number}",
            txn_timeout_ms=TIMEOUT_MS,
            request_id=number.to_bytes(16, "big") if request_id is None else request_id,
        )
        return called(lambda: self.world.inside.core.transactions.sinks.join_batch(request, CallContext()))

    def member(self, batch_id: int, *, run_id: str = RUN, sink: str = SINK) -> Task:
        joined = self.answer(self.ask_join(batch_id, run_id=run_id, sink=sink))
        assert joined.identity is not None, "the batch is committed already"
        return Task(joined.transactional_id, joined.identity)

    def write(self, task: Task, partition: str, *values: str) -> ErrorCode | None:
        """Append a batch; why it was refused, or None."""
        sequence = task.sequences.get(partition, 0)
        pending = self.world.produce(task.transactional_id, task.identity, partition, values, sequence=sequence)
        self.world.flush()
        result = pending.result()
        if result.error is not None:
            return result.error.code
        task.sequences[partition] = sequence + len(values)
        return None

    def ask_seal(self, task: Task) -> Pending[Identity]:
        sent = [(partition_name(name), count - 1) for name, count in task.sequences.items()]
        command = SealMember(transactional_id=task.transactional_id, identity=task.identity, last_sequences=sent)
        return called(lambda: self.world.inside.core.transactions.sinks.seal_member(command, CallContext()))

    def seal(self, task: Task) -> None:
        self.answer(self.ask_seal(task))

    def written(
        self, batch_id: int, value: str, *, partitions: Sequence[str] = ("t-0", "t-1"), run_id: str = RUN
    ) -> Task:
        """A sealed member that wrote a record to each partition."""
        task = self.member(batch_id, run_id=run_id)
        for partition in partitions:
            assert self.write(task, partition, value) is None
        self.seal(task)
        return task

    def ask_commit(
        self, batch_id: int, tasks: Sequence[Task], *, run_id: str = RUN, sink: str = SINK
    ) -> Pending[Decided]:
        request = CommitRequest(sink=sink, run_id=run_id, batch_id=batch_id, members=[task.identity for task in tasks])
        return called(lambda: self.world.inside.core.transactions.sinks.commit_batch(request, CallContext()))

    def commit(self, batch_id: int, *tasks: Task, run_id: str = RUN) -> Decided:
        decided = self.answer(self.ask_commit(batch_id, tasks, run_id=run_id))
        self.settle()
        return decided

    def abort(self, batch_id: int | None = None, *, run_id: str | None = None) -> int:
        request = AbortRequest(sink=SINK, run_id=run_id, batch_id=batch_id)
        count = self.answer(
            called(lambda: self.world.inside.core.transactions.sinks.abort_batch(request, CallContext()))
        )
        self.settle()
        return count

    def answer(self, pending: Pending[T]) -> T:
        """Return the answer once it is durable. Raises Refused."""
        for _ in range(100):
            if pending.is_settled:
                break
            self.world.tick(1)
            self.world.flush()
        return pending.result()

    def settle(self) -> None:
        """Let everything be done that is due now."""
        for _ in range(1_000):
            self.world.tick(1)
            self.world.settle()
            if not any(sink.committing or self._settled(sink.name) for sink in self._shard().sinks.state.all_live()):
                return
        raise AssertionError("it is never done")

    def _settled(self, name: str) -> bool:
        shard = self._shard()
        found = [each for id_ in shard.sinks.state.member_ids(name) if (each := shard.acting(id_)) is not None]
        return any(each.state != 1 or shard.sinks.state.is_settled(each) for each in found)

    def _shard(self) -> TransactionShard:
        shard: TransactionShard = self.world.inside.runtime.shard(self.world.inside.transactions.shard_key(SINK))
        return shard

    def describe(self) -> SinkDescription:
        (found,) = self.world.inside.core.transactions.sinks.describe_sinks([SINK], CallContext())
        return found

    def seen(self, *partitions: str) -> list[str]:
        """Return the values that readers see."""
        return [value for partition in partitions or ("t-0", "t-1") for value in self.world.read(partition).values]

    def refusal(self, pending: Pending[Any]) -> ErrorCode:
        """Return the code with which a call is refused."""
        try:
            answer = self.answer(pending)
        except Refused as refused:
            return refused.code
        raise AssertionError(f"it was answered {answer}")

    def row_counts(self, *families: Family) -> dict[Family, int]:
        """Count the rows of these families, or of those that must not grow with the batches."""
        chosen = families or (Family.COORDINATOR_STATE, Family.PRODUCERS, Family.PARTITIONS)
        return {family: sum(1 for _ in self.world.shelf.store.scan(family, b"", b"\xff" * 40)) for family in chosen}

    def members_in_memory(self) -> int:
        return sum(
            1
            for shard in self.world.inside.runtime.shards(Coordinator.TRANSACTIONS)
            for _ in shard.table.live_transactions()
        )
