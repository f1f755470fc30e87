"""A whole transaction, or several producers, in one draft leave the partition, and the store, as the steps one by one
do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import NO_TIMESTAMP_MS, BatchHeader, Encoding, encode_offsetless
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome, control_batch
from coordinator_runtime.decision import Coordinator, Decision, Record, ShardKey, Turn
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import CommitGroup, Family, Mutation
from coordinator_runtime.timeline import Journal
from partition_log.batches import batches
from partition_log.codec import LogRows, log_key
from partition_log.counting import count_records
from partition_log.partition_state import Append, PartitionDraft
from partition_log.reading import PartitionRead, ReadBudget
from partition_log.records import PartitionCreated, RowsAppended
from partition_log.shard import LogShard
from partition_log.state import IndexProgress, Isolation, PartitionConfig
from partition_log.stretches import stretches
from partition_log.time_search import TimeSearch
from tests.harness.memory_store import MemoryStore
from tests.harness.staged import counted_bytes

KEY = ShardKey(Coordinator.LOG, 0)
ORDINAL = 7
PRODUCER_ID, OTHER_PRODUCER_ID = 1, 2
TURN = Turn(now_ms=5_000)


class StoredPartition:
    """One partition, and the rows that it was stored as."""

    def __init__(self, config: PartitionConfig) -> None:
        self._journal = Journal()
        self.shard = LogShard(KEY, self._journal, config)
        self._rows = LogRows(lambda _key: [])
        self._staged = StagedRows()
        self._sequences: dict[tuple[int, int], int] = {}
        self.shard.replay(PartitionCreated(ORDINAL))

    def perform(self, decide: Callable[[LogShard], Decision]) -> object:
        """The reply, or the number of the error code."""
        try:
            decision = decide(self.shard)
        except Refused as refusal:
            return refusal.code
        for record in decision.records:
            staged = self._replay(record)
            assert staged.size_bytes == counted_bytes(staged)
        self._journal.make_durable(self._journal.position())
        return decision.reply

    def draft(self) -> PartitionDraft:
        draft = self.shard.draft(ORDINAL, TURN.now_ms)
        assert draft is not None
        return draft

    def put(self, draft: PartitionDraft) -> None:
        """Make the changes of a draft, in which each producer counts as if it had come by itself."""
        self._replay(Record(KEY, draft.record()[0]))
        self._journal.make_durable(self._journal.position())

    def _replay(self, record: Record) -> StagedRows:
        value: Any = record.value
        self.shard.replay(value)
        staged = StagedRows()
        self._rows.stage(record, TURN, staged)
        self._staged.merge(staged)
        return staged

    def stored(self) -> list[Mutation]:
        return sorted(self._staged.mutations(), key=repr)

    def producers_and_aborts(self) -> list[Mutation]:
        """The rows that are the same however many rows the log has."""
        return [row for row in self.stored() if row[0] in (Family.PRODUCERS, Family.ABORTED)]

    def shown(self) -> list[object]:
        """Return everything that readers are shown of the log, from every offset on."""
        store = MemoryStore()
        store.write([CommitGroup(1, self.stored())])
        head = self.shard.durable_head(ORDINAL)
        assert head is not None
        for stretch in stretches(store, ORDINAL, 0):
            assert store.get(Family.LOG, log_key(ORDINAL, stretch.last_offset)), "a stretch ends with a row"
        shown: list[object] = [replace(head, index=IndexProgress(), totals=replace(head.totals, size_bytes=0))]
        for offset in range(head.log_end_offset):
            found = batches(store, ORDINAL, offset, head.log_end_offset)
            shown.append([(header, control_batch(header, stored)) for header, stored in found])
            for isolation, is_raw in product(Isolation, (False, True)):
                read = PartitionRead(
                    store,
                    ORDINAL,
                    fetch_offset=offset,
                    end_offset=None,
                    bytes_max=9_999,
                    visibility=(isolation, is_raw, None),
                )
                read.advance(head, ReadBudget(9_999))
                hidden = read.aborted_records_hidden, read.control_records_hidden
                shown.append((read.batches, read.next_offset, hidden, read.aborted_transactions(head)))
            shown.append(count_records(store, ORDINAL, head, offset, ReadBudget(9_999)))
        for at_ms in range(11):
            search = TimeSearch(ORDINAL, at_ms, bound=head.log_end_offset, isolation=Isolation.READ_UNCOMMITTED)
            shown.append(search.advance(store, head, ReadBudget(0), is_worker_free=True))
        return shown

    def batch(self, producer_id: int, epoch: int, count: int, *, timestamp_ms: int = 1, gap: int = 0) -> Append:
        sequence = self._sequences.get((producer_id, epoch), 0) + gap
        self._sequences[producer_id, epoch] = sequence + count
        header = BatchHeader(
            base_offset=0,
            record_count=count,
            base_timestamp_ms=timestamp_ms,
            max_timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            encoding=Encoding.RECORDS_V1,
            is_transactional=True,
        )
        return Append(ORDINAL, header, encode_offsetless(header, b"payload"), is_admitted=True)


def marker(producer_id: int, epoch: int, outcome: Outcome, csn: int) -> Marker:
    return Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch + 1,
        coordinator_shard=0,
        coordinator_epoch=1,
        outcome=outcome,
        csn=csn,
    )


CONFIGS = st.builds(PartitionConfig, index_interval_batches=st.integers(1, 5))
BATCHES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from((NO_TIMESTAMP_MS, 1, 9))), min_size=1, max_size=3)
OPENINGS = [opening for count in range(3) for opening in permutations((PRODUCER_ID, OTHER_PRODUCER_ID), count)]
TRANSACTIONS = st.lists(st.tuples(BATCHES, st.sampled_from(Outcome), st.sampled_from(OPENINGS)), min_size=1, max_size=4)
"""For each transaction: batches, outcome, and whose batches were appended before, in order: its own first one, and one
of another producer."""


@given(CONFIGS, TRANSACTIONS)
@settings(max_examples=80, deadline=None)
def test_one_step_is_as_good_as_many(
    config: PartitionConfig, transactions: list[tuple[list[tuple[int, int]], Outcome, tuple[int, ...]]]
) -> None:
    steps, at_once = StoredPartition(config), StoredPartition(config)
    for epoch, (sent, outcome, opening) in enumerate(transactions):
        appends = [steps.batch(PRODUCER_ID, epoch, count, timestamp_ms=timestamp_ms) for count, timestamp_ms in sent]
        for partition in (steps, at_once):
            for producer_id in opening:
                append = appends[0] if producer_id == PRODUCER_ID else partition.batch(OTHER_PRODUCER_ID, 0, 1)
                partition.perform(lambda log, append=append: log.decide_append(TURN, append=append))  # type: ignore[misc]
        ending = marker(PRODUCER_ID, epoch, outcome, csn=epoch + 1)
        first = steps.perform(lambda log, appends=appends: log.decide_append_all(appends, 0, None, TURN))  # type: ignore[misc]
        steps.perform(lambda log, ending=ending: log.decide_marker(TURN, ordinal=ORDINAL, marker=ending))  # type: ignore[misc]
        assert first == at_once.perform(
            lambda log, appends=appends, ending=ending: log.decide_append_all(appends, 0, ending, TURN)  # type: ignore[misc]
        )
        assert at_once.shard.open_transactions(ORDINAL) == steps.shard.open_transactions(ORDINAL)
        assert at_once.producers_and_aborts() == steps.producers_and_aborts()
        assert at_once.shown() == steps.shown()


def until_its_transaction_ends(steps: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The steps without those of a producer after it ended a transaction: it begins one in a draft at most."""
    ended: set[int] = set()
    kept = []
    for producer_id, step in steps:
        if producer_id not in ended:
            kept.append((producer_id, step))
        if step != "append":
            ended.add(producer_id)
    return kept


