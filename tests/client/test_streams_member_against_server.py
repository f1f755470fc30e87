"""Members of streams groups of a real server process: what the fake taught them must be true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coordinator_client import Abortable, Admin, Producer, TopicPartition
from coordinator_client.streams import (
    AsyncStreamsClient,
    StreamsClient,
    StreamsInternalTopic,
    StreamsSubtopology,
    StreamsTopology,
    Task,
)
from coordinator_client.values import TransactionOffsets
from tests.client.fake_streams import TaskDiary
from tests.harness.server_process import ServerProcess

STEPS_MAX = 100
PARTITIONS = 2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("streams") / "data") as server:
        yield server


@pytest.fixture
def topic(shared: ServerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of this test with two partitions; also the name of its group, which places tasks at once."""
    name = request.node.name
    with Admin(shared.address) as admin:
        admin.create_topic(name, PARTITIONS)
        admin.alter_group_configs(name, {"streams_initial_rebalance_delay_ms": 0, "streams_num_standby_replicas": 1})
    return name


def counting(topic: str) -> StreamsTopology:
    changelog = StreamsInternalTopic(name=f"{topic}.counts")
    return StreamsTopology([StreamsSubtopology(subtopology_id="0", source_topics=[topic], changelogs=[changelog])])


def member(server: ServerProcess, topic: str, **options: object) -> StreamsClient:
    return StreamsClient(server.address, **({"group_id": topic, "topology": counting(topic)} | options))  # type: ignore[arg-type]


def both(*members: StreamsClient, active: int, standby: int = 0) -> None:
    """Poll all members in turn until each has as many tasks."""
    for _ in range(STEPS_MAX):
        found = [each.poll(timeout_ms=100) for each in members]
        if all((len(tasks.active), len(tasks.standby)) == (active, standby) for tasks in found):
            return
    raise AssertionError([each.tasks() for each in members])


def test_members_share_the_tasks_and_a_standby_takes_over(shared: ServerProcess, topic: str) -> None:
    diary = TaskDiary()
    with member(shared, topic, listener=diary) as first:
        both(first, active=PARTITIONS)
        with member(shared, topic) as second:
            both(first, second, active=1, standby=1)
            assert first.tasks().standby == second.tasks().active
            assert second.tasks().standby == first.tasks().active
        both(first, active=PARTITIONS)
        with Admin(shared.address) as admin:
            changelog = admin.describe_topic(f"{topic}.counts")
            assert len(changelog.partitions) == PARTITIONS
    assert [word for word, _tasks in diary.told if word == "lost"] == []
    assert diary.told[-1] == ("revoked", [0, 1])


def test_members_learn_whose_state_is_where(shared: ServerProcess, topic: str) -> None:
    with (
        member(shared, topic, user_endpoint=("here", 1)) as first,
        member(shared, topic, user_endpoint=("there", 2)) as second,
    ):
        both(first, second, active=1, standby=1)
        read = [
            frozenset(TopicPartition(topic, each.partition) for each in found.tasks().active)
            for found in (first, second)
        ]
        wanted = {("here", 1, read[0], read[1]), ("there", 2, read[1], read[0])}
        for _ in range(STEPS_MAX):
            if all({tuple(each) for each in found.endpoints()} == wanted for found in (first, second)):
                return
            for each in (first, second):
                each.poll(timeout_ms=100)
        raise AssertionError([first.endpoints(), second.endpoints()])


class Remembered:
    """Offsets as a member that does not know better would commit them."""

    def __init__(self, offsets: TransactionOffsets) -> None:
        self.offsets = offsets

    def transaction_offsets(self, _batch: object) -> TransactionOffsets:
        return self.offsets


def test_only_the_owner_of_a_task_commits_its_offsets(shared: ServerProcess, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with (
        member(shared, topic) as first,
        Producer(shared.address, transactional_id=f"{topic}-first") as producer,
    ):
        both(first, active=PARTITIONS)
        with producer.transaction() as txn:
            txn.commit_offsets(first, {partition: 1})
        remembered = Remembered(first.transaction_offsets({partition: 2}))
        first.close()
        with member(shared, topic) as second:
            both(second, active=PARTITIONS)
            found = second.committed([partition])[partition]
            assert found is not None
            assert found.offset == 1
            with pytest.raises(Abortable), producer.transaction() as txn:
                txn.commit_offsets(remembered, {partition: 2})
            after = second.committed([partition])[partition]
            assert after == found


def test_the_same_for_asyncio(shared: ServerProcess, topic: str) -> None:
    async def live() -> frozenset[Task]:
        async with AsyncStreamsClient(shared.address, group_id=topic, topology=counting(topic)) as one:
            for _ in range(STEPS_MAX):
                tasks = await one.poll(timeout_ms=1_000)
                if tasks.active:
                    assert await one.committed([(topic, 0)]) == {TopicPartition(topic, 0): None}
                    return tasks.active
        return frozenset()

    assert len(asyncio.run(live())) == PARTITIONS
