"""The settings that single groups have of their own; for all others those of the server stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.administration.records import GroupConfigChanged
from group_coordinator.administration.rules import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from group_coordinator.config import GroupConfig


class GroupSettings:
    """The settings of the groups of one shard. Implements `group_coordinator.shard.PartState`."""

    def __init__(self, journal: Journal, config: GroupConfig) -> None:
        self._config = config
        self.overrides: TimelineMap[str, Mapping[str, int]] = TimelineMap(journal)
        """Settings that differ from the server's, by group id and name."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Silence after which a member of a consumer group is removed."""
        return self._setting(group_id, SESSION_TIMEOUT_MS, self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Pause that members of a consumer group are told to make."""
        return self._setting(group_id, HEARTBEAT_INTERVAL_MS, self._config.consumer_heartbeat_interval_ms)

    def _setting(self, group_id: str, name: str, default: int) -> int:
        overrides = self.overrides.get(group_id)
        return default if overrides is None else overrides.get(name, default)

    def replays(self) -> dict[type, Callable[[Any], None]]:
        return {GroupConfigChanged: self._change}

    def _change(self, record: GroupConfigChanged) -> None:
        if record.overrides:
            self.overrides.put(record.group_id, record.overrides)
        else:
            self.overrides.remove(record.group_id)
