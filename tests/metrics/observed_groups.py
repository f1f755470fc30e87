"""A server with groups whose events are counted and logged, as a server's are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator_core.assembly import Core
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Turn
from coordinator_server.events.observer import GroupObserver
from coordinator_server.metrics.groups import GroupNumbers, group_gauges
from coordinator_server.metrics.instruments import Histogram, Readings, Sample
from tests.harness.classic_members import Member
from tests.harness.group_world import KAFKA, group_world
from tests.harness.groups import code
from tests.logs.lines import partition


class ObservedGroups:
    """A world with groups. Counts from zero in every life, as a process does."""

    def __init__(self, **settings: Any) -> None:
        self.world = group_world(on_assembled=self._observe, **settings)

    def _observe(self, core: Core) -> None:
        self.numbers = GroupNumbers()
        tellers = GroupObserver(self.numbers, partition).tellers

        def observe(event: object, turn: Turn) -> None:
            if type(event) in tellers:
                tellers[type(event)](event, turn)

        core.runtime.on_event = observe

    def reconfigured(self, **config: Any) -> None:
        """The process is started anew, with other settings."""
        self.world.options = replace(self.world.options, group_config=replace(KAFKA, **config))
        self.world.restart()

    # Calls of clients, in short

    def pair(self) -> tuple[Member, Member]:
        """Leader and follower of a Stable classic group."""
        classic = self.world.classic
        leader, follower = members = classic.subscriber(), classic.subscriber()
        classic.form(*members, plan={})
        return leader, follower

    def rejoin(self, *members: Member) -> list[ErrorCode]:
        """All of them join again; what each is answered."""
        replies = [member.join() for member in members]
        self.world.settle()
        return [code(reply.result()) for reply in replies]

    # Metrics

    def readings(self) -> Readings:
        return {**self.numbers.readings(), **group_gauges(self.world.inside.runtime, self.world.clock.wall_ms())}

    def sample(self, name: str, *labels: str) -> Sample:
        return self.readings()[f"txn_group_{name}"][labels]

    def value(self, name: str, *labels: str) -> float:
        value = self.sample(name, *labels)
        assert not isinstance(value, Histogram)
        return value

    def histogram(self, name: str, *labels: str) -> Histogram:
        value = self.sample(name, *labels)
        assert isinstance(value, Histogram)
        return value

    def non_zero(self, name: str) -> dict[tuple[str, ...], float]:
        values = self.readings()[f"txn_group_{name}"]
        return {labels: value for labels, value in values.items() if not isinstance(value, Histogram) and value}
