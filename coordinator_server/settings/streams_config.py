"""Settings of streams groups."""

from __future__ import annotations

from coordinator_server.settings.setting_types import NotNegative, Positive
from coordinator_server.settings.share_config import ShareConfig
from group_coordinator.config import GROUP_SIZE_MAX


class StreamsConfig(ShareConfig):
    """The part of `Config` that is about streams groups."""

    group_streams_size_max: Positive = GROUP_SIZE_MAX
    """Maximum number of members of a streams group. Too small: an application cannot grow. Too large: each member that
    joins or leaves changes the tasks of many."""

    group_streams_session_timeout_ms: Positive = 45_000
    """Silence after which a member of a streams group is removed, and its tasks go to others. Too small: pauses move
    tasks, which restore their state elsewhere. Too large: the tasks of a dead member wait that long."""

    group_streams_session_timeout_ms_min: Positive = 45_000
    """Shortest session timeout that a group's own settings may request."""

    group_streams_session_timeout_ms_max: Positive = 60_000
    """Longest session timeout that a group's own settings may request."""

    group_streams_heartbeat_interval_ms: Positive = 5_000
    """Interval of the heartbeats of a member of a streams group; must be below the session timeout. Too small:
    heartbeats are most of the load. Too large: members that do not wait on the server for news learn late of new
    tasks."""

    group_streams_heartbeat_interval_ms_min: Positive = 5_000
    """Shortest heartbeat interval that a group's own settings may request."""

    group_streams_heartbeat_interval_ms_max: Positive = 15_000
    """Longest heartbeat interval that a group's own settings may request."""

    group_streams_initial_rebalance_delay_ms: NotNegative = 3_000
    """Time for which a new streams group waits for more members, before any of them gets tasks. Too small: the first
    member begins with all tasks, and gives most of them up again. Too large: an application starts late."""

    group_streams_num_standby_replicas: NotNegative = 0
    """Number of standby tasks for each stateful task of a streams group. Too small: a task restores its whole state
    after a failure. Too large: each copy takes disk, and reads the changelog."""

    group_streams_num_standby_replicas_max: NotNegative = 2
    """Largest number of standby tasks that a group's own settings may request."""

    group_streams_num_warmup_replicas: NotNegative = 2
    """Maximum number of tasks of a streams group that warm up at a time, before they move; 0 = tasks move at once. Too
    small: a new member gets its share slowly. Too large: restoring disturbs the work."""

    group_streams_num_warmup_replicas_max: NotNegative = 20
    """Largest number of warm-up tasks that a group's own settings may request."""

    group_streams_acceptable_recovery_lag: NotNegative = 10_000
    """Number of changelog records that a copy of a task may lack to count as caught up. Too small: busy tasks never
    move. Too large: a task that moves processes nothing until it has restored the rest."""

    group_streams_task_offset_interval_ms: Positive = 60_000
    """Interval at which members of a streams group report how far the copies of their tasks are. Too small: reports are
    most of the load. Too large: warm-up tasks move late."""

    group_streams_task_offset_interval_ms_min: Positive = 15_000
    """Shortest interval of these reports that a group's own settings may request."""
