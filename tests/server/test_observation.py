"""What a server shows of itself over gRPC: rates, events, settings, quotas, snapshots, and its lists in portions."""

from __future__ import annotations

import asyncio
import json

from coordinator_client import Admin, AsyncAdmin, TopicPartition
from coordinator_client.producer.producer import Producer
from coordinator_core.partition_list import ANSWERED_MAX
from coordinator_server.events.recent import FACT_LENGTH_MAX, RecentEvents
from tests.harness.in_process import in_process_server
from tests.harness.manual_clock import ManualClock


def look(endpoint: str) -> dict[str, object]:
    with Admin(endpoint, client_id="watcher") as admin:
        admin.create_topic("orders", 2)
        with Producer(endpoint, transactional_id="till") as producer, producer.transaction() as transaction:
            transaction.send("orders", b"one")
        with Producer(endpoint, transactional_id="till") as newer, newer.transaction() as transaction:
            transaction.send("orders", b"two")
            partitions = admin.list_partitions()
        snapshot = admin.take_snapshot(["orders"])
        held = admin.held_snapshots()
        admin.release_snapshot(snapshot)
        return {
            "partitions": partitions,
            "ids": admin.oldest_transactions(limit=5),
            "rates": admin.rates(),
            "events": admin.recent_events(),
            "acts": admin.recent_events(kinds=["act"], limit=1),
            "config": {each.name: json.loads(each.value) for each in admin.server_config()},
            "quotas": admin.quotas(),
            "held": held,
        }


async def test_a_server_shows_itself() -> None:
    async with in_process_server() as server:
        seen = await asyncio.to_thread(look, str(server.address))
    partitions, ids, events, acts = seen["partitions"], seen["ids"], seen["events"], seen["acts"]
    assert [(each.topic, each.partition) for each in partitions.partitions] == [("orders", 0), ("orders", 1)]  # type: ignore[attr-defined]
    assert [each.transactional_id for each in ids.transactions] == ["till"]  # type: ignore[attr-defined]
    kinds = {each.kind for each in events}  # type: ignore[attr-defined]
    assert {"topic_created", "act", "taken_over", "fenced"} <= kinds
    (act,) = acts  # type: ignore[misc]
    assert (act.kind, act.client_id, act.facts["method"]) == ("act", "watcher", "CreateTopics")
    assert seen["config"]["shard_count"] > 0  # type: ignore[index]
    assert seen["quotas"].has_quotas is False  # type: ignore[attr-defined]
    (held,) = seen["held"]  # type: ignore[misc]
    assert (held.topics, held.partition_count) == (("orders",), 2)


async def test_the_sdk_lists_as_many_partitions_as_asked_for_in_several_answers() -> None:
    async with in_process_server() as server, AsyncAdmin(str(server.address)) as admin:
        await admin.create_topic("t", 2 * ANSWERED_MAX + 1)
        whole = await admin.list_partitions()
        most = await admin.list_partitions(limit=2 * ANSWERED_MAX)
    assert ([each.partition for each in whole.partitions], whole.next_after) == ([*range(2 * ANSWERED_MAX + 1)], None)
    assert len(most.partitions) == 2 * ANSWERED_MAX
    assert most.next_after == TopicPartition("t", 2 * ANSWERED_MAX - 1)


def test_an_event_is_cut_and_the_oldest_is_forgotten() -> None:
    events = RecentEvents(ManualClock())
    for number in range(1_200):
        events.add("act", {"request": "x" * 1_000, "number": number, "client_id": "c", "host": None})
    (newest, *_others) = found = events.newest(2_000, ())
    assert len(found) == 1_000
    assert (newest.client_id, newest.host, newest.facts["number"]) == ("c", "", "1199")
    assert len(newest.facts["request"]) == FACT_LENGTH_MAX
    assert events.newest(5, {"fenced"}) == []
