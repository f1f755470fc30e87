"""One line for each member that joins or goes, every rebalance, and the fates of groups and their offsets."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_runtime.decision import Turn
from coordinator_runtime.ports import CallContext
from coordinator_server.events.observer import SLOW_REBALANCE_MS, GroupObserver
from coordinator_server.logs import LogFormat, LogLevel
from coordinator_server.metrics.groups import GroupNumbers
from group_coordinator.events import TargetFailed
from tests.harness.classic_members import DELAY_MS
from tests.logs.lines import Lines, partition
from tests.metrics.observed_groups import ObservedGroups

GROUP = {"group_id": "g", "kind": "classic"}
ITSELF = {"client_id": "", "host": ""}
CLIENT = {"client_id": "client", "host": "/127.0.0.1"}
NAMELESS = {"client_id": "", "host": "/127.0.0.1"}
"""A client that does not say what it is called."""
BY_ADMIN = {"client_id": "txnctl", "host": "10.0.0.9"}


@pytest.fixture
def observed(lines: Lines) -> ObservedGroups:
    observed = ObservedGroups()
    lines.text()
    return observed


def told(lines: Lines) -> list[dict[str, Any]]:
    """Events, without what every line has."""
    return [
        {name: value for name, value in event.items() if name not in ("timestamp", "logger")}
        for event in lines.events()
    ]


def names(lines: Lines) -> list[str]:
    return [event["event"] for event in told(lines)]


def line(event: str, level: str = "info", **fields: object) -> dict[str, object]:
    return {"event": event, "level": level, **GROUP, **fields}


def test_a_group_begins(observed: ObservedGroups, lines: Lines) -> None:
    member = observed.world.classic.subscriber()
    member.asked_for_id()
    assert told(lines) == [line("group_created", **CLIENT)]
    member.join()
    observed.world.settle()
    assert told(lines) == [
        line("member_joined", member_id=member.member_id, **CLIENT),
        line("rebalance_started", cause="a member joined", **CLIENT),
    ]
    observed.world.pass_time(DELAY_MS)
    observed.world.classic.assign([member], {})
    assert told(lines) == [line("rebalance_completed", generation=1, members=1, elapsed_ms=DELAY_MS, **NAMELESS)]


def test_a_member_leaves(observed: ObservedGroups, lines: Lines) -> None:
    _leader, follower = observed.pair()
    lines.text()
    follower.leaves()
    left, started = told(lines)
    assert left == line("member_left", member_id=follower.member_id, **NAMELESS)
    assert (started["event"], started["cause"]) == ("rebalance_started", "a member left")


def test_a_member_falls_silent(observed: ObservedGroups, lines: Lines) -> None:
    leader, follower = observed.pair()
    lines.text()
    observed.world.pass_time(4_000)
    leader.beats()
    observed.world.pass_time(1_000)
    removed, _started = told(lines)
    advice = removed.pop("advice")
    assert removed == line("member_removed", "warning", member_id=follower.member_id, reason="session", **ITSELF)
    assert "session timeout" in advice


def test_a_member_is_too_slow(observed: ObservedGroups, lines: Lines) -> None:
    first, second = observed.world.consumers.members("first", "second")
    observed.world.consumers.stable(first)
    second.joins("foo", "bar")
    first.beats()
    lines.text()
    observed.world.pass_time(10_000)
    removed = told(lines)[0]
    assert (removed["event"], removed["member_id"], removed["reason"]) == ("member_removed", "first", "rebalance")
    assert "max_poll_interval_ms" in removed["advice"]


def test_a_member_finds_no_room(observed: ObservedGroups, lines: Lines) -> None:
    leader, follower = observed.pair()
    observed.reconfigured(size_max=1)
    leader.joining()
    lines.text()
    follower.join()
    observed.world.settle()
    removed = told(lines)[0]
    assert (removed["event"], removed["reason"]) == ("member_removed", "size")
    assert "group_size_max" in removed["advice"]


def test_a_static_member_is_fenced(observed: ObservedGroups, lines: Lines) -> None:
    old, new = observed.world.classic.subscriber("i"), observed.world.classic.subscriber("i")
    observed.world.classic.form(old, plan={})
    lines.text()
    new.joins()
    assert told(lines) == [
        line("member_fenced", member_id=old.member_id, **CLIENT),
        line("member_joined", member_id=new.member_id, **CLIENT),
    ]


def test_a_rebalance_begins_again(observed: ObservedGroups, lines: Lines) -> None:
    leader, follower = observed.pair()
    observed.rejoin(leader, follower)
    newcomer = observed.world.classic.subscriber()
    newcomer.asked_for_id()
    lines.text()
    newcomer.join()
    observed.world.settle()
    assert names(lines) == ["member_joined", "rebalance_failed", "rebalance_started"]


def test_a_rebalance_that_took_long_is_a_warning(observed: ObservedGroups, lines: Lines) -> None:
    timeouts = {"session_timeout_ms": 4 * SLOW_REBALANCE_MS, "rebalance_timeout_ms": 2 * SLOW_REBALANCE_MS}
    leader, follower = observed.world.classic.subscriber(**timeouts), observed.world.classic.subscriber(**timeouts)
    observed.world.classic.form(leader, follower, plan={})
    leader.joining()
    observed.world.pass_time(SLOW_REBALANCE_MS)
    follower.joins()
    lines.text()
    observed.world.classic.assign([leader, follower], {})
    (completed,) = told(lines)
    assert (completed["event"], completed["level"]) == ("rebalance_completed", "warning")
    assert completed["elapsed_ms"] == SLOW_REBALANCE_MS
    assert "slow to join again" in completed["advice"]


def test_a_consumer_group(observed: ObservedGroups, lines: Lines) -> None:
    observed.world.consumers.member().joins("foo")
    assert names(lines) == ["group_created", "member_joined", "rebalance_started", "rebalance_completed"]


def test_a_target_is_told_to_who_looks_closer(observed: ObservedGroups, lines: Lines) -> None:
    lines.configure(LogFormat.JSON, LogLevel.DEBUG)
    observed.world.consumers.member().joins("foo")
    (computed,) = [event for event in told(lines) if event["event"] == "assignment_computed"]
    assert (computed["level"], computed["assignor"], computed["changed_members"]) == ("debug", "uniform", 1)


def test_a_target_that_cannot_be_computed_is_an_error(lines: Lines) -> None:
    lines.text()
    tell = GroupObserver(GroupNumbers(), partition).tellers[TargetFailed]
    tell(TargetFailed("g", 3, "mine", "it failed"), Turn(now_ms=0))
    (failed,) = told(lines)
    assert failed == {
        "event": "assignment_failed",
        "level": "error",
        "group_id": "g",
        "epoch": 3,
        "assignor": "mine",
        "error": "it failed",
        "advice": failed["advice"],
    }


def test_a_group_changes_its_protocol(observed: ObservedGroups, lines: Lines) -> None:
    observed.pair()
    lines.text()
    observed.world.consumers.member().joins("foo")
    converted = told(lines)[0]
    assert (converted["event"], converted["old_kind"], converted["new_kind"]) == (
        "group_converted",
        "classic",
        "consumer",
    )


def test_offsets_and_their_group_are_forgotten(observed: ObservedGroups, lines: Lines) -> None:
    observed.world.offsets.commits({"foo-0": 1, "foo-1": 1})
    lines.text()
    observed.world.pass_time(8 * 24 * 3_600_000)
    expired, gone = told(lines)
    assert expired == {"event": "offsets_expired", "level": "info", "group_id": "g", "offsets": 2}
    assert gone == line("group_expired", **ITSELF)


def test_an_administrator_deletes_offsets_and_the_group(observed: ObservedGroups, lines: Lines) -> None:
    observed.world.offsets.commits({"foo-0": 1, "foo-1": 1})
    lines.text()
    observed.world.offsets.deletes("foo-0")
    (deleted,) = told(lines)
    assert (deleted["event"], deleted["offsets"]) == ("offsets_deleted", 1)
    observed.world.call(group_pb2.DeleteGroupsRequest(group_ids=["g"]), CallContext(**BY_ADMIN))
    observed.world.settle()
    assert told(lines) == [
        {"event": "offsets_deleted", "level": "info", "group_id": "g", "offsets": 1, **BY_ADMIN},
        line("group_deleted", **BY_ADMIN),
    ]


def test_a_group_that_has_no_offsets_is_deleted_in_one_line(observed: ObservedGroups, lines: Lines) -> None:
    (member,) = observed.world.consumers.stable(observed.world.consumers.member())
    member.leaves()
    lines.text()
    observed.world.groups.delete()
    assert names(lines) == ["group_deleted"]


def test_commits_have_no_line(observed: ObservedGroups, lines: Lines) -> None:
    observed.world.offsets.commits({"foo-0": 1})
    lines.text()
    observed.world.offsets.commits({"foo-0": 2})
    observed.world.offsets.producer().commits({"foo-0": 3})
    assert told(lines) == []
