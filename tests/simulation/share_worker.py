"""A worker of a share group in the storm: a member that fetches, acknowledges, also in transactions, and dies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2, share_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.pending import Pending
from tests.harness.calls import partition_name
from tests.harness.groups import code
from tests.harness.share_consumers import response_of
from tests.harness.world import World
from tests.simulation.share_books import LOCK_MS, SESSION_MS, Hold, Place
from tests.simulation.share_transactions import WorkerTransactions

if TYPE_CHECKING:
    from tests.simulation.share_workers import ShareWorkers

TOPIC: Final = "work"
GROUP: Final = "workers"
ACCEPT, RELEASE, REJECT = 1, 2, 3
_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_NO_SESSION: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class Worker:
    """One member, as a program."""

    def __init__(self, around: ShareWorkers, number: int) -> None:
        self._around = around
        self._number = number
        self._lives = 0
        self._waiting: Pending[Any] | None = None
        self._asked = 0
        self.transactions = WorkerTransactions(around, GROUP, number)
        self._start_over()

    def _start_over(self) -> None:
        self._around.book.let_go(self.name)
        self.transactions.start_over()
        self._lives += 1
        self.member_epoch = 0
        self.session_epoch = 0
        self._beaten_ms = 0
        self._assigned: set[tuple[bytes, int]] = set()
        self._named: set[tuple[bytes, int]] = set()
        self.held: dict[Place, None] = {}
        self._foreign: dict[Place, Hold | None] = {}
        """Holds of others on what it asked outcomes for."""

    @property
    def name(self) -> str:
        return f"w{self._number}.{self._lives}"

    def act(self) -> None:
        """Do the next thing."""
        rng = self._around.rng
        if self._waiting is not None:
            if rng.random() < 0.1:
                self._give_up()
        elif self.member_epoch == 0:
            self.beat()
        else:
            acts: list[Callable[[], None]] = [
                self.beat,
                self.fetch,
                self.acknowledge,
                partial(self.transactions.act, self),
                self._close,
                self._leave,
                self.die,
            ]
            rng.choices(acts, [5, 10, 6, 10 if self.held else 3, 0.5, 0.5, 0.7])[0]()

    def die(self) -> None:
        self._drop()
        self._start_over()

    def forsaken(self) -> None:
        """The server died. No call is answered now. Sessions last from the start of the next one, whose clock may be
        behind."""
        self._beaten_ms = min(self._beaten_ms, self._around.now_ms())
        self._asked += 1
        self._waiting = None
        self.session_epoch = 0
        self.held.clear()
        self.transactions.forsaken()

    def lose_an_answer(self) -> None:
        """Go on without what an answer has brought."""
        self._give_up()
        self.held.clear()

    def _give_up(self) -> None:
        """Wait no longer; what the answer would have brought is locked for some time."""
        self._drop()
        self.session_epoch = 0

    def _drop(self) -> None:
        self._asked += 1
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    # What it asks

    def beat(self) -> None:
        names = group_pb2.TopicNames(names=[TOPIC]) if self.member_epoch == 0 else None
        request = group_pb2.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.member_epoch, subscribed_topic_names=names
        )
        self._ask(request, self._on_beat)

    def fetch(self, *, acks: bool | None = None) -> None:
        if self.session_epoch == 0:
            self._named = set()
        with_acks = self.session_epoch > 0 and (self._around.rng.random() < 0.4 if acks is None else acks)
        chosen = self._chosen() if with_acks else {}
        joining = self._assigned - self._named
        self._named |= joining
        partitions = [_partition(self._around.world, each, found) for each, found in chosen.items()]
        known = {(each.topic_id, each.partition) for each in partitions}
        partitions += [
            share_pb2.SharePartition(topic_id=topic_id, partition=number)
            for topic_id, number in sorted(joining - known)
        ]
        request = share_pb2.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.session_epoch,
            max_wait_ms=self._around.rng.choice((0, 0, 300, 5_000)),
            max_records=self._around.rng.choice((1, 3, 100)),
            strict_max_records=self._around.rng.random() < 0.3,
            partitions=partitions,
        )
        now_ms = self._around.now_ms()
        self._ask(request, lambda response: self._on_fetched(response, chosen, now_ms))

    def acknowledge(self, *, epoch: int | None = None, outcomes: dict[Place, int] | None = None) -> None:
        if self.session_epoch == 0:
            self.fetch()
            return
        chosen: dict[str, dict[int, int]] = {}
        if outcomes is None:
            chosen = self._chosen()
        else:
            for (partition, offset), kind in outcomes.items():
                chosen.setdefault(partition, {})[offset] = kind
                self.note_asked((partition, offset), kind)
        request = share_pb2.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.session_epoch if epoch is None else epoch,
            partitions=[_partition(self._around.world, name, found) for name, found in chosen.items()],
        )
        self._ask(request, lambda response: self._on_acknowledged(response, chosen, is_last=epoch == -1))

    def _close(self) -> None:
        self._around.book.let_go(self.name)
        self.acknowledge(epoch=-1)

    def _leave(self) -> None:
        self._around.book.let_go(self.name)
        request = group_pb2.ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=-1)
        self._ask(request, lambda _response: self._start_over())

    def _chosen(self) -> dict[str, dict[int, int]]:
        """Outcomes of some of what it holds."""
        rng, chosen = self._around.rng, {}
        for place in [place for place in self.held if rng.random() < 0.6]:
            kind = rng.choices((ACCEPT, RELEASE, REJECT), (6, 2, 1))[0]
            chosen.setdefault(place[0], {})[place[1]] = kind
            self.note_asked(place, kind)
        return chosen

    def note_asked(self, place: Place, kind: int) -> Hold | None:
        """Give the record up. Return the hold of another worker on it."""
        self.held.pop(place, None)
        foreign = self._around.book.ask(self.name, place, is_accepted=kind == ACCEPT, is_rejected=kind == REJECT)
        self._foreign = {**self._foreign, place: foreign}
        return foreign

    def _ask(self, request: Message, hears: Callable[[Any], None]) -> None:
        self._asked += 1
        number = self._asked
        self._waiting = asked = self._around.world.inside.group_wire.call(request)

        def answered(reply: Pending[Any]) -> None:
            if number != self._asked:
                return
            self._waiting = None
            if reply.error is None:
                hears(response_of(reply))
            elif not isinstance(reply.error, CoordinatorError):
                raise reply.error

        asked.on_settled(answered)

    # What it hears

    def _on_beat(self, response: Any) -> None:
        heard = code(response)
        if heard in _REJOIN:
            self._start_over()
        elif heard is ErrorCode.NONE:
            self.member_epoch = response.member_epoch
            self._beaten_ms = self._around.now_ms()
            if response.HasField("assignment"):
                self._assigned = {(topic.topic_id, n) for topic in response.assignment.topics for n in topic.partitions}

    def _is_refused(self, response: Any) -> bool:
        heard = code(response)
        if heard in _REJOIN:
            self._start_over()
        elif heard is not ErrorCode.NONE:
            if heard in _NO_SESSION:
                self.session_epoch = 0
        else:
            self.session_epoch += 1
            return False
        return True

    def _on_fetched(self, response: Any, chosen: dict[str, dict[int, int]], asked_ms: int) -> None:
        if self._is_refused(response):
            return
        around = self._around
        until_ms = min(asked_ms + LOCK_MS, self._beaten_ms + SESSION_MS)
        for result in response.results:
            partition = f"{result.topic or TOPIC}-{result.partition}"
            if partition in chosen and not result.acknowledge_error_code:
                around.note_done(partition, chosen[partition], self._foreign)
            shard = around.shard(partition)
            for each in result.acquired:
                for offset in range(each.first_offset, each.last_offset + 1):
                    place = (partition, offset)
                    hold = Hold(self.name, until_ms, shard)
                    around.book.deliver(place, each.delivery_count, hold, around.now_ms())
                    self.held[place] = None

    def _on_acknowledged(self, response: Any, chosen: dict[str, dict[int, int]], *, is_last: bool) -> None:
        if self._is_refused(response):
            return
        if is_last:
            self.session_epoch = 0
            self.held.clear()
        for result, (partition, outcomes) in zip(response.results, chosen.items(), strict=True):
            if code(result) is ErrorCode.NONE:
                self._around.note_done(partition, outcomes, self._foreign)


def _partition(world: World, name: str, outcomes: dict[int, int]) -> share_pb2.SharePartition:
    """The acknowledgements of single offsets."""
    topic, _topic_id, number = partition_name(name)
    ref = world.inside.catalog.resolve(topic, b"", number)
    return share_pb2.SharePartition(
        topic_id=ref.topic_id,
        partition=number,
        acknowledgements=[
            share_pb2.AcknowledgementBatch(first_offset=offset, last_offset=offset, types=[kind])
            for offset, kind in sorted(outcomes.items())
        ],
    )
