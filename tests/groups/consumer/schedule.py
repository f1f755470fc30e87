"""A random schedule of everything that can happen to the members of a consumer group; one seed fixes it all.

After every step: no partition is held by two members, no epoch went back, and what a client owns no other owns. At
the end, once it is quiet, everybody holds its target, and a load from the store gives an equal group.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from group_coordinator.consumer.group import ConsumerGroup
from tests.groups.counting import check_counts
from tests.harness.consumers import Consumer, Partitions, partition_set
from tests.harness.group_world import group_world
from tests.harness.groups import OK, code

_MEMBERS = 5
_TOPICS = (("foo",), ("foo", "bar"), ("bar", "zar"), ("foo", "bar", "zar"))


def run_schedule(seed: int, steps: int) -> None:
    """Raises AssertionError with the seed and the step where something was wrong."""
    schedule = Schedule(seed)
    for number in range(steps):
        try:
            schedule.step()
            schedule.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}, {schedule.last}: {error}") from error
    schedule.calm_down()


@dataclass
class Client:
    """A process that consumes. It gives partitions up one step after it was asked to."""

    consumer: Consumer
    is_member: bool = False
    owned: Partitions = frozenset()
    must_say_all: bool = False
    """An answer was lost: the next heartbeat says everything."""
    topics: tuple[str, ...] = field(default=("foo",))


class Schedule:
    """The world, the clients and what was seen."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = group_world(topics={"foo": 7, "bar": 3, "zar": 1})
        self.clients = [self._new_client(number) for number in range(_MEMBERS)]
        self.last = "nothing"
        self._epoch = 0
        self._assignment_epoch = 0

    def _new_client(self, number: int) -> Client:
        # Two of them are static.
        instance_id = f"i{number}" if number < 2 else None
        return Client(self.world.consumers.member(f"m{number}-0", instance_id))

    def step(self) -> None:
        kinds = {
            "join": 3,
            "beat": 12,
            "acknowledge": 12,
            "lose": 4,
            "leave": 1,
            "away": 1,
            "subscribe": 1,
            "silence": 1,
            "restart": 1,
        }
        kind = self.rng.choices([*kinds], [*kinds.values()])[0]
        client = self.rng.choice(self.clients)
        self.last = f"{kind} of {client.consumer.member_id}"
        getattr(self, f"_{kind}")(client)

    # Steps

    def _join(self, client: Client) -> None:
        if client.is_member:
            return
        client.owned = frozenset()
        client.topics = self.rng.choice(_TOPICS)
        self._hear(client, client.consumer.joins(*client.topics))

    def _beat(self, client: Client) -> None:
        if client.is_member:
            self._hear(client, client.consumer.beats(**self._fields(client, says_owned=False)))

    def _acknowledge(self, client: Client) -> None:
        if client.is_member:
            client.owned = client.consumer.assigned
            self._hear(client, client.consumer.beats(**self._fields(client, says_owned=True)))

    def _lose(self, client: Client) -> None:
        """The server hears, and the client does not."""
        if client.is_member:
            self.world.ask(client.consumer.request(**self._fields(client, says_owned=True)))
            client.must_say_all = True

    def _leave(self, client: Client) -> None:
        if client.is_member:
            self.world.ask(client.consumer.request(-1))
            self._forget(client)

    def _away(self, client: Client) -> None:
        """A static member goes, and its next process comes under a new id."""
        if client.is_member and client.consumer.instance_id is not None:
            assert code(client.consumer.goes_for_a_moment()) in {OK, ErrorCode.FENCED_INSTANCE_ID}
            self._forget(client)

    def _subscribe(self, client: Client) -> None:
        if client.is_member:
            client.topics = self.rng.choice(_TOPICS)
            client.must_say_all = True
            self._beat(client)

    def _silence(self, client: Client) -> None:
        """Silence for a while; some sessions end."""
        self.world.pass_time(self.rng.choice((1_000, 9_000, 20_000)))

    def _restart(self, client: Client) -> None:
        self.world.restart()

    # Answers to a client

    def _fields(self, client: Client, *, says_owned: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if client.must_say_all:
            fields["rebalance_timeout_ms"] = 10_000
            fields["subscribed_topic_names"] = group_pb2.TopicNames(names=client.topics)
        if says_owned or client.must_say_all:
            fields["topic_partitions"] = partition_set(client.owned)
        return fields

    def _hear(self, client: Client, response: Any) -> None:
        if code(response) is not OK:
            assert code(response) in {
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            }, response
            self._forget(client, keeps_id=True)
            return
        client.is_member = True
        client.must_say_all = False
        # Partitions that it shall give up are still its own until it says otherwise.
        client.owned |= client.consumer.assigned

    def _forget(self, client: Client, *, keeps_id: bool = False) -> None:
        client.is_member = False
        client.owned = client.consumer.assigned = frozenset()
        client.consumer.epoch = 0
        if not keeps_id:
            number, life = client.consumer.member_id.split("-")
            client.consumer.member_id = f"{number}-{int(life) + 1}"

    # Checks

    def check(self) -> None:
        check_counts(self.world)
        if not self.world.groups.has():
            return
        group = self.world.consumers.group()
        held: dict[tuple[bytes, int], str] = {}
        for member_id, assignment in group.assignments.items():
            for each in (assignment.assigned, assignment.pending_revocation):
                for topic_id, numbers in each.items():
                    for number in numbers:
                        other = held.setdefault((topic_id, number), member_id)
                        assert other == member_id, f"{other} and {member_id} hold {number}"
                        assert group.owner(topic_id, number) == member_id
        epochs = group.epochs
        assert epochs.group_epoch >= self._epoch, "the group epoch went back"
        assert epochs.assignment_epoch >= self._assignment_epoch, "the assignment epoch went back"
        self._epoch, self._assignment_epoch = epochs.group_epoch, epochs.assignment_epoch
        self._check_clients(group)

    def _check_clients(self, group: ConsumerGroup) -> None:
        """Assert that no two clients that the server still knows own the same partition."""
        seen: dict[tuple[str, int], str] = {}
        for client in self.clients:
            member_id = client.consumer.member_id
            if client.is_member and member_id in group.members:
                for partition in client.owned:
                    assert partition not in seen, f"{member_id} and {seen[partition]} own {partition}"
                    seen[partition] = member_id

    def calm_down(self) -> None:
        for client in self.clients:
            if not client.is_member or client.must_say_all:
                self._forget(client, keeps_id=True)
                # A static member whose last process never said good-bye waits for the end of its session.
                if code(client.consumer.joins("foo", "bar")) is ErrorCode.UNRELEASED_INSTANCE_ID:
                    self.world.pass_time(45_001)
        for _round in range(2):
            for client in self.clients:
                response = client.consumer.acknowledges()
                if code(response) is not OK:
                    self._forget(client, keeps_id=True)
                    assert code(client.consumer.joins("foo", "bar")) is OK
        self.world.consumers.quiet(*(client.consumer for client in self.clients))
        assert self.world.consumers.state() == "Stable"
        before = snapshot(self.world.consumers.group())
        self.world.restart()
        assert snapshot(self.world.consumers.group()) == before


def snapshot(group: ConsumerGroup) -> Mapping[str, Any]:
    """Everything of a group that a load brings back."""
    maps = {
        name: dict(getattr(group, name).items())
        for name in ("members", "targets", "assignments", "regexes", "classic", "_instances", "_epochs")
    }
    maps["targets"] = {member_id: share for member_id, share in maps["targets"].items() if share}
    maps["owners"] = {topic_id: dict(owners.items()) for topic_id, owners in group._owners.items() if len(owners)}
    maps["subscriptions"] = {each: group._subscriptions.get(each) for each in group.subscriptions()}
    return maps
