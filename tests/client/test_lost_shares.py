"""Share consumers that lose their session, their membership, their server or a topic. Without a clock, on a fake
server."""

# Several polls may pass until one of them raises.
# ruff: noqa: PT012

from __future__ import annotations

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import share_pb2 as share
from coordinator_client import (
    AcknowledgementFailed,
    AcknowledgeType,
    Misconfigured,
    Rejected,
    Retriable,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import values
from tests.client.fake_server import refuse
from tests.client.fake_share import LOCK_MS, T0, ShareCluster
from tests.client.test_share_consumer import Told, poll_some
from tests.client.world import Fault


@pytest.fixture
def cluster() -> ShareCluster:
    return ShareCluster()


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_lost_session_is_replaced_and_nothing_is_lost(cluster: ShareCluster, code: ErrorCode) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member()
    consumer.poll()
    cluster.group.forget_session()
    cluster.group.refusals.append(code)
    cluster.group.append(0, b"c")
    assert values(consumer.poll()) == [b"c"]
    assert cluster.group.state() == "kkh"
    # The new session acquires nothing before the acknowledgements are done.
    opened = [each for each in cluster.world.requests(Method.SHARE_FETCH) if each.session_epoch == 0]
    assert [len(each.partitions) for each in opened] == [2, 0]


def test_a_server_that_was_restarted_has_released_the_records(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.group.restart()
    with pytest.raises(AcknowledgementFailed, match="t-0 0"):
        consumer.poll()
    assert values(consumer.poll()) == [b"a"]
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "k"


def test_a_member_that_was_removed_loses_its_records_and_joins_again(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member(explicit=True)
    batch = consumer.poll()
    consumer.accept(batch[0])
    cluster.group.remove()
    cluster.world.pause(1_000)
    # The application may go on with what it has. It is told with the next poll.
    consumer.accept(batch[1])
    with pytest.raises(AcknowledgementFailed, match="UNKNOWN_MEMBER_ID") as why:
        consumer.poll()
    assert why.value.offsets == {T0: (0, 1)}
    assert not cluster.group.acks
    again = consumer.poll()
    assert [record.delivery_count for record in again] == [2, 2]
    with pytest.raises(Rejected, match="not held"):
        consumer.accept(batch[1])


def test_a_member_of_an_old_epoch_joins_again(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    cluster.group.member_epoch = 0
    assert values(consumer.poll()) == [b"a"]
    cluster.group.member_epoch = 77
    cluster.world.pause(12_000)
    assert [each.member_epoch for each in cluster.world.requests(Method.SHARE_GROUP_HEARTBEAT)].count(0) == 2
    with pytest.raises(AcknowledgementFailed, match="t-0 0"):
        consumer.poll()


def test_an_application_that_does_not_poll_leaves_and_comes_back(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member(max_poll_interval_ms=10_000)
    consumer.poll()
    cluster.world.pause(11_000)
    assert cluster.group.state() == "a"
    with pytest.raises(AcknowledgementFailed, match="max_poll_interval_ms"):
        consumer.poll()
    assert values(consumer.poll()) == [b"a"]


def test_a_lost_answer_to_a_fetch_is_healed_by_releasing_its_records(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    cluster.world.fault(Method.SHARE_FETCH, Fault.LOST_REPLY)
    (record,) = consumer.poll(timeout_ms=5_000)
    assert (record.value, record.delivery_count) == (b"a", 2)
    assert cluster.world.requests(Method.SHARE_ACKNOWLEDGE)[0].session_epoch == -1


def test_a_lost_request_is_repeated(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.world.fault(Method.SHARE_ACKNOWLEDGE, Fault.LOST_REQUEST)
    assert consumer.commit() == {T0: None}
    assert cluster.group.acks == [(0, 0, 1)]


def test_a_lost_answer_to_an_acknowledgement_leaves_its_outcome_unknown(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.world.fault(Method.SHARE_ACKNOWLEDGE, Fault.LOST_REPLY)
    error = consumer.commit()[T0]
    assert isinstance(error, AcknowledgementFailed)
    assert (error.error_class, error.offsets) == (ErrorClass.UNKNOWN_OUTCOME, {T0: (0,)})
    assert cluster.group.acks == [(0, 0, 1)]


def test_an_unknown_outcome_of_one_partition_leaves_that_of_the_repetition_unknown(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    unknown = share.ShareAcknowledgeResponse(lock_duration_ms=LOCK_MS)
    result = unknown.results.add(topic="t", topic_id=cluster.world.server.id_of("t"), partition=0)
    refuse(result, Method.SHARE_ACKNOWLEDGE, ErrorCode.REQUEST_TIMED_OUT)
    cluster.world.answer(Method.SHARE_ACKNOWLEDGE, unknown)
    # It was done, and used up the epoch.
    cluster.group.partitions[0].cells[0].state = "acknowledged"
    cluster.group.session_epoch = (cluster.group.session_epoch or 0) + 1
    error = consumer.commit()[T0]
    assert isinstance(error, AcknowledgementFailed)
    assert (error.code, error.error_class) == (ErrorCode.INVALID_RECORD_STATE, ErrorClass.UNKNOWN_OUTCOME)


def test_a_server_that_is_away_for_long(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.world.weather = lambda _: Fault.LOST_REQUEST
    for _ in range(5):
        assert not consumer.poll(timeout_ms=1_000)
    with pytest.raises(Retriable, match="commit did not come to an end within 500 ms"):
        consumer.commit(timeout_ms=500)
    cluster.world.weather = lambda _: Fault.NONE
    assert consumer.commit() == {T0: None}
    assert cluster.group.acks == [(0, 0, 1)]


def test_closing_gives_up_on_a_dead_server(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.world.weather = lambda _: Fault.LOST_REQUEST
    started_ms = cluster.world.now_ms
    with pytest.raises(AcknowledgementFailed, match="t-0 0"):
        consumer.close()
    assert cluster.world.now_ms - started_ms <= 1_100


def remake(cluster: ShareCluster) -> None:
    """Create the deleted topic again, with one record."""
    for partition in cluster.group.partitions:
        partition.batches.clear()
        partition.cells.clear()
    cluster.world.server.topics["t"] = 2
    cluster.group.give(0)
    cluster.group.append(0, b"new")


def test_the_acknowledgements_of_a_deleted_topic_fail_and_its_successor_is_read(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.world.server.delete_topic("t")
    with pytest.raises(AcknowledgementFailed, match="t-0 0"):
        for _ in range(3):
            assert not consumer.poll(timeout_ms=1_000)
    remake(cluster)
    assert poll_some(consumer, 1) == [b"new"]
    assert consumer.commit() == {T0: None}


def test_records_of_a_deleted_topic_are_not_taken_for_those_of_its_successor(cluster: ShareCluster) -> None:
    """A renewal of the old record is refused, and the application still has it when the new record comes."""
    cluster.group.append(0, b"a")
    consumer, told = cluster.member(explicit=True), Told()
    consumer.set_acknowledgement_commit_callback(told)
    (record,) = consumer.poll()
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    cluster.world.server.delete_topic("t")
    cluster.world.call_after(2_000, lambda: remake(cluster))
    assert values(consumer.poll(timeout_ms=10_000)) == [b"new"]
    consumer.acknowledge(record, AcknowledgeType.RELEASE)
    assert told.told == [({T0: [0]}, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_partition_that_is_not_there_does_not_make_it_spin(cluster: ShareCluster) -> None:
    consumer = cluster.member()
    consumer.poll(timeout_ms=100)
    cluster.world.server.delete_topic("t")
    cluster.group.append(0, b"a")
    consumer.poll(timeout_ms=10_000)
    assert len(cluster.world.requests(Method.SHARE_FETCH)) < 40


def test_a_partition_that_was_taken_away_is_forgotten(cluster: ShareCluster) -> None:
    cluster.group.append(1, b"b")
    consumer = cluster.member()
    assert values(consumer.poll()) == [b"b"]
    cluster.group.give(0)
    cluster.world.pause(100)
    assert consumer.assignment() == {T0}
    cluster.group.append(1, b"c")
    assert not consumer.poll(timeout_ms=1_000)
    assert cluster.group.session == {0}
    assert cluster.group.state(1) == "ka"


def test_a_group_that_refuses_the_member_says_so(cluster: ShareCluster) -> None:

    refusal = refuse(
        group.ShareGroupHeartbeatResponse(), Method.SHARE_GROUP_HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED
    )
    cluster.world.answer(Method.SHARE_GROUP_HEARTBEAT, refusal)
    consumer = cluster.member()
    for _ in range(2):
        with pytest.raises(Misconfigured, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.poll()
    consumer.close()


def test_an_arrived_record_whose_lock_has_ended_is_not_handed_out(cluster: ShareCluster) -> None:
    consumer = cluster.member(max_poll_interval_ms=2_000_000)
    assert not consumer.poll(timeout_ms=100)
    consumer.poll(timeout_ms=1)
    cluster.group.append(0, b"a")
    cluster.world.pause(LOCK_MS + 1_000)
    cluster.group.expire()
    (record,) = consumer.poll()
    assert record.delivery_count == cluster.group.partitions[0].cells[0].count
