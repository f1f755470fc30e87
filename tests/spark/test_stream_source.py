"""Streams in a real Spark session, against a real server. Spark's crash behind a micro-batch is made by taking away the
last file of `commits`: then the batch is in its log, and not known to be done."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException

from coordinator_client.admin.admin import Admin
from coordinator_client.values import OffsetAndMetadata
from tests.harness.long_cases import long_but, one_in
from tests.spark.streams import Stream
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_stream_goes_on_where_it_stood_and_an_open_transaction_waits(stream: Stream, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x"])
    topics.leave_open(topic, ["open"])
    topics.commit(topic, ["behind"])
    topics.commit(topic, ["c"], partition=1)

    stream(topic)
    assert stream.values() == ["a", "b", "c"]

    topics.commit(topic, ["d"], partition=1)
    stream(topic)
    assert stream.values() == ["a", "b", "c", "d"]
    assert stream.batches() == ["0", "1"]


@pytest.mark.long
def test_markers_and_aborted_records_alone_make_no_micro_batch(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream(topic)

    topics.abort(topic, ["x", "y"])
    stream(topic)

    assert stream.batches() == ["0"]


@pytest.mark.parametrize("starting", ["earliest", pytest.param("latest", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "lost", long_but(lambda lost: "offsets" in lost, [["commits"], ["commits", "sink"], ["commits", "sink", "offsets"]])
)
def test_a_micro_batch_is_the_same_when_the_driver_died_before_it_was_done(
    stream: Stream, topics: Topics, lost: list[str], starting: str
) -> None:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    stream(topic)
    topics.commit(topic, ["c"], partition=1)
    topics.abort(topic, ["x"])
    stream(topic)
    stream.forget(1, *lost)
    topics.commit(topic, ["d"])

    stream(topic, startingOffsets=starting)

    assert stream.values() == ["a", "b", "d", "c"]
    assert stream.batches() == (["0", "1"] if "offsets" in lost else ["0", "1", "2"])


@pytest.mark.long
def test_the_first_micro_batch_is_the_same_though_its_beginning_is_asked_for_again(
    stream: Stream, topics: Topics
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a", "b"])
    stream(topic)
    stream.forget(0, "commits", "sink")
    topics.commit(topic, ["c"])

    stream(topic, startingOffsets="latest")

    assert stream.values() == ["a", "b", "c"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("option", "place"),
    one_in(3, [("startingOffsets", 0), ("startingOffsets", -2), ("startingOffsetsByTimestamp", 1_000)]),
)
def test_a_first_micro_batch_is_repeated_though_partitions_were_added_that_its_beginning_does_not_name(
    stream: Stream, topics: Topics, option: str, place: int
) -> None:
    topic = topics.create()
    starting = {option: json.dumps({topic: {"0": place}})}
    topics.commit(topic, ["a", "b"])
    stream(topic, **starting)
    stream.forget(0, "commits", "sink")
    topics.add_partitions(topic, 2)
    topics.commit(topic, ["c"])
    topics.commit(topic, ["new"], partition=1)

    stream(topic, **starting)

    assert stream.values() == ["a", "b", "c", "new"]
    stream.anew()
    with pytest.raises(StreamingQueryException, match=rf"must name every partition that is read; it lacks {topic}-1"):
        stream(topic, **starting)


@pytest.mark.long
def test_limits_hold_in_every_micro_batch(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, [str(number) for number in range(5)])

    query = stream(topic, maxRecordsPerTrigger="2")

    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [2, 2, 1]
    assert stream.values() == ["0", "1", "2", "3", "4"]


@pytest.mark.long
def test_offsets_have_the_shape_of_kafka_and_say_of_which_topic_they_are(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])

    query = stream(topic)

    assert query.lastProgress is not None
    end = query.lastProgress["sources"][0]["endOffset"]
    found = json.loads(end) if isinstance(end, str) else end
    assert found[topic] == {"0": 2}
    assert found["$topicIds"] == {topic: topics.topic_id(topic).hex()}


@pytest.mark.long
def test_a_topic_created_anew_and_records_deleted_ahead_of_the_stream_are_losses(
    stream: Stream, topics: Topics
) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream(topic)
    topics.commit(topic, ["b", "c"])
    topics.delete_records(topic, 4)
    with pytest.raises(StreamingQueryException, match="begins at 4 and the stream at 2"):
        stream(topic)

    topics.recreate(topic)
    with pytest.raises(StreamingQueryException, match="deleted and created again, or the checkpoint is of another"):
        stream(topic)


@pytest.mark.long
def test_what_was_deleted_ahead_of_the_stream_is_left_out_where_that_is_wanted(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream(topic)
    topics.commit(topic, ["b", "c"])
    topics.delete_records(topic, 3)

    stream(topic, failOnDataLoss="false")

    assert stream.values() == ["a", "c"]


@pytest.mark.long
def test_partitions_that_are_added_are_read_from_their_beginning(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream(topic)
    topics.add_partitions(topic, 2)
    topics.commit(topic, ["b"], partition=1)

    stream(topic)

    assert stream.values() == ["a", "b"]


@pytest.mark.long
def test_new_topics_that_match_are_read_from_their_beginning(stream: Stream, topics: Topics) -> None:
    first = topics.create()
    pattern = first.removesuffix("1") + "[0-9]+"
    topics.commit(first, ["a"])
    stream("", subscribePattern=pattern)
    second = topics.create()
    topics.commit(second, ["b"])

    stream("", subscribePattern=pattern)

    assert stream.values() == ["a", "b"]


@pytest.mark.long
def test_a_stream_begins_at_a_time(stream: Stream, topics: Topics) -> None:
    topic = topics.create(2)
    topics.commit_at(topic, [(1_000, "a"), (2_000, "b")])
    topics.commit_at(topic, [(3_000, "c")], partition=1)

    stream(topic, startingTimestamp="2000")

    assert stream.values() == ["b", "c"]


@pytest.mark.long
def test_a_stream_begins_at_a_time_for_each_partition_and_a_time_for_all_goes_before(
    stream: Stream, topics: Topics
) -> None:
    first, second = topics.create(2), topics.create()
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        place = f"{'second' if topic == second else 'first'}-{partition}"
        topics.commit_at(topic, [(at, f"{place}-{at}") for at in (1_000, 2_000, 3_000)], partition=partition)
    times = json.dumps({first: {"0": 1_500, "1": 3_000}, second: {"0": 9_000}})
    asked = {"startingOffsetsByTimestamp": times, "startingOffsets": "earliest"}
    both = f"{first},{second}"
    with pytest.raises(StreamingQueryException, match=rf"{second}-0 has no record from 9000 on"):
        stream(both, **asked)

    stream.anew()
    stream(both, **asked, startingOffsetsByTimestampStrategy="latest")
    assert stream.values() == ["first-0-2000", "first-0-3000", "first-1-3000"]
    topics.commit_at(second, [(1, "old, but behind the beginning")])
    stream(both, **asked, startingOffsetsByTimestampStrategy="latest")
    assert stream.values()[-1] == "old, but behind the beginning"

    stream.anew()
    stream(both, **asked, startingTimestamp="3000")
    assert stream.values()[:3] == ["first-0-3000", "first-1-3000", "second-0-3000"]


@pytest.mark.long
def test_a_stream_publishes_where_it_stands_and_another_one_goes_on_there(
    stream: Stream, topics: Topics, admin: Admin
) -> None:
    topic = topics.create()
    group = f"{topic}-lake"
    topics.commit(topic, ["a", "b"])
    stream(topic, groupId=group)
    (behind,) = admin.group_lag(group)
    assert behind.offset.committed == OffsetAndMetadata(3, leader_epoch=0)
    assert behind.lag is not None
    assert behind.lag.to_last_stable_offset == 0

    topics.commit(topic, ["c"])
    stream.anew()
    stream(topic, groupId=group, startingOffsets="group")

    assert stream.values() == ["c"]


@pytest.mark.long
@pytest.mark.parametrize(
    "limit",
    long_but(
        lambda limit: "maxOffsetsPerTrigger" in limit, [{"maxOffsetsPerTrigger": "3"}, {"maxBytesPerTrigger": "1200"}]
    ),
)
def test_offsets_and_bytes_of_a_micro_batch_are_limited(stream: Stream, topics: Topics, limit: dict[str, str]) -> None:
    topic = topics.create(2)
    values = [f"{number}" * 500 for number in range(4)]
    for value in values:
        topics.commit(topic, [value])
        topics.commit(topic, [value], partition=1)

    query = stream(topic, **limit)

    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(counts) == 8
    assert max(counts) <= 3
    assert stream.values() == values * 2


@pytest.mark.long
def test_a_minimum_does_not_keep_a_run_from_its_end(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    stream(topic, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    topics.commit(topic, ["b"])

    stream(topic, minOffsetsPerTrigger="100", maxTriggerDelay="1h")

    assert stream.values() == ["a", "b"]


@pytest.mark.long
def test_an_idle_topic_makes_no_micro_batch_and_an_empty_one_no_trouble(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    stream(topic)
    assert stream.batches() in ([], ["0"])
    topics.commit(topic, ["a"])
    stream(topic)
    stream(topic)

    assert stream.values() == ["a"]
    assert len(stream.batches()) <= 2


@pytest.mark.long
def test_offsets_behind_the_end_fail_the_start_with_both_offsets(stream: Stream, topics: Topics) -> None:
    topic = topics.create()
    topics.commit(topic, ["a"])
    with pytest.raises(StreamingQueryException, match=r"ends at 2 for read_committed and the read would begin at 99"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 99}}))
