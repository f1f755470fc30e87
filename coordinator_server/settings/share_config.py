"""Settings of share groups."""

from __future__ import annotations

from coordinator_server.settings.setting_types import Positive
from coordinator_server.settings.store_config import StoreConfig


class ShareConfig(StoreConfig):
    """The part of `Config` that is about share groups."""

    group_share_size_max: Positive = 200
    """Maximum number of members of a share group. Too large: each one that joins or leaves changes the assignment of
    many."""

    group_share_sessions_max: Positive = 10_000
    """Maximum number of share sessions of this server, one for each member that fetches. Beyond it a new one is refused
    with SHARE_SESSION_LIMIT_REACHED, and tried again. Kafka: 2,000. Too small: members wait for others to leave. Too
    large: each takes memory, with 200 bytes for a partition."""

    group_share_session_timeout_ms: Positive = 45_000
    """Silence after which a member of a share group is removed, and its records are delivered to others. Too small:
    pauses cost deliveries. Too large: the records of a dead member wait until their locks end."""

    group_share_session_timeout_ms_min: Positive = 45_000
    """Shortest session timeout that a group's own settings may request."""

    group_share_session_timeout_ms_max: Positive = 60_000
    """Longest session timeout that a group's own settings may request."""

    group_share_heartbeat_interval_ms: Positive = 5_000
    """Interval of the heartbeats of a member of a share group; must be below the session timeout. Too small:
    heartbeats are most of the load. Too large: members that do not wait on the server for news learn late of new
    partitions."""

    group_share_heartbeat_interval_ms_min: Positive = 5_000
    """Shortest heartbeat interval that a group's own settings may request."""

    group_share_heartbeat_interval_ms_max: Positive = 15_000
    """Longest heartbeat interval that a group's own settings may request."""

    group_share_record_lock_duration_ms: Positive = 30_000
    """Time that a member of a share group has to acknowledge a record, before it is delivered again. Too small: slow
    work is done twice. Too large: records of a member that hangs wait for that long."""

    group_share_record_lock_duration_ms_min: Positive = 15_000
    """Shortest lock that a group's own settings may request."""

    group_share_record_lock_duration_ms_max: Positive = 60_000
    """Longest lock that a group's own settings may request."""

    group_share_delivery_count_limit: Positive = 5
    """Number of deliveries of a record, after which it is not delivered again. Too small: failures that pass cost
    records. Too large: a record that cannot be processed is tried for long."""

    group_share_delivery_count_limit_min: Positive = 2
    """Smallest limit of deliveries that a group's own settings may request."""

    group_share_delivery_count_limit_max: Positive = 10
    """Largest limit of deliveries that a group's own settings may request."""

    group_share_partition_max_record_locks: Positive = 2_000
    """Maximum number of records of a partition in flight in one share group. Too small: members wait for each other.
    Too large: memory, and a restart delivers so many again."""

    group_share_partition_max_record_locks_min: Positive = 100
    """Smallest number of records in flight that a group's own settings may request."""

    group_share_partition_max_record_locks_max: Positive = 4_000
    """Largest number of records in flight that a group's own settings may request."""
