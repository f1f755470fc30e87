"""Transactions in which workers of a share group acknowledge what they hold (spec groups 6.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Committer, Membership
from group_coordinator.share_partitions.requests import PartitionAcks, TxnShareAcknowledge
from group_coordinator.share_partitions.rules import AckBatch, AckType
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.simulation.share_books import Hold, Place
from txn_coordinator.state import Identity

_TIMEOUT_MS = 60_000
_OUTCOME_OF = {int(AckType.ACCEPT): "accepted", int(AckType.REJECT): "rejected"}


class ActingWorker(Protocol):
    """The worker whose records are acknowledged."""

    name: str
    member_epoch: int
    held: dict[Place, None]

    def note_asked(self, place: Place, kind: int) -> Hold | None:
        """Give the record up. Return the hold of another worker on it."""


class WorkerTransactions:
    """Transactions of one worker, each with one acknowledgement.

    The transactional id stays when the worker dies, so its next life fences the one before. Acknowledgements of that
    one may still come, too late."""

    def __init__(self, around: Any, group_id: str, number: int) -> None:
        self.transactional_id = f"worker-{number}"
        self._around = around
        self._group_id = group_id
        self._identity: Identity | None = None
        self._former: Identity | None = None
        self._waiting: Pending[Any] | None = None
        self._acknowledged: dict[Place, int] = {}
        """Types of what the open transaction has acknowledged."""

    def start_over(self) -> None:
        """Another life of the worker begins."""
        self._former = self._identity or self._former
        self._let_go()

    def forsaken(self) -> None:
        """The server died. A restored one knows nothing of newer identities, so none is used again."""
        self._former = None
        self._let_go()

    def _let_go(self) -> None:
        self._identity = self._waiting = None
        self._acknowledged = {}
        self._around.book.let_go(self.transactional_id)

    def act(self, worker: ActingWorker) -> None:
        """Do the next thing."""
        if self._waiting is not None and not self._waiting.is_settled:
            return
        if self._identity is None:
            self._ask(self._around.world.init(self.transactional_id), self._on_begun)
        elif self._acknowledged:
            self._end(self._identity)
        else:
            self._acknowledge(worker, self._identity)

    def _ask(self, asked: Pending[Any], heard: Callable[[Any], None]) -> None:
        self._waiting = asked

        def answered(done: Pending[Any]) -> None:
            if done is not self._waiting:
                return
            if done.error is None:
                heard(done.result())
            else:
                self._let_go()

        asked.on_settled(answered)

    def _on_begun(self, identity: Identity) -> None:
        self._identity = identity

    def _acknowledge(self, worker: ActingWorker, identity: Identity) -> None:
        rng = self._around.rng
        kinds = {place: 1 if rng.random() < 0.8 else 3 for place in worker.held if rng.random() < 0.6}
        if not kinds:
            return
        if self._former is not None and rng.random() < 0.5:
            identity = self._former
        batches: dict[str, list[AckBatch]] = {}
        for (partition, offset), kind in sorted(kinds.items()):
            batches.setdefault(partition, []).append(AckBatch(offset, offset, (kind,)))
        others = {place: worker.note_asked(place, kind) for place, kind in kinds.items()}
        command = TxnShareAcknowledge(
            self._group_id,
            Committer(worker.name, worker.member_epoch),
            Membership(self.transactional_id, *identity),
            tuple(PartitionAcks(partition_name(name), tuple(found)) for name, found in batches.items()),
        )
        until_ms = self._around.now_ms() + _TIMEOUT_MS

        def heard(_nothing: None) -> None:
            self._acknowledged = kinds
            for place, other in others.items():
                shard = self._around.shard(place[0])
                hold = Hold(self.transactional_id, until_ms, shard)
                self._around.book.wait(place, hold, self._around.standing(place, other), self._around.now_ms())

        self._ask(called(lambda: self._around.world.inside.core.groups.txn_shares.acknowledge(command, ANYBODY)), heard)

    def _end(self, identity: Identity) -> None:
        outcome = Outcome.COMMIT if self._around.rng.random() < 0.75 else Outcome.ABORT
        kinds, self._acknowledged = self._acknowledged, {}
        self._around.book.let_go(self.transactional_id)

        def heard(ended: Any) -> None:
            self._identity = ended.next_identity
            if outcome is Outcome.COMMIT:
                for place, kind in kinds.items():
                    self._around.book.finish(place, _OUTCOME_OF[kind], None, self._around.now_ms())

        self._ask(self._around.world.end(self.transactional_id, identity, outcome, ANYBODY), heard)
