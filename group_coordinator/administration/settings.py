"""Settings of single groups. A setting without an override has the server's value.

Values are stored as whole numbers. A setting whose values are words has a number for each of them: `SETTINGS` is the
table. The name of a topic is stored as text.

Source: spec groups 8.2 ("per-group overrides"); KIP-932, KIP-1191, KIP-1222 for the settings of share groups, KIP-1071
for those of streams groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.administration.requests import AlterGroupConfig
from group_coordinator.administration.words import NUMBERS, OFFSET_RESETS, TOPIC, Words, words_of
from group_coordinator.config import Bounded, GroupConfig
from group_coordinator.state import OfGroup


class GroupConfigChanged(OfGroup, frozen=True):
    """Record: the overrides of one group, which need not exist. Empty if the server's values apply again."""

    overrides: Mapping[str, int | str]
    """Values by name, as they are stored; never changed, only replaced."""


SESSION_TIMEOUT_MS: Final = "consumer_session_timeout_ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer_heartbeat_interval_ms"
SHARE_SESSION_TIMEOUT_MS: Final = "share_session_timeout_ms"
SHARE_HEARTBEAT_INTERVAL_MS: Final = "share_heartbeat_interval_ms"
SHARE_RECORD_LOCK_DURATION_MS: Final = "share_record_lock_duration_ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share_delivery_count_limit"
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = "share_partition_max_record_locks"
SHARE_AUTO_OFFSET_RESET: Final = "share_auto_offset_reset"
SHARE_ISOLATION_LEVEL: Final = "share_isolation_level"
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = "share_renew_acknowledge_enable"
SHARE_DEAD_LETTER_TOPIC: Final = "share_dead_letter_topic"
STREAMS_SESSION_TIMEOUT_MS: Final = "streams_session_timeout_ms"
STREAMS_HEARTBEAT_INTERVAL_MS: Final = "streams_heartbeat_interval_ms"
STREAMS_INITIAL_REBALANCE_DELAY_MS: Final = "streams_initial_rebalance_delay_ms"
STREAMS_NUM_STANDBY_REPLICAS: Final = "streams_num_standby_replicas"
STREAMS_NUM_WARMUP_REPLICAS: Final = "streams_num_warmup_replicas"
STREAMS_ACCEPTABLE_RECOVERY_LAG: Final = "streams_acceptable_recovery_lag"
STREAMS_TASK_OFFSET_INTERVAL_MS: Final = "streams_task_offset_interval_ms"


class GroupSetting(Struct, frozen=True):
    """One setting that a group may have."""

    of_server: Callable[[GroupConfig], int | str]
    """Returns the value without an override."""
    bounds: Callable[[GroupConfig], tuple[int, int]] | None = None
    """Returns the least and the greatest value of a number."""
    words: Words = NUMBERS

    @property
    def has_words(self) -> bool:
        """True if its values are words."""
        return self.bounds is None


def _number(of_config: Callable[[GroupConfig], Bounded]) -> GroupSetting:
    return GroupSetting(
        lambda config: of_config(config).value, lambda config: (of_config(config).least, of_config(config).most)
    )


def _words(default: str, words: Words) -> GroupSetting:
    value = words.read(default)
    assert value is not None, "the default is one of the words"
    return GroupSetting(lambda _config: value, words=words)


