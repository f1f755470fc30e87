"""A stream whose topic is deleted, or deleted and made again: it knows topics by their ids, says what is gone, and goes
on with what is left where that is wanted. Asked as Spark asks it, against a real server; no Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read import planning
from pyspark_txnlog.read.planning import UnknownTopic
from pyspark_txnlog.read.ranges import DataLoss
from pyspark_txnlog.read.reading import RangeReader
from pyspark_txnlog.read.stream_source import StreamReader
from tests.spark.topics import Topics

LEVELS = ["read_committed", "snapshot"]
WAYS = ["subscribe", "subscribePattern", "assign"]


@dataclass(slots=True)
class Following:
    """A stream over two topics, trigger by trigger."""

    topics: Topics
    level: str
    way: str
    lost: str = field(init=False)
    kept: str = field(init=False)

    def __post_init__(self) -> None:
        self.lost, self.kept = self.topics.create(), self.topics.create()
        for name in (self.lost, self.kept):
            self.topics.commit(name, [f"{name[-1]}-{number}" for number in range(2)])

    def reader(self, *, is_strict: bool = False, **more: str) -> StreamReader:
        """A start of the query."""
        names = [self.lost, self.kept]
        chosen = {
            "subscribe": ",".join(names),
            "subscribePattern": "|".join(names),
            "assign": json.dumps({name: [0] for name in names}),
        }
        asked = {"endpoint": self.topics.endpoint, "startingOffsets": "earliest", "isolationLevel": self.level}
        asked |= {self.way: chosen[self.way], "failOnDataLoss": str(is_strict).lower()}
        return StreamReader(parse_options(asked | more, is_stream=True))


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def following(topics: Topics, level: str, request: pytest.FixtureRequest) -> Following:
    return Following(topics, level, request.param)


def next_end(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def rows_of(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    parts = reader.partitions(start, end)
    return [value.as_py().decode() for part in parts for rows in reader.read(part) for value in rows.column("value")]


def test_a_topic_deleted_between_two_micro_batches_is_a_loss(following: Following) -> None:
    stream = following.reader(is_strict=True)
    stood = next_end(stream, stream.initialOffset())
    following.topics.delete(following.lost)
    following.topics.commit(following.kept, ["later"])
    for asked in (stream, following.reader(is_strict=True)):
        with pytest.raises(DataLoss, match=f"{following.lost}-0 is gone, and the stream was at 3 there; set failOnD"):
            next_end(asked, stood)
    again = following.reader(is_strict=True)
    again.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f"{following.lost}-0 is gone"):
        next_end(again, stood)


def test_a_stream_that_may_lose_records_goes_on_without_a_topic_that_was_deleted(following: Following) -> None:
    stream = following.reader()
    stood = next_end(stream, stream.initialOffset())
    following.topics.delete(following.lost)
    following.topics.commit(following.kept, ["later"])

    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone, and the stream was at 3 there"):
        moved = next_end(stream, stood)

    assert rows_of(stream, stood, moved) == ["later"]
    assert moved["$topicIds"].keys() == {following.kept}
    following.topics.commit(following.kept, ["still"])
    restarted = following.reader()
    if following.way == "subscribePattern":
        end = next_end(restarted, moved)
    else:
        with pytest.warns(RuntimeWarning, match=f"name {following.lost}, which is not there: the stream goes on"):
            end = next_end(restarted, moved)
    assert rows_of(restarted, moved, end) == ["still"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_was_deleted_and_made_again_is_another_one(following: Following, *, is_restarted: bool) -> None:
    stream = following.reader(is_strict=True)
    stood = next_end(stream, stream.initialOffset())
    following.topics.recreate(following.lost)
    # As many records as the first one had, and more: counts and names do not tell them apart.
    following.topics.commit(following.lost, ["new 0", "new 1", "new 2"])
    with pytest.raises(DataLoss, match=r"deleted and created again.*; set failOnDataLoss to false"):
        next_end(following.reader(is_strict=True) if is_restarted else stream, stood)

    lenient = following.reader()
    with pytest.warns(RuntimeWarning, match="deleted and created again"):
        moved = next_end(lenient, stood)
    assert rows_of(lenient, stood, moved) == ["new 0", "new 1", "new 2"]
    assert rows_of(following.reader(is_strict=True), stood, moved) == ["new 0", "new 1", "new 2"], "repeated"
    assert next_end(following.reader(is_strict=True), moved) is not None


def test_a_topic_that_is_deleted_while_a_run_is_under_way_leaves_the_rest_of_the_run(following: Following) -> None:
    stream = following.reader()
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    following.topics.recreate(following.lost)
    following.topics.commit(following.lost, ["of the next run"])

    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone"):
        end = next_end(stream, start)

    assert rows_of(stream, start, end) == [f"{following.kept[-1]}-{number}" for number in range(2)]
    assert next_end(stream, end) is end
    restarted = following.reader()
    assert rows_of(restarted, end, next_end(restarted, end)) == ["of the next run"]


def test_a_topic_that_is_deleted_under_a_micro_batch_leaves_the_rest_of_it(following: Following) -> None:
    stream = following.reader()
    start = stream.initialOffset()
    end = next_end(stream, start)
    planned = stream.partitions(start, end)
    following.topics.delete(following.lost)
    kept = [f"{following.kept[-1]}-{number}" for number in range(2)]

    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone while it was read"):
        read = [row for part in planned for rows in stream.read(part) for row in rows.column("value").to_pylist()]
    assert [row.decode() for row in read] == kept
    for repeated in (stream, following.reader()):
        with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone, and the micro-batch was to read it"):
            assert rows_of(repeated, start, end) == kept

    strict = following.reader(is_strict=True)
    with pytest.raises(DataLoss, match=f"{following.lost}-0 is gone.*set failOnDataLoss to false"):
        strict.partitions(start, end)
    with pytest.raises(DataLoss, match=f"{following.lost}-0 is gone while it was read.*set failOnDataLoss to false"):
        list(strict.read(planned[0]))


def test_a_topic_that_is_deleted_between_two_requests_of_a_trigger_is_noticed(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request behind the first names topics by the ids that the first one found."""
    stream = following.reader()
    start = stream.initialOffset()
    asking = planning._list_offsets
    left: list[Callable[[], None]] = [lambda: following.topics.delete(following.lost)]

    def deleting(*given: Any) -> Any:
        if left:
            left.pop()()
        return asking(*given)

    monkeypatch.setattr(planning, "_list_offsets", deleting)
    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone"):
        end = next_end(stream, start)
    assert rows_of(stream, start, end) == [f"{following.kept[-1]}-{number}" for number in range(2)]


