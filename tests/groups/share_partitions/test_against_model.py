"""Share partitions under random operations do what the model says, offset by offset, and keep the promises of a queue:
one holder at a time; never delivered above the limit, except that a restart counts no delivery; the start offset passes
no open record, unless the log start passes it; nothing acknowledged comes again; nothing is lost.

Source: spec groups 10.5 (I9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.ports import OutcomeNumber
from group_coordinator.share_partitions import acquiring, rules
from group_coordinator.share_partitions.acquiring import Content, LogPosition, Terms
from group_coordinator.share_partitions.draft import LetterEnd, ShareChange
from group_coordinator.share_partitions.letters import due_letters, end_letters
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import AcknowledgingTransaction, SharePartition, Window, restored
from tests.groups.share_partitions.model import ACKNOWLEDGED, Log, Model, NotAllowed
from tests.groups.share_partitions.pictures import picture, released_by

MEMBERS = "abc"
PRODUCERS = (7, 8)
RECORDS = Content.RECORDS
contents = st.sampled_from((RECORDS, RECORDS, RECORDS, Content.NOTHING, Content.ABORTED))
logs = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 1, 3)),
        st.one_of(st.lists(st.just(RECORDS), min_size=1, max_size=5), st.lists(contents, min_size=1, max_size=4)),
    ),
    min_size=1,
    max_size=20,
)
commands = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "acquire",
                "acquire",
                "acquire",
                "acknowledge",
                "acknowledge",
                "wait",
                "wait",
                "marker",
                "letters",
                "member",
                "lock",
                "rare",
            )
        ),
        st.integers(0, 2**32),
    ),
    max_size=60,
)
terms = st.builds(
    Terms, delivery_count_limit=st.integers(2, 6), in_flight_max=st.integers(1, 12), has_letters=st.booleans()
)


class Queue:
    """One run: the product and the model side by side."""

    def __init__(self, batches: Sequence[tuple[int, Sequence[Content]]], terms: Terms) -> None:
        self.log = Log(batches)
        self.terms = terms
        self.model = Model()
        self.partition = SharePartition(state_epoch=1, window=Window(0))
        self.stored = self.partition.durable_form
        self.log_start = 0
        self.deliveries: Counter[int] = Counter()
        """Deliveries of each offset, as a restart lets them be counted."""
        self.random = Random(0)
        self.csns = dict.fromkeys(PRODUCERS, 0)
        """Last outcome of each producer, which keeps its epoch as a client of version 1 does."""
        self.last_csn = 0

    def play(self, commands: Sequence[tuple[str, int]]) -> None:
        for command, seed in commands:
            self.random = Random(seed)
            {
                "acquire": self.acquire,
                "acknowledge": self.acknowledge,
                "wait": self.acknowledge_in_transaction,
                "marker": self.marker,
                "letters": self.write_letters,
                "member": self.release_member,
                "lock": self.lock_due,
                "rare": self.random.choice((self.restart, self.move_log_start)),
            }[command]()
            self.check()

    def member(self) -> str:
        return self.random.choice(MEMBERS)

    def read_range(self) -> range:
        """What a service reads: mostly what it should, sometimes what was right a moment ago."""
        available = self.partition.first_available(self.terms.in_flight_max)
        first = self.random.randint(0, self.log.end) if available is None else available
        if self.random.random() < 0.2:
            first = self.random.randint(0, self.log.end)
        stop = self.random.randint(first, self.log.end)
        return range(first, next((each.stop for each in self.log.batches(range(stop, self.log.end))), self.log.end))

    def acquire(self) -> None:
        offsets, member, most = self.read_range(), self.member(), self.random.randint(1, 6)
        terms = self.terms
        if self.random.random() < 0.1:
            terms = replace(terms, delivery_count_limit=2, has_letters=self.random.random() < 0.5)
        read = self.log.read(offsets)
        # Offsets behind the last batch were not read.
        offsets = range(offsets.start, read.spans[-1].last_offset + 1 if read.spans else offsets.start)
        end = self.random.randint(offsets.start, offsets.stop) if self.random.random() < 0.3 else None
        read = replace(read, end_offset=end)
        found = acquiring.acquire(
            self.partition, member, read, terms, max_records=most, log=LogPosition(self.log_start)
        )
        self.expect(found.change, lambda: self.model.move_log_start(self.log_start), is_final=False)
        handed_out = self.model.acquire(member, self.log, offsets, terms, most, end)
        told = {
            at: each.delivery_count for each in found.ranges for at in range(each.first_offset, each.last_offset + 1)
        }
        assert told == handed_out
        self.deliveries.update(told.keys())
        for at, count in told.items():
            assert at >= self.log_start
            assert count <= terms.delivery_count_limit
            assert self.deliveries[at] <= count
            assert self.log.content(at) is RECORDS

    def acknowledge(self) -> None:
        member, batches = self.random_batches() if self.random.random() < 0.3 else self.fitting_batches()
        try:
            change = rules.acknowledge(self.partition, member, batches, self.terms, allows_renewal=True)
        except Refused:
            with pytest.raises(NotAllowed):
                self.model.acknowledge(member, batches, self.terms)
        else:
            self.expect(change, lambda: self.model.acknowledge(member, batches, self.terms))

    def acknowledge_in_transaction(self) -> None:
        member, batches = self.random_batches() if self.random.random() < 0.3 else self.fitting_batches()
        if self.random.random() < 0.9:
            batches = [each._replace(types=[1 if kind in (1, 2) else 3 for kind in each.types]) for each in batches]
        transaction = self.transaction(self.random.choice(PRODUCERS))
        try:
            change = rules.acknowledge_in_transaction(self.partition, member, batches, transaction)
        except Refused:
            with pytest.raises(NotAllowed):
                self.model.acknowledge_in_transaction(member, batches, transaction)
        else:
            self.expect(change, lambda: self.model.acknowledge_in_transaction(member, batches, transaction))

    def transaction(self, producer_id: int) -> AcknowledgingTransaction:
        """The open one of a producer, or its next."""
        return AcknowledgingTransaction("worker", producer_id, 0, OutcomeNumber(0, self.csns[producer_id]))

    def marker(self) -> None:
        """The transaction of a producer ends, and its marker comes again now or later."""
        producer_id, is_commit = self.random.choice(PRODUCERS), self.random.random() < 0.5
        if self.random.random() < 0.3:
            late = self.random.randint(0, self.csns[producer_id])
            self.expect(rules.settle(self.partition, _marker(producer_id, late, is_commit=is_commit)), lambda: None)
            return
        ended = self.transaction(producer_id)
        self.last_csn += 1
        self.csns[producer_id] = self.last_csn
        marker = _marker(producer_id, self.last_csn, is_commit=is_commit)
        self.expect(rules.settle(self.partition, marker), lambda: self.model.settle(ended, is_commit=is_commit))
        assert rules.settle(self.partition, marker).partition == self.partition, "a marker settles once"

    def write_letters(self, *, all_of_them: bool = False) -> None:
        """Some of the due letters are written; or none, if one of them is not due any more."""
        due = due_letters(self.partition, 100)
        assert [each.offset for each in due] == self.model.due_letters()
        chosen = [each.offset for each in due if all_of_them or self.random.random() < 0.7]
        ends = [(offset, LetterEnd.WRITTEN) for offset in chosen]
        self.expect(end_letters(self.partition, ends), lambda: self.model.end_letters(chosen))
        with pytest.raises(Refused):
            end_letters(self.partition, [*ends, (self.log.end, LetterEnd.WRITTEN)])

    def random_batches(self) -> tuple[str, list[AckBatch]]:
        batches, at = [], self.random.randint(max(0, self.model.start - 2), self.model.start + 4)
        for _batch in range(self.random.randint(1, 3)):
            length = self.random.randint(1, 4)
            types = [self.random.randint(0, 4) for _ in range(self.random.choice((1, length)))]
            batches.append(AckBatch(at, at + length - 1, types))
            at += length + self.random.randint(0, 2)
        return self.member(), batches

    def fitting_batches(self) -> tuple[str, list[AckBatch]]:
        """Some of what a member holds, mostly released: so that records reach their limit."""
        held = {at: entry.hold.member for at, entry in sorted(self.model.entries.items()) if entry.hold}
        member = self.random.choice([*held.values(), self.member()])
        mine = [at for at, name in held.items() if name == member and self.random.random() < 0.7]
        return member, [AckBatch(at, at, [self.random.choice((0, 1, 2, 2, 2, 2, 3, 4))]) for at in mine]

    def release_member(self) -> None:
        member = self.member()
        self.expect(released_by(self.partition, member), lambda: self.model.release_member(member))

    def lock_due(self) -> None:
        if self.partition.acquisitions:
            number, held = self.random.choice(sorted(self.partition.acquisitions.items()))
            self.expect(
                rules.release_acquisitions(self.partition, (number,)),
                lambda: self.model.release_hold_of(self.first_held_by(number, held.first_offset)),
            )

    def first_held_by(self, number: int, first_offset: int) -> int:
        for window in (*self.partition_before.behind, self.partition_before.window):
            for at, found in enumerate(memoryview(window.holders).cast("H"), window.first_offset):
                if found == number and at >= first_offset:
                    return at
        raise AssertionError("an acquisition that holds nothing is gone")

    def move_log_start(self) -> None:
        self.log_start = self.random.randint(self.log_start, min(self.log.end, self.log_start + 6))
        self.expect(
            rules.move_log_start(self.partition, self.log_start), lambda: self.model.move_log_start(self.log_start)
        )

    def restart(self) -> None:
        for at, entry in self.model.entries.items():
            if entry.hold:
                self.deliveries[at] -= 1
        self.model.restart()
        self.partition = restored(self.stored)

    def expect(self, change: ShareChange, of_model: Callable[[], object], *, is_final: bool = True) -> None:
        """Let the change happen to both. `is_final`: the model has nothing more to do for it."""
        self.partition_before, self.partition = self.partition, change.partition
        if change.is_stored:
            self.stored = self.partition.durable_form
        known = set(self.model.reasons)
        of_model()
        if is_final:
            told = {at: each.reason for each in change.archived for at in range(each.first_offset, each.end_offset)}
            new = {at: why for at, why in self.model.reasons.items() if at not in known and why != "accepted"}
            assert told == new

    def check(self) -> None:
        partition = self.partition
        assert picture(partition) == self.model.picture()
        assert partition.durable_form == self.stored, "what a restart must bring back is stored"
        held = sum(1 for entry in self.model.entries.values() if entry.hold)
        pending = sum(1 for entry in self.model.entries.values() if entry.pending)
        assert (partition.held_count, partition.pending_count) == (held, pending)
        assert partition.letters_due == len(self.model.due_letters()) == restored(self.stored).letters_due
        assert restored(self.stored).durable_form == self.stored
        assert set(range(self.model.start)) <= self.model.reasons.keys() | {
            at for at, entry in self.model.entries.items() if entry.hold
        }, "what the start offset has passed is done, or held"

    def drain(self) -> None:
        """End all transactions, and let one member acknowledge all that is left."""
        for producer_id in PRODUCERS:
            ended, marker = self.transaction(producer_id), _marker(producer_id, self.last_csn + 1, is_commit=False)
            self.expect(rules.settle(self.partition, marker), lambda t=ended: self.model.settle(t, is_commit=False))  # type: ignore[misc]
        assert not self.partition.pending, "nothing waits for ever"
        for member in MEMBERS:
            self.expect(released_by(self.partition, member), lambda m=member: self.model.release_member(m))  # type: ignore[misc]
        self.write_letters(all_of_them=True)
        while (
            available := self.partition.first_available(self.terms.in_flight_max)
        ) is not None and available < self.log.end:
            read = self.log.read(range(available, self.log.end))
            if not read.spans:
                break
            found = acquiring.acquire(
                self.partition, "z", read, self.terms, max_records=5, log=LogPosition(self.log_start)
            )
            self.partition = found.change.partition
            self.model.move_log_start(self.log_start)
            self.model.acquire("z", self.log, range(read.first_offset, read.spans[-1].last_offset + 1), self.terms, 5)
            batches = [AckBatch(each.first_offset, each.last_offset, [1]) for each in found.ranges]
            self.partition = rules.acknowledge(self.partition, "z", batches, self.terms).partition
            self.model.acknowledge("z", batches, self.terms)
            self.write_letters(all_of_them=True)
            assert picture(self.partition) == self.model.picture()


def _marker(producer_id: int, csn: int, *, is_commit: bool) -> Marker:
    return Marker(
        producer_id=producer_id,
        txn_epoch=0,
        next_epoch=0,
        coordinator_shard=0,
        coordinator_epoch=0,
        outcome=Outcome.COMMIT if is_commit else Outcome.ABORT,
        csn=csn,
    )


@given(logs, terms, commands)
@settings(deadline=None, max_examples=150)
def test_a_share_partition_does_what_the_model_says(
    batches: list[tuple[int, list[Content]]], terms: Terms, commands: list[tuple[str, int]]
) -> None:
    queue = Queue(batches, terms)
    queue.play(commands)
    queue.drain()
    lost = {at for at in range(queue.log.end) if queue.log.content(at) is RECORDS} - queue.model.reasons.keys()
    assert not lost, "every record was acknowledged, or archived for a reason"
    assert queue.partition.start_offset == queue.log.end
    acknowledged = [at for at, why in queue.model.reasons.items() if why == "accepted"]
    assert all(queue.model.entries[at].state is ACKNOWLEDGED for at in acknowledged if at in queue.model.entries)
