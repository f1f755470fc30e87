"""How the core is configured, by whoever assembles it."""

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
    """What is promised to callers, and what is kept for how long."""

    limits: Limits = field(default_factory=Limits)
    shard_count: int = 64
    """Shards of transactional ids, of groups and of partitions. A store keeps the number that it was created with."""
    two_phase: TwoPhase = TwoPhase.FUSED
    two_phase_commit_enable: bool = False
    """Whether callers may take part in somebody else's two-phase commit (KIP-939)."""
    transactional_id_expiration_ms: int = EXPIRATION_MS
    partitions: PartitionConfig = field(default_factory=PartitionConfig)
    default_retention: Retention = KEEP_ALL
    """What partitions keep whose topics do not say it themselves."""
    default_timestamp_after_max_ms: int = FOR_EVER
    """Greatest lead of a timestamp over the clock in topics without a setting of their own."""
    history_retention_ms: int = HISTORY_RETENTION_MS
    """How long the history of coordinators is kept."""
    groups: GroupConfig = field(default_factory=GroupConfig)
    enforces_acls: bool = False
    """Whether callers may do only what the ACLs of the catalog allow them. False: everybody may do everything, and ACLs
    can be prepared."""
    super_users: tuple[str, ...] = ()
    """Principals that may do everything all the same."""
    group_waits_max: int = WAITING_MAX
    """Calls that may wait for other members of their groups."""
    lane: bool = True
    """Whether calls of the common shape take the fast path (`coordinator_core/fast_path.py`), or the general path,
    too."""