def test_a_batch_read_whose_topic_is_deleted_reads_what_is_left_where_losses_are_allowed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = Following(topics, "read_committed", "subscribe")
    asked = {"endpoint": topics.endpoint, "subscribe": f"{following.lost},{following.kept}", "minPartitions": "9"}
    lenient, strict = (RangeReader(parse_options(asked | {"failOnDataLoss": each})) for each in ("false", "true"))
    planned = lenient.partitions()
    splitting = planning.split_read

    def deleting(*given: Any) -> Any:
        if topics.exists(following.lost):
            topics.delete(following.lost)
        return splitting(*given)

    monkeypatch.setattr(planning, "split_read", deleting)
    with pytest.raises(DataLoss, match=f"{following.lost} is gone: it was deleted after .*set failOnDataLoss to false"):
        strict.partitions()
    topics.create_again(following.lost)
    topics.commit(following.lost, ["new"])
    with pytest.warns(RuntimeWarning, match=f"{following.lost} is gone: it was deleted after the read was planned"):
        assert {part.value.topic for part in lenient.partitions()} == {following.kept}
    of_lost = next(part for part in planned if part.value.topic == following.lost)
    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone while it was read"):
        assert list(lenient.read(of_lost)) == []
    with pytest.raises(DataLoss, match="is gone while it was read"):
        list(strict.read(of_lost))


def test_what_the_options_name_and_never_was_there_is_a_mistake(topics: Topics) -> None:
    there = topics.create()
    for asked, named in (
        ({"subscribe": f"{there},no-such-topic"}, "no-such-topic"),
        ({"assign": json.dumps({there: [0, 7]})}, f"{there}-7"),
    ):
        given = {"endpoint": topics.endpoint, "startingOffsets": "earliest"}
        stood = StreamReader(parse_options(given | {"subscribe": there}, is_stream=True)).initialOffset()
        stream = StreamReader(parse_options(given | asked, is_stream=True))
        with pytest.raises(UnknownTopic, match=f"name {named}, which is not there: create it, or set failOnDataLoss"):
            next_end(stream, stood)


def test_a_first_micro_batch_is_repeated_though_a_topic_of_it_is_gone(topics: Topics, level: str) -> None:
    """Spark asks then where the stream begins, too."""
    following = Following(topics, level, "subscribe")
    stream = following.reader()
    end = next_end(stream, stream.initialOffset())
    topics.delete(following.lost)
    begins = json.dumps({name: {"0": 0} for name in (following.lost, following.kept)})
    repeated = following.reader(startingOffsets=begins)

    with pytest.warns(RuntimeWarning, match=f"name {following.lost}, which is not there"):
        start = repeated.initialOffset()
    with pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone"):
        assert rows_of(repeated, start, end) == [f"{following.kept[-1]}-{number}" for number in range(2)]


def test_all_topics_of_a_stream_may_be_deleted_and_one_of_them_come_back(topics: Topics, level: str) -> None:
    following = Following(topics, level, "subscribe")
    stream = following.reader()
    stood = next_end(stream, stream.initialOffset())
    for name in (following.lost, following.kept):
        topics.delete(name)
    with pytest.warns(RuntimeWarning, match="is gone"):
        assert next_end(stream, stood)[following.lost] == {"0": 3}, "nothing to note until there is a record"
    topics.create_again(following.kept)
    topics.commit(following.kept, ["new"])
    is_gone = pytest.warns(RuntimeWarning, match=f"{following.lost}-0 is gone")
    with is_gone, pytest.warns(RuntimeWarning, match="deleted and created again"):
        moved = next_end(stream, stood)
    assert rows_of(stream, stood, moved) == ["new"]
