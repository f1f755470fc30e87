"""Metrics of share partitions: events, counted as they become durable, and gauges from the totals that shards keep."""

from __future__ import annotations

from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.runtime import Runtime
from coordinator_server.metrics.instruments import Readings, by_label, counts, single
from group_coordinator.share_partitions.draft import ArchiveReason, LetterEnd
from group_coordinator.share_partitions.events import (
    LettersDropped,
    LockExpired,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsArchived,
    RecordsPending,
    RecordsSettled,
)
from group_coordinator.share_partitions.shard import ShareShard


class ShareNumbers:
    """Counts of events of share partitions since the process started."""

    def __init__(self) -> None:
        self._deliveries = counts("first", "again")
        self._acknowledged = 0
        self._expired = 0
        self._settled = counts(*(outcome.name.lower() for outcome in Outcome))
        self._archived = counts(*(reason.value for reason in ArchiveReason))
        self._letters = counts(*(end.value for end in LetterEnd if end is not LetterEnd.NONE))

    def acquired(self, event: RecordsAcquired) -> None:
        self._deliveries["first"] += event.record_count - event.redelivered_count
        self._deliveries["again"] += event.redelivered_count

    def acknowledged(self, event: RecordsAcknowledged | RecordsPending) -> None:
        self._acknowledged += event.record_count

    def settled(self, event: RecordsSettled) -> None:
        self._settled[event.outcome.name.lower()] += event.record_count

    def expired(self, event: LockExpired) -> None:
        self._expired += event.record_count

    def archived(self, event: RecordsArchived) -> None:
        self._archived[event.reason.value] += event.record_count
        if event.letter is not LetterEnd.NONE:
            self._letters[event.letter.value] += event.record_count

    def dropped(self, event: LettersDropped) -> None:
        self._letters[LetterEnd.DROPPED.value] += event.letter_count

    def readings(self) -> Readings:
        """Return all counts."""
        return {
            "txn_share_deliveries_total": by_label(self._deliveries),
            "txn_share_acknowledgements_total": single(self._acknowledged),
            "txn_share_settled_total": by_label(self._settled),
            "txn_share_locks_expired_total": single(self._expired),
            "txn_share_archived_total": by_label(self._archived),
            "txn_share_dead_letters_total": by_label(self._letters),
        }


def share_gauges(runtime: Runtime) -> Readings:
    """Return the numbers of share partitions, held records, pending records and due letters, in the shards that serve.
    Looks at no share partition."""
    shards: list[ShareShard] = runtime.shards(Coordinator.SHARE_PARTITIONS)
    numbers = [shard.counts() for shard in shards]
    return {
        "txn_share_partitions": single(sum(each.partitions for each in numbers)),
        "txn_share_acquired_records": single(sum(each.held_records for each in numbers)),
        "txn_share_pending_records": single(sum(each.pending_records for each in numbers)),
        "txn_share_due_letters": single(sum(each.due_letters for each in numbers)),
    }
