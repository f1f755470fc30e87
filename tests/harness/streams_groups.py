"""Streams groups as the tests speak of them: each member remembers its answers, as a client does.

streams = streams_groups()
first, second = streams.members("first", "second")
first.joins(WORDS)
second.joins(WORDS)
streams.starts()                       # the delay of the first target passes
first.beats()                          # learns its tasks
first.gives_up()                       # says that it has no more than that
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_api.v1 import group_pb2
from coordinator_runtime.pending import Pending
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World

Tasks = frozenset[tuple[str, int]]
DELAY_MS: Final = 3_000
REBALANCE_TIMEOUT_MS: Final = 30_000


def topology(*subtopologies: group_pb2.StreamsSubtopology, epoch: int = 1) -> group_pb2.StreamsTopology:
    return group_pb2.StreamsTopology(epoch=epoch, subtopologies=subtopologies)


def subtopology(
    name: str,
    *sources: str,
    changelogs: Iterable[str] = (),
    repartition: Mapping[str, int] | None = None,
    sinks: Iterable[str] = (),
    together: Iterable[tuple[Iterable[int], Iterable[int]]] = (),
) -> group_pb2.StreamsSubtopology:
    """`repartition`: its repartition sources with their numbers of partitions or 0. `together`: co-partition groups."""
    return group_pb2.StreamsSubtopology(
        subtopology_id=name,
        source_topics=sources,
        state_changelog_topics=[group_pb2.StreamsInternalTopic(name=each) for each in changelogs],
        repartition_source_topics=[
            group_pb2.StreamsInternalTopic(name=each, partition_count=count)
            for each, count in (repartition or {}).items()
        ],
        repartition_sink_topics=sinks,
        copartition_groups=[
            group_pb2.StreamsCopartitionGroup(source_topics=outside, repartition_source_topics=internal)
            for outside, internal in together
        ],
    )


PLAIN: Final = topology(subtopology("0", "foo"))
"""One stateless subtopology: six tasks."""
COUNTS: Final = topology(subtopology("0", "foo", changelogs=["counts"]))
"""One stateful subtopology: six tasks."""
WORDS: Final = topology(
    subtopology("0", "foo", sinks=["by-word"]),
    subtopology("1", changelogs=["counts"], repartition={"by-word": 0}),
)
"""The word count: six stateless tasks, and six stateful ones behind a repartition topic."""


def tasks(name: str, *partitions: int) -> Tasks:
    return frozenset((name, number) for number in partitions)


def tasks_of(messages: Iterable[group_pb2.StreamsTaskIds]) -> Tasks:
    return frozenset((each.subtopology_id, number) for each in messages for number in each.partitions)


def task_ids(held: Iterable[tuple[str, int]]) -> list[group_pb2.StreamsTaskIds]:
    by_name: dict[str, list[int]] = {}
    for name, number in sorted(held):
        by_name.setdefault(name, []).append(number)
    return [group_pb2.StreamsTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_name.items()]


@dataclass
class StreamsMember:
    """One client, in a process of its own unless named otherwise."""

    world: World
    member_id: str = "m"
    group_id: str = GROUP
    process_id: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its joins."""
    epoch: int = 0
    active: Tasks = frozenset()
    standby: Tasks = frozenset()
    warmup: Tasks = frozenset()
    statuses: list[str] = field(default_factory=list)
    """Statuses in its last answer."""

    def request(self, member_epoch: int | None = None, **fields: Any) -> group_pb2.StreamsGroupHeartbeatRequest:
        return group_pb2.StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if member_epoch is None else member_epoch,
            **fields,
        )

    def join_request(self, wanted: group_pb2.StreamsTopology, **fields: Any) -> group_pb2.StreamsGroupHeartbeatRequest:
        given = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topology": wanted,
            "owned_tasks": group_pb2.StreamsTasks(),
            "process_id": self.process_id or f"process of {self.member_id}",
            **self.settings,
            **fields,
        }
        return self.request(0, **{name: value for name, value in given.items() if value is not None})

    def hears(self, response: Any) -> Any:
        """Take up what was answered."""
        if code(response) is OK:
            self.epoch = response.member_epoch
            self.statuses = [
                group_pb2.StreamsStatusCode.Name(each.code).removeprefix("STREAMS_STATUS_CODE_")
                for each in response.statuses
            ]
            if response.HasField("assignment"):
                given = response.assignment
                self.active, self.standby, self.warmup = map(tasks_of, (given.active, given.standby, given.warmup))
        return response

    def joins(self, wanted: group_pb2.StreamsTopology = PLAIN, **fields: Any) -> Any:
        return self.hears(self.world.ask(self.join_request(wanted, **fields)))

    def beats(self, member_epoch: int | None = None, **fields: Any) -> Any:
        return self.hears(self.world.ask(self.request(member_epoch, **fields)))

    def owned(self) -> group_pb2.StreamsTasks:
        active, standby, warmup = map(task_ids, (self.active, self.standby, self.warmup))
        return group_pb2.StreamsTasks(active=active, standby=standby, warmup=warmup)

    def gives_up(self) -> Any:
        """Report that it has the tasks of its last assignment, and no others."""
        return self.beats(owned_tasks=self.owned())

    def reports(self, **lags: int) -> Any:
        """Report the lag of tasks, named as `s_0_3` for task 3 of subtopology 0."""
        offsets = []
        for name, lag in lags.items():
            _s, subtopology_id, partition = name.split("_")
            offsets.append(
                group_pb2.StreamsTaskOffset(
                    subtopology_id=subtopology_id, partition=int(partition), offset=1_000, end_offset=1_000 + lag
                )
            )
        return self.beats(task_offsets=group_pb2.StreamsTaskOffsets(offsets=offsets))

    def waits(self, max_wait_ms: int = 5_000) -> Pending[Any]:
        """A heartbeat that waits for news, with the tasks that the member has."""
        waiting = self.world.call(self.request(max_wait_ms=max_wait_ms, owned_tasks=self.owned()))
        waiting.on_settled(lambda reply: self.hears(reply.result()))
        return waiting

    def leaves(self) -> Any:
        return self.beats(-1)


