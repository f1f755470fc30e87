"""Configuration of the core, set by the code that assembles it."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator_protocol.limits import Limits
from coordinator_runtime.history_trim import HISTORY_RETENTION_MS
from coordinator_runtime.late_answers import WAITING_MAX
from group_coordinator.config import GroupConfig
from partition_log.catalog.settings import FOR_EVER, KEEP_ALL, Retention
from partition_log.state import PartitionConfig
from txn_coordinator.config import EXPIRATION_MS, TwoPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Limits, defaults and retention of the core."""

    limits: Limits = field(default_factory=Limits)
    shard_count: int = 64
    """Number of shards of transactional ids, of groups and of partitions. A store keeps the number that it was created
    with."""
    two_phase: TwoPhase = TwoPhase.FUSED
    two_phase_commit_enable: bool = False
    """True if callers may be participants in a two-phase commit that another system coordinates (KIP-939)."""
    transactional_id_expiration_ms: int = EXPIRATION_MS
    partitions: PartitionConfig = field(default_factory=PartitionConfig)
    default_retention: Retention = KEEP_ALL
    """Retention of partitions whose topics have no setting of their own."""
    default_timestamp_after_max_ms: int = FOR_EVER
    """Greatest lead of a timestamp over the clock in topics without a setting of their own."""
    history_retention_ms: int = HISTORY_RETENTION_MS
    """Retention of the history of coordinators (ms)."""
    groups: GroupConfig = field(default_factory=GroupConfig)
    enforces_acls: bool = False
    """True if callers may do only what the ACLs of the catalog allow. With False they may do everything, and ACLs can
    be prepared."""
    super_users: tuple[str, ...] = ()
    """Principals that may do everything, whatever the ACLs say."""
    group_waits_max: int = WAITING_MAX
    """Maximum number of calls that wait for other members of their groups."""
    lane: bool = True
    """True if calls of the common shape take the fast path (`coordinator_core/fast_path.py`). With False they take the
    general path, like all others."""