STEPS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(("append", "append", "end", "whole"))), min_size=2, max_size=9
).map(until_its_transaction_ends)
"""Steps of producers that append a batch, end their transaction, or append a whole one. Where a transaction is open,
that is one more batch of it."""


class Producers:
    """The epochs of some producers, and which of them have a transaction open."""

    def __init__(self) -> None:
        self.partition = StoredPartition(PartitionConfig())
        self._epochs: dict[int, int] = {}
        self._open: set[int] = set()
        self._csn = 0

    def take(self, draft: PartitionDraft, producer_id: int, step: str, outcome: Outcome) -> None:
        epoch = self._epochs.get(producer_id, 0)
        if step == "append" or (step == "whole" and producer_id in self._open):
            append = self.partition.batch(producer_id, epoch, 1)
            draft.append(append.header, append.offsetless, 0)
            self._open.add(producer_id)
            return
        self._csn += 1
        self._epochs[producer_id] = epoch + 1
        self._open.discard(producer_id)
        if step == "end":
            draft.end(marker(producer_id, epoch, outcome, self._csn))
            return
        append = self.partition.batch(producer_id, epoch, 1)
        draft.append_and_end(append.header, append.offsetless, marker(producer_id, epoch, Outcome.COMMIT, self._csn))


@given(st.lists(STEPS, min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_a_draft_of_several_producers_is_as_good_as_one_for_each_step(
    drafts: Sequence[Sequence[tuple[int, str]]],
) -> None:
    steps, at_once = Producers(), Producers()
    for taken in drafts:
        draft = at_once.partition.draft()
        for producer_id, step in taken:
            single = steps.partition.draft()
            steps.take(single, producer_id, step, Outcome.COMMIT)
            steps.partition.put(single)
            at_once.take(draft, producer_id, step, Outcome.COMMIT)
        at_once.partition.put(draft)
        assert at_once.partition.shard.open_transactions(ORDINAL) == steps.partition.shard.open_transactions(ORDINAL)
        assert at_once.partition.producers_and_aborts() == steps.partition.producers_and_aborts()
        assert at_once.partition.shown() == steps.partition.shown()


def test_a_draft_tells_of_an_abort_where_its_marker_is_although_other_batches_follow() -> None:
    producers = Producers()
    draft = producers.partition.draft()
    for producer_id, step in ((1, "append"), (2, "append"), (1, "end"), (2, "append")):
        producers.take(draft, producer_id, step, Outcome.ABORT)
    record, grew = draft.record()
    assert record.aborted is not None
    assert (record.aborted.first_offset, record.aborted.marker_offset) == (0, 2)
    assert (record.head.last_abort_offset, record.head.totals.abort_count) == (2, 1)
    assert (record.head.last_stable_offset, record.head.log_end_offset) == (1, 4)
    assert (grew.outcome, grew.marker_count, grew.record_count) == (Outcome.ABORT, 1, 3)


@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "behind an open transaction"])
@pytest.mark.parametrize("before", [(), (PRODUCER_ID,), (PRODUCER_ID, OTHER_PRODUCER_ID, PRODUCER_ID)], ids=len)
def test_a_whole_transaction_is_recorded_as_its_batch_and_its_marker(before: Sequence[int], *, is_open: bool) -> None:
    producers, epoch = Producers(), before.count(PRODUCER_ID)
    for producer_id in before:
        draft = producers.partition.draft()
        producers.take(draft, producer_id, "whole", Outcome.COMMIT)
        producers.partition.put(draft)
    if is_open:
        draft = producers.partition.draft()
        producers.take(draft, OTHER_PRODUCER_ID, "append", Outcome.COMMIT)
        producers.partition.put(draft)
    append = producers.partition.batch(PRODUCER_ID, epoch, 2, timestamp_ms=9)
    ending = marker(PRODUCER_ID, epoch, Outcome.COMMIT, csn=9)
    whole, apart = producers.partition.draft(), producers.partition.draft()
    first_offset = whole.append_and_end(append.header, append.offsetless, ending)
    assert apart.append(append.header, append.offsetless, 0) == first_offset
    apart.end(ending)
    assert whole.record() == apart.record()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_readers_wait_for_the_transaction_that_was_opened_behind_the_ended_one(outcome: Outcome) -> None:
    partition = StoredPartition(PartitionConfig())
    for producer_id in (PRODUCER_ID, OTHER_PRODUCER_ID):
        partition.perform(lambda log, append=partition.batch(producer_id, 0, 1): log.decide_append(TURN, append=append))  # type: ignore[misc]
    more, ending = partition.batch(PRODUCER_ID, 0, 1), marker(PRODUCER_ID, 0, outcome, 1)
    partition.perform(lambda log: log.decide_append_all([more], 0, ending, TURN))
    head = partition.shard.durable_head(ORDINAL)
    assert head is not None
    assert (head.last_stable_offset, head.log_end_offset) == (1, 4)


