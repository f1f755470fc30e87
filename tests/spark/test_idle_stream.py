"""Requests of a stream to a server that has nothing new for it. The source is asked as Spark asks it, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from coordinator_client.transport.connection import Connection
from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read.stream_source import StreamReader
from tests.spark.topics import Topics

pytestmark = pytest.mark.slow


def test_an_empty_trigger_asks_twice_and_of_hidden_records_once_more(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(3)
    topics.commit(topic, ["a"])
    reader = StreamReader(parse_options({"endpoint": topics.endpoint, "subscribe": topic}, is_stream=True))
    at = reader.initialOffset()
    asked: list[str] = []
    ask = Connection.ask

    def noting(self: Connection, rpc: Any, *arguments: Any, **named: Any) -> Any:
        asked.append(rpc.method)
        return ask(self, rpc, *arguments, **named)

    monkeypatch.setattr(Connection, "ask", noting)

    def trigger() -> list[str]:
        asked.clear()
        assert reader.latestOffset(at, ReadAllAvailable()) == at
        return list(asked)

    assert trigger() == trigger() == ["DescribeTopics", "ListOffsets"]
    monkeypatch.undo()
    topics.abort(topic, ["x"])
    monkeypatch.setattr(Connection, "ask", noting)
    assert trigger() == ["DescribeTopics", "ListOffsets", "MeasureRecords"]
    assert trigger() == ["DescribeTopics", "ListOffsets"]
