"""Offsets without a record, as members of share groups meet them over Kafka's protocol.

There are markers, aborted records, and holes that compaction leaves. Whole batches of them are never handed out. A hole
inside a batch is handed out with the records beside it, and Kafka's clients acknowledge it as a gap.

Source: KIP-932; spec groups 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages import share_acknowledge_request as acknowledging
from coordinator_server.kafka_front.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from group_coordinator.share_partitions import fetching
from tests.groups.share_partitions.pictures import picture
from tests.harness.compaction import Left, compact
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.kafka_log import consumed
from tests.harness.memory_store import MemoryStore
from tests.harness.share_consumers import ACCEPT, GAP, RELEASE, alter_shares
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares

RECORD_LIMIT = 1


class Reader:
    """A member of a share group that reads `t-0` from its beginning, by Kafka's protocol."""

    def __init__(self, isolation_level: str = "read_committed") -> None:
        self.world = group_world(topics={"t": 1}, writes_records=True)
        alter_shares(self.world, auto_offset_reset="earliest", isolation_level=isolation_level)
        ShareMember(self.world, "m").joins("t")
        self.epoch = 0
        self.records: set[int] = set()
        """Offsets of the records in the last answer."""

    # Writing

    def write(self, *lengths: int) -> None:
        Shares(self.world, "t-0", GROUP).produce(*lengths)

    def transaction(self, outcome: Outcome, *lengths: int) -> None:
        """A transaction with batches of so many records, and its marker behind them."""
        drawn = self.world.init("x")
        self.world.settle()
        sequence = 0
        for length in lengths:
            self.world.produce("x", drawn.result(), "t-0", ["v"] * length, sequence=sequence)
            sequence += length
        self.world.settle()
        self.world.end("x", drawn.result(), outcome)
        self.world.settle()

    def compact(self, end_offset: int, left: Callable[[int], tuple[Left, set[int]]]) -> None:
        """Compaction leaves this of the batches before an offset, see `harness.compaction`. The server starts anew."""
        store = self.world.shelf.store
        assert isinstance(store, MemoryStore)
        self.world.settle()
        compact(store, self.world.inside.catalog.resolve("t", b"", 0).ordinal, end_offset, left)
        self.restart()

    def restart(self) -> None:
        self.world.crash()
        self.world.settle()
        self.epoch = 0

    # Reading

    def fetches(self, *acks: tuple[int, int, Sequence[int]], **fields: Any) -> list[tuple[int, int]]:
        """Acquired ranges, first and last offset. Every one has a record of the answer."""
        batches = tuple(AcknowledgementBatch(*each) for each in acks)
        topics = (FetchTopic(self._topic_id, (FetchPartition(0, batches),)),) if acks or not self.epoch else ()
        settings = {"max_records": 500, "min_bytes": 1, **fields}
        request = ShareFetchRequest(
            group_id=GROUP, member_id="m", share_session_epoch=self.epoch, topics=topics, **settings
        )
        begun = KafkaCaller(self.world).begin(ApiKey.SHARE_FETCH, 2, request)
        for _ in range(request.max_wait_ms):
            self.world.pass_time(1)
        self.world.settle()
        return self._acquired(begun.result())

    def _acquired(self, response: Any) -> list[tuple[int, int]]:
        assert response.error_code == ErrorCode.NONE, response
        self.epoch += 1
        self.records = set()
        ranges = []
        for data in (each for topic in response.responses for each in topic.partitions):
            assert (data.error_code, data.acknowledge_error_code) == (ErrorCode.NONE, ErrorCode.NONE)
            self.records |= {record[0] for batch in consumed(data.records) for record in batch.records}
            ranges += [(each.first_offset, each.last_offset) for each in data.acquired_records]
        assert all(self.records.intersection(range(first, last + 1)) for first, last in ranges)
        return ranges

    def acknowledges(self, *acks: tuple[int, int, Sequence[int]]) -> None:
        partition = acknowledging.AcknowledgePartition(
            0, tuple(acknowledging.AcknowledgementBatch(*each) for each in acks)
        )
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id="m",
            share_session_epoch=self.epoch,
            topics=(acknowledging.AcknowledgeTopic(self._topic_id, (partition,)),),
        )
        response = KafkaCaller(self.world).call(ApiKey.SHARE_ACKNOWLEDGE, 2, request)
        ((data,),) = [topic.partitions for topic in response.responses]
        assert data.error_code == ErrorCode.NONE
        self.epoch += 1

    @property
    def state(self) -> str:
        return picture(Shares(self.world, "t-0", GROUP).state)

    @property
    def _topic_id(self) -> bytes:
        return self.world.inside.catalog.resolve("t", b"", 0).topic_id


# Transactions


