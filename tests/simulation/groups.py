"""Two groups in the storm, one of each protocol, beside the transactions: their members come, go and die.

Members check what they are told (`members`); here is what they cannot see, and how it all ends.

Source: spec groups 10.5: I2 (instance ids), I3 (owners), I7 (answers), I8 (replay), I11 (fairness), I12 (timers).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from coordinator_runtime.pending import Pending
from group_coordinator.classic.state import ClassicGroup
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.group import ConsumerGroup
from tests.harness.kafka_group_wire import KafkaGroupWire
from tests.harness.world import World
from tests.simulation.clients import Numbers
from tests.simulation.history import History
from tests.simulation.members import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    PARTITION_COUNT,
    SESSION_TIMEOUT_MS,
    TOPIC,
    Around,
    ClassicMember,
    ConsumerMember,
    Member,
)
from tests.simulation.share_books import DELIVERIES_MAX, LOCK_MS
from tests.simulation.share_books import SESSION_MS as SHARE_SESSION_MS
from tests.simulation.topics import grow_shared, shared_count

CONFIG: Final = GroupConfig(
    session_timeout_ms_min=1,
    consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    consumer_session_timeout_ms_min=1,
    consumer_heartbeat_interval_ms=500,
    consumer_heartbeat_interval_ms_min=1,
    share_session_timeout_ms=SHARE_SESSION_MS,
    share_session_timeout_ms_min=1,
    share_heartbeat_interval_ms=500,
    share_heartbeat_interval_ms_min=1,
    share_record_lock_duration_ms=LOCK_MS,
    share_record_lock_duration_ms_min=1,
    share_delivery_count_limit=DELIVERIES_MAX,
    streams_session_timeout_ms=SESSION_TIMEOUT_MS,
    streams_session_timeout_ms_min=1,
    streams_heartbeat_interval_ms=500,
    streams_heartbeat_interval_ms_min=1,
    streams_initial_rebalance_delay_ms=300,
    streams_task_offset_interval_ms_min=1,
)
_INSTANCES: Final = (None, None, "i", "i")
"""Instance ids of the members of a group: two processes have the same name."""
_RIVALRY: Final = (10, 10, 10, 1)
"""How often each acts: two that insisted on a name would fence each other for ever."""
_WORKING: Final = 3
"""Those that have names of their own."""
_TIMERS: Final = ("session", "join", "sync", "rebalance", "heartbeat-wait")
_SILENCE_MS: Final = 170_000
"""Two of them after the calm: what the first one ends is durable after it. A first JoinGroup may wait for five minutes;
and after ten, groups without members and offsets are forgotten."""
_ROUNDS_MAX: Final = 60
_ROUND_MS: Final = 100


class Groups:
    """The members of a run. There are none before they gather."""

    def __init__(
        self,
        world: World,
        rng: Random,
        history: History,
        numbers: Numbers,
        now: Callable[[], int],
        is_of_kafka: Callable[[], bool],
    ) -> None:
        self._world = world
        self._kafka = KafkaGroupWire(world)
        self._around = Around(self._call, rng, history, numbers, now, self._kafka.call, is_of_kafka)
        self._epochs = (0, 0)
        self._classic: list[ClassicMember] = []
        self._consumers: list[ConsumerMember] = []

    def gather(self) -> None:
        """Processes of both kinds."""
        self._world.create_topic(TOPIC, PARTITION_COUNT)
        self._kafka.knows(TOPIC)
        for number, instance_id in enumerate(_INSTANCES):
            self._classic.append(ClassicMember(self._around, f"k{number}", instance_id))
            self._consumers.append(ConsumerMember(self._around, f"m{number}", instance_id))

    @property
    def members(self) -> list[Member]:
        return [*self._classic, *self._consumers]

    def step(self) -> None:
        """One member does something. Groups live by time, so now and then a little of it passes."""
        if self._around.rng.random() < 0.15:
            self._world.tick(_ROUND_MS)
        (member,) = self._around.rng.choices(self.members, [*_RIVALRY, *_RIVALRY])
        member.act()
        self.check()

    def forsaken(self) -> None:
        """The server is another process now."""
        for member in self.members:
            member.forsaken()

    def _call(self, request: Message) -> Pending[Any]:
        return self._world.inside.group_wire.call(request)

    # What must hold

    def check(self) -> None:
        """What members found broken; I1 of what is on disk, I2, I3, of the shards that serve."""
        if self._around.broken:
            raise self._around.broken[0]
        consumers, classic = self._found(CONSUMER_GROUP), self._found(CLASSIC_GROUP)
        if isinstance(classic, ClassicGroup):
            _check_instances({each.member_id: each.instance_id for each in classic.members.values()})
        if not isinstance(consumers, ConsumerGroup):
            return
        epochs = consumers.durable_epochs()
        now = (epochs.group_epoch, epochs.assignment_epoch)
        assert now[0] >= self._epochs[0], f"I1: group epoch {now[0]} after {self._epochs[0]}"
        assert now[1] >= self._epochs[1], f"I1: assignment epoch {now[1]} after {self._epochs[1]}"
        self._epochs = now
        _check_instances({each.member_id: each.instance_id for each in consumers.members.values()})
        owners: dict[int, str] = {}
        for member in self._consumers:
            if member.member_id in consumers.members:
                for partition in member.owned:
                    other = owners.setdefault(partition, member.name)
                    assert other == member.name, f"I3: {member.name} and {other} own {partition}"

    def _found(self, group_id: str) -> object | None:
        shard = self._world.inside.runtime.table.find(self._world.inside.groups.router.shard_key(group_id))
        return None if shard is None else shard.groups.get(group_id)

    # The end

    def check_calm(self) -> None:
        """Silence, until all memberships are over. I7: no call waits any more. I12: nor does a timer."""
        if not self.members:
            return
        for _ in range(2):
            self._world.tick(_SILENCE_MS)
            self._world.settle()
        for member in self.members:
            assert member.waiting is None, f"I7: {member.name} waits for an answer"
        server, kinds = self._world.inside.core, self._world.inside.runtime.timers.by_kind()
        assert (len(server.answers), len(server.news)) == (0, 0), "I7: calls wait, and their members are gone"
        left = {kind: kinds[kind] for kind in _TIMERS if kinds.get(kind)}
        assert not left, f"I12: timers of members that are gone: {left}"

    def rest(self) -> None:
        """I11: members that do what they should get what they want, also of partitions that come. I8: a restart
        disturbs none of them."""
        if not self.members:
            return
        self._around.is_calm = True
        working: list[Member] = [*self._classic[:_WORKING], *self._consumers[:_WORKING]]
        self._come_to_rest(working)
        grow_shared(self._world)
        self._world.settle()
        self._come_to_rest(working)
        before = _shown(working)
        self._world.crash()
        self._world.settle()
        for member in working:
            member.go_on()
            self._world.settle()
        assert self._is_at_rest(working), f"I8: before the restart {before}, then {_shown(working)}"
        assert _shown(working) == before, "I8: a restart disturbs the members"

    def _come_to_rest(self, working: list[Member]) -> None:
        for _round in range(_ROUNDS_MAX):
            for member in working:
                member.go_on()
                self._world.settle()
            self._world.tick(_ROUND_MS)
            self._world.settle()
            self.check()
            if self._is_at_rest(working):
                break
        else:
            raise AssertionError(f"I11: not at rest after {_ROUNDS_MAX} rounds: {_shown(working)}")

    def _is_at_rest(self, working: list[Member]) -> bool:
        consumers = self._found(CONSUMER_GROUP)
        assert isinstance(consumers, ConsumerGroup)
        has_all = {*range(shared_count(self._world))} == {
            each for member in self._consumers[:_WORKING] for each in member.owned
        }
        return (
            all(member.is_at_rest and member.waiting is None for member in working)
            and {member.epoch for member in self._classic[:_WORKING]} == {self._around.told.generation}
            and {member.epoch for member in self._consumers[:_WORKING]} == {consumers.epochs.group_epoch}
            and has_all
        )


def _check_instances(instances: dict[str, str | None]) -> None:
    names = [name for name in instances.values() if name is not None]
    assert len(names) == len({*names}), f"I2: two members have one instance id: {instances}"


def _shown(members: list[Member]) -> list[tuple[str, str, int]]:
    return [(member.name, member.member_id, member.epoch) for member in members]
