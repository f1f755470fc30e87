"""A server with groups whose events are counted and logged, as a server's are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import Turn
from coordinator_server.events import GroupObserver
from coordinator_server.metrics.groups import GroupNumbers, group_gauges
from coordinator_server.metrics.instruments import Histogram, Readings, Sample
from tests.groups.classic.members import Member, code
from tests.groups.committed.room import OffsetRoom
from tests.groups.room import KAFKA, RoomOptions


class ObservedGroups(OffsetRoom):
    """Counts from zero in every life, as a process does."""

    def __init__(self, options: RoomOptions | None = None) -> None:
        self.numbers = GroupNumbers()
        super().__init__(options)

    def _start(self) -> None:
        super()._start()
        self.numbers = GroupNumbers()
        tellers = GroupObserver(self.numbers).tellers

        def observe(event: object, turn: Turn) -> None:
            if type(event) in tellers:
                tellers[type(event)](event, turn)

        self.inside.runtime.on_event = observe

    def reconfigured(self, **config: Any) -> None:
        """The process is started anew, with other settings."""
        self.options = replace(self.options, config=replace(KAFKA, **config))
        self.restart()

    # What clients do, in short

    def pair(self) -> tuple[Member, Member]:
        """Leader and follower of a Stable classic group."""
        leader, follower = members = self.classic(), self.classic()
        self.classic_group(*members, plan={})
        return leader, follower

    def rejoin(self, *members: Member) -> list[ErrorCode]:
        """All of them join again; what each is answered."""
        replies = [member.join() for member in members]
        self.settle()
        return [code(reply.result()) for reply in replies]

    # What is published

    def readings(self) -> Readings:
        return {**self.numbers.readings(), **group_gauges(self.inside.runtime, self.clock.wall_ms())}

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
