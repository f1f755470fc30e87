"""A share partition whose events are counted and logged, as a server's are."""

from __future__ import annotations

from coordinator_runtime.decision import Turn
from coordinator_server.events.observer import GroupObserver
from coordinator_server.metrics.groups import GroupNumbers
from coordinator_server.metrics.instruments import Readings
from coordinator_server.metrics.shares import share_gauges
from group_coordinator.share_partitions.acquiring import Terms
from tests.harness.share_partitions import Shares, share_world
from tests.logs.lines import partition


class ObservedShares:
    """Ten records in batches of five, and a group that reads them from the beginning, each twice at most."""

    def __init__(self) -> None:
        self.shares = Shares(share_world(), terms=Terms(delivery_count_limit=2))
        self._numbers = GroupNumbers()
        tellers = GroupObserver(self._numbers, partition).tellers

        def observe(event: object, turn: Turn) -> None:
            if type(event) in tellers:
                tellers[type(event)](event, turn)

        self.shares.world.inside.runtime.on_event = observe
        self.shares.produce(5, 5)
        self.shares.begin()

    def readings(self) -> Readings:
        return {**self._numbers.shares.readings(), **share_gauges(self.shares.world.inside.runtime)}
