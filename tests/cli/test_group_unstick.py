"""`txnctl group unstick`: what holds a group up, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import group_pb2, group_pb2_grpc
from coordinator_client import Admin, Consumer, GroupDescription, GroupMember, Producer, ShareConsumer, TopicPartition
from tests.cli.terminal import Terminal
from tests.harness.patience import looks
from txnctl.commands.group_unstick import HoldAction, late_members, transaction_hold

UNSTICK = ("group", "unstick", "billing")
AT_ONCE = ("--look", "0ms")


@pytest.fixture
def server(orders: str) -> str:
    return orders


@pytest.fixture
def groups(server: str) -> Iterator[Any]:
    """The stubs of the group service, for members that do what no consumer of the SDK does."""
    with grpc.insecure_channel(server) as channel:
        yield group_pb2_grpc.GroupServiceStub(channel)


def committed(server: str) -> dict[int, int]:
    with Admin(server) as admin:
        found = admin.group_offsets("billing")
    return {each.partition.partition: each.committed.offset for each in found if each.committed is not None}


def test_a_group_that_nothing_holds_says_so(ask: Terminal, server: str) -> None:
    with Admin(server) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
    assert ask(*UNSTICK).well().stdout == "nothing holds billing\n"
    assert ask(*UNSTICK, "-o", "json").well().document == []
    ask("group", "unstick", "biling").refused(1, "there is no group 'biling'; did you mean billing?")


def test_a_transaction_that_keeps_offsets_pending_is_aborted_after_a_question(ask: Terminal, server: str) -> None:
    with Admin(server) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
    with (
        Producer(server, transactional_id="billing-1") as producer,
        Consumer(server, group_id="billing", enable_auto_commit=False) as consumer,
    ):
        consumer.assign([("orders", 0)])
        transaction = producer.begin()
        transaction.commit_offsets(consumer, {TopicPartition("orders", 0): 7})
        transaction.flush()
        (planned,) = ask(*UNSTICK, "--dry-run", "-o", "json").well().document
        assert (planned["subject"], planned["result"]) == ("billing-1", "would abort the transaction")
        asked = ask(*UNSTICK, stdin="n\n")
        assert asked.status == 2
        assert (
            "abort the transaction billing-1: its transaction keeps offsets or records pending, open for"
            in asked.stderr
        )
        done = ask(*UNSTICK, "--yes").well()
        assert done.lines[-1].split()[:2] == ["billing-1", "aborted"]
        assert ask(*UNSTICK).well().stdout == "nothing holds billing\n"
    assert committed(server) == {0: 0}


def test_a_transaction_that_keeps_records_of_a_share_group_is_aborted(ask: Terminal, server: str) -> None:
    with Producer(server) as writer:
        writer.send("orders", b"job", partition=0)
    with Admin(server) as admin:
        admin.alter_group_configs("billing", {"share_auto_offset_reset": "earliest"})
    with (
        ShareConsumer(server, group_id="billing", explicit=True) as consumer,
        Producer(server, transactional_id="worker-1") as producer,
    ):
        consumer.subscribe(["orders"])
        transaction = producer.begin()
        while not (batch := consumer.poll(timeout_ms=1_000)):
            pass
        transaction.acknowledge(batch)
        transaction.flush()
        (done,) = ask(*UNSTICK, "--yes", "-o", "json").well().document
        assert (done["subject"], done["result"]) == ("worker-1", "aborted")
        assert ask(*UNSTICK).well().stdout == "nothing holds billing\n"


def test_a_member_that_gives_nothing_up_is_removed(ask: Terminal, server: str, groups: Any) -> None:
    def beat(member_id: str, epoch: int, *owned: int) -> Any:
        request = group_pb2.ConsumerGroupHeartbeatRequest(
            group_id="billing", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=60_000
        )
        request.header.client_id = f"app-{member_id}"
        request.subscribed_topic_names.names.append("orders")
        request.topic_partitions.SetInParent()
        if owned:
            request.topic_partitions.topics.add(topic="orders", partitions=owned)
        answer = groups.ConsumerGroupHeartbeat(request)
        assert not answer.error_code, answer
        return answer

    first = beat("stuck", 0)
    beat("stuck", first.member_epoch, 0, 1)
    beat("waiting", 0)
    with Admin(server) as admin:
        for _ in looks("the assignment for both"):
            if admin.describe_group("billing").state == "Reconciling":
                break
        (planned,) = ask(*UNSTICK, *AT_ONCE, "--dry-run", "-o", "json").well().document
        assert (planned["subject"], planned["action"]) == ("stuck", "remove the member")
        assert "app-stuck at 127.0.0.1 does not give up orders-" in planned["cause"]
        ask(*UNSTICK, *AT_ONCE, "--yes").well()
        assert [each.member_id for each in admin.describe_group("billing").members] == ["waiting"]


def test_a_named_member_is_removed_whatever_the_kind_of_group(ask: Terminal, server: str) -> None:
    ask("group", "config", "billing", "--set", "consumer_session_timeout_ms=45s").well()
    with Admin(server) as admin:
        for protocol in ("consumer", "classic"):
            with Consumer(server, group_id=f"g-{protocol}", group_protocol=protocol, client_id="app") as consumer:
                consumer.subscribe(["orders"])
                while not consumer.assignment():
                    consumer.poll(timeout_ms=100)
                (member,) = admin.describe_group(f"g-{protocol}").members
                unstick = ("group", "unstick", f"g-{protocol}", *AT_ONCE, "--member")
                ask(*unstick, "nobody", "--yes").refused(1, "has no member 'nobody'")
                (done,) = ask(*unstick, member.member_id, "--yes", "-o", "json").well().document
                assert (done["result"], done["cause"]) == ("removed", "app at 127.0.0.1 was named")
                assert member.member_id not in {
                    each.member_id for each in admin.describe_group(f"g-{protocol}").members
                }


# Findings

ROW: dict[str, Any] = {
    "transactional_id": "billing-1",
    "state": "Ongoing",
    "age_ms": 5_000,
    "time_left_ms": 55_000,
    "two_phase": False,
}


@pytest.mark.parametrize(
    ("changes", "action", "said"),
    [
        ({}, HoldAction.ABORT, "open for 5.0s, times out in 55.0s"),
        ({"two_phase": True, "time_left_ms": None}, HoldAction.NONE, "breaks the promise"),
        ({"state": "PrepareCommit"}, HoldAction.NONE, "it ends by itself"),
        ({"state": "CompleteAbort", "age_ms": None}, HoldAction.NONE, "look again"),
    ],
)
def test_what_no_command_may_end_is_left_with_advice(changes: dict[str, Any], action: HoldAction, said: str) -> None:
    hold = transaction_hold(ROW | changes)
    assert hold.action is action
    assert said in f"{hold.cause} {hold.advice}"


def test_members_are_late_only_with_partitions_that_others_wait_for() -> None:
    places = [TopicPartition("orders", number) for number in range(3)]
    member = GroupMember(
        member_id="a",
        instance_id=None,
        rack_id=None,
        client_id="app",
        client_host="h",
        epoch=1,
        subscribed_topic_names=(),
        subscribed_topic_regex=None,
        assignment=tuple(places),
        target_assignment=(places[0],),
        is_classic=False,
    )
    other = replace(member, member_id="b", assignment=(), target_assignment=(places[1],))
    group = GroupDescription(
        group_id="g",
        group_type="consumer",
        state="Reconciling",
        protocol_type="consumer",
        assignor="uniform",
        epoch=2,
        assignment_epoch=2,
        leader="",
        members=(member, other),
    )
    assert late_members(group) == [(member, (places[1],))]
    assert late_members(replace(group, members=(member,))) == []
    assert late_members(replace(group, group_type="classic")) == []