SETTINGS: Final[Mapping[str, GroupSetting]] = {
    SESSION_TIMEOUT_MS: _number(lambda config: config.consumer_session),
    HEARTBEAT_INTERVAL_MS: _number(lambda config: config.consumer_heartbeat),
    SHARE_SESSION_TIMEOUT_MS: _number(lambda config: config.share_session),
    SHARE_HEARTBEAT_INTERVAL_MS: _number(lambda config: config.share_heartbeat),
    SHARE_RECORD_LOCK_DURATION_MS: _number(lambda config: config.share_record_lock),
    SHARE_DELIVERY_COUNT_LIMIT: _number(lambda config: config.share_delivery_count),
    SHARE_PARTITION_MAX_RECORD_LOCKS: _number(lambda config: config.share_record_locks),
    SHARE_AUTO_OFFSET_RESET: _words("latest", OFFSET_RESETS),
    SHARE_ISOLATION_LEVEL: _words("read_uncommitted", words_of("read_uncommitted", "read_committed")),
    SHARE_RENEW_ACKNOWLEDGE_ENABLE: _words("true", words_of("false", "true")),
    SHARE_DEAD_LETTER_TOPIC: _words("", TOPIC),
    STREAMS_SESSION_TIMEOUT_MS: _number(lambda config: config.streams_session),
    STREAMS_HEARTBEAT_INTERVAL_MS: _number(lambda config: config.streams_heartbeat),
    STREAMS_INITIAL_REBALANCE_DELAY_MS: _number(lambda config: config.streams_initial_delay),
    STREAMS_NUM_STANDBY_REPLICAS: _number(lambda config: config.streams_standbys),
    STREAMS_NUM_WARMUP_REPLICAS: _number(lambda config: config.streams_warmups),
    STREAMS_ACCEPTABLE_RECOVERY_LAG: _number(lambda config: config.streams_recovery_lag),
    STREAMS_TASK_OFFSET_INTERVAL_MS: _number(lambda config: config.streams_offset_interval),
}
"""Settings of groups by name."""

_PAIRS: Final = (
    (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS),
    (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS),
    (STREAMS_SESSION_TIMEOUT_MS, STREAMS_HEARTBEAT_INTERVAL_MS),
)
"""Session timeouts, each with the heartbeat interval that must be below it."""


def shown(name: str, value: int | str) -> int | str:
    """Return the value of a setting as users see it: a word, if its values are words."""
    setting = SETTINGS.get(name)
    return value if setting is None else setting.words.show(value)


def altered(before: Mapping[str, int | str], command: AlterGroupConfig, config: GroupConfig) -> Mapping[str, int | str]:
    """Return the settings of a group after a change.

    Raises Refused INVALID_CONFIG for an unknown name, a value out of bounds, or a text that is none of the words. Also
    for a heartbeat interval that is not below the session timeout. A name that is set twice, or both set and unset, is
    refused too, since the intent is unclear.
    """
    unset = command.unset
    for name, times in Counter(name for name, _value in command.wanted).items():
        if times > 1:
            raise _invalid(f"{name!a:.80} is set twice in one request; set it once")
    named = [name for name, _value in command.wanted]
    for name in (*named, *unset):
        if name not in SETTINGS:
            raise _invalid(f"groups have no setting {name!a:.80}; there are {', '.join(SETTINGS)}")
        if name in named and name in unset:
            raise _invalid(f"{name} is set and unset in one request; choose one")
    wanted = {name: _stored(name, value, config) for name, value in command.wanted}
    after = {name: value for name, value in {**before, **wanted}.items() if name not in unset}
    for session, heartbeat in _PAIRS:
        session_ms, heartbeat_ms = (
            int(after.get(each, SETTINGS[each].of_server(config))) for each in (session, heartbeat)
        )
        if heartbeat_ms >= session_ms:
            raise _invalid(
                f"a heartbeat every {heartbeat_ms} ms does not keep a session of {session_ms} ms alive; make "
                f"{heartbeat} shorter or {session} longer"
            )
    return after


def _stored(name: str, value: int | str, config: GroupConfig) -> int | str:
    """Return the value in its stored form. Raises Refused INVALID_CONFIG."""
    setting = SETTINGS[name]
    stored = setting.words.read(value)
    if stored is None:
        raise _invalid(f"{name} cannot be {value!a:.80}: give {setting.words.described}")
    if setting.bounds is not None and isinstance(stored, int):
        least, most = setting.bounds(config)
        if not least <= stored <= most:
            raise _invalid(f"{name} cannot be {stored}: this server allows {least} to {most}")
    return stored


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, why)


class ShareSettings(Struct, frozen=True):
    """Settings of one share group for the delivery of its records."""

    record_lock_duration_ms: int
    """Time that a member has to acknowledge records (ms)."""
    delivery_count_limit: int
    """Number of deliveries after which a record is not delivered again."""
    partition_max_record_locks: int
    """Maximum number of records in flight in one partition."""
    auto_offset_reset: int
    """Beginning of a new share partition: `words.EARLIEST`, `words.LATEST`, or an age in ms."""
    is_read_committed: bool
    """True if records of open transactions wait, and those of aborted ones are not delivered."""
    is_renew_enabled: bool
    """True if members may renew the locks of their records."""
    dead_letter_topic: str = ""
    """Topic that gets a letter of each record that is given up; empty for none."""


