"""Members of groups as programs: what one of them asks next, what it makes of an answer, and what it must not be told.

Each asks one thing at a time. Answers get lost, patience ends, processes die; then a member starts over, as clients do.

Source: spec groups 10.5, I1 (epochs never go back), I3 (one owner), I6 (answers are durable), I10 (fenced commits).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.consumer_protocol import Subscription, encode_subscription
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.pending import Pending
from tests.simulation.clients import Numbers
from tests.simulation.history import History, PlainCommit

CLASSIC_GROUP: Final = "classic-members"
CONSUMER_GROUP: Final = "consumer-members"
TOPIC: Final = "shared"
PARTITION_COUNT: Final = 4
SESSION_TIMEOUT_MS: Final = 1_000
REBALANCE_TIMEOUT_MS: Final = 1_500

_OK = ErrorCode.NONE
_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
)
_GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_MOVED_ON = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
_NOT_YET = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND})

Partitions = frozenset[int]


@dataclass(slots=True)
class Told:
    """What members were answered. All of it is durable, so nothing later may contradict it."""

    generation: int = 0
    """The newest generation of the classic group whose assignment a member was given."""
    plans: dict[int, str] = field(default_factory=dict)
    """Which plan of a leader the members of a generation were given their parts of."""
    outcasts: set[str] = field(default_factory=set)
    """Ids of consumers that were told that they are no members, and did not come back."""


@dataclass(slots=True)
class Around:
    """What all members of a run share."""

    call: Callable[[Message], Pending[Any]]
    rng: Random
    history: History
    numbers: Numbers
    now: Callable[[], int]
    """The step of the simulation."""
    call_by_kafka: Callable[[Message], Pending[Any]]
    """Call as `call` does, by the other front."""
    is_of_kafka: Callable[[], bool]
    """Whether the next process speaks Kafka's protocol."""
    told: Told = field(default_factory=Told)
    is_calm: bool = False
    broken: list[AssertionError] = field(default_factory=list)
    """Promises that an answer broke."""


