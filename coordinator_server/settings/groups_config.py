"""Settings of classic and consumer groups and of committed offsets, and the configuration of all groups."""

from __future__ import annotations

from coordinator_server.settings.setting_types import AssignorNames, NotNegative, Positive, assignor_names
from coordinator_server.settings.streams_config import StreamsConfig
from group_coordinator.config import GROUP_SIZE_MAX, GroupConfig, MigrationPolicy


class GroupsConfig(StreamsConfig):
    """The part of `Config` that is about groups."""

    group_session_timeout_ms_min: Positive = 6_000
    """Shortest session timeout that a member of a classic group may request. Too small: a pause of the client or the
    network costs a rebalance."""

    group_session_timeout_ms_max: Positive = 1_800_000
    """Longest session timeout that a member of a classic group may request. Too large: the partitions of a dead member
    are not read for that long."""

    group_initial_rebalance_delay_ms: NotNegative = 100
    """Time that an empty classic group waits for more members before its first rebalance. Kafka: 3,000. Too small: an
    application that starts many members at once rebalances once for each. Too large: it waits at every start."""

    group_size_max: Positive = GROUP_SIZE_MAX
    """Maximum number of members of a classic group. Too large: a rebalance of so many delays all other calls."""

    group_consumer_size_max: Positive = GROUP_SIZE_MAX
    """Maximum number of members of a consumer group."""

    group_consumer_session_timeout_ms: Positive = 45_000
    """Silence after which a member of a consumer group is removed. Too small: pauses cost memberships. Too large: the
    partitions of a dead member are not read for that long."""

    group_consumer_session_timeout_ms_min: Positive = 45_000
    """Shortest session timeout that a group's own settings may request."""

    group_consumer_session_timeout_ms_max: Positive = 60_000
    """Longest session timeout that a group's own settings may request."""

    group_consumer_heartbeat_interval_ms: Positive = 5_000
    """Interval of the heartbeats of a member of a consumer group; must be below the session timeout. Too small:
    heartbeats are most of the load. Too large: members that do not wait on the server for news learn late of a
    change."""

    group_consumer_heartbeat_interval_ms_min: Positive = 5_000
    """Shortest heartbeat interval that a group's own settings may request."""

    group_consumer_heartbeat_interval_ms_max: Positive = 15_000
    """Longest heartbeat interval that a group's own settings may request."""

    group_consumer_assignors: AssignorNames = "uniform,range"
    """Assignors of consumer groups, separated by commas; the first is used if the members prefer none."""

    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """Permitted changes of protocol of groups with members: bidirectional, upgrade (classic to consumer), downgrade or
    disabled. Groups without members may always change."""

    group_consumer_assignment_interval_ms: NotNegative = 50
    """Shortest time between two targets of one consumer group. A target is the assignment that its members are to
    reach. Kafka: 1,000. Too small: every member that joins costs a computation. Too large: members wait for their
    partitions."""

    group_consumer_regex_refresh_interval_ms: Positive = 600_000
    """Interval at which the patterns that members subscribe to are matched again. They are also matched after every
    change of topics or ACLs."""

    group_waits_max: Positive = 100_000
    """Maximum number of calls of members that wait for each other. The same number may wait for news. Each costs
    memory, and no work. Too small: a rebalance with more members takes its whole timeout, and members that could not
    wait are removed."""

    offsets_retention_ms: Positive = 7 * 24 * 3_600_000
    """Time for which a group keeps the offset of a topic that it no longer reads. Too small: an application that was
    stopped for longer starts at the beginning or the end. Too large: unused offsets keep their memory."""

    offsets_retention_check_interval_ms: Positive = 600_000
    """Interval at which a shard looks for expired offsets, and for groups with neither members nor offsets."""

    offset_metadata_length_max: Positive = 4_096
    """Maximum length of the free text beside a committed offset, in characters."""

    def group_config(self) -> GroupConfig:
        """Return the configuration of group coordination."""
        return GroupConfig(
            session_timeout_ms_min=self.group_session_timeout_ms_min,
            session_timeout_ms_max=self.group_session_timeout_ms_max,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            size_max=self.group_size_max,
            consumer_size_max=self.group_consumer_size_max,
            consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            consumer_session_timeout_ms_min=self.group_consumer_session_timeout_ms_min,
            consumer_session_timeout_ms_max=self.group_consumer_session_timeout_ms_max,
            consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            consumer_heartbeat_interval_ms_min=self.group_consumer_heartbeat_interval_ms_min,
            consumer_heartbeat_interval_ms_max=self.group_consumer_heartbeat_interval_ms_max,
            consumer_assignors=assignor_names(self.group_consumer_assignors),
            consumer_migration_policy=self.group_consumer_migration_policy,
            consumer_assignment_interval_ms=self.group_consumer_assignment_interval_ms,
            consumer_regex_refresh_interval_ms=self.group_consumer_regex_refresh_interval_ms,
            share_size_max=self.group_share_size_max,
            share_sessions_max=self.group_share_sessions_max,
            share_session_timeout_ms=self.group_share_session_timeout_ms,
            share_session_timeout_ms_min=self.group_share_session_timeout_ms_min,
            share_session_timeout_ms_max=self.group_share_session_timeout_ms_max,
            share_heartbeat_interval_ms=self.group_share_heartbeat_interval_ms,
            share_heartbeat_interval_ms_min=self.group_share_heartbeat_interval_ms_min,
            share_heartbeat_interval_ms_max=self.group_share_heartbeat_interval_ms_max,
            share_record_lock_duration_ms=self.group_share_record_lock_duration_ms,
            share_record_lock_duration_ms_min=self.group_share_record_lock_duration_ms_min,
            share_record_lock_duration_ms_max=self.group_share_record_lock_duration_ms_max,
            share_delivery_count_limit=self.group_share_delivery_count_limit,
            share_delivery_count_limit_min=self.group_share_delivery_count_limit_min,
            share_delivery_count_limit_max=self.group_share_delivery_count_limit_max,
            share_partition_max_record_locks=self.group_share_partition_max_record_locks,
            share_partition_max_record_locks_min=self.group_share_partition_max_record_locks_min,
            share_partition_max_record_locks_max=self.group_share_partition_max_record_locks_max,
            streams_size_max=self.group_streams_size_max,
            streams_session_timeout_ms=self.group_streams_session_timeout_ms,
            streams_session_timeout_ms_min=self.group_streams_session_timeout_ms_min,
            streams_session_timeout_ms_max=self.group_streams_session_timeout_ms_max,
            streams_heartbeat_interval_ms=self.group_streams_heartbeat_interval_ms,
            streams_heartbeat_interval_ms_min=self.group_streams_heartbeat_interval_ms_min,
            streams_heartbeat_interval_ms_max=self.group_streams_heartbeat_interval_ms_max,
            streams_initial_rebalance_delay_ms=self.group_streams_initial_rebalance_delay_ms,
            streams_num_standby_replicas=self.group_streams_num_standby_replicas,
            streams_num_standby_replicas_max=self.group_streams_num_standby_replicas_max,
            streams_num_warmup_replicas=self.group_streams_num_warmup_replicas,
            streams_num_warmup_replicas_max=self.group_streams_num_warmup_replicas_max,
            streams_acceptable_recovery_lag=self.group_streams_acceptable_recovery_lag,
            streams_task_offset_interval_ms=self.group_streams_task_offset_interval_ms,
            streams_task_offset_interval_ms_min=self.group_streams_task_offset_interval_ms_min,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            offset_metadata_length_max=self.offset_metadata_length_max,
        )
