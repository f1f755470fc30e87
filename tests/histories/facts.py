"""Facts that follow from a history: who wrote each value and how that ended, where it is, and what each view shows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from tests.histories import form
from tests.histories.form import History, Isolation, Outcome, Reading, Send, Verdict


class Violation(Struct, frozen=True, order=True):
    """An invariant by its number in spec log-and-runtime 6.2, and what breaks it."""

    invariant: int
    line: int
    text: str


class Fate(StrEnum):
    """Fate of a value, by the answers to its writer."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """A commit was requested, and its result is unknown."""
    UNASKED = "without a commit"


class Write(Struct, frozen=True):
    """A value, with its place if any answer tells it."""

    value: str
    k: str
    offset: int | None
    line: int
    outcome: Outcome
    txn: str
    is_definite: bool
    """It is in the log: its send was acknowledged, or a reader got it."""


class Transaction(Struct, frozen=True):
    """Writes that are visible together; a value that was sent alone is a transaction of its own."""

    name: str
    line: int
    owner: str
    """Transactional id, or process if the history does not tell it."""
    fate: Fate
    asked: float
    """Beginning of the first attempt to commit; infinite = never."""
    acknowledged: float
    """End of the first commit that was answered with `ok`; infinite = none was."""
    began: float
    writes: tuple[Write, ...]

    @property
    def definite(self) -> Iterator[Write]:
        return (write for write in self.writes if write.is_definite)


class View(Struct, frozen=True):
    """Rows of one state of all partitions: a snapshot, or everything at the end."""

    name: str
    line: int
    invoked: float
    """Beginning of the first read of it: what was acknowledged before is in it."""
    values: Mapping[str, tuple[str, int]]
    starts: Mapping[str, int]
    partitions: frozenset[str] | None
    """None = all."""

    @property
    def is_final(self) -> bool:
        return self.partitions is None

    def lacks(self, write: Write) -> bool:
        """Return whether a value must be there, once its transaction is visible, and is not."""
        if not write.is_definite or write.value in self.values:
            return False
        if self.partitions is not None and write.k not in self.partitions:
            return False
        start = self.starts.get(write.k, 0)
        return start == 0 if write.offset is None else write.offset >= start


class Facts(Struct, frozen=True):
    """All of them."""

    history: History
    writes: Mapping[str, Write]
    transactions: Mapping[str, Transaction]
    views: tuple[View, ...]
    first_read: Mapping[str, float]
    """End of the first read_committed read of each value."""
    visible: Mapping[str, Sequence[int]]
    """Ascending offsets of the values of each partition that read_committed consumers do not pass over."""
    known: Mapping[str, Sequence[int]]
    """Ascending offsets of all values of each partition that any answer tells."""

    def is_legal(self, value: str) -> bool:
        """Return whether any read_committed reader may ever see it."""
        write = self.writes.get(value)
        if write is None or write.outcome is Outcome.FAIL:
            return False
        return self.transactions[write.txn].fate in (Fate.COMMITTED, Fate.UNKNOWN)


def readings(history: History, *, committed_only: bool = False) -> Iterator[tuple[int, Reading]]:
    """Yield line and operation of each read that was answered."""
    for line, each in history.operations:
        if isinstance(each, Reading) and each.is_ok:
            uncommitted = isinstance(each, form.Poll) and each.isolation is Isolation.UNCOMMITTED
            if not (committed_only and uncommitted):
                yield line, each


def of_history(history: History) -> Facts:
    """Return what follows from the history."""
    offsets = first_offsets(history)
    writes = list(writes_of(history, offsets))
    transactions = transactions_of(history, writes)
    first_read = first_reads(history)
    by_value = {write.value: write for write in writes}
    facts = Facts(history, by_value, transactions, tuple(views_of(history)), first_read, {}, {})
    return replace(
        facts,
        visible=ascending(write for write in writes if is_visible(facts, write)),
        known=ascending(write for write in writes if write.outcome is not Outcome.FAIL),
    )


def is_visible(facts: Facts, write: Write) -> bool:
    """Return whether no read_committed consumer passes over a value."""
    if facts.transactions[write.txn].fate is Fate.COMMITTED:
        return write.is_definite
    return facts.is_legal(write.value) and write.value in facts.first_read


def ascending(writes: Iterable[Write]) -> Mapping[str, Sequence[int]]:
    """Return the known offsets of writes by partition."""
    offsets: dict[str, set[int]] = defaultdict(set)
    for write in writes:
        if write.offset is not None:
            offsets[write.k].add(write.offset)
    return {k: sorted(each) for k, each in offsets.items()}


def first_offsets(history: History) -> Mapping[str, int]:
    """Return the offset of each value in the answer to its writer, or else in the first read of it."""
    offsets: dict[str, int] = {}
    for _, send in history.of(Send):
        if send.is_ok:
            told = zip(send.values, send.offsets, strict=False)
            offsets.update((value, offset) for value, offset in told if offset >= 0)
    for _, reading in readings(history):
        for records in reading.records.values():
            for offset, value in records:
                offsets.setdefault(value, offset)
    return offsets


def writes_of(history: History, offsets: Mapping[str, int]) -> Iterator[Write]:
    """Yield all writes, in the order of their beginnings."""
    for line, send in history.of(Send):
        for place, value in enumerate(send.values):
            txn = send.txn if send.txn is not None else alone(line, place)
            is_definite = send.is_ok or (send.type is Outcome.INFO and value in offsets)
            yield Write(value, send.k, offsets.get(value), line, send.type, txn, is_definite)


def alone(line: int, place: int) -> str:
    """The name of the transaction of a value that is sent without one."""
    return f"line {line}, value {place + 1}"


def transactions_of(history: History, writes: Iterable[Write]) -> Mapping[str, Transaction]:
    """Return all transactions by their names: those with writes or positions of groups, and those that were ended."""
    by_name: dict[str, list[Write]] = defaultdict(list)
    ends: dict[str, list[form.End]] = defaultdict(list)
    began: dict[str, tuple[int, form.AnyOperation]] = {}
    for write in writes:
        by_name[write.txn].append(write)
    for line, each in history.operations:
        if isinstance(each, Send) and each.txn is None:
            began.update((alone(line, place), (line, each)) for place in range(len(each.values)))
        elif isinstance(each, Send | form.SendOffsets | form.End):
            assert each.txn is not None
            began.setdefault(each.txn, (line, each))
            if isinstance(each, form.End):
                ends[each.txn].append(each)
    return {
        name: transaction(name, line, first, tuple(by_name[name]), ends[name]) for name, (line, first) in began.items()
    }


def transaction(
    name: str, line: int, first: form.AnyOperation, writes: tuple[Write, ...], ends: Sequence[form.End]
) -> Transaction:
    """Return the transaction that began with an operation."""
    owner = owner_of(first)
    if isinstance(first, Send) and first.txn is None:
        fate = {Outcome.OK: Fate.COMMITTED, Outcome.FAIL: Fate.ABORTED, Outcome.INFO: Fate.UNKNOWN}[first.type]
        acknowledged = first.end if first.is_ok else math.inf
        return Transaction(name, line, owner, fate, first.invoked, acknowledged, first.invoked, writes)
    commits = [end for end in ends if end.verdict is Verdict.COMMIT]
    asked = min((end.invoked for end in commits), default=math.inf)
    acknowledged = min((end.end for end in commits if end.is_ok), default=math.inf)
    return Transaction(name, line, owner, fate_of(ends), asked, acknowledged, first.invoked, writes)


def owner_of(operation: form.AnyOperation) -> str:
    producer = getattr(operation, "producer", None)
    return producer.transactional_id if producer is not None else operation.process


def fate_of(ends: Iterable[form.End]) -> Fate:
    """Return what the answers to all attempts to end a transaction allow."""
    answers = {(end.verdict, end.type) for end in ends}
    if (Verdict.COMMIT, Outcome.OK) in answers:
        return Fate.COMMITTED
    if (Verdict.ABORT, Outcome.OK) in answers:
        return Fate.ABORTED
    if (Verdict.COMMIT, Outcome.INFO) in answers:
        return Fate.UNKNOWN
    return Fate.ABORTED if (Verdict.COMMIT, Outcome.FAIL) in answers else Fate.UNASKED


def first_reads(history: History) -> Mapping[str, float]:
    first: dict[str, float] = {}
    for _, reading in readings(history, committed_only=True):
        for records in reading.records.values():
            for _, value in records:
                first[value] = min(reading.end, first.get(value, math.inf))
    return first


def views_of(history: History) -> Iterator[View]:
    """Yield snapshots and final reads, in the order of their first parts. A final read is what one process does."""
    parts: dict[tuple[type[Reading], str], list[tuple[int, Reading]]] = defaultdict(list)
    for line, each in readings(history):
        if isinstance(each, form.Snapshot):
            parts[form.Snapshot, each.snapshot].append((line, each))
        elif isinstance(each, form.FinalRead):
            parts[form.FinalRead, each.process].append((line, each))
    for (kind, name), pieces in parts.items():
        values: dict[str, tuple[str, int]] = {}
        starts: dict[str, int] = {}
        for _, piece in pieces:
            starts.update((k, start) for k, (start, _) in piece.spans.items())
            for k, records in piece.records.items():
                values.update((value, (k, offset)) for offset, value in records)
        partitions = frozenset(k for _, piece in pieces for k in (*piece.records, *piece.spans))
        whole = None if kind is form.FinalRead else partitions
        title = f"the final read of {name}" if whole is None else f"snapshot {name}"
        yield View(title, pieces[0][0], min(piece.invoked for _, piece in pieces), values, starts, whole)