class Member(ABC):
    """One client, whatever its protocol."""

    group_id: str

    def __init__(self, around: Around, name: str, instance_id: str | None = None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0
        """Generation, or member epoch; 0 = no member."""
        self.waiting: Pending[Any] | None = None
        self._around = around
        self._speaks_kafka = around.is_of_kafka()
        self._rng = around.rng
        self._asked = 0

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """It has its part, and nothing to do but to say that it lives."""

    def act(self) -> None:
        """Do the next thing."""
        if self.waiting is not None:
            if self._rng.random() < 0.05:
                self.give_up()
        elif self.epoch == 0 or not self.is_at_rest:
            self.go_on()
        else:
            actions = [self.go_on, self.wait, self.commit, self.leave, self.die]
            self._rng.choices(actions, [12, 4, 12, 1, 1])[0]()

    @abstractmethod
    def go_on(self) -> None:
        """What a client does that wants to be a member."""

    @abstractmethod
    def wait(self) -> None:
        """A heartbeat that waits for news."""

    @abstractmethod
    def leave(self) -> None: ...

    def die(self) -> None:
        """The process ends without a word; the next one knows nothing but its name."""
        self.give_up()
        self.start_over()
        self._speaks_kafka = self._around.is_of_kafka()

    def give_up(self) -> None:
        """Wait for the answer no longer, if one is due."""
        self._asked += 1
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.on_lost()
            waiting.cancel()

    def forsaken(self) -> None:
        """The server died. No call is answered any more."""
        self._asked += 1
        self.waiting = None
        self.on_lost()

    def on_lost(self) -> None:  # noqa: B027  a hook that a kind of member may leave out
        """An answer is lost."""

    def start_over(self, *, keeps_id: bool = False) -> None:
        self.epoch = 0
        if not keeps_id:
            self.member_id = ""

    def commit(self) -> None:
        """Commit an offset with what the member thinks it is."""
        self._commit_as(self.member_id, self.epoch, self.on_error)

    def _commit_as(self, member_id: str, epoch: int, on_error: Callable[[ErrorCode], None]) -> None:
        around, told = self._around, self._around.told
        around.numbers.offsets += 1
        commit = PlainCommit(self.group_id, around.numbers.offsets, around.now())
        around.history.plain_commits.append(commit)
        generation, was_outcast = told.generation, member_id in told.outcasts
        offset = group_pb2.PartitionOffset(partition=0, committed_offset=commit.offset)
        request = group_pb2.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.instance_id,
            topics=[group_pb2.TopicOffsets(topic="t", partitions=[offset])],
        )

        def heard(response: Any) -> None:
            (result,) = response.results
            if result.error_code == _OK:
                commit.answered_at = around.now()
                assert not was_outcast, f"I10: {member_id} was told that it is no member, and its commit was taken"
                is_old = self.group_id == CLASSIC_GROUP and epoch < generation
                assert not is_old, f"I10: a commit of generation {epoch} was taken after {generation} was told"
                return
            commit.is_refused = result.error_class != ErrorClass.UNKNOWN_OUTCOME
            on_error(ErrorCode(result.error_code))

        self._ask(request, heard)

    def on_error(self, code: ErrorCode) -> None:
        """Make something of a refusal."""
        if code in _AGAIN:
            self.on_lost()
        elif code in _GONE:
            self.on_gone(code)
        else:
            assert code in _MOVED_ON | _NOT_YET, f"{self.name} did nothing wrong and is told {code.name}"
            self.on_moved_on(code)

    def on_gone(self, code: ErrorCode) -> None:
        self.start_over(keeps_id=self._rng.random() < 0.5)

    def on_moved_on(self, code: ErrorCode) -> None:
        self.start_over(keeps_id=True)

    def _ask(self, request: Message, heard: Callable[[Any], None]) -> None:
        self._asked += 1
        number = self._asked
        call = self._around.call_by_kafka if self._speaks_kafka else self._around.call
        reply = self.waiting = call(request)

        def on_settled(settled: Pending[Any]) -> None:
            if number != self._asked:
                return
            self.waiting = None
            if not self._around.is_calm and self._rng.random() < 0.1:
                self.on_lost()
                return
            try:
                heard(settled.result())
            except AssertionError as broken:
                # A callback has no caller: the next look raises it.
                self._around.broken.append(broken)

        reply.on_settled(on_settled)


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat; the leader deals the partitions out."""

    group_id = CLASSIC_GROUP

    def __init__(self, around: Around, name: str, instance_id: str | None = None) -> None:
        super().__init__(around, name, instance_id)
        self._is_synced = False
        self._followers: list[str] = []
        """All members, if this one leads."""
        self._past: list[tuple[str, int]] = []
        """Member id and generation of what it was before."""

    @property
    def is_at_rest(self) -> bool:
        return self.epoch > 0 and self._is_synced

    def start_over(self, *, keeps_id: bool = False) -> None:
        if self._is_synced:
            self._past.append((self.member_id, self.epoch))
        super().start_over(keeps_id=keeps_id)
        self._is_synced = False

    def commit(self) -> None:
        """Now and then as what it was before."""
        if self._past and self._rng.random() < 0.3:
            self._commit_as(*self._rng.choice(self._past), lambda _code: None)
        else:
            super().commit()

    def on_gone(self, code: ErrorCode) -> None:
        self.start_over()

    def on_moved_on(self, code: ErrorCode) -> None:
        self.start_over(keeps_id=code is not ErrorCode.GROUP_ID_NOT_FOUND)

    def go_on(self) -> None:
        if self.epoch == 0:
            self._join()
        elif not self._is_synced:
            self._sync()
        else:
            self._beat()

    def wait(self) -> None:
        self._beat(max_wait_ms=500)

    def _join(self) -> None:
        metadata = encode_subscription(Subscription(topics=(TOPIC,)))
        request = group_pb2.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[group_pb2.JoinGroupProtocol(name="range", metadata=metadata)],
            supports_skip_assignment=True,
        )
        generation = self._around.told.generation

        def heard(response: Any) -> None:
            if response.error_code in (_OK, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
            if response.error_code != _OK:
                self.on_error(ErrorCode(response.error_code))
                return
            assert response.generation_id >= generation, f"I1: {response.generation_id} after {generation}"
            self.epoch = response.generation_id
            self._followers = [each.member_id for each in response.members]

        self._ask(request, heard)

    def _sync(self) -> None:
        self._around.numbers.requests += 1
        plan = f"plan-{self._around.numbers.requests}"
        parts = [group_pb2.SyncGroupAssignment(member_id=each, assignment=plan.encode()) for each in self._followers]
        request = group_pb2.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=parts,
        )
        generation, told = self.epoch, self._around.told
        newest = told.generation

        def heard(response: Any) -> None:
            if response.error_code != _OK:
                self.on_error(ErrorCode(response.error_code))
                return
            assert generation >= newest, f"I1: generation {generation} is served after {newest}"
            told.generation = max(told.generation, generation)
            part = response.assignment.decode()
            known = told.plans.setdefault(generation, part)
            assert part == known, f"I3, I6: generation {generation} was given {known}, and now {part}"
            self._is_synced = True

        self._ask(request, heard)

    def _beat(self, max_wait_ms: int = 0) -> None:
        request = group_pb2.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            max_wait_ms=max_wait_ms,
        )
        self._ask(request, self._hear)

    def leave(self) -> None:
        leaving = group_pb2.LeavingMember(member_id=self.member_id, group_instance_id=self.instance_id)
        self._ask(group_pb2.LeaveGroupRequest(group_id=self.group_id, members=[leaving]), lambda _response: None)
        self.start_over()

    def _hear(self, response: Any) -> None:
        if response.error_code != _OK:
            self.on_error(ErrorCode(response.error_code))


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat; the server deals the partitions out."""

    group_id = CONSUMER_GROUP

    def __init__(self, around: Around, name: str, instance_id: str | None = None) -> None:
        super().__init__(around, name, instance_id)
        self.owned: Partitions = frozenset()
        self._assigned: Partitions = frozenset()
        self._lives = 0
        self._must_say_all = False
        """An answer was lost: the next heartbeat says everything."""

    @property
    def is_at_rest(self) -> bool:
        return self.epoch > 0 and not self._must_say_all and self.owned == self._assigned

    def start_over(self, *, keeps_id: bool = False) -> None:
        super().start_over(keeps_id=keeps_id)
        self.owned = self._assigned = frozenset()
        self._must_say_all = False

    def on_lost(self) -> None:
        self._must_say_all = self.epoch > 0

    def on_gone(self, code: ErrorCode) -> None:
        gone = self.member_id
        super().on_gone(code)
        # Whose epoch is too old is still a member, which has to start over.
        if not self.member_id and code is not ErrorCode.FENCED_MEMBER_EPOCH:
            self._around.told.outcasts.add(gone)

    def go_on(self) -> None:
        self._beat()

    def wait(self) -> None:
        self._beat(max_wait_ms=500)

    def leave(self) -> None:
        """For good; a static member perhaps only for a moment."""
        is_back_soon = self.instance_id is not None and self._rng.random() < 0.7
        request = self._request(-2 if is_back_soon else -1)
        self._ask(request, lambda _response: None)
        self.start_over()

    def commit(self) -> None:
        """Now and then as a former member."""
        outcasts = sorted(self._around.told.outcasts)
        if outcasts and self._rng.random() < 0.3:
            self._commit_as(self._rng.choice(outcasts), self.epoch, lambda _code: None)
        else:
            super().commit()

    def _beat(self, max_wait_ms: int = 0) -> None:
        if not self.member_id:
            self._lives += 1
            self.member_id = f"{self.name}-{self._lives}"
        # What it was told to give up it gives up before it says so.
        self.owned &= self._assigned
        owned = common_pb2.TopicPartitions(topic=TOPIC, partitions=sorted(self.owned))
        fields: dict[str, Any] = {"max_wait_ms": max_wait_ms}
        if self.epoch == 0 or self._must_say_all:
            fields["rebalance_timeout_ms"] = REBALANCE_TIMEOUT_MS
            fields["subscribed_topic_names"] = group_pb2.TopicNames(names=[TOPIC])
        fields["topic_partitions"] = group_pb2.PartitionSet(topics=[owned] if self.owned else [])
        asked_epoch = self.epoch

        def heard(response: Any) -> None:
            if response.error_code != _OK:
                self.on_error(ErrorCode(response.error_code))
                return
            assert response.member_epoch >= asked_epoch, f"I1: epoch {response.member_epoch} after {asked_epoch}"
            self.epoch = response.member_epoch
            self._must_say_all = False
            if response.HasField("assignment"):
                self._assigned = frozenset(each for topic in response.assignment.topics for each in topic.partitions)
            # What it must give up it still owns.
            self.owned |= self._assigned

        self._ask(self._request(self.epoch, **fields), heard)

    def _request(self, member_epoch: int, **fields: Any) -> group_pb2.ConsumerGroupHeartbeatRequest:
        return group_pb2.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=member_epoch,
            instance_id=self.instance_id,
            **fields,
        )
