"""Options: the accepted ones, and the message for every mistake."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from coordinator_client import settings
from pyspark_txnlog.advice import OPTIONS
from pyspark_txnlog.bounds import (
    COMMITTED,
    EARLIEST,
    FROM_EARLIEST,
    LATEST,
    TO_LATEST,
    AtTime,
    Bound,
    InvalidOption,
    Position,
    offsets_json,
    parse_ending,
    parse_starting,
)
from pyspark_txnlog.job import _parser
from pyspark_txnlog.options import (
    COLUMNS,
    ON_CORRUPT_BATCH,
    NoMatch,
    Report,
    SourceOptions,
    Topics,
    TriggerLimits,
    parse_either,
    parse_options,
    topic_ids_json,
)
from pyspark_txnlog.write.sink_options import SINK_OPTIONS, parse_write_options

LEAST = {"endpoint": "127.0.0.1:7070", "subscribe": "flights"}


def test_the_least_that_must_be_said_reads_everything_that_is_committed() -> None:
    options = parse_options(LEAST)

    assert options == SourceOptions(endpoint="127.0.0.1:7070", topics=Topics(names=("flights",)))
    assert options.isolation == "read_committed"
    assert options.columns == COLUMNS
    assert options.starting == FROM_EARLIEST
    assert options.ending == TO_LATEST
    assert options.is_loss_fatal


def test_the_names_of_the_kafka_source_are_understood_in_any_case() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "SUBSCRIBE": "a, b,a",
            "StartingOffsets": '{"a":{"0":23,"1":-2}}',
            "endingoffsets": '{"a":{"0":50,"1":-1}}',
            "kafka.isolation.level": "read_uncommitted",
            "includeHeaders": "TRUE",
            "failOnDataLoss": "false",
            "minPartitions": "10",
            "rpcTimeoutMs": "500",
        }
    )

    assert options == SourceOptions(
        endpoint="h:1",
        topics=Topics(names=("a", "b")),
        columns=(*COLUMNS, "headers"),
        starting={"a": {0: Position(23), 1: Position(-2)}},
        ending={"a": {0: Position(50), 1: Position(-1)}},
        isolation="read_uncommitted",
        is_loss_fatal=False,
        min_partitions=10,
        rpc_timeout_ms=500,
    )


def test_what_cannot_be_read_fails_the_read_unless_it_is_to_be_skipped() -> None:
    assert parse_options(LEAST).on_corrupt_batch == "raise"
    assert parse_options(LEAST | {"onCorruptBatch": "Skip"}).on_corrupt_batch == "skip"
    with pytest.raises(InvalidOption, match="onCorruptBatch is 'ignore' and must be raise or skip"):
        parse_options(LEAST | {"onCorruptBatch": "ignore"})


def test_partitions_can_be_assigned_one_by_one() -> None:
    options = parse_options({"endpoint": "h:1", "assign": '{"a":[2,0,2],"b":[1]}'})
    assert options.topics == Topics(assigned={"a": (0, 2), "b": (1,)})


def test_topics_can_be_chosen_by_a_pattern() -> None:
    options = parse_options({"endpoint": "h:1", "subscribePattern": "flights-.*"})
    assert options.topics == Topics(pattern="flights-.*")


def test_columns_select_and_order() -> None:
    options = parse_options(LEAST | {"columns": "Value, timestamptype,offset"})
    assert options.columns == ("value", "timestampType", "offset")


def test_headers_can_be_named_as_a_column() -> None:
    assert parse_options(LEAST | {"columns": "headers"}).columns == ("headers",)


def test_topic_ids_and_offsets_survive_their_own_notation() -> None:
    options = parse_options(LEAST | {"topicIds": topic_ids_json({"flights": bytes(range(16))})})
    assert options.topic_ids == {"flights": bytes(range(16))}
    offsets = {"a": {0: Position(7), 12: Position(9, leader_epoch=0)}}
    assert offsets_json(offsets) == '{"a":{"0":7,"12":{"offset":9,"leaderEpoch":0}}}'
    assert parse_starting({"startingoffsets": offsets_json(offsets)}) == offsets
    assert parse_ending({"endingoffsets": offsets_json(offsets)}) == offsets


def test_options_travel_to_the_workers() -> None:
    options = parse_options(LEAST | {"startingOffsets": '{"flights":{"0":1}}', "report": "ranges"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.report is Report.RANGES


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"colums": "key"}, "did you mean columns?"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"isolation_level": "read_committed"}, "did you mean isolationLevel?"),
        ({"kafka.isolation.levl": "read_committed"}, "did you mean kafka.isolation.level?"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "always binary; cast them in the query"),
        ({"value.deserializer": "x"}, "always binary; cast them in the query"),
        ({"kafka.enable.auto.commit": "true"}, "a read commits nothing by itself"),
        ({"groupIdPrefix": "g"}, "groupId names the one whose progress a stream publishes"),
        ({"kafka.fetch.max.bytes": "1"}, "chooses the size of its fetches"),
        ({"kafka.check.crcs": "true"}, "configures a Kafka client, and there is none here; of these only kafka.boot"),
        ({"kafka.sasl.jaas.config": "x"}, "tokenFile names its file"),
        ({"fetchOffset.numRetries": "5"}, "until rpcTimeoutMs is over"),
        ({"kafka.security.protocol": "SSL"}, "TLS is on where tlsCaFile names a CA file"),
        ({"maxOffsetsPerTrigger": "5"}, "limits a stream and this is a batch read"),
        ({"path": "/data"}, "load() takes no path here"),
        ({"topic": "t"}, "to read, use subscribe"),
        ({"xyzzy": "1"}, "does not exist; known are endpoint, "),
    ],
)
def test_an_option_that_is_not_understood_is_an_error_that_says_what_to_do(given: dict[str, str], advice: str) -> None:
    with pytest.raises(InvalidOption) as error:
        parse_options(LEAST | given)
    assert advice in str(error.value)
    assert next(iter(given)).lower() in str(error.value).lower()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"endpoint": "", "subscribe": "a"}, "the option endpoint is empty: set it to HOST:PORT, or omit it"),
        ({"endpoint": "a:1,,b:1", "subscribe": "a"}, "HOST:PORT,HOST:PORT for several servers"),
        ({"endpoint": "a:1", "kafka.bootstrap.servers": "b:1", "subscribe": "a"}, "set one of them"),
        (LEAST | {"rpcTimeoutMs": "5", "kafkaConsumer.pollTimeoutMs": "6"}, "and kafkaConsumer.pollTimeoutMs says '6'"),
        ({"endpoint": "a:1"}, "exactly one of subscribe, subscribePattern and assign says what to read; none is set"),
        ({"endpoint": "a:1", "subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign is set"),
        ({"endpoint": "a:1", "subscribe": "a,,b"}, "topic names with commas"),
        ({"endpoint": "a:1", "subscribePattern": "("}, "no Python regular expression"),
        ({"endpoint": "a:1", "subscribePattern": ""}, "would match nothing"),
        ({"endpoint": "a:1", "assign": '{"a":[]}'}, "must list partition numbers for 'a'"),
        ({"endpoint": "a:1", "assign": '{"a":[true]}'}, "must list partition numbers for 'a'"),
        ({"endpoint": "a:1", "assign": "a-0"}, "write JSON like"),
        (LEAST | {"startingOffsets": "latest"}, "would read nothing in a batch"),
        (LEAST | {"startingOffsets": "first"}, "neither earliest nor group and no JSON"),
        (LEAST | {"startingOffsets": '{"a":{"0":-1}}'}, "an offset from 0 or -2 (earliest) belongs there"),
        (LEAST | {"startingOffsets": '{"a":{"x":1}}'}, "where the number of a partition of 'a' belongs"),
        (LEAST | {"startingOffsets": '{"a":{"0":1.5}}'}, "has 1.5 for a-0"),
        (LEAST | {"startingOffsets": '{"a":{"0":{"offset":-2}}}'}, 'belongs there, or {"offset":23,"leaderEpoch":0}'),
        (LEAST | {"startingOffsets": '{"a":{"0":{"leaderEpoch":1}}}'}, "has {'leaderEpoch': 1} for a-0; an offset"),
        (LEAST | {"endingOffsets": '{"a":{"0":{"offset":1,"epoch":1}}}'}, "offset and leaderEpoch, a number from 0 to"),
        (LEAST | {"endingOffsets": '{"a":{"0":{"offset":1,"leaderEpoch":-1}}}'}, "are all that belongs there"),
        (LEAST | {"endingOffsets": '{"a":{"0":{"offset":1,"leaderEpoch":2147483648}}}'}, "from 0 to 2147483647"),
        (LEAST | {"startingOffsets": '{"a":7}'}, "must give one number per partition for 'a'"),
        (LEAST | {"startingOffsets": "[]"}, "must be a JSON object with a topic in it"),
        (LEAST | {"endingOffsets": "earliest"}, "would read nothing"),
        (LEAST | {"endingOffsets": '{"a":{"0":-2}}'}, "an offset from 0 or -1 (latest) belongs there"),
        (LEAST | {"isolationLevel": "serializable"}, "must be read_committed or snapshot or read_uncommitted"),
        (LEAST | {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "set one of them"),
        (LEAST | {"columns": "key,size"}, "columns has 'size'; there are key, value,"),
        (LEAST | {"columns": "key,KEY"}, "columns has key twice"),
        (LEAST | {"columns": "key", "includeHeaders": "true"}, "add headers to columns"),
        (LEAST | {"includeHeaders": "yes"}, "must be true or false"),
        (
            LEAST | {"startingTimestamp": "2026-01-01"},
            "startingTimestamp is '2026-01-01' and must be milliseconds since",
        ),
        (
            LEAST | {"endingOffsetsByTimestamp": '{"a":{"0":-1}}'},
            "endingOffsetsByTimestamp has -1 for a-0; milliseconds",
        ),
        (LEAST | {"startingOffsetsByTimestamp": "now"}, "startingOffsetsByTimestamp is no JSON"),
        (LEAST | {"startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest"),
        (LEAST | {"startingOffsets": "group"}, "name it with groupId"),
        (LEAST | {"groupId": "g"}, "needs groupId for startingOffsets=group only"),
        (LEAST | {"pushdown": "yes"}, "pushdown is 'yes' and must be true or false"),
        (LEAST | {"maxRecordsPerPartition": "-1"}, "whole number from 1"),
        (LEAST | {"minPartitions": "0"}, "whole number from 1"),
        (LEAST | {"rpcTimeoutMs": "5s"}, "whole number from 1"),
        (LEAST | {"topicIds": '{"a":"12"}'}, "the UUID of each topic"),
        (LEAST | {"topicIds": "7"}, "the UUID of each topic"),
        (LEAST | {"report": "all"}, "must be records or ranges"),
        (LEAST | {"report": "ranges", "columns": "key"}, "has columns of its own"),
    ],
)
def test_a_wrong_value_is_named_with_the_right_one(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOption) as error:
        parse_options(given)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        ({"startingTimestamp": "5", "endingTimestamp": "9"}, AtTime(5), AtTime(9)),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsetsByTimestamp": '{"a":{"0":9}}'},
            {"a": {0: AtTime(5)}},
            {"a": {0: AtTime(9)}},
        ),
        # Kafka's precedence: a time for all, times for each, offsets.
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"a":{"0":6}}', "startingOffsets": "earliest"},
            AtTime(5),
            TO_LATEST,
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":6}}', "startingOffsets": '{"a":{"0":7}}'},
            {"a": {0: AtTime(6)}},
            TO_LATEST,
        ),
        ({"startingOffsets": "group", "groupId": "g"}, Position(COMMITTED), TO_LATEST),
        ({"startingOffsets": "GROUP", "kafka.group.id": "g"}, Position(COMMITTED), TO_LATEST),
    ],
)
def test_a_read_begins_and_ends_at_offsets_at_times_or_behind_a_group(
    given: dict[str, str], starting: Bound, ending: Bound
) -> None:
    options = parse_options(LEAST | given)
    assert (options.starting, options.ending) == (starting, ending)


def test_a_time_without_a_record_is_an_error_unless_told_otherwise() -> None:
    assert parse_options(LEAST).no_match is NoMatch.ERROR
    assert parse_options(LEAST | {"startingOffsetsByTimestampStrategy": "Latest"}).no_match is NoMatch.LATEST


def test_a_batch_read_can_be_split_and_narrowed() -> None:
    least, asked = parse_options(LEAST), parse_options(LEAST | {"maxRecordsPerPartition": "7", "pushdown": "true"})
    assert (least.partition_records_max, least.is_pushed_down) == (0, False)
    assert (asked.partition_records_max, asked.is_pushed_down) == (7, True)


def stream(**given: str) -> SourceOptions:
    return parse_options(LEAST | given, is_stream=True)


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert stream().starting == TO_LATEST
    assert stream(startingOffsets="earliest").starting == FROM_EARLIEST
    assert stream(startingOffsets='{"a":{"0":-1,"1":-2}}').starting == {
        "a": {0: Position(LATEST), 1: Position(EARLIEST)}
    }
    assert stream(groupId="g").group_id == "g"
    assert stream(topicIds=f'{{"a":"{"0f" * 16}"}}').topic_ids == {"a": b"\x0f" * 16}


def test_a_stream_is_limited_by_the_numbers_and_units_of_spark() -> None:
    assert stream().limits == TriggerLimits()
    assert stream().limits.delay_ms_max == 15 * 60_000
    limited = stream(
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2min",
        maxBytesPerTrigger="64m",
        maxRecordsPerTrigger="500",
    )
    assert limited.limits == TriggerLimits(
        offsets_max=1000, offsets_min=10, delay_ms_max=120_000, bytes_max=64 << 20, records_max=500
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets ends a batch read and a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp ends a batch read and a stream has no end"),
        ({"pushdown": "true"}, "pushdown is for batch reads only"),
        ({"report": "ranges"}, "report is for batch reads only"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number from 1"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "no micro-batch can have both"),
        ({"maxTriggerDelay": "5m"}, "how long minOffsetsPerTrigger may hold records back; set that too"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "with one of the units ms, s, m, min, h, d"),
        ({"maxBytesPerTrigger": "0k"}, "like 64m"),
        ({"startingOffsets": "first"}, "none of earliest, latest and group and no JSON"),
    ],
)
def test_what_a_stream_cannot_do_is_said(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOption) as error:
        stream(**given)
    assert reason in str(error.value)


def test_columns_are_known_before_it_is_known_whether_a_stream_is_read() -> None:
    assert parse_either(LEAST | {"startingOffsets": "latest", "columns": "key"}).columns == ("key",)
    with pytest.raises(InvalidOption, match="columns has 'size'"):
        parse_either(LEAST | {"maxOffsetsPerTrigger": "5", "columns": "size"})
    with pytest.raises(InvalidOption, match="endingOffsets ends a batch read"):
        parse_either(LEAST | {"maxOffsetsPerTrigger": "5", "endingOffsets": "latest"})


def test_source_sink_and_job_look_for_the_server_at_the_same_place() -> None:
    source, sink = parse_options({"subscribe": "a"}), parse_write_options({"topic": "a"})
    asked_for_nothing = _parser().parse_args(["a"])
    assert source.endpoint == sink.endpoint == asked_for_nothing.endpoint == "127.0.0.1:7070"
    assert OPTIONS["endpoint"].default == SINK_OPTIONS["endpoint"] == source.endpoint


@pytest.mark.parametrize("module", ["grpc", "pyarrow", "google.protobuf"])
def test_a_python_that_lacks_a_package_can_still_unpack_a_reader_to_say_so(module: str) -> None:
    unpacking = (
        f"import sys; sys.modules[{module!r}] = None; "
        "import pyspark_txnlog.read.stream_source, pyspark_txnlog.source, pyspark_txnlog.read.pushdown; "
        "import pyspark_txnlog.write.sink"
    )
    done = subprocess.run([sys.executable, "-c", unpacking], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_becomes_of_corrupt_batches_is_said_as_to_the_sdk() -> None:
    assert ON_CORRUPT_BATCH == settings.ON_CORRUPT_BATCH