def test_it_is_one_record() -> None:
    partition = StoredPartition(PartitionConfig())
    appends = [partition.batch(PRODUCER_ID, 0, 2), partition.batch(PRODUCER_ID, 0, 1)]
    ending = marker(PRODUCER_ID, 0, Outcome.COMMIT, 1)
    (record,) = (each.value for each in partition.shard.decide_append_all(appends, 0, ending, TURN).records)
    assert isinstance(record, RowsAppended)
    assert [last_offset for last_offset, _row in record.rows] == [1, 3], "the marker is the tail of the last row"


def test_a_batch_that_does_not_follow_refuses_all_of_them() -> None:
    for decide in (
        lambda log, appends: log.decide_append_all(appends, 0, None, TURN),
        lambda log, appends: log.decide_append_all(appends, 0, marker(PRODUCER_ID, 0, Outcome.COMMIT, 1), TURN),
    ):
        partition = StoredPartition(PartitionConfig())
        appends = [partition.batch(PRODUCER_ID, 0, 2), partition.batch(PRODUCER_ID, 0, 1, gap=3)]
        refused = partition.perform(lambda log, decide=decide, appends=appends: decide(log, appends))  # type: ignore[misc]
        assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.stored() == []


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused() -> None:
    partition = StoredPartition(PartitionConfig())
    later = Marker(
        producer_id=PRODUCER_ID,
        txn_epoch=0,
        next_epoch=0,
        coordinator_shard=0,
        coordinator_epoch=2,
        outcome=Outcome.ABORT,
        csn=1,
    )
    partition.perform(lambda log: log.decide_marker(TURN, ordinal=ORDINAL, marker=later))
    before = partition.stored()
    appends = [partition.batch(PRODUCER_ID, 0, 1)]
    refused = partition.perform(
        lambda log: log.decide_append_all(appends, 0, marker(PRODUCER_ID, 0, Outcome.COMMIT, 2), TURN)
    )
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.stored() == before