@pytest.mark.parametrize("is_strict", [False, True], ids=["batches", "records"])
def test_only_committed_records_are_acquired(is_strict: bool) -> None:
    reader = Reader()
    reader.transaction(Outcome.ABORT, 2, 1)
    reader.transaction(Outcome.COMMIT, 2)
    reader.write(1)
    reader.transaction(Outcome.ABORT, 3)
    reader.transaction(Outcome.COMMIT, 1)
    assert reader.fetches(share_acquire_mode=RECORD_LIMIT if is_strict else 0) == [(4, 5), (7, 7), (12, 12)]
    assert reader.state == "4: m1 m1 x0 m1 x0 x0 x0 x0 m1 x0"
    reader.acknowledges((4, 5, [ACCEPT]), (7, 7, [ACCEPT]), (12, 12, [ACCEPT]))
    assert reader.fetches() == []
    assert reader.state == "14:", "the last marker is done, too"
    reader.world.check_replay()
    reader.world.check_stored()


def test_a_group_that_reads_all_records_gets_no_markers() -> None:
    reader = Reader("read_uncommitted")
    reader.transaction(Outcome.ABORT, 2)
    reader.transaction(Outcome.COMMIT, 1)
    assert reader.fetches() == [(0, 1), (3, 3)]
    reader.acknowledges((0, 1, [ACCEPT]), (3, 3, [ACCEPT]))
    assert (reader.fetches(), reader.state) == ([], "5:")


def test_released_records_come_again_without_the_gaps_between_them() -> None:
    reader = Reader()
    reader.transaction(Outcome.COMMIT, 1)
    reader.transaction(Outcome.ABORT, 1)
    reader.write(1)
    assert reader.fetches() == [(0, 0), (4, 4)]
    assert reader.fetches((0, 0, [RELEASE]), (4, 4, [RELEASE])) == [(0, 0), (4, 4)]
    assert reader.state == "0: m2 x0 x0 x0 m2"


def test_after_a_restart_the_gaps_are_found_again() -> None:
    reader = Reader()
    reader.write(1)
    reader.transaction(Outcome.ABORT, 2)
    reader.write(1)
    assert reader.fetches() == [(0, 0), (4, 4)]
    reader.acknowledges((4, 4, [ACCEPT]))
    reader.restart()
    assert reader.fetches() == [(0, 0)]
    assert reader.state == "0: m1 x0 x0 x0 +1"


# Compaction


def test_batches_that_compaction_removed_are_not_acquired() -> None:
    reader = Reader()
    reader.write(2, 2, 3, 1)
    left = {0: Left.AS_IT_WAS, 2: Left.EMPTY, 4: Left.NOTHING}
    reader.compact(7, lambda first: (left[first], set()))
    assert reader.fetches() == [(0, 1), (7, 7)]
    assert reader.state == "0: m1 m1 x0 x0 x0 x0 x0 m1"
    reader.acknowledges((0, 1, [ACCEPT]), (7, 7, [ACCEPT]))
    assert reader.state == "8:"


def test_a_hole_inside_a_batch_is_acknowledged_as_a_gap() -> None:
    reader = Reader()
    reader.write(4, 1)
    reader.compact(4, lambda _first: (Left.RECORDS, {1, 2}))
    assert reader.fetches() == [(0, 4)]
    assert reader.records == {0, 3, 4}
    reader.acknowledges((0, 4, [ACCEPT, GAP, GAP, RELEASE, ACCEPT]))
    assert reader.state == "3: .1 +1"


def test_a_released_record_that_compaction_removes_is_archived() -> None:
    reader = Reader()
    reader.write(1, 1, 1)
    assert reader.fetches() == [(0, 2)]
    reader.acknowledges((0, 2, [RELEASE]))
    reader.compact(2, lambda first: (Left.NOTHING if first == 1 else Left.AS_IT_WAS, set()))
    assert reader.fetches() == [(0, 0), (2, 2)]
    assert reader.state == "0: m2 x1 m2"


@pytest.mark.parametrize("mode", [0, RECORD_LIMIT], ids=["batches", "records"])
def test_one_fetch_passes_a_large_hole(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that asks for one record at a time read one offset a look, and gave up after 256."""
    monkeypatch.setattr(fetching, "LOOKS_MAX", 20)
    reader = Reader()
    reader.write(1, *[1_000] * 20, 2)
    reader.compact(20_001, lambda first: (Left.NOTHING if first else Left.AS_IT_WAS, set()))
    assert reader.fetches(max_records=1, share_acquire_mode=mode) == [(0, 0)]
    reader.acknowledges((0, 0, [ACCEPT]))
    last = 20_001 if mode == RECORD_LIMIT else 20_002
    assert reader.fetches(max_records=1, share_acquire_mode=mode, max_wait_ms=30) == [(20_001, last)]
