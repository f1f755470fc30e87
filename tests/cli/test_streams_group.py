"""`txnctl group` with streams groups, against a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_client import Admin, Producer
from coordinator_client.streams import StreamsClient, StreamsInternalTopic, StreamsSubtopology, StreamsTopology
from tests.cli.terminal import Ended, Terminal

GROUP = "counters"
TOPOLOGY = StreamsTopology(
    [
        StreamsSubtopology(
            subtopology_id="0", source_topics=["orders"], changelogs=[StreamsInternalTopic(name="order-counts")]
        )
    ]
)


@pytest.fixture
def server(orders: str) -> str:
    return orders


@pytest.fixture
def member(server: str) -> Iterator[StreamsClient]:
    """A member with both tasks of its group."""
    with Admin(server) as admin:
        admin.alter_group_configs(GROUP, {"streams_initial_rebalance_delay_ms": 0})
    with StreamsClient(server, group_id=GROUP, topology=TOPOLOGY, client_id="app", process_id="p") as member:
        for _ in range(100):
            if member.poll(timeout_ms=1_000).active:
                break
        member.poll(timeout_ms=0)
        yield member


def rows(ended: Ended) -> list[Any]:
    document: list[Any] = ended.well().document
    return document


def commit(server: str, member: StreamsClient, offset: int) -> None:
    with Producer(server, transactional_id=GROUP) as producer, producer.transaction() as txn:
        txn.commit_offsets(member, {("orders", 0): offset})


def test_a_streams_group_is_listed_and_shown_with_its_tasks(ask: Terminal, member: StreamsClient) -> None:
    listed = ask("group", "list", "--type", "streams").well().lines[-1].split()
    assert (listed[0], listed[1], listed[3]) == (GROUP, "streams", "streams")
    told = ask("group", "describe", GROUP, "-o", "json").well().document
    assert (told["group_type"], told["assignor"]) == ("streams", "sticky")
    (found,) = rows(ask("group", "members", GROUP, "-o", "json"))
    assert (found["client_id"], found["subscribed_topic_names"]) == ("app", ["orders"])
    assert found["tasks"]["active"] == ["0_0", "0_1"]
    assert found["assignment"] == [{"topic": "orders", "partition": number} for number in (0, 1)]
    assert found["tasks"]["process_id"] == "p"
    assert "0_0" in ask("group", "members", GROUP, "-o", "json").well().stdout


def test_offsets_of_a_streams_group_are_shown_and_reset_once_it_is_empty(
    ask: Terminal, server: str, member: StreamsClient
) -> None:
    commit(server, member, 0)
    told = ask("group", "describe", GROUP, "-o", "json").well().document
    assert [each["committed_offset"] for each in told["offsets"] if each["partition"] == 0] == [0]
    reset = ("group", "reset-offsets", GROUP, "--all-topics", "--to-latest", "--execute")
    assert ask(*reset).status != 0, "a group with members is not reset"
    ask("group", "delete", GROUP, "--yes").refused(1, "has 1 members: stop them first")
    member.close()
    ask(*reset).well()
    ask("group", "delete", GROUP, "--yes").well()
    assert "no group matches" in ask("group", "list").well().stderr


def test_settings_of_a_streams_group_are_set_and_shown(ask: Terminal, server: str) -> None:
    config = ("group", "config", GROUP)
    standbys = {"name": "streams_num_standby_replicas", "value": 1}
    assert standbys in rows(ask(*config, "--set", "streams_num_standby_replicas=1", "-o", "json"))
    ask(*config, "--set", "streams_num_standby_replicas=3").refused(1, "streams_num_standby_replicas")
    assert ask(*config).well().lines[-1].split() == ["streams_num_standby_replicas", "1"]
