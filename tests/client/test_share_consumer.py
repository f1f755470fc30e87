"""The blocking share consumer: what poll returns, what is acknowledged when, and what becomes of lost locks. Without a
clock, on a fake server."""

# What is under test is the exit of a `with`, so the block that raises has the length of a session.
# ruff: noqa: PT012

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from coordinator_client import (
    AcknowledgementFailed,
    AcknowledgeType,
    CorruptBatch,
    Misconfigured,
    Rejected,
    ShareConsumer,
    TopicPartition,
)
from coordinator_client.process import THIS_PROCESS
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import values
from tests.client.fake_share import LOCK_MS, T0, T1, ShareCluster
from tests.client.world import Fault

SESSION_METHODS = {Method.SHARE_FETCH, Method.SHARE_ACKNOWLEDGE}


@pytest.fixture
def cluster() -> ShareCluster:
    return ShareCluster()


def poll_some(consumer: ShareConsumer, count: int) -> list[bytes | None]:
    """Poll until this many records came."""
    found: list[bytes | None] = []
    for _ in range(20):
        found += values(consumer.poll(timeout_ms=2_000))
        if len(found) >= count:
            return found
    raise AssertionError(f"only {found} came")


class Told:
    """Results that the callback got."""

    def __init__(self) -> None:
        self.told: list[tuple[dict[TopicPartition, list[int]], ErrorCode | None]] = []

    def __call__(self, offsets: Mapping[TopicPartition, Sequence[int]], error: AcknowledgementFailed | None) -> None:
        found = {name: list(numbers) for name, numbers in offsets.items()}
        self.told.append((found, None if error is None else ErrorCode(error.code)))


# Polls and acknowledgements


