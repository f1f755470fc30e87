"""Configuration of the group coordinator: every number that Kafka lets an operator set, with Kafka's default unless
noted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

INT32_MAX: Final = 2**31 - 1
GROUP_SIZE_MAX: Final = INT32_MAX
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Longest time that a new member may stay parked in its first JoinGroup (spec groups 2.3)."""


class MigrationPolicy(StrEnum):
    """Direction in which a group with members may change its protocol (Kafka's `group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


class Bounded(NamedTuple):
    """A setting that single groups may have, and the bounds of their values."""

    value: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and intervals of the group coordinator. Source: spec groups 8.2.

    `coordinator_server.settings.config` describes each setting, and the consequences of values that are too small or
    large.
    """

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 100
    """Kafka waits 3,000 ms for more members to join. Here members learn of a rebalance at once, so a late one costs
    little."""
    size_max: int = GROUP_SIZE_MAX
    consumer_size_max: int = GROUP_SIZE_MAX
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_ms_min: int = 45_000
    consumer_session_timeout_ms_max: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_heartbeat_interval_ms_min: int = 5_000
    consumer_heartbeat_interval_ms_max: int = 15_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is used if the members have no preference."""
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    consumer_assignment_interval_ms: int = 50
    """Shortest time between two computations of a target of one group. Kafka's 1,000 ms suits members that learn of a
    rebalance only with their next heartbeat."""
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_metadata_refresh_ms: int = 300_000
    share_size_max: int = 200
    share_sessions_max: int = 10_000
    """Maximum number of share sessions of the server, in all groups together."""
    share_session_timeout_ms: int = 45_000
    share_session_timeout_ms_min: int = 45_000
    share_session_timeout_ms_max: int = 60_000
    share_heartbeat_interval_ms: int = 5_000
    share_heartbeat_interval_ms_min: int = 5_000
    share_heartbeat_interval_ms_max: int = 15_000
    share_record_lock_duration_ms: int = 30_000
    share_record_lock_duration_ms_min: int = 15_000
    share_record_lock_duration_ms_max: int = 60_000
    share_delivery_count_limit: int = 5
    share_delivery_count_limit_min: int = 2
    share_delivery_count_limit_max: int = 10
    share_partition_max_record_locks: int = 2_000
    share_partition_max_record_locks_min: int = 100
    share_partition_max_record_locks_max: int = 4_000
    streams_size_max: int = GROUP_SIZE_MAX
    streams_session_timeout_ms: int = 45_000
    streams_session_timeout_ms_min: int = 45_000
    streams_session_timeout_ms_max: int = 60_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_heartbeat_interval_ms_min: int = 5_000
    streams_heartbeat_interval_ms_max: int = 15_000
    streams_initial_rebalance_delay_ms: int = 3_000
    """A task that moves restores its state elsewhere, so waiting for members is worth it."""
    streams_num_standby_replicas: int = 0
    streams_num_standby_replicas_max: int = 2
    streams_num_warmup_replicas: int = 2
    streams_num_warmup_replicas_max: int = 20
    streams_acceptable_recovery_lag: int = 10_000
    streams_task_offset_interval_ms: int = 60_000
    streams_task_offset_interval_ms_min: int = 15_000
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_length_max: int = 4_096
    """Largest length of the metadata of an offset, in characters as in Kafka."""

    def __post_init__(self) -> None:
        """Raise ValueError if the numbers contradict each other."""
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise ValueError(
                f"group_session_timeout_ms_min is {self.session_timeout_ms_min} and must be at most "
                f"group_session_timeout_ms_max, {self.session_timeout_ms_max}"
            )
        for setting, bounded in (
            ("group_consumer_session_timeout_ms", self.consumer_session),
            ("group_consumer_heartbeat_interval_ms", self.consumer_heartbeat),
            ("group_share_session_timeout_ms", self.share_session),
            ("group_share_heartbeat_interval_ms", self.share_heartbeat),
            ("group_share_record_lock_duration_ms", self.share_record_lock),
            ("group_share_delivery_count_limit", self.share_delivery_count),
            ("group_share_partition_max_record_locks", self.share_record_locks),
            ("group_streams_session_timeout_ms", self.streams_session),
            ("group_streams_heartbeat_interval_ms", self.streams_heartbeat),
            ("group_streams_num_standby_replicas", self.streams_standbys),
            ("group_streams_num_warmup_replicas", self.streams_warmups),
            ("group_streams_task_offset_interval_ms", self.streams_offset_interval),
        ):
            _check_bounded(setting, bounded)
        _check_heartbeat("consumer", self.consumer_heartbeat, self.consumer_session)
        _check_heartbeat("share", self.share_heartbeat, self.share_session)
        _check_heartbeat("streams", self.streams_heartbeat, self.streams_session)

    @property
    def consumer_session(self) -> Bounded:
        return Bounded(
            self.consumer_session_timeout_ms,
            self.consumer_session_timeout_ms_min,
            self.consumer_session_timeout_ms_max,
        )

    @property
    def consumer_heartbeat(self) -> Bounded:
        return Bounded(
            self.consumer_heartbeat_interval_ms,
            self.consumer_heartbeat_interval_ms_min,
            self.consumer_heartbeat_interval_ms_max,
        )

    @property
    def share_session(self) -> Bounded:
        return Bounded(
            self.share_session_timeout_ms, self.share_session_timeout_ms_min, self.share_session_timeout_ms_max
        )

    @property
    def share_heartbeat(self) -> Bounded:
        return Bounded(
            self.share_heartbeat_interval_ms,
            self.share_heartbeat_interval_ms_min,
            self.share_heartbeat_interval_ms_max,
        )

    @property
    def share_record_lock(self) -> Bounded:
        return Bounded(
            self.share_record_lock_duration_ms,
            self.share_record_lock_duration_ms_min,
            self.share_record_lock_duration_ms_max,
        )

    @property
    def share_delivery_count(self) -> Bounded:
        return Bounded(
            self.share_delivery_count_limit, self.share_delivery_count_limit_min, self.share_delivery_count_limit_max
        )

    @property
    def share_record_locks(self) -> Bounded:
        return Bounded(
            self.share_partition_max_record_locks,
            self.share_partition_max_record_locks_min,
            self.share_partition_max_record_locks_max,
        )

    @property
    def streams_session(self) -> Bounded:
        return Bounded(
            self.streams_session_timeout_ms, self.streams_session_timeout_ms_min, self.streams_session_timeout_ms_max
        )

    @property
    def streams_heartbeat(self) -> Bounded:
        return Bounded(
            self.streams_heartbeat_interval_ms,
            self.streams_heartbeat_interval_ms_min,
            self.streams_heartbeat_interval_ms_max,
        )

    @property
    def streams_initial_delay(self) -> Bounded:
        return Bounded(self.streams_initial_rebalance_delay_ms, 0, INT32_MAX)

    @property
    def streams_standbys(self) -> Bounded:
        return Bounded(self.streams_num_standby_replicas, 0, self.streams_num_standby_replicas_max)

    @property
    def streams_warmups(self) -> Bounded:
        return Bounded(self.streams_num_warmup_replicas, 0, self.streams_num_warmup_replicas_max)

    @property
    def streams_recovery_lag(self) -> Bounded:
        return Bounded(self.streams_acceptable_recovery_lag, 0, INT32_MAX)

    @property
    def streams_offset_interval(self) -> Bounded:
        return Bounded(self.streams_task_offset_interval_ms, self.streams_task_offset_interval_ms_min, INT32_MAX)


def _check_bounded(setting: str, bounded: Bounded) -> None:
    if not bounded.least <= bounded.value <= bounded.most:
        raise ValueError(
            f"{setting} is {bounded.value} and must be from {bounded.least} to {bounded.most}, which {setting}_min and"
            f" {setting}_max say"
        )


def _check_heartbeat(kind: str, heartbeat: Bounded, session: Bounded) -> None:
    if heartbeat.value >= session.value:
        raise ValueError(
            f"group_{kind}_heartbeat_interval_ms is {heartbeat.value} and must be below "
            f"group_{kind}_session_timeout_ms, {session.value}"
        )
