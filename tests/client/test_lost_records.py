"""Readers of the SDK after a loss of records that they have read."""

from __future__ import annotations

import pytest

from coordinator_client import OffsetAndMetadata, Rejected
from coordinator_client.consumer.owned import OwnedPartition
from coordinator_client.reading.batch_reader import BatchReader, PartitionRange
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, FakeCluster, poll_all


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.topic.partitions[0].epochs.append((0, 0))
    cluster.topic.batches_per_fetch = 1
    cluster.group.give(0)
    for value in (b"a", b"b", b"lost 1", b"lost 2"):
        cluster.topic.append(0, value)
    return cluster


def lose_two(cluster: FakeCluster) -> None:
    cluster.topic.partitions[0].lose(2, 7)
    for value in (b"c", b"d", b"e"):
        cluster.topic.append(0, value)


def test_a_consumer_goes_back_to_where_the_logs_parted(cluster: FakeCluster) -> None:
    consumer = cluster.consumer(enable_auto_commit=False, auto_offset_reset="latest")
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert poll_all(consumer, 4) == [b"a", b"b", b"lost 1", b"lost 2"]
    lose_two(cluster)
    assert poll_all(consumer, 3) == [b"c", b"d", b"e"]
    assert (consumer.position(T0), cluster.world.requests(Method.FETCH)[-1].partitions[0].last_read_epoch) == (5, 7)


def test_what_was_not_handed_out_yet_is_fetched_anew() -> None:
    """The position lies before the divergence, and what was fetched ahead does not."""
    partition = OwnedPartition(T0, b"")
    partition.move_to(1, epoch=0)
    partition.fetch_offset = 4
    partition.go_back(2, epoch=0)
    assert (partition.position, partition.fetch_offset, partition.fetch_epoch) == (1, 1, 0)
    partition.position = 3
    partition.go_back(2, epoch=None)
    assert (partition.position, partition.fetch_offset, partition.epoch) == (2, 2, None)


def test_without_a_policy_the_application_is_told_from_where_on_it_read_what_was_lost(cluster: FakeCluster) -> None:
    consumer = cluster.consumer(enable_auto_commit=False, auto_offset_reset="none")
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert poll_all(consumer, 4) == [b"a", b"b", b"lost 1", b"lost 2"]
    lose_two(cluster)
    with pytest.raises(Rejected, match=r"it went another way.*from offset 2 on, then seek\(\) there"):
        poll_all(consumer, 1)
    consumer.seek(T0, 2)
    assert poll_all(consumer, 3) == [b"c", b"d", b"e"]


def test_a_committed_offset_carries_its_epoch_to_the_next_reader(cluster: FakeCluster) -> None:
    first = cluster.member(enable_auto_commit=False, auto_offset_reset="earliest")
    assert poll_all(first, 4) == [b"a", b"b", b"lost 1", b"lost 2"]
    first.commit()
    assert cluster.group.leader_epochs[T0] == 0
    assert first.committed([T0]) == {T0: OffsetAndMetadata(4, "", 0)}
    lose_two(cluster)
    second = cluster.member(enable_auto_commit=False, auto_offset_reset="earliest")
    assert poll_all(second, 3) == [b"c", b"d", b"e"]


def test_a_reader_of_ranges_names_what_it_read_and_raises(cluster: FakeCluster) -> None:
    reader = BatchReader(
        cluster.world.connection(), [PartitionRange(topic="t", partition=0, start_offset=0, end_offset=None)]
    )
    batches = iter(reader)
    assert [next(batches).rows()[0][1] for _ in range(4)] == [b"a", b"b", b"lost 1", b"lost 2"]
    lose_two(cluster)
    with pytest.raises(Rejected, match=r"it went another way.*from offset 2 on is not in the log any more: undo"):
        next(batches)


@pytest.mark.parametrize("end_epoch", [0, None])
def test_a_range_whose_end_was_planned_before_the_loss_is_not_read(cluster: FakeCluster, end_epoch: int | None) -> None:
    lose_two(cluster)
    asked = PartitionRange(topic="t", partition=0, start_offset=0, end_offset=4, end_epoch=end_epoch)
    batches = BatchReader(cluster.world.connection(), [asked])
    if end_epoch is None:
        assert [batch.rows()[0][1] for batch in batches] == [b"a", b"b", b"c", b"d"], "the loss is not visible"
        return
    with pytest.raises(
        Rejected, match=r"it went another way.*from offset 2 on is not in the log any more.*asked for anew"
    ):
        next(iter(batches))
