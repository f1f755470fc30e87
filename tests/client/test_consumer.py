"""The blocking consumer: what poll returns, from where on, and what can be asked. Without a clock, on a fake server."""

# Under test is the exit of a `with`, so the block that raises has the length of a session.
# ruff: noqa: PT012

from __future__ import annotations

import pytest

from coordinator_client import CorruptBatch, Misconfigured, Rejected, Retriable
from coordinator_client.process import THIS_PROCESS
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, T1, T2, Diary, FakeCluster, poll_all, values
from tests.client.fake_server import refuse
from tests.client.world import Fault


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def test_a_member_reads_what_its_group_gives_it(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.topic.append(number, b"%d" % number)
    cluster.group.give(0, 2)
    consumer = cluster.member()
    assert poll_all(consumer, 2) == [b"0", b"2"]
    assert consumer.assignment() == {T0, T2}
    assert consumer.subscription() == {"t"}
    assert not consumer.poll(timeout_ms=1_000)


def test_partitions_given_by_hand_need_no_group(cluster: FakeCluster) -> None:
    cluster.topic.append(1, b"a", b"b")
    consumer = cluster.consumer(group_id=None)
    consumer.assign([T1])
    assert poll_all(consumer, 2) == [b"a", b"b"]
    assert not {Method.CONSUMER_GROUP_HEARTBEAT, Method.OFFSET_FETCH} & set(cluster.world.methods())
    with pytest.raises(Rejected, match="under the name of a group"):
        consumer.commit()
    consumer.close()


def test_partitions_given_by_hand_may_have_offsets_of_a_group(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.group.offsets[T0] = 1
    consumer = cluster.consumer(enable_auto_commit=False)
    consumer.assign([T0])
    assert poll_all(consumer, 2) == [b"b", b"c"]
    consumer.commit()
    assert cluster.group.offsets[T0] == 3
    (request,) = cluster.world.requests(Method.OFFSET_COMMIT)
    assert (request.HasField("generation_id_or_member_epoch"), request.member_id) == (False, "")
    consumer.assign([T0, T1])
    assert consumer.assignment() == {T0, T1}
    assert consumer.position(T0) == 3


@pytest.mark.parametrize(
    ("reset", "found"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])], ids=["earliest", "latest"]
)
def test_without_a_committed_offset_it_begins_where_it_is_told(
    cluster: FakeCluster, reset: str, found: list[bytes]
) -> None:
    cluster.topic.append(0, b"old")
    cluster.group.give(0)
    consumer = cluster.member(auto_offset_reset=reset)
    seen = values(consumer.poll(timeout_ms=1_000))
    consumer.position(T0)
    cluster.topic.append(0, b"new")
    assert seen + values(consumer.poll(timeout_ms=1_000)) == found