@dataclass
class StreamsGroups:
    """The streams groups of a world, and their members."""

    world: World

    def member(self, member_id: str = "m", **settings: Any) -> StreamsMember:
        """Return a member that has not joined yet."""
        return StreamsMember(self.world, member_id, **settings)

    def members(self, *member_ids: str, **settings: Any) -> list[StreamsMember]:
        return [self.member(member_id, **settings) for member_id in member_ids]

    def starts(self) -> None:
        """Let the delay of the first target pass."""
        self.world.pass_time(DELAY_MS)

    def runs(self, *members: StreamsMember, wanted: group_pb2.StreamsTopology = PLAIN) -> None:
        """Let members join, and come to what they are to have."""
        for member in members:
            member.joins(wanted)
        self.starts()
        self.settles(*members)

    def settles(self, *members: StreamsMember) -> None:
        """Let members beat until nothing moves any more."""
        for _round in range(20):
            before = [(each.epoch, each.active, each.standby, each.warmup) for each in members]
            for member in members:
                member.gives_up()
            if before == [(each.epoch, each.active, each.standby, each.warmup) for each in members]:
                return
        raise AssertionError("the members never come to rest")

    def describe(self, group_id: str = GROUP) -> Any:
        return self.world.ask(group_pb2.StreamsGroupDescribeRequest(group_ids=[group_id])).groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return str(self.describe(group_id).group_state)

    def epoch(self, group_id: str = GROUP) -> int:
        return int(self.describe(group_id).group_epoch)

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    def alter(self, group_id: str = GROUP, **values: int) -> Any:
        """Set settings of the group."""
        configs = [group_pb2.GroupConfig(name=f"streams_{name}", value=value) for name, value in values.items()]
        return code(self.world.ask(group_pb2.AlterGroupConfigsRequest(group_id=group_id, set=configs)))


def streams_groups(**settings: Any) -> StreamsGroups:
    """A server for streams groups. The settings are those of `group_world`."""
    return StreamsGroups(group_world(**settings))
