"""Random interleavings of producers, transactions, markers, flushes and crashes, against a log that is a list."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from partition_log.requests import ProduceResult
from partition_log.state import PartitionConfig
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    COMMITTED,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    membership_of,
    transactional,
)
from tests.log.naive_log import NaiveLog, Written

AT_ONCE = CallContext(refuse_concurrent=True)

OF_TRANSACTIONS = frozenset({1, 2, 3})
"""Producer ids that were given to transactional ids."""
transactional_ids = st.sampled_from(sorted(OF_TRANSACTIONS))
counts = st.integers(1, 3)
times_ms = st.integers(0, 30)


class LogMachine(RuleBasedStateMachine):
    """Operations are staged at once and become durable with `flush`, or with luck in a crash."""

    markers = Bundle("markers")

    @initialize()
    def start(self) -> None:
        self.driven = DrivenLog(config=PartitionConfig(index_interval_batches=4))
        self.driven.create()
        self.driven.transactions.given = OF_TRANSACTIONS
        self.log = NaiveLog(of_transactions=OF_TRANSACTIONS)
        self.group = 1
        self.durable_group = 0
        self.waiting: list[tuple[Pending[list[ProduceResult]], object, int]] = []
        self.bound = 0

    # Writing

    def send(self, producer: Producer, sequence: int, count: int, timestamp_ms: int) -> None:
        is_transactional = producer.transactional_id is not None
        is_open = is_transactional and self.driven.transactions.has_open(membership_of(producer), self.driven.ordinal())
        expected = self.log.expect(
            producer.producer_id, producer.epoch, sequence, count, is_transactional=is_transactional, is_open=is_open
        )
        reply = self.driven.send(Batch(producer, sequence, count, timestamp_ms=timestamp_ms), context=AT_ONCE)
        self.waiting.append((reply, expected, self.log.end))
        if expected is None:
            self.log.written.append(
                Written(
                    self.group,
                    self.log.end,
                    count,
                    producer.producer_id,
                    producer.epoch,
                    sequence,
                    is_transactional,
                    timestamp_ms=timestamp_ms,
                )
            )

    def next_of(self, producer_id: int) -> tuple[int, int]:
        """Epoch and sequence with which a correct producer goes on."""
        known = self.log.producer(producer_id)
        if known is None:
            return 0, 0
        last = known.batches[-1] if known.batches else None
        return known.epoch, 0 if last is None else last.sequence + last.count

    @rule(count=counts, timestamp_ms=times_ms)
    def append_plain(self, count: int, timestamp_ms: int) -> None:
        self.send(Producer(-1, -1), -1, count, timestamp_ms)

    @rule(producer_id=st.sampled_from((1, 2, 3, 8)), count=counts, timestamp_ms=times_ms)
    def append_what_follows(self, producer_id: int, count: int, timestamp_ms: int) -> None:
        epoch, sequence = self.next_of(producer_id)
        producer = Producer(producer_id, epoch) if producer_id == 8 else transactional(producer_id, epoch)
        self.send(producer, sequence, count, timestamp_ms)

    @rule(
        producer_id=transactional_ids,
        is_transactional=st.booleans(),
        epoch_step=st.integers(-1, 1),
        distance=st.integers(-9, 2),
        count=counts,
    )
    def append_anything(
        self, producer_id: int, epoch_step: int, distance: int, count: int, *, is_transactional: bool
    ) -> None:
        epoch, sequence = self.next_of(producer_id)
        epoch, sequence = max(0, epoch + epoch_step), max(0, sequence + distance)
        producer = transactional(producer_id, epoch) if is_transactional else Producer(producer_id, epoch)
        self.send(producer, sequence, count, timestamp_ms=15)

    @rule(producer_id=transactional_ids, age=st.integers(1, 7))
    def repeat(self, producer_id: int, age: int) -> None:
        known = self.log.producer(producer_id)
        if known is not None and len(known.batches) >= age:
            batch = known.batches[-age]
            self.send(transactional(producer_id, batch.epoch), batch.sequence, batch.count, batch.timestamp_ms)

    @rule(target=markers, producer_id=transactional_ids, commits=st.booleans(), bumps=st.booleans())
    def end(self, producer_id: int, *, commits: bool, bumps: bool) -> Any:
        return self.ended(producer_id, COMMIT if commits else ABORT, bumps=bumps)

    @rule(
        target=markers,
        producer_id=transactional_ids,
        outcome=st.sampled_from((COMMIT, ABORT)),
        ages=st.lists(st.integers(1, 7), min_size=1, max_size=3),
        opens_next=st.booleans(),
        appends=st.booleans(),
    )
    def end_and_repeat(
        self, producer_id: int, outcome: Outcome, ages: list[int], *, opens_next: bool, appends: bool
    ) -> Any:
        """End a transaction of version 1, and send batches of it again. `opens_next`: the partition is in the next
        transaction then. `appends`: the batch that follows comes before."""
        self.append_what_follows(producer_id, 1, timestamp_ms=15)
        marker = self.ended(producer_id, outcome, bumps=False)
        if not opens_next:
            membership = membership_of(transactional(producer_id, marker.txn_epoch))
            self.driven.runtime.write(self.driven.transactions.leave(membership), is_urgent=True)
        if appends:
            self.append_what_follows(producer_id, 1, timestamp_ms=15)
        for age in ages:
            self.repeat(producer_id, age)
        return marker

    def ended(self, producer_id: int, outcome: Outcome, *, bumps: bool) -> Marker:
        epoch, _ = self.next_of(producer_id)
        marker = self.driven.marker(transactional(producer_id, epoch), outcome, next_epoch=epoch + bumps)
        self.write(marker)
        return marker

    @rule(marker=markers)
    def repeat_marker(self, marker: Marker) -> None:
        self.write(marker)

    @rule(target=markers, marker=consumes(markers))
    def forget_marker(self, marker: Marker) -> Any:
        return multiple()

    def write(self, marker: Marker) -> None:
        is_new = self.log.is_marker_new(marker.producer_id, marker.txn_epoch, marker.csn)
        operation = self.driven.markers.partition_marker(self.driven.ordinal(), marker)
        self.driven.runtime.write(operation, is_urgent=True)
        if is_new:
            self.log.written.append(
                Written(
                    self.group,
                    self.log.end,
                    1,
                    marker.producer_id,
                    marker.txn_epoch,
                    commits=marker.outcome is COMMIT,
                    next_epoch=marker.next_epoch,
                    csn=marker.csn,
                )
            )

    # The disk

    @rule()
    def seal(self) -> None:
        self.driven.runtime.groups.seal()
        self.group += 1

    @rule(start=st.integers(0, 20))
    def flush(self, start: int) -> None:
        self.driven.flush()
        self.durable_group = self.group
        self.group += 1
        for reply, expected, end in self.waiting:
            check_answer(reply.result()[0], expected, end)
        self.waiting.clear()
        self.read(start, bytes_max=1 << 20)

    def teardown(self) -> None:
        """Check what was answered last, too."""
        self.flush(0)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        undurable = self.driven.driver.undurable_groups
        kept_groups = data.draw(st.integers(0, undurable))
        before = self.driven.state()
        # Empty groups are never handed over, so count those of the log that were.
        groups = sorted({written.group for written in self.log.written if written.group > self.durable_group})
        survivors = groups[:kept_groups]
        driven = self.driven.crash(kept_groups)
        if kept_groups == 0:
            assert driven.state() == before, "what was durable is what a restart finds"
        driven.transactions.given = OF_TRANSACTIONS
        self.driven = driven
        kept = {*range(self.durable_group + 1), *survivors}
        self.log = NaiveLog(
            [written for written in self.log.written if written.group in kept], of_transactions=OF_TRANSACTIONS
        )
        self.durable_group = self.group
        self.group += 1
        self.waiting.clear()

    # Reading

    @invariant()
    def positions_are_those_of_the_list(self) -> None:
        durable, head = self.log.upto(self.durable_group), self.driven.head()
        assert head.log_end_offset == durable.end
        assert head.last_stable_offset == durable.last_stable_offset
        assert head.open_transactions == durable.open_transactions
        assert head.last_stable_offset >= self.bound, "the last stable offset never goes back"
        self.bound = head.last_stable_offset

    @rule(start=st.integers(0, 60), bytes_max=st.sampled_from((100, 400)))
    def read_in_pieces(self, start: int, bytes_max: int) -> None:
        self.read(start, bytes_max)

    def read(self, start: int, bytes_max: int) -> None:
        durable = self.log.upto(self.durable_group)
        start = min(start, durable.end)
        for isolation, is_committed in ((COMMITTED, True), (UNCOMMITTED, False)):
            found = self.driven.read_all(isolation, fetch_offset=start, bytes_max=bytes_max)
            expected = durable.visible(is_committed=is_committed, start=start)
            assert list(dict.fromkeys(found)) == expected
        result = self.driven.read(fetch_offset=start, bytes_max=bytes_max)
        assert self.driven.count(start) == durable.count(start)
        hidden = result.aborted_records_hidden, result.control_records_hidden
        assert hidden == durable.hidden(start, result.next_offset)

    @rule(timestamp_ms=times_ms)
    def search_by_time(self, timestamp_ms: int) -> None:
        durable = self.log.upto(self.durable_group)
        (found,) = self.driven.offsets(timestamp_ms)
        assert found.offset == durable.first_at(timestamp_ms, durable.last_stable_offset)


def check_answer(result: ProduceResult, expected: object, end: int) -> None:
    if isinstance(expected, ErrorCode):
        assert code(result) is expected
    elif expected is None:
        assert (code(result), result.base_offset, result.is_duplicate) == (ErrorCode.NONE, end, False)
    else:
        assert (code(result), result.base_offset, result.is_duplicate) == (ErrorCode.NONE, expected, True)


LogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLogMachine = LogMachine.TestCase
