"""Memory of the process about itself, shown to operators."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from coordinator_core.observed import NotedEvent, QuotaUse, Rates, Setting
from coordinator_server.events.recent import RecentEvents
from coordinator_server.metrics.history import RateMemory
from coordinator_server.settings.config import Config
from coordinator_server.traffic.quotas.budgets import Budgets


@dataclass(frozen=True, slots=True)
class ServerObserved:
    """Implements `coordinator_core.observation.Observed`."""

    history: RateMemory
    recent: RecentEvents
    config: Config
    origins: Mapping[str, str]
    """Sources of the settings by name; empty if they are not known."""
    budgets: Budgets | None

    def rates(self) -> Rates:
        return self.history.rates()

    def events(self, limit: int, kinds: Collection[str]) -> Sequence[NotedEvent]:
        return self.recent.newest(limit, kinds)

    def settings(self) -> Sequence[Setting]:
        values = self.config.model_dump(mode="json")
        return [Setting(name, json.dumps(value), self.origins.get(name, "")) for name, value in values.items()]

    def quotas(self) -> QuotaUse:
        return QuotaUse() if self.budgets is None else self.budgets.report()
