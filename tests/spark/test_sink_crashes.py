"""The sink in a real Spark session among failures, each at a step of its protocol that the test chooses: the driver
dies, a task is repeated, an answer is lost.

A driver that dies is a query which fails at that step and from then on is heard of no more, not even to give up what it
wrote. Whatever is left then is met by the next run, which begins at the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.harness.server_process import ServerProcess
from tests.spark.copying import Copying, values_in
from tests.spark.line import Line, Rule, lost, never_answered, never_asked
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def line(server: ServerProcess) -> Iterator[Line]:
    with Line(server.address) as opened:
        yield opened


@pytest.fixture
def copy(spark: SparkSession, topics: Topics, tmp_path: Path) -> Copying:
    return Copying(spark, topics, tmp_path / "checkpoint")


Death = tuple[str, Rule, set[str]]
DEATHS: list[Death] = [
    # Step after which the write dies, and the states of the members that are left.
    ("JoinBatch", never_answered, {"open"}),
    ("Produce", never_answered, {"open"}),
    ("SealMember", never_answered, {"sealed"}),
    ("CommitBatch", never_asked, {"sealed"}),
    ("CommitBatch", never_answered, set()),
]


@pytest.mark.parametrize(
    "deaths", [DEATHS[1:2], pytest.param(DEATHS, marks=pytest.mark.long)], ids=["one step", "all steps"]
)
def test_a_driver_that_dies_at_any_step_leaves_a_batch_that_is_written_once(
    copy: Copying, line: Line, topics: Topics, deaths: list[Death]
) -> None:
    """Each batch is replayed with another number of tasks than the one that died had: the decision is on a batch, and
    which task wrote which row does not matter to it.

    The driver dies with one task, so that no other is at some step of its own by then, or asks for more afterwards."""
    expected: list[str] = []
    for number, (method, rule, left) in enumerate(deaths):
        for partition in range(2):
            topics.commit(copy.source, [f"{number}-{partition}-{row}" for row in range(10)], partition=partition)
        before, expected = expected, sorted(values_in(copy.source, topics.endpoint))
        line.treat(method, rule)
        for giving_up in ("EndTxn", "AbortBatch"):
            line.treat(giving_up, never_asked)

        with pytest.raises(StreamingQueryException):
            copy(endpoint=line.address, tasks=1)

        assert {member.state for member in copy.members()} == left, (method, rule)
        is_decided = not left
        assert copy.seen() == (expected if is_decided else before), (method, rule)
        line.mend()
        copy(endpoint=line.address, tasks=3)
        assert line.calls["JoinBatch"] == 3
        assert line.calls["CommitBatch"] == (0 if is_decided else 1)
        assert copy.seen() == expected, (method, rule)
        assert not copy.members()
    copy.forget_last_commit()
    line.mend()
    copy(endpoint=line.address, tasks=4)
    assert (line.calls["JoinBatch"], line.calls["Produce"]) == (4, 0)
    assert copy.seen() == expected


@pytest.mark.long
def test_rows_of_two_topics_in_one_micro_batch_are_decided_at_once(
    spark: SparkSession, line: Line, topics: Topics, tmp_path: Path
) -> None:
    """The example of docs/spark.md, with a driver that dies before the decision, and one that dies behind it."""
    source, even, odd = (topics.create(1) for _ in range(3))
    topics.commit(source, ["0", "1", "2"])

    def split(batch: DataFrame, _number: int) -> None:
        rows = batch.selectExpr("value", f"if(cast(cast(value as string) as int) % 2 = 0, '{even}', '{odd}') as topic")
        to = rows.write.format("txnlog").options(endpoint=line.address, sinkName="split")
        to.mode("append").save()

    def run() -> None:
        asked = {"endpoint": topics.endpoint, "subscribe": source, "startingOffsets": "earliest"}
        writing = spark.readStream.format("txnlog").options(**asked).load().writeStream.foreachBatch(split)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writing.start().awaitTermination()

    def seen() -> list[list[str]]:
        return [values_in(topic, topics.endpoint) for topic in (even, odd)]

    line.treat("CommitBatch", never_asked)
    with pytest.raises(StreamingQueryException):
        run()
    assert seen() == [[], []]
    line.treat("CommitBatch", never_answered)
    with pytest.raises(StreamingQueryException):
        run()
    assert seen() == [["0", "2"], ["1"]]
    line.mend()
    run()
    assert line.calls["Produce"] == 0, "the decision is found made"
    assert seen() == [["0", "2"], ["1"]]


@pytest.mark.long
def test_a_task_that_fails_is_repeated_and_its_first_attempts_are_never_seen(
    copy: Copying, line: Line, topics: Topics
) -> None:
    """One attempt has written and not sealed, one has sealed and did not live to tell, the third is the one."""
    topics.commit(copy.source, ["a", "b", "c"])
    line.treat("Produce", never_answered, times=1)
    line.treat("SealMember", never_answered, times=1)
    copy(endpoint=line.address, tasks=1)
    assert line.calls["JoinBatch"] == 3
    assert copy.seen() == ["a", "b", "c"]
    assert not copy.members(), "those that were not chosen are given up by the decision"
    all_there = values_in(copy.target, topics.endpoint, isolation="read_uncommitted")
    assert all_there == sorted(["a", "b", "c"] * 3)


@pytest.mark.long
def test_an_answer_that_is_lost_on_the_way_is_asked_for_again_and_costs_no_task(
    copy: Copying, line: Line, topics: Topics
) -> None:
    topics.commit(copy.source, ["a", "b", "c"])
    asked = ("JoinBatch", "Produce", "SealMember", "CommitBatch")
    for method in asked:
        line.treat(method, lost, times=1)
    copy(endpoint=line.address, tasks=1)
    assert [line.calls[method] for method in asked] == [2, 2, 2, 2]
    assert line.calls["AbortBatch"] == 0
    assert values_in(copy.target, topics.endpoint, isolation="read_uncommitted") == copy.seen() == ["a", "b", "c"]
