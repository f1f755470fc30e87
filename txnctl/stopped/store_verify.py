"""White-box checks of a stopped store: the consistency of its rows with each other, tested row by row.

Nothing is changed. The code that wrote the rows is not used to check them (see `stored`).

Source: spec log-and-runtime 6.2 (white-box checks on a stopped database).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Final

from google.protobuf.message import DecodeError

from coordinator_api.storage.v1 import transaction_pb2
from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.engine import StoppedStore
from coordinator_runtime.ports import EndIdentity
from coordinator_runtime.store import Family, StoreUnreadable
from coordinator_runtime.unknown_rows import UnknownRow
from partition_log import index_rows
from partition_log.batches import LogDamaged
from partition_log.catalog.settings import PayloadValidation
from partition_log.catalog.state import OrdinalsAllocated, TopicSet
from partition_log.epoch_rows import load_epochs
from partition_log.load_checks import RowsMissing
from partition_log.state import AbortedTransaction, PartitionHead, ProducerEntry
from txn_coordinator.codec import CSN_TYPE, UNOWNED_MARKER_TYPE, decode_unowned_marker
from txn_coordinator.state import DECIDED, TransactionState
from txnctl.stopped import known_rows, stored
from txnctl.stopped.column_audit import Columns, totals_words
from txnctl.stopped.history_audit import DecidedOutcome, audit_history, decisions
from txnctl.stopped.partition_audit import (
    LoggedMarker,
    PartitionAudit,
    audit_log,
    damage_of,
    producer_differences,
    remembered_differences,
)
from txnctl.stopped.share_audit import audit_shares
from txnctl.stopped.stored import StoredRows

_UNREADABLE: Final = (
    StoreUnreadable,
    LogDamaged,
    Refused,
    UnknownRow,
    RowsMissing,
    DecodeError,
    struct.error,
    ValueError,
    IndexError,
)
"""Errors that reading a damaged row of any kind may raise."""

VIOLATIONS_KEPT_MAX: Final = 1_000
"""Largest number of violations kept for each check. A store that is broken throughout should not fill the memory."""


@dataclass(slots=True)
class Check:
    """One promise, the number of items that it was tested on, and the violations."""

    name: str
    promise: str
    unit: str
    """Unit of `examined`, for example "batches"."""
    examined: int = 0
    violation_count: int = 0
    violations: list[str] = field(default_factory=list)

    def violated(self, what: str) -> None:
        """Note a violation of the promise."""
        self.violation_count += 1
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(what)


def durable_check(store: StoppedStore) -> Check:
    """Check that no commit group is missing that was reported durable."""
    check = Check("durable", "what was reported durable is there", "group versions", examined=store.version())
    if store.loss is not None:
        check.violated(store.loss)
    return check


def verify_store(rows: StoredRows) -> list[Check]:
    """Run all checks. An unreadable row is a violation of the check that needs it, never an exception."""
    return _Verification(rows).run()


class _Verification:
    """One run over one store."""

    def __init__(self, rows: StoredRows) -> None:
        self._rows = rows
        self._names: dict[int, str] = {}
        self._validated: set[int] = set()
        """Ordinals of partitions that accept only batches that readers can decode."""
        self._heads: dict[int, PartitionHead] = {}
        self._markers: dict[EndIdentity, dict[int, list[LoggedMarker]]] = defaultdict(lambda: defaultdict(list))
        """Markers by the identity of the ended transaction, then by partition ordinal."""
        self._unread: set[int] = set()
        """Ordinals of partitions whose markers are not all known, because the log was trimmed or is damaged."""
        self._open: list[tuple[int, int, ProducerEntry]] = []
        """(partition ordinal, producer id, entry) of every transaction that is open in a partition."""

    def run(self) -> list[Check]:
        return [
            self._checked(self._check_known, "known", "every row that matters is of a kind that is known", "rows"),
            self._checked(self._check_catalog, "catalog", "every partition of every topic has its log", "partitions"),
            *self._check_partitions(),
            self._checked(
                partial(audit_history, self._rows),
                "history",
                "the newest step of a key tells its state, and steps follow each other",
                "steps",
            ),
            self._checked(
                self._check_outcomes,
                "outcomes",
                "every decided outcome has exactly one marker in each of its partitions, with its csn",
                "outcomes",
            ),
            self._checked(
                lambda check: audit_shares(self._rows, self._heads, check),
                "shares",
                "what share groups know of a partition lies within its log, and what waits there for a transaction has"
                " one",
                "share partitions",
            ),
            self._checked(
                self._check_hanging, "hanging", "the coordinator knows every transaction open in a partition", "open"
            ),
        ]

    def _check_known(self, check: Check) -> None:
        for family in (Family.META, Family.PARTITIONS, Family.PRODUCERS, Family.COORDINATOR_STATE):
            for key, _value in stored.rows_of(self._rows, family):
                check.examined += 1
                if known_rows.kind_of(family, key) is None and known_rows.is_needed(family, key):
                    check.violated(
                        f"{family.name} has a row {key.hex()} of a kind that only a newer program knows: start the"
                        " version that wrote it, or a later one"
                    )

    def _checked(self, check: Callable[[Check], None], name: str, promise: str, unit: str) -> Check:
        result = Check(name, promise, unit)
        try:
            check(result)
        except _UNREADABLE as damage:
            result.violated(f"a row cannot be read: {_words(damage)}")
        return result

    # Topics and partitions

    def _check_catalog(self, check: Check) -> None:
        self._heads = stored.heads(self._rows)
        records = stored.catalog(self._rows)
        next_ordinal = max((found.next_ordinal for found in records if isinstance(found, OrdinalsAllocated)), default=0)
        for record in records:
            if not isinstance(record, TopicSet):
                continue
            for partition, ordinal in enumerate(record.topic.partition_ordinals):
                name = f"{record.topic.name}-{partition}"
                check.examined += 1
                if ordinal in self._names:
                    check.violated(f"{name} and {self._names[ordinal]} share the ordinal {ordinal}")
                if ordinal not in self._heads:
                    check.violated(f"{name} (ordinal {ordinal}) has no row of positions")
                if ordinal >= next_ordinal:
                    check.violated(f"{name} has the ordinal {ordinal}, which was never given (next: {next_ordinal})")
                self._names[ordinal] = name
                if record.topic.validate_payload is PayloadValidation.FULL:
                    self._validated.add(ordinal)
        for ordinal in sorted(self._heads.keys() - self._names.keys()):
            check.violated(f"the partition with ordinal {ordinal} belongs to no topic")

    def _check_partitions(self) -> list[Check]:
        log = Check("batches", "offsets follow each other, every checksum is right, readers can decode", "batches")
        placement = Check("placement", "no transactional batch lies outside its transaction", "transactional batches")
        positions = Check(
            "positions", "LSO, log end, leader epochs and open transactions are what the log says", "partitions"
        )
        stretches = Check("stretches", "what lies before the end of a stretch is what the log says", "stretches")
        producers = Check("producers", "producer entries are what the log says", "producers")
        index = Check(
            "index", "the index holds the aborted transactions of the log where readers look, and no others", "rows"
        )
        for ordinal, head in sorted(self._heads.items()):
            name = self._names.get(ordinal, f"ordinal {ordinal}")
            if head.log_start_offset > 0 or head.compacted_to > 0:
                self._unread.add(ordinal)
                # Removed records cannot be recomputed. The rest is checked batch by batch.
                try:
                    self._check_what_is_left(ordinal, name, log, stretches)
                    self._check_left_positions(ordinal, name, positions)
                    self._check_left_index(ordinal, name, index)
                except _UNREADABLE as damage:
                    log.violated(f"{name}: a row cannot be read: {_words(damage)}")
                continue
            try:
                read_from = partial(stored.batches, self._rows, ordinal)
                kept = stored.stretches(self._rows, ordinal)
                audit = audit_log(read_from, head.forgotten, kept, opens_payloads=ordinal in self._validated)
                self._note(log, name, audit.batch_count, audit.damaged)
                if not audit.is_whole:
                    self._unread.add(ordinal)
                    continue
                self._note(placement, name, audit.transactional_batches, audit.misplaced)
                self._check_positions(positions, ordinal, name, audit)
                self._note(stretches, name, len(kept), list(audit.columns.differences()))
                self._check_producers(producers, ordinal, name, audit)
                self._check_index(index, ordinal, name, audit)
            except _UNREADABLE as damage:
                log.violated(f"{name}: a row cannot be read: {_words(damage)}")
                self._unread.add(ordinal)
                continue
            for logged in audit.markers:
                self._markers[logged.identity][ordinal].append(logged)
        return [log, placement, positions, stretches, producers, index]

    def _note(self, check: Check, name: str, examined: int, violations: list[str]) -> None:
        check.examined += examined
        for violation in violations:
            check.violated(f"{name}: {violation}")

    def _check_what_is_left(self, ordinal: int, name: str, check: Check, stretches: Check) -> None:
        head, end_offset = self._heads[ordinal], None
        kept = [each for each in stored.stretches(self._rows, ordinal) if each.last_offset >= head.log_start_offset]
        columns = Columns(kept)
        for batch in stored.batches(self._rows, ordinal):
            check.examined += 1
            is_left = batch.header.last_offset >= head.log_start_offset
            if is_left and end_offset is None:
                # Older rows may or may not be there. The row that holds the log start stays.
                end_offset = min(batch.header.base_offset, max(head.log_start_offset, head.compacted_to))
            problem = _misplaced(batch.header, end_offset, head.compacted_to)
            if problem is not None:
                check.violated(f"{name}: {problem}")
            columns.take(batch, ends_abort=False)
            damage = damage_of(batch, opens_payload=ordinal in self._validated)
            if damage:
                check.violated(f"{name}: {damage}")
            if is_left:
                end_offset = batch.header.last_offset + 1
        if (head.log_start_offset if end_offset is None else end_offset) != head.log_end_offset:
            check.violated(f"{name}: what is left ends at {end_offset}, and the log at {head.log_end_offset}")
        self._note(stretches, name, len(kept), list(columns.differences_from_end(head.totals)))

    def _check_left_positions(self, ordinal: int, name: str, check: Check) -> None:
        """Check the head against the producers, which know the open transactions of a log without its beginning."""
        check.examined += 1
        head = self._heads[ordinal]
        opened = []
        for producer_id, entry in stored.producers(self._rows, ordinal).items():
            if entry.open_transaction is not None:
                opened.append(entry.open_transaction.first_offset)
                self._open.append((ordinal, producer_id, entry))
        expected = (min(opened, default=head.log_end_offset), len(opened))
        if (head.last_stable_offset, head.open_transactions) != expected:
            check.violated(f"{name}: {_head_words(head)} is stored, the producers say {expected[0]} and {expected[1]}")
        progress = stored.compaction(self._rows, ordinal)
        places = (progress.clean_to, progress.end_offset, head.compacted_to, head.last_stable_offset)
        if list(places) != sorted(places) or not 0 <= progress.position <= progress.end_offset:
            check.violated(f"{name}: compacted up to {head.compacted_to}, which does not fit {progress}")
        if not head.log_start_offset <= head.last_stable_offset <= head.log_end_offset:
            check.violated(f"{name}: begins at {head.log_start_offset}, which is not stable: {_head_words(head)}")

    def _check_left_index(self, ordinal: int, name: str, check: Check) -> None:
        """Check the index from the log start on against the abort markers that are left."""
        start = self._heads[ordinal].log_start_offset
        expected = {
            (offset, aborted)
            for batch in stored.batches(self._rows, ordinal, start)
            if (aborted := stored.aborted_by(batch)) is not None
            for offset in index_rows.aborted_offsets(aborted)
            if offset >= start
        }
        kept = {row for row in stored.aborted_rows(self._rows, ordinal) if row[0] >= start}
        self._compare_index(expected, kept, name, check)

    def _check_positions(self, check: Check, ordinal: int, name: str, audit: PartitionAudit) -> None:
        check.examined += 1
        head = self._heads[ordinal]
        expected = audit.head(head.log_start_offset, head)
        if head != expected:
            check.violated(f"{name}: {_head_words(head)} is stored, the log says {_head_words(expected)}")
        for difference in audit.epoch_differences(load_epochs(self._rows, ordinal, head.leadership.epoch)):
            check.violated(f"{name}: {difference}")
        if not audit.has_what_was_forgotten:
            check.violated(
                f"{name}: producers were forgotten at offset {head.forgotten.end_offset}, with markers up to"
                f" {_csns_words(head.forgotten.csns)}, which the log does not have"
            )

    def _check_producers(self, check: Check, ordinal: int, name: str, audit: PartitionAudit) -> None:
        kept = stored.producers(self._rows, ordinal)
        check.examined += len(kept)
        for difference in producer_differences(audit, kept):
            check.violated(f"{name}: {difference}")
        remembered = stored.remembered_ends(self._rows, ordinal)
        check.examined += len(remembered)
        for difference in remembered_differences(audit, kept, remembered):
            check.violated(f"{name}: {difference}")
        for producer_id, entry in kept.items():
            if entry.open_transaction is not None:
                self._open.append((ordinal, producer_id, entry))

    def _check_index(self, check: Check, ordinal: int, name: str, audit: PartitionAudit) -> None:
        self._compare_index(audit.aborted_rows(), set(stored.aborted_rows(self._rows, ordinal)), name, check)

    def _compare_index(
        self,
        expected: set[tuple[int, AbortedTransaction]],
        kept: set[tuple[int, AbortedTransaction]],
        name: str,
        check: Check,
    ) -> None:
        check.examined += len(kept)
        for offset, aborted in sorted(expected - kept, key=itemgetter(0)):
            check.violated(f"{name}: {aborted} is in the log and has no row at offset {offset}")
        for offset, aborted in sorted(kept - expected, key=itemgetter(0)):
            check.violated(f"{name}: {aborted} has a row at offset {offset} and is not in the log")

    # Coordinators

    def _check_outcomes(self, check: Check) -> None:
        decided: dict[EndIdentity, DecidedOutcome] = {}
        given: dict[int, DecidedOutcome] = {}
        for each in decisions(self._rows):
            decided.setdefault(each.identity, each)
            # All shards of a store share one counter, so a csn belongs to one decision across all shards.
            known = given.setdefault(each.csn, each)
            if known.decision != each.decision:
                check.violated(f"the csn {each.csn} was given twice: {known}, {each}")
        check.examined = len(decided)
        pending = {
            EndIdentity(shard, found.csn, found.producer_id)
            for shard, found in stored.transactions_by_shard(self._rows)
            if found.state in DECIDED
        }
        unowned = self._unowned_markers()
        for identity, outcome in decided.items():
            for ordinal in sorted(outcome.partitions & self._heads.keys()):
                self._check_markers(check, outcome, ordinal, is_pending=identity in pending)
            elsewhere = self._markers[identity].keys() - outcome.partitions - unowned[identity]
            for ordinal in sorted(elsewhere):
                check.violated(f"{self._name(ordinal)} has a marker of {outcome}, which it was no part of")
        if self._is_history_whole():
            for identity in sorted(self._markers.keys() - decided.keys()):
                places = sorted(self._markers[identity].keys() - unowned[identity])
                if places:
                    where = ", ".join(map(self._name, places))
                    check.violated(
                        f"csn {identity.csn} of coordinator shard {identity.coordinator_shard}, producer"
                        f" {identity.producer_id}, has markers in {where} and was never decided"
                    )
        newest = max((identity.csn for identity in (*decided, *self._markers)), default=0)
        if newest > self._last_csn():
            check.violated(f"csn {newest} was used, the counter stands at {self._last_csn()}: it would be given again")

    def _check_markers(self, check: Check, outcome: DecidedOutcome, ordinal: int, *, is_pending: bool) -> None:
        found = self._markers[outcome.identity][ordinal]
        name = self._name(ordinal)
        if len(found) > 1:
            offsets = ", ".join(str(logged.offset) for logged in found)
            check.violated(f"{name} has {len(found)} markers of {outcome}, at {offsets}")
        is_excused = is_pending or ordinal in self._unread or self._may_be_stale(outcome, ordinal)
        if not found and not is_excused:
            check.violated(f"{name} has no marker of {outcome}, which is complete")
        for logged in found:
            marker = logged.marker
            expected = (outcome.producer_id, outcome.txn_epoch, outcome.outcome)
            if (marker.producer_id, marker.txn_epoch, marker.outcome) != expected:
                check.violated(
                    f"{name}: the marker at offset {logged.offset} says {marker.outcome.name.lower()} of producer"
                    f" {marker.producer_id}, epoch {marker.txn_epoch}, and not {outcome}"
                )

    def _may_be_stale(self, outcome: DecidedOutcome, ordinal: int) -> bool:
        """Return True if the partition would not have written this marker for an unknown producer (`judge_marker`).

        The transaction then has no record here. If it had one, it would still be open: see `_check_hanging`.
        """
        return outcome.csn <= self._heads[ordinal].forgotten.csn_of(outcome.shard)

    def _check_hanging(self, check: Check) -> None:
        owners = {found.producer_id: (shard, found) for shard, found in stored.transactions_by_shard(self._rows)}
        for ordinal, producer_id, entry in self._open:
            check.examined += 1
            shard, owner = owners.get(producer_id, (None, None))
            where = f"{self._name(ordinal)}: the transaction of producer {producer_id}, epoch {entry.epoch},"
            if owner is None:
                check.violated(f"{where} belongs to no transactional id")
                continue
            is_prepared = owner.state in DECIDED
            epoch = owner.txn_epoch if is_prepared else owner.producer_epoch
            if not is_prepared and owner.state is not TransactionState.ONGOING:
                check.violated(f"{where} is open, but {owner.transactional_id!r} is {owner.state.api_name}")
            elif epoch != entry.epoch:
                check.violated(f"{where} is open, but {owner.transactional_id!r} is at epoch {epoch}")
            elif shard != entry.coordinator_shard:
                check.violated(
                    f"{where} is open for coordinator shard {entry.coordinator_shard}, but {owner.transactional_id!r}"
                    f" belongs to {shard}"
                )
            elif ordinal not in owner.partitions:
                check.violated(f"{where} is open, but {owner.transactional_id!r} does not list the partition")

    # Helpers

    def _unowned_markers(self) -> defaultdict[EndIdentity, set[int]]:
        """Return the partitions with markers that no transactional id here decided, by the identity of the ended
        transaction.

        An administrator wrote these markers, or a coordinator elsewhere. Each has a step in the history."""
        found: defaultdict[EndIdentity, set[int]] = defaultdict(set)
        for step in stored.history(self._rows, Coordinator.COUNTERS):
            if step.record_type == UNOWNED_MARKER_TYPE:
                written = decode_unowned_marker(step.key)
                found[EndIdentity(*written.number, written.producer_id)].add(written.ordinal)
        return found

    def _is_history_whole(self) -> bool:
        """Return True if the history covers every marker: no shard that decides, or that records foreign markers, was
        trimmed."""
        firsts: dict[ShardKey, int] = {}
        for coordinator in (Coordinator.TRANSACTIONS, Coordinator.COUNTERS):
            for step in stored.history(self._rows, coordinator):
                firsts.setdefault(step.shard, step.number)
        return not any(firsts.values())

    def _last_csn(self) -> int:
        for row in stored.state_rows(self._rows, Coordinator.COUNTERS):
            if row.record_type == CSN_TYPE:
                return transaction_pb2.CsnValue.FromString(row.value).csn
        return 0

    def _name(self, ordinal: int) -> str:
        return self._names.get(ordinal, f"ordinal {ordinal}")


def _csns_words(csns: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"csn {csn} of coordinator shard {shard}" for shard, csn in csns) or "none"


def _words(damage: Exception) -> str:
    if isinstance(damage, LogDamaged):
        return f"offsets {damage.offset} to {damage.next_offset - 1}: {damage.reason}"
    return damage.message if isinstance(damage, Refused) else f"{type(damage).__name__}: {damage}"


def _misplaced(header: BatchHeader, end_offset: int | None, compacted_to: int) -> str | None:
    """Return the error in the place of a batch after the one that ended before `end_offset`; None if there is none.
    Offsets without a record are allowed only where the log was compacted."""
    at = header.base_offset
    if end_offset is not None and (at < end_offset or (at > end_offset and at > compacted_to)):
        return f"the batch at offset {at} does not follow {end_offset}"
    if header.hole_count and header.last_offset >= compacted_to:
        return f"the batch at offset {at} has holes, and the log was compacted up to {compacted_to} only"
    return None


def _head_words(head: PartitionHead) -> str:
    return (
        f"end {head.log_end_offset}, last stable {head.last_stable_offset}, {head.open_transactions} open, newest abort"
        f" at {head.last_abort_offset}, {totals_words(head.totals)}, the last stretch {head.index}"
    )
