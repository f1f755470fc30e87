"""The options of the sink, and which batch of which sink a task writes."""

from __future__ import annotations

import pytest

from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.write.sink_options import (
    BATCH_ID,
    QUERY_ID,
    RUN_ID,
    Batch,
    Delivery,
    WriteOptions,
    batch_of,
    parse_write_options,
)

SERVER = {"endpoint": "here:7070"}
OF_STREAM = {QUERY_ID: "q", BATCH_ID: "7", RUN_ID: "r"}
OF_NOTHING = dict.fromkeys(OF_STREAM)


def parsed(**options: str) -> WriteOptions:
    return parse_write_options(SERVER | options)


def test_names_are_those_of_kafkas_sink_in_any_case() -> None:
    found = parse_write_options(
        {"kafka.bootstrap.servers": "here:7070", "TOPIC": "t", "kafka.transaction.timeout.ms": "5000"}
    )
    assert (found.endpoint, found.topic, found.transaction_timeout_ms) == ("here:7070", "t", 5_000)
    assert found.delivery is Delivery.EXACTLY_ONCE


def test_what_spark_hands_on_to_every_sink_is_left_to_spark() -> None:
    assert parsed(checkpointLocation="/c", queryname="q") == parsed()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kafka.acks": "all"}, "always; leave it out"),
        ({"acks": "all"}, "always; leave it out"),
        ({"transactionalIdPrefx": "a"}, "did you mean transactionalIdPrefix"),
        ({"whatever": "a"}, "known are endpoint"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "whole number from 0"),
        ({"sinkName": "a\nb"}, "can be printed"),
        ({"sinkName": "a" * 201}, "at most 200 bytes"),
        ({"transactionTimeoutMs": "0"}, "whole number from 1"),
        ({"delivery": "twice"}, "exactly-once or at-least-once"),
        ({"endpoint": ""}, "the option endpoint is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_advice(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        parse_write_options(SERVER | options)


def test_a_batch_of_a_stream_is_that_of_its_checkpoint() -> None:
    assert batch_of(parsed(), OF_STREAM, "own", is_stream=True) == Batch("spark/q", "r", 7)
    named = parsed(sinkName="s", transactionalIdPrefix="etl")
    assert batch_of(named, OF_STREAM, "own", is_stream=True) == Batch("etl/q/s", "r", 7)


def test_a_write_by_itself_is_a_sink_of_its_own() -> None:
    assert batch_of(parsed(), OF_NOTHING, "own", is_stream=False) == Batch("spark/batch/own", "own", 0)


def test_a_write_with_a_version_is_the_same_in_every_repetition() -> None:
    versioned = parsed(txnAppId="nightly", txnVersion="20261123")
    for told in (OF_NOTHING, OF_STREAM):
        assert batch_of(versioned, told, "own", is_stream=False) == Batch("spark/app/nightly", "own", 20_261_123)
    named = parsed(txnAppId="nightly", txnVersion="20261123", sinkName="clean")
    assert batch_of(named, OF_NOTHING, "own", is_stream=False) == Batch("spark/app/nightly/clean", "own", 20_261_123)


def test_a_version_is_for_one_write_and_no_stream() -> None:
    """Each micro-batch but the first would be taken for a repetition."""
    with pytest.raises(InvalidOption, match="micro-batches of a stream have numbers of their own"):
        parse_write_options(SERVER | {"txnAppId": "a", "txnVersion": "1"}, is_stream=True)


def test_within_a_micro_batch_every_write_needs_a_name() -> None:
    with pytest.raises(InvalidOption, match="set sinkName"):
        batch_of(parsed(), OF_STREAM, "own", is_stream=False)
    assert batch_of(parsed(sinkName="a"), OF_STREAM, "own", is_stream=False) == Batch("spark/q/a", "r", 7)


@pytest.mark.parametrize("missing", OF_STREAM)
def test_a_spark_that_does_not_tell_is_no_base_for_exactly_once(missing: str) -> None:
    with pytest.raises(LookupError, match="delivery=at-least-once"):
        batch_of(parsed(), OF_STREAM | {missing: None}, "own", is_stream=True)