def test_a_member_takes_records_of_its_partitions(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    cluster.group.append(1, b"c")
    consumer = cluster.member()
    batch = consumer.poll()
    assert [(record.partition, record.offset, record.value, record.delivery_count) for record in batch] == [
        (0, 0, b"a", 1),
        (0, 1, b"b", 1),
        (1, 0, b"c", 1),
    ]
    assert (batch.partitions, consumer.assignment(), consumer.subscription()) == ({T0, T1}, {T0, T1}, {"t"})
    assert consumer.lock_duration_ms == LOCK_MS
    assert (cluster.group.state(0), cluster.group.state(1)) == ("hh", "h")
    assert not consumer.poll(timeout_ms=1_000)


def test_implicit_the_next_poll_accepts_what_was_polled(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member()
    assert values(consumer.poll()) == [b"a", b"b"]
    cluster.group.append(0, b"c")
    assert values(consumer.poll()) == [b"c"]
    assert cluster.group.state() == "kkh"
    # The acknowledgements went with the fetch.
    assert not cluster.world.requests(Method.SHARE_ACKNOWLEDGE)


def test_implicit_commit_and_close_accept_too(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "k"
    assert consumer.commit() == {}
    cluster.group.append(0, b"b")
    consumer.poll()
    consumer.close()
    assert cluster.group.state() == "kk"
    assert cluster.world.requests(Method.SHARE_ACKNOWLEDGE)[-1].session_epoch == -1
    assert cluster.world.requests(Method.SHARE_GROUP_HEARTBEAT)[-1].member_epoch == -1
    consumer.close()
    with pytest.raises(Rejected, match="closed"):
        consumer.poll()


def test_an_exception_in_a_with_block_accepts_nothing(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    with pytest.raises(ZeroDivisionError), cluster.member() as consumer:
        batch = consumer.poll()
        consumer.accept(batch[0])
        raise ZeroDivisionError
    assert cluster.group.state() == "ka"


def test_each_outcome_is_sent_as_it_was_chosen(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b", b"c", b"d", b"e")
    consumer = cluster.member()
    batch = consumer.poll()
    consumer.release(batch[1])
    consumer.reject(batch[2])
    consumer.acknowledge(batch[3], AcknowledgeType.REJECT)
    consumer.acknowledge(batch[3])
    assert consumer.commit() == {T0: None}
    assert cluster.group.acks == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 1), (0, 4, 1)]
    assert cluster.group.state() == "karkk"
    (again,) = consumer.poll()
    assert (again.value, again.delivery_count) == (b"b", 2)


def test_explicit_each_record_must_be_acknowledged_before_the_next_poll(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member(explicit=True)
    batch = consumer.poll()
    consumer.accept(batch[0])
    for _ in range(2):
        with pytest.raises(
            Rejected, match=r"1 records of earlier polls are not acknowledged, the first is t-0 offset 1"
        ):
            consumer.poll(timeout_ms=100)
    assert cluster.group.state() == "hh"
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "kh"
    with pytest.raises(Rejected, match="not acknowledged"):
        consumer.poll(timeout_ms=100)
    consumer.release(batch[1])
    assert values(consumer.poll()) == [b"b"]


def test_explicit_close_releases_what_is_left(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b", b"c")
    consumer = cluster.member(explicit=True)
    batch = consumer.poll()
    consumer.accept(batch[0])
    consumer.close()
    assert cluster.group.state() == "kaa"


def test_a_record_is_acknowledged_once(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    (record,) = consumer.poll()
    consumer.commit()
    with pytest.raises(Rejected, match=r"t-0 offset 0 is not held by this consumer"):
        consumer.accept(record)
    assert cluster.group.acks == [(0, 0, 1)]


def test_a_batch_is_acknowledged_as_a_whole(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member(explicit=True)
    consumer.release(consumer.poll())
    batch = consumer.poll()
    assert [record.delivery_count for record in batch] == [2, 2]
    consumer.accept(batch)
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "kk"


def test_a_poll_acquires_whole_batches_or_no_more_than_asked_for(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b", b"c")
    cluster.group.append(0, b"d")
    assert values(cluster.member(max_poll_records=2).poll()) == [b"a", b"b", b"c"]
    cluster.group.restart()
    strict = cluster.member(max_poll_records=2, share_acquire_mode="record_limit")
    assert [values(strict.poll()), values(strict.poll(max_records=1))] == [[b"a", b"b"], [b"c"]]


def test_only_acquired_records_are_returned_and_holes_are_acknowledged(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b", holes=2)
    cluster.group.append(0, b"c")
    cluster.group.partitions[0].cells[0].state = "acknowledged"
    consumer = cluster.member(explicit=True)
    batch = consumer.poll()
    assert [(record.offset, record.value) for record in batch] == [(1, b"b"), (4, b"c")]
    consumer.accept(batch)
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "kkrrk"


def test_a_poll_that_finds_only_holes_goes_on(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", holes=2)
    cluster.group.partitions[0].cells[0].state = "acknowledged"
    consumer = cluster.member()
    assert not consumer.poll(timeout_ms=1_000)
    assert cluster.group.state() == "krr"


# Renewals


def test_a_renewed_record_stays_with_the_application(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member()
    batch = consumer.poll()
    consumer.renew(batch[0])
    cluster.group.append(0, b"c")
    assert values(consumer.poll()) == [b"c"]
    assert cluster.group.state() == "hkh"
    assert not consumer.poll(timeout_ms=500)
    assert cluster.group.state() == "hkk"
    consumer.accept(batch[0])
    assert consumer.commit() == {T0: None}
    assert cluster.group.state() == "kkk"


def test_explicit_a_renewed_record_needs_an_outcome_before_the_next_poll_but_one(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member(explicit=True)
    (record,) = consumer.poll()
    consumer.renew(record)
    assert not consumer.poll(timeout_ms=500)
    with pytest.raises(Rejected, match="t-0 offset 0"):
        consumer.poll(timeout_ms=500)
    consumer.accept(record)
    assert not consumer.poll(timeout_ms=500)
    assert cluster.group.acks == [(0, 0, 4), (0, 0, 1)]


def test_a_renewal_that_the_group_forbids_fails_alone(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    cluster.group.allows_renewal = False
    consumer = cluster.member()
    batch = consumer.poll()
    consumer.renew(batch[0])
    results = consumer.commit()
    assert isinstance(results[T0], AcknowledgementFailed)
    assert (results[T0].code, results[T0].offsets) == (ErrorCode.INVALID_REQUEST, {T0: (0,)})
    assert cluster.group.state() == "hk"
    # It is still held.
    consumer.accept(batch[0])
    assert consumer.commit() == {T0: None}


def test_a_renewal_and_an_outcome_of_the_same_record_keep_their_order(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    (record,) = consumer.poll()
    consumer.renew(record)
    consumer.commit_async()
    consumer.accept(record)
    assert consumer.commit() == {T0: None}
    assert cluster.group.acks == [(0, 0, 4), (0, 0, 1)]


# Failed acknowledgements


def test_a_lost_lock_is_raised_once_and_accepts_nothing(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a", b"b")
    consumer = cluster.member()
    consumer.poll()
    cluster.group.expire()
    with pytest.raises(AcknowledgementFailed, match="not acknowledged: t-0 0 to 1") as why:
        consumer.poll()
    assert why.value.offsets == {T0: (0, 1)}
    batch = consumer.poll()
    assert [record.delivery_count for record in batch] == [2, 2]
    consumer.close()
    assert cluster.group.state() == "kk"


def test_a_lost_lock_is_told_to_the_callback_and_poll_goes_on(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    cluster.group.append(1, b"b")
    consumer, told = cluster.member(), Told()
    consumer.set_acknowledgement_commit_callback(told)
    consumer.poll()
    cluster.group.expire()
    assert values(consumer.poll()) == [b"a"]
    consumer.poll(timeout_ms=100)
    assert told.told == [
        ({T0: [0]}, ErrorCode.INVALID_RECORD_STATE),
        ({T1: [0]}, None),
        ({T0: [0]}, None),
    ]


def test_a_lost_lock_fails_only_records_of_its_own_fetch(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member(explicit=True)
    (first,) = consumer.poll()
    consumer.renew(first)
    cluster.group.append(0, b"b")
    (second,) = consumer.poll()
    cluster.group.expire(offsets=[0])
    consumer.accept([first, second])
    results = consumer.commit()
    assert isinstance(results[T0], AcknowledgementFailed)
    assert results[T0].offsets == {T0: (0,)}
    assert cluster.group.state() == "ak"


def test_an_old_record_is_never_taken_for_its_next_delivery(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member(explicit=True)
    (old,) = consumer.poll()
    consumer.renew(old)
    assert not consumer.poll(timeout_ms=100)
    consumer.renew(old)
    cluster.world.fault(Method.SHARE_FETCH, Fault.NONE)
    cluster.group.expire()
    with pytest.raises(AcknowledgementFailed):
        poll_some(consumer, 1)
    (new,) = consumer.poll()
    assert (new.offset, new.delivery_count) == (0, 2)
    with pytest.raises(Rejected, match="not held by this consumer"):
        consumer.accept(old)
    consumer.accept(new)
    assert consumer.commit() == {T0: None}


def test_a_callback_that_raises_is_raised_by_poll(cluster: ShareCluster) -> None:
    def callback(_: object, __: object) -> None:
        raise ZeroDivisionError

    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.set_acknowledgement_commit_callback(callback)
    consumer.poll()
    cluster.group.append(0, b"b")
    with pytest.raises(ZeroDivisionError):
        poll_some(consumer, 2)
    assert values(consumer.poll()) == [b"b"]


def test_close_raises_what_failed_last(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    cluster.group.expire()
    with pytest.raises(AcknowledgementFailed, match="t-0 0"):
        consumer.close()
    assert consumer.is_closed


# Records that cannot be read


def test_unreadable_records_are_released_and_raised(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    cluster.group.append(0, b"bad", payload=b"garbage")
    consumer = cluster.member()
    assert values(consumer.poll()) == [b"a"]
    with pytest.raises(CorruptBatch, match="on_corrupt_batch") as why:
        consumer.poll()
    assert (why.value.offset, why.value.next_offset) == (1, 2)
    assert (0, 1, 2) in cluster.group.acks or consumer.commit() == {T0: None}
    assert (0, 1, 2) in cluster.group.acks


def test_unreadable_records_are_rejected_on_request(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"bad", payload=b"garbage")
    cluster.group.append(0, b"a")
    consumer = cluster.member(on_corrupt_batch="skip")
    assert values(consumer.poll()) == [b"a"]
    consumer.poll(timeout_ms=100)
    assert cluster.group.state() == "rk"
    assert (consumer.skipped.batches, consumer.skipped.offsets) == (1, 1)


# Wrong calls


def test_wrong_calls_are_refused_before_anything_is_sent(cluster: ShareCluster) -> None:
    consumer = ShareConsumer(cluster.world.connection(), group_id="g")
    with pytest.raises(Rejected, match="nothing to poll"):
        consumer.poll()
    with pytest.raises(TypeError, match="list of names"):
        consumer.subscribe("t")
    with pytest.raises(Rejected, match="name topics"):
        consumer.subscribe([])
    with pytest.raises(TypeError, match="milliseconds by name"):
        consumer.poll(1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="9"):
        consumer.acknowledge([], 9)  # type: ignore[arg-type]
    for wrong in ({"share_acquire_mode": "both"}, {"max_poll_records": 0}, {"on_corrupt_batch": "x"}):
        with pytest.raises(Misconfigured, match=next(iter(wrong))):
            cluster.member(**wrong)
    with pytest.raises(Rejected, match="INVALID_GROUP_ID"):
        cluster.member(group_id="")
    assert not cluster.world.sent


def test_a_fork_cannot_use_a_consumer_that_was_used(cluster: ShareCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = cluster.member()
    consumer.poll(timeout_ms=10)
    monkeypatch.setattr(THIS_PROCESS, "process_id", THIS_PROCESS.process_id + 1)
    with pytest.raises(Misconfigured, match="fork"):
        consumer.poll()
    consumer.close()


def test_unsubscribe_leaves_the_group_and_subscribe_may_follow(cluster: ShareCluster) -> None:
    cluster.group.append(0, b"a")
    consumer = cluster.member()
    consumer.poll()
    consumer.unsubscribe()
    assert (cluster.group.member_id, cluster.group.state(), consumer.subscription()) == ("", "k", frozenset())
    cluster.group.append(0, b"b")
    consumer.subscribe(["t"])
    assert values(consumer.poll()) == [b"b"]


def test_one_request_of_the_session_at_a_time_and_a_heartbeat_that_waits(cluster: ShareCluster) -> None:
    for number in range(5):
        cluster.group.append(0, b"%d" % number)
    consumer = cluster.member(max_poll_records=1)
    assert len(poll_some(consumer, 5)) == 5
    consumer.commit()
    epochs = [request.session_epoch for method, request in cluster.world.sent if method in SESSION_METHODS]
    assert epochs == list(range(len(epochs)))
    assert [each.max_wait_ms for each in cluster.world.requests(Method.SHARE_GROUP_HEARTBEAT)][:2] == [0, 5_000]