def test_what_was_appended_outside_of_the_transaction_is_no_part_of_it() -> None:
    partition = StoredPartition(PartitionConfig())
    transactional = partition.batch(PRODUCER_ID, 0, 1)
    header = BatchHeader(
        base_offset=0,
        record_count=1,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
    )
    plain = Append(ORDINAL, header, encode_offsetless(header, b"payload"), is_admitted=True)
    partition.perform(lambda log: log.decide_append(TURN, append=plain))
    refused = partition.perform(
        lambda log: log.decide_append_all([transactional], 0, marker(PRODUCER_ID, 0, Outcome.COMMIT, 1), TURN)
    )
    assert refused is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_transact_does_not_have_the_records_of_an_ended_transaction() -> None:
    """The epoch goes on, as after an EndTxn of client version 1."""
    partition = StoredPartition(PartitionConfig())
    ended, new = partition.batch(PRODUCER_ID, 0, 1), partition.batch(PRODUCER_ID, 0, 1)
    partition.perform(lambda log: log.decide_append(TURN, append=ended))
    abort = replace(marker(PRODUCER_ID, 0, Outcome.ABORT, 1), next_epoch=0)
    partition.perform(lambda log: log.decide_marker(TURN, ordinal=ORDINAL, marker=abort))
    before = partition.stored()
    commit = marker(PRODUCER_ID, 0, Outcome.COMMIT, 2)
    answers = [
        partition.perform(lambda log, appends=appends: log.decide_append_all(appends, 0, commit, TURN))  # type: ignore[misc]
        for appends in ([ended], [ended, new], [new, ended])
    ]
    assert answers == [
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ]
    assert partition.stored() == before
    assert partition.perform(lambda log: log.decide_append_all([new, new], 0, commit, TURN)) == 2
