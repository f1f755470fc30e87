"""Checks of the share partitions in a stopped store: what share groups know of a partition lies within its log."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.features import FEATURES_KEY, SHARE_GROUPS, features_of
from coordinator_runtime.store import Family
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.records import SharePartitionChanged
from partition_log.state import PartitionHead
from txnctl.stopped import stored
from txnctl.stopped.history_audit import Findings
from txnctl.stopped.stored import StoredRows


def audit_shares(rows: StoredRows, heads: Mapping[int, PartitionHead], check: Findings) -> None:
    """Examine every share partition. `heads` are the positions of all partitions, by ordinal."""
    codec = share_codec()
    for row in stored.state_rows(rows, Coordinator.SHARE_PARTITIONS):
        record = codec.decode(row.record_type, row.key, row.value)
        if isinstance(record, SharePartitionChanged):
            check.examined += 1
            _audit(record, heads.get(record.key.ordinal), check)
    if check.examined and SHARE_GROUPS not in features_of(rows.get(Family.META, FEATURES_KEY)):
        check.violated(f"there are share partitions, and the store does not name the feature {SHARE_GROUPS}")


def _audit(record: SharePartitionChanged, head: PartitionHead | None, check: Findings) -> None:
    name = f"the share partition of group {record.key.group_id!r} with ordinal {record.key.ordinal}"
    if head is None:
        check.violated(f"{name} is of no partition")
    elif record.partition.end_offset > head.log_end_offset:
        check.violated(
            f"{name} knows records up to {record.partition.end_offset}, and the log ends at {head.log_end_offset}"
        )
