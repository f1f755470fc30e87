"""Members that come, go, wait, give up and crash in random order, and what must hold whatever they do.

Source: spec groups 10.5: I1 generations, I2 instance ids, I6 durability of answers, I7 answers, I8 replay, I12 timers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import StateRows
from group_coordinator.classic import codec
from group_coordinator.classic.state import ClassicGroup, ClassicGroupChanged, ClassicState, session_key
from group_coordinator.registry import PARTS, codec_of
from tests.groups.counting import check_counts
from tests.harness.classic_members import Member, protocols
from tests.harness.group_world import classic_world
from tests.harness.groups import GROUP, OK, code

STEPS = 200
INSTANCES = (None, None, None, "i1", "i2", "i1")
RIVALRY = (20, 20, 20, 20, 20, 1)
"""Weight of each client's turns: two clients with one instance id that both insist would fence each other for ever."""
FORMING = (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
NAMES = (("range",), ("range", "sticky"), ("sticky", "range"))


def as_loaded(group: ClassicGroup) -> ClassicGroup:
    """The group as its stored bytes make it."""
    encoded = codec.ENCODERS[ClassicGroupChanged](ClassicGroupChanged(group, is_stored=True))
    assert encoded is not None
    assert encoded.value is not None
    loaded = codec.DECODERS[encoded.record_type](encoded.key, encoded.value)
    assert isinstance(loaded, ClassicGroupChanged)
    return replace(loaded.group, shard=group.shard)


class Churn:
    """One seeded run over one group of a few members, some of them static."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = classic_world(size_max=4)
        self.members = [self._member(instance) for instance in INSTANCES]
        self.waiting: list[Pending[Any]] = []
        self.ids: set[str] = set()
        self.synced_generation = 0
        self.seen_generation = 0

    def _member(self, instance_id: str | None) -> Member:
        return self.world.classic.member(
            instance_id,
            protocols=protocols(*self.random.choice(NAMES)),
            session_timeout_ms=self.random.choice((3_000, 20_000)),
            rebalance_timeout_ms=self.random.choice((2_000, 8_000)),
            one_step=self.random.random() < 0.2,
        )

    @property
    def group(self) -> ClassicGroup | None:
        shard = self.world.inside.runtime.shard(self.world.inside.groups.router.shard_key(GROUP))
        group = shard.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    @property
    def stored(self) -> ClassicGroup | None:
        """The group that a load would find now."""
        key = self.world.inside.groups.router.shard_key(GROUP)
        values = StateRows(codec_of(PARTS)).load(key)(self.world.shelf.store)
        found = next((value.group for value in values if isinstance(value, ClassicGroupChanged)), None)
        return None if found is None else replace(found, shard=key)

    # Steps

    def step(self) -> None:
        actions: list[tuple[Callable[[Member], None], int]] = [
            (self.go_on, 100),
            (self.join, 10),
            (self.sync, 10),
            (self.beat, 10),
            (self.wait_for_news, 5),
            (self.leave, 5),
            (self.change_mind, 5),
            (self.give_up, 5),
            (self.let_time_pass, 30),
            (self.flush, 20),
            (self.restart, 3),
            (self.crash, 3),
        ]
        (action,) = self.random.choices([each for each, _ in actions], [weight for _, weight in actions])
        (member,) = self.random.choices(self.members, RIVALRY)
        action(member)
        self.check()

    def go_on(self, member: Member) -> None:
        """Take the step that a client would take next."""
        group = self.group
        if group is None or member.member_id not in group.members:
            is_given = group is not None and member.member_id in group.given_ids
            self.called(member.join(member_id=None if is_given else ""))
        elif group.is_parked(member.member_id):
            return
        elif group.state is ClassicState.PREPARING_REBALANCE:
            self.called(member.join())
        elif member.member_id in group.unsynced:
            self.sync(member)
        else:
            self.beat(member)

    def join(self, member: Member) -> None:
        self.called(member.join(member_id="" if self.random.random() < 0.1 else None))

    def sync(self, member: Member) -> None:
        group = self.group
        plan = {} if group is None else {each: each[-4:].encode() for each in group.members}
        reply = member.sync(plan)
        reply.on_settled(partial(self.on_synced, generation=member.generation, member_id=member.member_id))
        self.called(reply)

    def on_synced(self, reply: Pending[Any], *, generation: int, member_id: str) -> None:
        """I6: the assignment that is answered survives everything from now on. I1."""
        if code(reply.result()) is OK:
            assert generation >= self.synced_generation
            self.synced_generation = generation
            stored = self.stored
            assert stored is not None
            assert stored.generation_id >= generation
            assignments = [each.assignment for each in stored.members.values() if each.member_id == member_id]
            assert stored.generation_id > generation or assignments == [reply.result().assignment]

    def beat(self, member: Member) -> None:
        self.called(member.heartbeat())

    def wait_for_news(self, member: Member) -> None:
        self.called(member.heartbeat(max_wait_ms=2_500))

    def leave(self, member: Member) -> None:
        member.leaves()

    def change_mind(self, member: Member) -> None:
        member.protocols = protocols(*self.random.choice(NAMES), metadata=self.random.randbytes(2))

    def give_up(self, _member: Member) -> None:
        if self.waiting:
            self.waiting.pop(self.random.randrange(len(self.waiting))).cancel()

    def let_time_pass(self, _member: Member) -> None:
        self.world.pass_time(self.random.choice((5, 1_000, 3_000)))

    def flush(self, _member: Member) -> None:
        self.world.settle()

    def restart(self, _member: Member) -> None:
        self.world.restart()
        self.on_loaded()

    def crash(self, _member: Member) -> None:
        self.world.crash(kept_groups=self.random.randrange(3))
        self.world.settle()
        self.on_loaded()

    def on_loaded(self) -> None:
        self.waiting.clear()
        self.seen_generation = 0
        group = self.group
        assert (0 if group is None else group.generation_id) >= self.synced_generation

    # Checks

    def called(self, reply: Pending[Any]) -> None:
        self.waiting.append(reply)
        if self.random.random() < 0.7:
            self.world.settle()

    def check(self) -> None:
        self.ids.update(member.member_id for member in self.members)
        self.waiting = [reply for reply in self.waiting if not reply.is_settled]
        group = self.group
        if group is None:
            return
        assert group.generation_id >= self.seen_generation
        self.seen_generation = group.generation_id
        self.check_members(group)
        if self.world.inside.driver.undurable_groups == 0:
            check_counts(self.world)
            self.check_timers(group)
            if group.state in (ClassicState.STABLE, ClassicState.EMPTY) and group.generation_id > 0:
                assert self.stored == as_loaded(group)

    def check_members(self, group: ClassicGroup) -> None:
        members = group.members
        instances = {each.instance_id: each.member_id for each in members.values() if each.instance_id is not None}
        assert group.static_members == instances
        assert len(instances) == sum(each.instance_id is not None for each in members.values())
        assert {*group.parked_joins, *group.parked_syncs} <= members.keys()
        assert group.unsynced <= members.keys()
        assert not group.given_ids & members.keys()
        assert (group.leader in members) if members else (group.leader is None)
        counts = {name for each in members.values() for name, _metadata in each.protocols}
        assert counts == group.supporters.keys()
        assert not group.parked_joins or group.state is ClassicState.PREPARING_REBALANCE
        assert not group.parked_syncs or group.state is ClassicState.COMPLETING_REBALANCE
        assert bool(members) or group.state in (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE)

    def check_timers(self, group: ClassicGroup) -> None:
        """I12, and the other way round: every member that could be gone is watched."""
        timers = self.world.inside.runtime.timers
        assert not timers._staged, "everything is durable"
        for member_id in self.ids | group.members.keys():
            is_known = member_id in group.members or member_id in group.given_ids
            is_armed = timers.is_decided(session_key(GROUP, member_id))
            assert is_known or not is_armed, f"a timer of {member_id}, which is gone"
            assert not is_known or is_armed or group.is_parked(member_id), f"no timer watches {member_id}"
        is_joining = group.state is ClassicState.PREPARING_REBALANCE
        assert timers.is_decided(("join", GROUP)) == is_joining
        assert timers.is_decided(("sync", GROUP)) == (group.state in FORMING and bool(group.unsynced))

    def end(self) -> None:
        """I7: without further calls, all that wait are answered, and all members are gone in the end."""
        self.world.settle()
        waiting = self.waiting
        self.world.pass_time(600_000)
        assert all(reply.is_settled for reply in waiting)
        assert len(self.world.inside.core.answers) == len(self.world.inside.core.news) == 0
        assert self.world.groups.timers() == {}
        assert self.world.classic.size() == 0


def run(seed: int) -> None:
    churn = Churn(seed)
    for _step in range(STEPS):
        churn.step()
    churn.end()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_breaks(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_nothing_breaks_in_many_runs(block: int) -> None:
    for seed in range(100 + 50 * block, 150 + 50 * block):
        try:
            run(seed)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}") from broken
