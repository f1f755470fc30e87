"""Checks of the share partitions in a stopped store.

What a share group knows of a partition lies within its log. An acknowledgement that is pending has a transaction that
will end.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.features import FEATURES_KEY, SHARE_GROUPS, features_of
from coordinator_runtime.store import Family
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged
from group_coordinator.share_partitions.state import AcknowledgingTransaction
from partition_log.state import PartitionHead
from txn_coordinator.state import DECIDED, Transaction, TransactionState
from txnctl.stopped import stored
from txnctl.stopped.history_audit import Findings
from txnctl.stopped.stored import StoredRows


def audit_shares(rows: StoredRows, heads: Mapping[int, PartitionHead], check: Findings) -> None:
    """Examine every share partition. `heads` are the positions of all partitions, by ordinal."""
    codec = share_codec()
    owners = {found.producer_id: (shard, found) for shard, found in stored.transactions_by_shard(rows)}
    for row in stored.state_rows(rows, Coordinator.SHARE_PARTITIONS):
        record = codec.decode(row.record_type, row.key, row.value)
        if isinstance(record, SharePartitionChanged):
            check.examined += 1
            _audit(record, heads.get(record.key.ordinal), check)
            for pending in record.partition.pending.values():
                why = _why_hanging(record.key, pending.transaction, owners.get(pending.transaction.producer_id))
                if why:
                    check.violated(f"{_name(record)} has acknowledgements of {_who(pending.transaction)}: {why}")
    if check.examined and SHARE_GROUPS not in features_of(rows.get(Family.META, FEATURES_KEY)):
        check.violated(f"there are share partitions, and the store does not name the feature {SHARE_GROUPS}")


def _audit(record: SharePartitionChanged, head: PartitionHead | None, check: Findings) -> None:
    name = _name(record)
    if head is None:
        check.violated(f"{name} is of no partition")
    elif record.partition.end_offset > head.log_end_offset:
        check.violated(
            f"{name} knows records up to {record.partition.end_offset}, and the log ends at {head.log_end_offset}"
        )


def _why_hanging(
    share: ShareKey, transaction: AcknowledgingTransaction, found: tuple[int, Transaction] | None
) -> str | None:
    """Return the reason for which no marker will end this transaction in the share partition; None if one will."""
    if found is None:
        return "its producer id belongs to no transactional id"
    shard, owner = found
    is_decided = owner.state in DECIDED
    name, epoch = repr(owner.transactional_id), owner.txn_epoch if is_decided else owner.producer_epoch
    if not is_decided and owner.state is not TransactionState.ONGOING:
        return f"{name} is {owner.state.api_name}"
    if epoch != transaction.producer_epoch:
        return f"{name} is at epoch {epoch}"
    if shard != transaction.after.coordinator_shard:
        return f"{name} belongs to coordinator shard {shard}"
    if share not in owner.shares:
        return f"{name} does not list the share partition"
    if is_decided and owner.csn <= transaction.after.csn:
        return f"the outcome {owner.csn} of {name} is not after {transaction.after.csn}"
    return None


def _name(record: SharePartitionChanged) -> str:
    return f"the share partition of group {record.key.group_id!r} with ordinal {record.key.ordinal}"


def _who(transaction: AcknowledgingTransaction) -> str:
    return f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}"
