"""Knows what a log with transactions must look like from the outside, and checks every answer against it.

It reads a `History` and nothing else: no code of the product, no state of the server. The names P1 to P11 are those of
spec transactions 12, I1 to I20 those of spec log-and-runtime 6.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.simulation.compaction_audit import CompactionAudit, whole_log
from tests.simulation.group_audit import GroupAudit
from tests.simulation.history import Answer, Entry, History, Identity, Op, Read
from tests.simulation.snapshot_audit import SnapshotAudit
from tests.simulation.told import ENDS, ToldTransaction, completion, ops_of, require, told_transactions

_FOR_EVER = 1 << 60
_ADDS = ("add", "produce", "offset")


class Auditor:
    """Checks one history. `check` raises Violation at the first broken promise."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._transactions = told_transactions(history.ops)
        self._writer = {value: txn for txn in self._transactions.values() for value in txn.sent}
        self._place: dict[str, tuple[str, int]] = {}
        """value -> where it lies in the final logs"""
        self._fate: dict[str, str] = {}
        """value -> outcome of the marker that ended it, as the raw logs tell"""
        self._fate_csn: dict[str, int] = {}
        self._log = {partition: whole_log(history, partition) for partition in history.final_raw}
        """All that was ever in the partitions, what went too."""
        self._compaction = CompactionAudit(history, self._log)
        self._groups = GroupAudit(history, self._transactions, self._fate)
        self.snapshots = SnapshotAudit(history, self._log, self._compaction)

    def check(self) -> None:
        self._check_calm()
        self._check_identities()
        self._check_fencing()
        self._check_repetitions()
        self._check_logs()
        self._check_lines()
        self._check_counts()
        self._check_markers()
        self._check_reads()
        self._check_acknowledged()
        self._check_outcomes()
        self._groups.check()
        self._check_removals()
        self._check_topics()
        self._compaction.check()
        self.snapshots.check()

    # Logs

    def _check_logs(self) -> None:
        """I7, I9: a value lies at one offset; offsets ascend; what the server hides is what its markers say (P8)."""
        for partition, log in self._log.items():
            offsets = [entry.offset for entry in log]
            require(offsets == sorted(set(offsets)), f"{partition}: offsets do not ascend: {offsets}")
            open_values: dict[int, list[str]] = defaultdict(list)
            for entry in log:
                if entry.outcome:
                    for value in open_values.pop(entry.producer_id, []):
                        self._fate[value], self._fate_csn[value] = entry.outcome, entry.csn
                    continue
                require(
                    entry.value not in self._place,
                    f"I7: {entry.value} is there twice: {self._place.get(entry.value)}, {partition}@{entry.offset}",
                )
                self._place[entry.value] = (partition, entry.offset)
                open_values[entry.producer_id].append(entry.value)
            require(
                not any(open_values.values()), f"P7: {partition}: records of unended transactions: {dict(open_values)}"
            )
            left = self._history.final_raw[partition].entries
            committed = [entry for entry in left if not entry.outcome and self._fate[entry.value] == "commit"]
            require(
                committed == list(self._history.final_committed[partition].entries),
                f"P8: {partition}: committed records by its markers {_values(committed)}, "
                f"shown {_values(self._history.final_committed[partition].entries)}",
            )

    def _check_counts(self) -> None:
        """The records that the store counts before an offset are all that the log ever had, less those behind the
        offset and not compacted. An abort counts where it hid records. A pass corrects nothing before the log start."""
        for partition, counted in self._history.counted.items():
            entries = self._log[partition]
            hiding = _hiding_aborts(entries)
            left = [*self._history.removed[partition], *self._history.final_raw[partition].entries]
            log_start = self._history.final_raw[partition].log_start_offset
            for end_offset, *numbers in counted:
                if end_offset <= log_start and self._compaction.has(partition):
                    continue
                behind = [entry for entry in left if entry.offset >= end_offset]
                counts = zip(_counts(entries, hiding), _counts(behind, hiding), strict=True)
                expected = [ever - still for ever, still in counts]
                require(
                    numbers == expected,
                    f"{partition}: records, markers and aborts before offset {end_offset} are stored as {numbers}, "
                    f"and are {expected}",
                )

    def _check_markers(self) -> None:
        """P1: one outcome for each decision, and at most one marker of it in each partition."""
        decided: dict[tuple[int, int], tuple[int, int, str]] = {}
        shards: dict[int, int] = {}
        for partition, log in self._log.items():
            newest: dict[int, int] = defaultdict(int)
            for entry in log:
                if not entry.outcome:
                    continue
                decision = (entry.producer_id, entry.producer_epoch, entry.outcome)
                shard = entry.coordinator_shard
                require(
                    decided.setdefault((shard, entry.csn), decision) == decision,
                    f"P1: csn {entry.csn} of shard {shard} is {decided[shard, entry.csn]} and {decision}",
                )
                require(
                    shards.setdefault(entry.producer_id, shard) == shard,
                    f"P1: producer {entry.producer_id} is of shard {shards[entry.producer_id]} and of {shard}",
                )
                require(
                    entry.csn > newest[entry.producer_id],
                    f"{partition}: csn {entry.csn} of producer {entry.producer_id} after {newest[entry.producer_id]}",
                )
                newest[entry.producer_id] = entry.csn
        epochs: dict[Identity, set[str]] = defaultdict(set)
        for producer_id, epoch, outcome in decided.values():
            epochs[producer_id, epoch].add(outcome)
        bumping = {op.identity for op in self._history.ops if op.version == 2 and op.identity}
        for identity in bumping & epochs.keys():
            require(len(epochs[identity]) == 1, f"P1: {identity} was both committed and aborted")

    # Reads

    def _check_reads(self) -> None:
        """I12: bounds never fall. I5, I9, I10: every read shows exactly what the final log has there. I2: no value is
        committed before its commit was asked for."""
        high: dict[str, tuple[int, ...]] = defaultdict(lambda: (0, 0, 0))
        for read in self._history.reads:
            before = high[read.partition]
            now = (read.high_watermark, read.last_stable_offset, read.log_start_offset)
            require(all(map(int.__ge__, now, before)), f"I12: {read.partition} went back from {before} to {now}")
            require(now == tuple(sorted(now, reverse=True)), f"I12: {read.partition}: bounds out of order: {read}")
            high[read.partition] = now
            self._check_read(read)

    def _check_read(self, read: Read) -> None:
        bound = read.last_stable_offset if read.level == "committed" else read.high_watermark
        require(read.next_offset <= bound, f"P8: {read.partition} was read beyond its bound {bound}: {read}")
        require(read.next_offset >= min(bound, read.fetch_offset), f"the read went backwards: {read}")
        final = self._log[read.partition]
        expected = [
            entry
            for entry in final
            if read.fetch_offset <= entry.offset < read.next_offset and self._is_shown(entry, read.level)
        ]
        shown = {entry.offset for entry in read.entries}
        expected = [entry for entry in expected if entry.offset in shown or not self._may_lack(entry, read)]
        require(
            list(read.entries) == expected,
            f"I5/I9/I10: at {read.at} a {read.level} read of {read.partition} from {read.fetch_offset} showed "
            f"{_values(read.entries)}, the log has {_values(expected)}",
        )
        if read.level != "committed":
            return
        for entry in read.entries:
            txn = self._writer.get(entry.value)
            require(txn is not None, f"{entry.value} was never written")
            assert txn is not None
            require(
                any(op.invoked_at <= read.at for op in txn.commits),
                f"I2: {entry.value} was committed at {read.at} without a request",
            )

    def _may_lack(self, entry: Entry, read: Read) -> bool:
        """Whether compaction may have taken an entry that a read lacks."""
        if entry.outcome:
            return self._compaction.may_lack_marker(read.partition, entry, read.at, read.entries)
        return self._compaction.may_lack(read.partition, entry.offset, at=read.at)

    def _is_shown(self, entry: Entry, level: str) -> bool:
        if level == "raw":
            return True
        if entry.outcome:
            return False
        return level == "uncommitted" or self._fate[entry.value] == "commit"

    # Transactions

    def _check_acknowledged(self) -> None:
        """I20: what was acknowledged is there, where it was said to be. P6: what was refused is not."""
        for op in self._history.ops:
            if op.kind != "produce" or op.partition not in self._history.final_raw:
                continue
            require(not (op.is_ok and op.is_out_of_order), f"a batch out of order was taken: {op}")
            if op.is_ok and op.base_offset >= 0 and not op.is_misled:
                for distance, value in enumerate(op.values):
                    place = (op.partition, op.base_offset + distance)
                    require(
                        self._place.get(value) == place,
                        f"I20: {value} was acknowledged at {place} and lies at {self._place.get(value)}: {op}",
                    )
            if op.is_settled and not op.is_ok:
                for value in op.values:
                    require(value not in self._place, f"P6: {value} was refused and is in the log: {op}")

    def _check_outcomes(self) -> None:
        """P3, P8, I1, I6, I8, I14: a transaction is visible as a whole or not at all, as its client was told."""
        for txn in self._transactions.values():
            require(not (txn.is_committed and txn.is_aborted), f"P3: both outcomes were told: {ops_of(txn)}")
            there = {value for value in txn.sent if value in self._place}
            visible = {value for value in there if self._fate[value] == "commit"}
            if txn.is_committed:
                lost = txn.kept(self._history) - visible
                require(not lost, f"I6: committed and not visible: {sorted(lost)}: {ops_of(txn)}")
            if not txn.may_be_committed or txn.is_aborted:
                require(not visible, f"I1: visible and never committed: {sorted(visible)}: {ops_of(txn)}")
            require(not visible or txn.kept(self._history) <= visible, f"I8: torn: {sorted(visible)} of {ops_of(txn)}")
            is_participant = any(op.transactional_id in self._history.participants for op in txn.sent.values())
            if is_participant and there - visible and not self._is_torn_from_its_decision(txn):
                asked = any(op.deliveries > 0 for op in txn.aborts)
                require(asked, f"P10: aborted without a decision: {ops_of(txn)}")
            csns = {self._fate_csn[value] for value in there & txn.kept(self._history)}
            told = {op.csn for op in (*txn.commits, *txn.aborts) if op.is_ok and not op.is_by_kafka}
            require(len(csns) <= 1, f"I15: one transaction was ended by several decisions {csns}: {ops_of(txn)}")
            if csns and told:
                require(csns == told, f"I15: ended by decision {csns}, told {told}: {ops_of(txn)}")

    def _is_torn_from_its_decision(self, txn: ToldTransaction) -> bool:
        """It was not prepared when a line ended, as far as the next one knows: part of it may be lost."""
        of_it = [op for op in self._history.ops if op.transaction == txn.number]
        is_prepared = any(op.kind == "prepare" and op.is_ok for op in of_it)
        begun_at = min(op.invoked_at for op in of_it)
        return not is_prepared and any(begun_at <= change.restored_at for change in self._history.restores)

    # Identities

    def _grants(self) -> list[Op]:
        return [op for op in self._history.ops if op.is_ok and op.granted is not None]

    def _check_identities(self) -> None:
        """P4: an identity has one owner. P5: identities of an id only grow, and stay below the reserved epoch."""
        owner: dict[Identity, str] = {}
        for op in self._grants():
            assert op.granted is not None
            require(
                0 <= op.granted[1] < self._history.epoch_max,
                f"P5: no producer may have the epoch of {op.granted}: {op}",
            )
            require(
                owner.setdefault(op.granted, op.instance) == op.instance,
                f"P4: {op.granted} belongs to {owner[op.granted]} and was given away again: {op}",
            )
            if op.kind in ENDS:
                assert op.identity is not None
                require(op.granted > op.identity, f"P5: the next identity is not greater: {op}")
        inits = sorted((op for op in self._grants() if op.kind == "init"), key=completion)
        for later in inits:
            for earlier in inits:
                if (
                    earlier.transactional_id == later.transactional_id
                    and earlier.instance != later.instance
                    and completion(earlier) < later.invoked_at
                ):
                    assert earlier.granted is not None
                    assert later.granted is not None
                    require(earlier.granted < later.granted, f"P5: {later} came after {earlier}")

    def _check_lines(self) -> None:
        """Nothing that was told in a lost incarnation is given again, and no identity of before gets anything done:
        what was open is aborted, with all that may still come to it until then. Only what was prepared ends under its
        own."""
        before: set[Identity] = set()
        for change in self._history.restores:
            answers = [(op, answer) for op in self._history.ops for answer in op.answers]
            told = (answer.granted for _, answer in answers if answer.at <= change.restored_at)
            before |= change.identities | {identity for identity in told if identity is not None}
            before |= {op.granted for op in self._grants() if completion(op) <= change.restored_at and op.granted}
            for op, answer in answers:
                if answer.at <= change.restored_at:
                    continue
                require(answer.csn not in change.csns, f"csn {answer.csn} of a lost incarnation was given again: {op}")
                if op.transactional_id in self._history.participants:
                    continue
                require(answer.granted not in change.identities, f"an identity of a lost incarnation came again: {op}")
                if op.identity in before:
                    # An abort of what was aborted is answered so, and gets a new producer id as from InitProducerId.
                    is_abort = op.kind == "end" and op.outcome == "abort"
                    require(op.kind in _ADDS or is_abort, f"served with an identity of before: {op}")
                    visible = [value for value in op.values if self._fate.get(value) == "commit"]
                    require(not visible, f"{visible} came with an identity of before: {op}")

    def _check_fencing(self) -> None:
        """P6, I16: once a new instance has its identity, nothing that an older one asks for afterwards is done. Outside
        of transactions none of them may append anything, ever."""
        inits = [op for op in self._grants() if op.kind == "init"]
        for op in self._history.ops:
            require(
                op.kind != "plain" or not op.answers, f"P6: taken outside of all transactions, where none may be: {op}"
            )
            if not op.is_ok or op.identity is None or op.is_duplicate:
                continue
            for init in inits:
                assert init.granted is not None
                if (
                    init.transactional_id == op.transactional_id
                    and init.instance != op.instance
                    and completion(init) < op.invoked_at
                ):
                    require(op.identity >= init.granted, f"I16: a fenced producer was served: {op} after {init}")

    def _check_repetitions(self) -> None:
        """P9: a request that is repeated is answered as it was the first time."""
        for op in self._history.ops:
            first = next(iter(op.answers), None)
            for answer in op.answers[1:]:
                assert first is not None
                if op.kind == "produce":
                    # A topic that was deleted and made again is another one, and knows nothing of the batch.
                    is_kept = op.partition in self._history.final_raw
                    require(
                        not is_kept or answer.base_offset in (first.base_offset, -1),
                        f"P9: {first}, then {answer}: {op}",
                    )
                elif op.kind in ENDS and op.version == 2:
                    same = (answer.csn, answer.granted) == (first.csn, first.granted)
                    require(same, f"P9: {first}, then {answer}: {op}")
                    require(self._are_same_offsets(op, first, answer), f"P9: {first}, then {answer}: {op}")
                elif op.kind == "init" and op.request_id and not self._was_initialised_between(op, first, answer):
                    same = (answer.granted, answer.ongoing) == (first.granted, first.ongoing)
                    require(same, f"P9: {first}, then {answer}: {op}")

    def _are_same_offsets(self, op: Op, first: Answer, then: Answer) -> bool:
        """A partition that was deleted meanwhile is answered with -1, and so may be one whose records went."""
        batches = [part for part in op.parts if part.kind == "produce"]
        return all(
            before == after or (after == -1 and before < self._begin_of(part.partition))
            for part, before, after in zip(batches, first.first_offsets, then.first_offsets, strict=True)
        )

    def _begin_of(self, partition: str) -> int:
        """Where a partition begins at the end; behind everything if it was deleted."""
        read = self._history.final_raw.get(partition)
        return _FOR_EVER if read is None else read.log_start_offset

    def _check_removals(self) -> None:
        """Records stay deleted up to the answered offset; what is not there cannot be deleted; and no holder loses what
        it holds. That no open transaction loses its beginning, the order of the bounds says."""
        for deletion in self._history.deletions:
            if deletion.answered_at is None:
                continue
            asked, end = deletion.asked, deletion.high_watermark
            is_out_of_range = deletion.error == "OFFSET_OUT_OF_RANGE"
            require(is_out_of_range is (asked > end), f"DeleteRecords: {deletion}")
            if deletion.error:
                continue
            is_done = deletion.low_watermark >= (end if asked == -1 else asked)
            require(is_done is not bool(deletion.held_back), f"DeleteRecords: done and not, or neither: {deletion}")
            for read in self._reads_since(deletion.partition, deletion.answered_at):
                require(read.log_start_offset >= deletion.low_watermark, f"DeleteRecords: undone: {deletion}, {read}")
        for lease in self._history.leases:
            for read in self._reads_since(lease.partition, lease.taken_at):
                is_held = lease.ended_at is None or read.at < lease.ended_at
                require(not is_held or read.log_start_offset <= lease.offset, f"{lease} was ignored: {read}")

    def _check_topics(self) -> None:
        """What CreatePartitions and AlterTopicConfigs answered holds for ever, or until a client asks for something
        else; and nothing is there without a request."""
        growths, sizes = self._history.growths, self._history.sizes
        counts = [count for _at, count in sizes]
        require(counts == sorted(counts), f"CreatePartitions: partitions went: {sizes}")
        strange = {*counts} - {counts[0], *(growth.asked for growth in growths)}
        require(not strange, f"CreatePartitions: no request was for {strange}")
        for growth in growths:
            if growth.answered_at is None:
                continue
            if growth.error == "INVALID_PARTITIONS":
                before = [counts[0], *(each.asked for each in growths if each.at <= growth.at and each is not growth)]
                require(max(before) >= growth.asked, f"CreatePartitions: refused without a reason: {growth}")
            elif not growth.error:
                late = [seen for seen in sizes if seen[0] >= growth.answered_at and seen[1] < growth.asked]
                require(not late, f"CreatePartitions: {growth} was answered, and then there were {late}")
        for at, value in self._history.settings_seen:
            require(value in self._settings_at(at), f"AlterTopicConfigs: at {at} the value is {value}")

    def _settings_at(self, at: int) -> list[str | None]:
        """What may be set at a moment: what was answered last, or asked for since."""
        possible: list[str | None] = [None]
        for alteration in self._history.alterations:
            if alteration.at > at or alteration.error:
                continue
            is_answered = alteration.answered_at is not None and alteration.answered_at <= at
            possible = [alteration.value] if is_answered else [*possible, alteration.value]
        return possible

    def _reads_since(self, partition: str, at: int) -> Iterator[Read]:
        return (read for read in self._history.reads if read.partition == partition and read.at > at)

    def _was_initialised_between(self, op: Op, first: Answer, then: Answer) -> bool:
        """Another request initialised the id, or may have: then the first answer is not remembered any more."""
        return any(
            other is not op
            and other.kind == "init"
            and other.transactional_id == op.transactional_id
            and other.deliveries > 0
            and other.invoked_at <= then.at
            and (other.last_seen_at >= first.at or other.answered < other.deliveries)
            for other in self._history.ops
        )

    # The end

    def _check_calm(self) -> None:
        """P7, I18: once all is calm, nothing is open or being completed, and readers see to the end."""
        for transactional_id, state in self._history.calm_states.items():
            require(state in ("Empty", "CompleteCommit", "CompleteAbort"), f"P7: {transactional_id} is still {state}")
        for partition, (last_stable_offset, high_watermark) in self._history.calm_bounds.items():
            require(
                last_stable_offset == high_watermark,
                f"P7: {partition}: stable up to {last_stable_offset} of {high_watermark}",
            )
        unstable = self._history.unstable_groups
        require(not unstable, f"P7: groups still hold offsets of ended transactions: {unstable}")


def _hiding_aborts(entries: Iterable[Entry]) -> set[int]:
    """Return the offsets of the markers that abort records."""
    writers: set[int] = set()
    found: set[int] = set()
    for entry in entries:
        if not entry.outcome:
            writers.add(entry.producer_id)
        elif entry.producer_id in writers:
            writers.discard(entry.producer_id)
            if entry.outcome == "abort":
                found.add(entry.offset)
    return found


def _counts(entries: Sequence[Entry], hiding: set[int]) -> tuple[int, int, int]:
    """Return the numbers of records, markers, and aborts that hide records."""
    markers = [entry.offset for entry in entries if entry.outcome]
    return len(entries) - len(markers), len(markers), len(hiding.intersection(markers))


def _values(entries: Iterable[Entry]) -> list[str]:
    return [f"{entry.offset}:{entry.value or entry.outcome}" for entry in entries]