def test_without_a_committed_offset_it_may_refuse(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    consumer = cluster.member(auto_offset_reset="none")
    for _ in range(2):
        with pytest.raises(Rejected, match=r"nothing is committed for t-0.*seek\(\) to where"):
            consumer.poll()
    consumer.seek(T0, 0)
    assert poll_all(consumer, 1) == [b"a"]


def test_an_offset_that_does_not_exist_any_more_is_replaced_or_told(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    cluster.group.offsets[T0] = 99
    assert poll_all(cluster.member(), 1) == [b"a"]
    with pytest.raises(Rejected, match=r"OFFSET_OUT_OF_RANGE.*t-0 at offset 99.*seek\(\)"):
        cluster.member(auto_offset_reset="none").poll()


def test_an_offset_that_waits_for_its_transaction_is_waited_for(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.topic.append(1, b"c")
    cluster.group.give(0, 1)
    cluster.group.offsets[T0] = 1
    cluster.group.unstable.add(T0)
    consumer = cluster.member()
    assert values(consumer.poll(timeout_ms=1_000)) == [b"c"]
    assert not consumer.poll(timeout_ms=10_000)
    cluster.group.unstable.clear()
    assert poll_all(consumer, 1) == [b"b"]
    assert all(request.require_stable for request in cluster.world.requests(Method.OFFSET_FETCH))


def test_open_and_aborted_transactions_are_not_shown(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"aborted", is_aborted=True)
    cluster.topic.end_transaction(0, committed=False)
    cluster.topic.append(0, b"committed")
    cluster.topic.append(0, b"open")
    cluster.topic.partitions[0].last_stable_offset = 3
    cluster.group.give(0)
    consumer = cluster.member()
    assert values(consumer.poll(timeout_ms=1_000)) == [b"committed"]
    assert not consumer.poll(timeout_ms=1_000)


def test_the_position_goes_on_behind_what_is_hidden(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.topic.append(0, b"aborted", is_aborted=True)
    cluster.topic.end_transaction(0, committed=False)
    cluster.group.give(0)
    consumer = cluster.member()
    (batch,) = [consumer.poll()]
    assert (batch.first_offsets, batch.next_offsets) == ({T0: 0}, {T0: 3})
    assert consumer.position(T0) == 3
    consumer.commit()
    assert cluster.group.offsets == {T0: 3}


def test_a_poll_returns_at_most_what_is_asked_for_and_partitions_take_turns(cluster: FakeCluster) -> None:
    cluster.topic.batches_per_fetch = 100
    for number in range(3):
        cluster.topic.append(number, *[b"%d" % number] * 4)
    cluster.group.give(0, 1, 2)
    consumer = cluster.member(max_poll_records=4)
    polled = [values(consumer.poll()) for _ in range(2)] + [values(consumer.poll(max_records=3)) for _ in range(2)]
    assert polled == [[b"0"] * 4, [b"1"] * 4, [b"2"] * 3, [b"2"]]


def test_fetching_ahead_has_a_bound(cluster: FakeCluster) -> None:
    cluster.topic.batches_per_fetch = 1
    for _ in range(50):
        cluster.topic.append(0, b"x" * 1_000)
    cluster.group.give(0)
    consumer = cluster.member(buffer_bytes=3_000)
    assert len(consumer.poll()) == 1
    cluster.world.pause(5_000)
    assert len(cluster.world.requests(Method.FETCH)) < 8
    assert len(poll_all(consumer, 49)) == 49


def test_what_was_fetched_survives_a_pause_and_not_a_seek(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.group.give(0)
    consumer = cluster.member()
    assert values(consumer.poll(max_records=1)) == [b"a"]
    consumer.pause([T0])
    assert consumer.paused() == {T0}
    assert not consumer.poll(timeout_ms=2_000)
    consumer.resume([T0])
    assert values(consumer.poll(max_records=1)) == [b"b"]
    assert {part.fetch_offset for sent in cluster.world.requests(Method.FETCH) for part in sent.partitions} == {0, 3}
    consumer.seek(T0, 0)
    assert poll_all(consumer, 3) == [b"a", b"b", b"c"]
    consumer.seek_to_end()
    assert consumer.position(T0) == 3
    consumer.seek_to_beginning([T0])
    assert consumer.position(T0) == 0


def test_records_come_one_by_one_and_only_those_seen_are_committed(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c", b"d")
    cluster.group.give(0)
    consumer = cluster.member(enable_auto_commit=False)
    seen = []
    for record in consumer:
        seen.append(record.value)
        if record.value == b"b":
            consumer.commit()
        if record.value == b"c":
            break
    assert seen == [b"a", b"b", b"c"]
    assert cluster.group.offsets == {T0: 2}
    assert consumer.position(T0) == 3
    assert values(consumer.poll()) == [b"d"]


def test_closing_in_the_middle_of_a_batch_commits_what_was_seen(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.topic.end_transaction(0, committed=True)
    cluster.group.give(0)
    with cluster.member() as consumer:
        for record in consumer:
            if record.value == b"b":
                # Meanwhile it looks beyond the end, where only a marker is.
                cluster.world.pause(2_000)
                break
    assert cluster.group.offsets == {T0: 2}


def test_a_batch_can_be_read_again(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.topic.append(1, b"c")
    cluster.group.give(0, 1)
    consumer = cluster.member(enable_auto_commit=False)
    first = consumer.poll(max_records=2)
    rest = poll_all(consumer, 1)
    consumer.rewind(first)
    assert (values(first), rest, poll_all(consumer, 2)) == ([b"a", b"b"], [b"c"], [b"a", b"b"])


def test_a_damaged_batch_is_told_in_its_turn_and_can_be_passed(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.topic.append(0, b"damaged")
    cluster.topic.append(0, b"b")
    cluster.topic.partitions[0].batches[1].payload += b"!"
    cluster.group.give(0)
    consumer = cluster.member()
    assert poll_all(consumer, 1) == [b"a"]
    for _ in range(2):
        with pytest.raises(Rejected, match=r"t-0 at offset 1: the checksum.*seek\(\) behind"):
            consumer.poll()
    consumer.seek(T0, 2)
    assert poll_all(consumer, 1) == [b"b"]


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the server", "found by the consumer"])
def test_what_cannot_be_read_may_be_skipped(cluster: FakeCluster, is_told: bool) -> None:
    cluster.topic.append(0, b"a")
    cluster.topic.append_unreadable(0, 2)
    cluster.topic.append(0, b"b")
    if is_told:
        cluster.topic.partitions[0].damaged.add(1)
    cluster.group.give(0)
    consumer = cluster.member(on_corrupt_batch="skip")
    assert poll_all(consumer, 2) == [b"a", b"b"]
    assert (consumer.skipped.batches, consumer.skipped.offsets) == (1, 2)
    assert consumer.position(T0) == 4


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the server", "found by the consumer"])
def test_what_is_skipped_counts_from_where_the_consumer_stands(cluster: FakeCluster, is_told: bool) -> None:
    cluster.topic.append_unreadable(0, 3)
    cluster.topic.append(0, b"b")
    if is_told:
        cluster.topic.partitions[0].damaged.add(0)
    cluster.group.give(0)
    cluster.group.offsets[T0] = 1
    consumer = cluster.member(on_corrupt_batch="skip")
    assert poll_all(consumer, 1) == [b"b"]
    assert consumer.skipped.offsets == 2
    assert consumer.skipped.last is not None
    assert (consumer.skipped.last.offset, consumer.skipped.last.next_offset) == (1, 3)


def test_damage_that_the_server_tells_is_raised_behind_what_lies_before(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.topic.append(0, b"damaged", b"too")
    cluster.topic.append(0, b"b")
    cluster.topic.partitions[0].damaged.add(1)
    cluster.group.give(0)
    consumer = cluster.member()
    assert poll_all(consumer, 1) == [b"a"]
    with pytest.raises(CorruptBatch, match=r"t-0 at offset 1: damaged.*seek\(\) behind") as caught:
        poll_all(consumer, 1)
    assert (caught.value.offset, caught.value.next_offset) == (1, 3)
    consumer.seek(T0, caught.value.next_offset)
    assert poll_all(consumer, 1) == [b"b"]
    assert consumer.skipped.batches == 0


def test_damage_that_the_server_tells_waits_until_what_was_fetched_before_is_handed_out(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b", b"c")
    cluster.topic.append(0, b"damaged")
    cluster.topic.partitions[0].damaged.add(3)
    cluster.group.give(0)
    consumer = cluster.member()
    for expected in (b"a", b"b", b"c"):
        assert values(consumer.poll(max_records=1)) == [expected]
        # Meanwhile it looks behind the records that it has, and finds the damage.
        cluster.world.pause(2_000)
    with pytest.raises(CorruptBatch, match="t-0 at offset 3: damaged"):
        consumer.poll()
    assert consumer.position(T0) == 3


def test_offsets_can_be_asked_for(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.group.offsets[T0] = 1
    consumer = cluster.consumer()
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 2, T1: 0}
    assert consumer.committed([T1, T0]) == {T0: (1, "", None), T1: None}


def test_an_interrupted_poll_loses_nothing(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    consumer = cluster.member()
    cluster.world.interrupts[Method.OFFSET_FETCH] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert poll_all(consumer, 1) == [b"a"]


def test_a_restart_of_the_server_is_not_noticed(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    for method in (Method.FETCH, Method.OFFSET_FETCH, Method.LIST_OFFSETS, Method.CONSUMER_GROUP_HEARTBEAT):
        cluster.world.fault(method, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LOST_REQUEST)
    assert poll_all(cluster.member(), 2) == [b"a", b"b"]


def test_a_server_that_stays_away_makes_polls_empty_and_questions_late(cluster: FakeCluster) -> None:
    cluster.world.weather = lambda _: Fault.LOST_REQUEST
    consumer = cluster.member()
    assert not consumer.poll(timeout_ms=60_000)
    with pytest.raises(Retriable):
        consumer.end_offsets([T0], timeout_ms=2_000)
    before_ms = cluster.world.now_ms
    consumer.close(timeout_ms=3_000)
    assert cluster.world.now_ms - before_ms <= 3_000


def test_a_with_that_ends_by_an_exception_commits_nothing_and_leaves(cluster: FakeCluster) -> None:
    cluster.topic.append(0, b"a")
    cluster.group.give(0)
    with pytest.raises(ZeroDivisionError), cluster.member() as consumer:
        poll_all(consumer, 1)
        raise ZeroDivisionError
    assert cluster.group.offsets == {}
    assert cluster.group.member_id == ""
    with pytest.raises(Rejected, match="the consumer is closed"):
        consumer.poll()
    consumer.close()


def test_a_fork_is_told_that_it_is_one(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.group.give(0)
    consumer = cluster.member()
    consumer.poll(timeout_ms=10)
    monkeypatch.setattr(THIS_PROCESS, "process_id", -1)
    with pytest.raises(Misconfigured, match="is used by its fork"):
        consumer.poll()
    consumer.close()
    assert not cluster.world.requests(Method.CONSUMER_GROUP_HEARTBEAT)[-1].member_epoch < 0


def test_a_failure_that_the_group_has_is_told_by_every_poll(cluster: FakeCluster) -> None:
    denied = refuse(
        cluster.group.heartbeat(room_join()), Method.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED
    )
    cluster.world.answer(Method.CONSUMER_GROUP_HEARTBEAT, denied)
    consumer = cluster.member(Diary())
    for _ in range(2):
        with pytest.raises(Misconfigured, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.poll()
    consumer.unsubscribe()
    cluster.group.give(0)
    consumer.subscribe(["t"])
    consumer.poll(timeout_ms=100)
    assert consumer.assignment() == {T0}


def room_join():
    from coordinator_api.v1 import group_pb2

    return group_pb2.ConsumerGroupHeartbeatRequest(member_id="nobody", member_epoch=0)


def test_a_poll_passes_over_offsets_without_a_record(cluster: FakeCluster) -> None:
    cluster.topic.append_compacted(0, {0: b"a", 40: b"b", 41: b"c"}, last_delta=50)
    cluster.topic.append(0, b"d")
    cluster.group.give(0)
    consumer = cluster.member(max_poll_records=2)
    polls = [consumer.poll(timeout_ms=1_000) for _ in range(4)]
    assert [[(each.offset, each.value) for each in poll] for poll in polls] == [
        [(0, b"a")],
        [(40, b"b"), (41, b"c")],
        [(51, b"d")],
        [],
    ]
    assert consumer.position(T0) == 52


def test_an_iteration_that_ends_among_holes_goes_on_behind_what_it_returned(cluster: FakeCluster) -> None:
    cluster.topic.append_compacted(0, {1: b"a", 4: b"b", 6: b"c"}, last_delta=8)
    cluster.group.give(0)
    consumer = cluster.member()
    assert next(iter(consumer)).value == b"a"
    assert consumer.position(T0) == 2
    assert values(consumer.poll(timeout_ms=1_000)) == [b"b", b"c"]
