"""Settings of single groups. A setting without an override has the server's value.

Source: spec groups 8.2 ("per-group overrides").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.administration.requests import AlterGroupConfig
from group_coordinator.config import GroupConfig
from group_coordinator.state import OfGroup


class GroupConfigChanged(OfGroup, frozen=True):
    """Record: the overrides of one group, which need not exist. Empty if the server's values apply again."""

    overrides: Mapping[str, int]
    """Values by name; never changed, only replaced."""


SESSION_TIMEOUT_MS: Final = "consumer_session_timeout_ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer_heartbeat_interval_ms"


def altered(before: Mapping[str, int], command: AlterGroupConfig, config: GroupConfig) -> Mapping[str, int]:
    """Return the settings of a group after a change.

    Raises Refused INVALID_CONFIG for an unknown name, a value out of bounds, or a heartbeat interval that is not below
    the session timeout. Also for a name that is set twice, or both set and unset, since the intent is unclear.
    """
    wanted, unset = dict(command.wanted), command.unset
    for name, times in Counter(name for name, _value in command.wanted).items():
        if times > 1:
            raise _invalid(f"{name!a:.80} is set twice in one request; set it once")
    bounds = {
        SESSION_TIMEOUT_MS: (config.consumer_session_timeout_ms_min, config.consumer_session_timeout_ms_max),
        HEARTBEAT_INTERVAL_MS: (config.consumer_heartbeat_interval_ms_min, config.consumer_heartbeat_interval_ms_max),
    }
    for name in (*wanted, *unset):
        if name not in bounds:
            raise _invalid(f"groups have no setting {name!a:.80}; there are {', '.join(bounds)}")
        if name in wanted and name in unset:
            raise _invalid(f"{name} is set and unset in one request; choose one")
    for name, value in wanted.items():
        least, most = bounds[name]
        if not least <= value <= most:
            raise _invalid(f"{name} cannot be {value}: this server allows {least} to {most}")
    after = {name: value for name, value in {**before, **wanted}.items() if name not in unset}
    session_ms = after.get(SESSION_TIMEOUT_MS, config.consumer_session_timeout_ms)
    heartbeat_ms = after.get(HEARTBEAT_INTERVAL_MS, config.consumer_heartbeat_interval_ms)
    if heartbeat_ms >= session_ms:
        raise _invalid(
            f"a heartbeat every {heartbeat_ms} ms does not keep a session of {session_ms} ms alive; make the interval "
            "shorter or the timeout longer"
        )
    return after


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, why)


class GroupSettings:
    """Settings of the groups of one shard. Implements `group_coordinator.shard.PartState`."""

    def __init__(self, journal: Journal, config: GroupConfig) -> None:
        self._config = config
        self.overrides: TimelineMap[str, Mapping[str, int]] = TimelineMap(journal)
        """Settings that differ from the server's, by group id and name."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the silence after which a member of a consumer group is removed."""
        return self._setting(group_id, SESSION_TIMEOUT_MS, self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that members of a consumer group are given."""
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