class StreamsSettings(Struct, frozen=True):
    """Settings of one streams group."""

    session_timeout_ms: int
    """Silence after which a member is removed."""
    heartbeat_interval_ms: int
    initial_rebalance_delay_ms: int
    """Time that the first target of a new group waits for more members."""
    num_standby_replicas: int
    """Number of standby tasks for each stateful task."""
    num_warmup_replicas: int
    """Maximum number of warm-up tasks at a time."""
    acceptable_recovery_lag: int
    """Lag at which a copy counts as caught up, in records of its changelogs."""
    task_offset_interval_ms: int
    """Interval at which members report the offsets of their tasks."""


class GroupSettings:
    """Settings of the groups of one shard. Implements `group_coordinator.shard.PartState`."""

    def __init__(self, journal: Journal, config: GroupConfig) -> None:
        self._of_server = {name: setting.of_server(config) for name, setting in SETTINGS.items()}
        """Values without an override, by name."""
        self.overrides: TimelineMap[str, Mapping[str, int | str]] = TimelineMap(journal)
        """Settings that differ from the server's, by group id and name."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the silence after which a member of a consumer group is removed."""
        return self._setting(group_id, SESSION_TIMEOUT_MS)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that members of a consumer group are given."""
        return self._setting(group_id, HEARTBEAT_INTERVAL_MS)

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Return the silence after which a member of a share group is removed."""
        return self._setting(group_id, SHARE_SESSION_TIMEOUT_MS)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that members of a share group are given."""
        return self._setting(group_id, SHARE_HEARTBEAT_INTERVAL_MS)

    def of_shares(self, group_id: str) -> ShareSettings:
        """Return the settings of a share group for the delivery of its records."""
        return ShareSettings(
            record_lock_duration_ms=self._setting(group_id, SHARE_RECORD_LOCK_DURATION_MS),
            delivery_count_limit=self._setting(group_id, SHARE_DELIVERY_COUNT_LIMIT),
            partition_max_record_locks=self._setting(group_id, SHARE_PARTITION_MAX_RECORD_LOCKS),
            auto_offset_reset=self._setting(group_id, SHARE_AUTO_OFFSET_RESET),
            is_read_committed=bool(self._setting(group_id, SHARE_ISOLATION_LEVEL)),
            is_renew_enabled=bool(self._setting(group_id, SHARE_RENEW_ACKNOWLEDGE_ENABLE)),
            dead_letter_topic=self._text(group_id, SHARE_DEAD_LETTER_TOPIC),
        )

    def of_streams(self, group_id: str) -> StreamsSettings:
        """Return the settings of a streams group."""
        return StreamsSettings(
            session_timeout_ms=self._setting(group_id, STREAMS_SESSION_TIMEOUT_MS),
            heartbeat_interval_ms=self._setting(group_id, STREAMS_HEARTBEAT_INTERVAL_MS),
            initial_rebalance_delay_ms=self._setting(group_id, STREAMS_INITIAL_REBALANCE_DELAY_MS),
            num_standby_replicas=self._setting(group_id, STREAMS_NUM_STANDBY_REPLICAS),
            num_warmup_replicas=self._setting(group_id, STREAMS_NUM_WARMUP_REPLICAS),
            acceptable_recovery_lag=self._setting(group_id, STREAMS_ACCEPTABLE_RECOVERY_LAG),
            task_offset_interval_ms=self._setting(group_id, STREAMS_TASK_OFFSET_INTERVAL_MS),
        )

    def _setting(self, group_id: str, name: str) -> int:
        overrides = self.overrides.get(group_id)
        own = None if overrides is None else overrides.get(name)
        return int(self._of_server[name] if own is None else own)

    def _text(self, group_id: str, name: str) -> str:
        overrides = self.overrides.get(group_id) or {}
        return str(overrides.get(name, self._of_server[name]))

    def replays(self) -> dict[type, Callable[[Any], None]]:
        return {GroupConfigChanged: self._change}

    def _change(self, record: GroupConfigChanged) -> None:
        if record.overrides:
            self.overrides.put(record.group_id, record.overrides)
        else:
            self.overrides.remove(record.group_id)
