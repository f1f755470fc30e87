"""Commits of a consumer: in order, once each, and never more than the application has seen."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_client import CommitFailed, OffsetAndMetadata, OutcomeUnknown, Rejected, Retriable
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, FakeCluster
from tests.client.fake_server import refuse
from tests.client.world import Fault


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def commit_answer(code: ErrorCode) -> group.OffsetCommitResponse:
    return refuse(group.OffsetCommitResponse(), Method.OFFSET_COMMIT, code)


def committed(cluster: FakeCluster) -> list[dict[int, int]]:
    """Return the offsets in each commit."""
    return [
        {item.partition: item.committed_offset for topic in sent.topics for item in topic.partitions}
        for sent in cluster.world.requests(Method.OFFSET_COMMIT)
    ]


def reading(cluster: FakeCluster, **options):
    """A member that has read two records."""
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    consumer = cluster.member(**({"enable_auto_commit": False} | options))
    consumer.poll()
    return consumer


def test_a_commit_names_the_member_and_its_epoch(cluster: FakeCluster) -> None:
    reading(cluster, group_instance_id="i").commit()
    (sent,) = cluster.world.requests(Method.OFFSET_COMMIT)
    assert (sent.member_id, sent.group_instance_id) == (cluster.group.member_id, "i")
    assert sent.generation_id_or_member_epoch == cluster.group.member_epoch
    assert committed(cluster) == [{0: 2}]


def test_offsets_may_be_chosen_with_a_text_beside_them(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    consumer.commit({("t", 0): 1, T1: OffsetAndMetadata(4, "note")})
    (sent,) = cluster.world.requests(Method.OFFSET_COMMIT)
    assert [(item.committed_offset, item.metadata) for item in sent.topics[0].partitions] == [(1, ""), (4, "note")]
    with pytest.raises(Rejected, match="must not be below 0"):
        consumer.commit({T0: -1})
    with pytest.raises(Rejected, match="is no topic name"):
        consumer.commit({("no topic!", 0): 1})


def test_nothing_new_is_not_sent(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    consumer.commit()
    consumer.commit()
    assert len(committed(cluster)) == 1


def test_commits_that_do_not_wait_are_sent_one_after_the_other(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    told = []
    for offset in (1, 2, 3):
        consumer.commit_async({T0: offset}, lambda offsets, error: told.append((offsets[T0].offset, error)))
    assert len(committed(cluster)) == 1
    consumer.poll(timeout_ms=100)
    assert committed(cluster) == [{0: 1}, {0: 2}, {0: 3}]
    assert told == [(1, None), (2, None), (3, None)]


def test_a_commit_that_does_not_wait_is_tried_once(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    told = []
    cluster.world.fault(Method.OFFSET_COMMIT, Fault.LOST_REQUEST)
    consumer.commit_async({T0: 1}, lambda _, error: told.append(error))
    consumer.poll(timeout_ms=5_000)
    assert len(committed(cluster)) == 1
    assert isinstance(told[0], OutcomeUnknown)
    assert "Commit again" in str(told[0])


def test_an_exception_of_a_callback_is_raised_by_poll(cluster: FakeCluster) -> None:
    consumer = reading(cluster)

    def callback(_, __) -> None:
        raise ZeroDivisionError

    consumer.commit_async({T0: 1}, callback)
    with pytest.raises(ZeroDivisionError):
        consumer.poll(timeout_ms=100)


def test_a_commit_that_waits_is_tried_until_its_deadline(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    busy = commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.world.answer(Method.OFFSET_COMMIT, *[busy] * 3)
    consumer.commit({T0: 1})
    assert cluster.group.offsets == {T0: 1}
    cluster.world.answer(Method.OFFSET_COMMIT, *[busy] * 100)
    before_ms = cluster.world.now_ms
    with pytest.raises(Retriable, match="COORDINATOR_LOAD_IN_PROGRESS"):
        consumer.commit({T0: 2}, timeout_ms=5_000)
    assert cluster.world.now_ms - before_ms == 5_000


def test_a_commit_without_an_answer_is_of_unknown_outcome(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    cluster.world.fault(Method.OFFSET_COMMIT, Fault.SILENT)
    with pytest.raises(OutcomeUnknown, match="Commit again: it does no harm twice"):
        consumer.commit(timeout_ms=2_000)


def test_a_commit_under_an_epoch_of_before_is_sent_again_under_the_new_one(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    cluster.world.fault(Method.CONSUMER_GROUP_HEARTBEAT, Fault.LOST_REPLY)
    cluster.group.give(0, 1, 2)
    cluster.group.member_epoch = cluster.group.epoch
    consumer.commit()
    assert [sent.generation_id_or_member_epoch for sent in cluster.world.requests(Method.OFFSET_COMMIT)] == [2, 3]


def test_a_member_that_was_removed_cannot_commit(cluster: FakeCluster) -> None:
    consumer = reading(cluster)
    cluster.group.member_id = "somebody else"
    with pytest.raises(CommitFailed, match=r"UNKNOWN_MEMBER_ID.*Go on with poll\(\)"):
        consumer.commit()
    with pytest.raises(CommitFailed, match="is no member of the group 'g' now"):
        cluster.member().commit({T0: 1})


def test_what_earlier_polls_returned_is_committed_by_itself(cluster: FakeCluster) -> None:
    consumer = reading(cluster, enable_auto_commit=True, auto_commit_interval_ms=3_000)
    cluster.topic.append(0, b"c")
    cluster.world.pause(10_000)
    assert committed(cluster) == []
    consumer.poll(timeout_ms=100)
    assert committed(cluster) == [{0: 2}]
    consumer.poll(timeout_ms=100)
    assert committed(cluster) == [{0: 2}]
    cluster.world.pause(3_000)
    consumer.poll(timeout_ms=100)
    assert committed(cluster) == [{0: 2}, {0: 3}]


def test_an_automatic_commit_that_fails_is_tried_again_soon(cluster: FakeCluster) -> None:
    consumer = reading(cluster, enable_auto_commit=True)
    cluster.world.answer(Method.OFFSET_COMMIT, commit_answer(ErrorCode.NOT_COORDINATOR))
    cluster.world.pause(5_000)
    consumer.poll(timeout_ms=100)
    assert cluster.group.offsets == {}
    consumer.poll(timeout_ms=100)
    assert cluster.group.offsets == {}
    consumer.poll(timeout_ms=100)
    assert cluster.group.offsets == {T0: 2}


def test_close_commits_what_was_polled_and_what_waits(cluster: FakeCluster) -> None:
    consumer = reading(cluster, enable_auto_commit=True)
    told = []
    consumer.commit_async({T0: 1}, lambda offsets, error: told.append((offsets, error)))
    consumer.close()
    assert committed(cluster) == [{0: 1}, {0: 2}]
    assert told == [({T0: (1, "", None)}, None)]
