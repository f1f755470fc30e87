"""Panels about consumer groups and share groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.grafana.kinds import Latency, Panel, Query, chosen, rate

GROUPS: Final[Sequence[Panel | Latency]] = (
    Panel(
        "Groups, by state",
        "Many in a rebalance for long: runbook TxnGroupRebalanceStorm.",
        "short",
        [Query(f"sum by (instance, kind, state) ({chosen('txn_group_groups')})", "{{kind}}, {{state}}")],
        is_stacked=True,
    ),
    Panel(
        "Lag in records",
        "What the chosen groups (metrics_lag_groups) have not read, by where committed or all readers end.",
        "short",
        [
            Query(chosen("txn_group_lag_records"), "{{group}} of {{topic}}, {{isolation}}"),
            Query(chosen("txn_group_lag_omitted"), "pairs without numbers"),
        ],
    ),
    Panel(
        "Lag in time",
        "How old the first record is that they have not read.",
        "s",
        [Query(chosen("txn_group_lag_seconds"), "{{group}} of {{topic}}, {{isolation}}")],
    ),
    Panel(
        "Lag in time, against half an hour ago",
        "Above 0 they fall back. Streams of Spark with a groupId are among them. Runbook TxnStreamBehind.",
        "s",
        [Query(f"delta({chosen('txn_group_lag_seconds')}[30m])", "{{group}} of {{topic}}, {{isolation}}")],
    ),
    Panel(
        "Members that come and go",
        "By why they went: session, rebalance and sync are members that were thrown out.",
        "ops",
        [
            Query(rate("txn_group_member_joins_total", "kind"), "joined {{kind}}"),
            Query(rate("txn_group_member_leaves_total", "reason"), "left, {{reason}}"),
        ],
    ),
    Panel(
        "Rebalances",
        "Begun, completed, failed.",
        "ops",
        [
            Query(rate("txn_group_rebalances_total", "kind"), "begun, {{kind}}"),
            Query(rate("txn_group_rebalances_completed_total", "kind"), "completed, {{kind}}"),
            Query(rate("txn_group_rebalances_failed_total", "kind"), "failed, {{kind}}"),
        ],
    ),
    Latency("How long rebalances take", "Until every member has its part.", "txn_group_rebalance_seconds"),
    Panel(
        "Targets",
        "How long a computation takes on average, by where, and how many members each changed.",
        "short",
        [
            Query(
                f"{rate('txn_group_assignment_seconds_sum', 'assignor, place')} /"
                f" {rate('txn_group_assignment_seconds_count', 'assignor, place')}",
                "{{assignor}} in the {{place}}, seconds",
            ),
            Query(rate("txn_group_assignment_changes_total", "assignor"), "{{assignor}} changes per second"),
        ],
    ),
    Panel(
        "Offsets",
        "Committed, settled by markers, and pending in open transactions: what stable fetches wait for.",
        "short",
        [
            Query(rate("txn_group_offset_commits_total", "type"), "commits per second, {{type}}"),
            Query(rate("txn_group_offsets_settled_total", "outcome"), "settled per second, {{outcome}}"),
            Query(chosen("txn_group_pending_offsets"), "pending"),
            Query(chosen("txn_group_open_transactions"), "transactions that hold some"),
            Query(chosen("txn_group_offsets"), "kept"),
        ],
    ),
    Panel(
        "Age of the oldest pending offset",
        "How long a group has waited for a transaction.",
        "s",
        [Query(chosen("txn_group_oldest_pending_offset_age_seconds"), "{{instance}}")],
    ),
    Panel(
        "Groups and offsets that come and go",
        "Made, deleted, converted; offsets that expired or were deleted; calls that wait.",
        "short",
        [
            Query(rate("txn_group_creations_total", "kind"), "made, {{kind}}"),
            Query(rate("txn_group_deletions_total", "kind, cause"), "gone, {{kind}}, {{cause}}"),
            Query(rate("txn_group_converted_total", "kind"), "converted to {{kind}}"),
            Query(rate("txn_group_offset_expirations_total"), "offsets expired"),
            Query(rate("txn_group_offset_deletions_total"), "offsets deleted"),
            Query(chosen("txn_group_waiting_calls"), "calls waiting, {{reason}}"),
        ],
    ),
    Panel(
        "Records of share groups",
        "Handed out, acknowledged, taken back, not handed out again by reason, and dead letters.",
        "short",
        [
            Query(rate("txn_share_deliveries_total", "delivery"), "delivered per second, {{delivery}}"),
            Query(rate("txn_share_acknowledgements_total"), "acknowledged per second"),
            Query(rate("txn_share_locks_expired_total"), "locks expired per second"),
            Query(rate("txn_share_archived_total", "reason"), "archived per second, {{reason}}"),
            Query(rate("txn_share_settled_total", "outcome"), "settled by transactions per second, {{outcome}}"),
            Query(chosen("txn_share_acquired_records"), "held"),
            Query(chosen("txn_share_pending_records"), "waiting for a transaction"),
            Query(chosen("txn_share_partitions"), "share partitions"),
            Query(rate("txn_share_dead_letters_total", "end"), "letters per second, {{end}}"),
            Query(chosen("txn_share_due_letters"), "letters to be written"),
        ],
    ),
)
