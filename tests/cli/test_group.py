"""`txnctl group` against a server in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import group_pb2, group_pb2_grpc
from coordinator_client import Admin, Consumer, Producer, TopicPartition
from group_coordinator.administration.settings import SETTINGS
from tests.cli.terminal import Ended, Terminal
from txnctl.commands.group import TEXT_SETTINGS

GROUP = "readers"
HOUR_MS = 3_600_000
DEADLINE_MS = 30_000


@pytest.fixture
def server(orders: str) -> str:
    return orders


@pytest.fixture
def admin(server: str) -> Iterator[Admin]:
    with Admin(server) as admin:
        yield admin


@contextmanager
def member(server: str, **options: Any) -> Iterator[Consumer]:
    """A reader of all of orders."""
    settings: dict[str, Any] = {"group_id": GROUP, "client_id": "app", "enable_auto_commit": False}
    with Consumer(server, **{**settings, **options}) as consumer:
        consumer.subscribe(["orders"])
        for _ in range(1_000):
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                break
        assert consumer.assignment()
        yield consumer


def append(server: str, count: int = 1, *, partition: int = 0, timestamp_ms: int = HOUR_MS) -> None:
    with Producer(server) as producer:
        for number in range(count):
            producer.send("orders", b"%d" % number, partition=partition, timestamp_ms=timestamp_ms)
        producer.flush()


def commit(admin: Admin, **offsets: int) -> None:
    """orders_0=3: offset 3 in partition 0."""
    admin.alter_group_offsets(GROUP, {TopicPartition("orders", int(name[-1])): at for name, at in offsets.items()})


def committed(admin: Admin) -> dict[int, int]:
    return {
        found.partition.partition: found.committed.offset
        for found in admin.group_offsets(GROUP)
        if found.committed is not None
    }


def rows(ended: Ended) -> list[Any]:
    document: list[Any] = ended.well().document
    return document


# Arguments that make no sense


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reset-offsets", "g", "--all-topics"], "say once where to go on"),
        (["reset-offsets", "g", "--all-topics", "--to-earliest", "--to-latest"], "--to-earliest and --to-latest were"),
        (["reset-offsets", "g", "--all-topics", "--to-latest", "--plan", "p.csv"], "--to-latest and --plan were given"),
        (["reset-offsets", "g", "--to-latest"], "say which partitions are meant"),
        (["reset-offsets", "g", "--to-latest", "--topic", "t", "--all-topics"], "say which partitions are meant"),
        (["reset-offsets", "g", "--plan", "p.csv", "--topic", "t"], "leave --topic and --all-topics out"),
        (["reset-offsets", "g", "--to-latest", "--topic", "t:x"], "write TOPIC, or TOPIC:0,1"),
        (["reset-offsets", "g", "--to-datetime", "noon", "--topic", "t"], "is no time"),
        (["reset-offsets", "g", "--to-latest", "--topic", "t", "--plan-out", "p.txt"], "ends in .csv or .json"),
        (["reset-offsets", "g", "--plan", "p.txt"], "ends in .csv or .json"),
        (["reset-offsets", "g", "--plan", "missing.csv"], "cannot be read"),
        (["delete-offsets", "g"], "say which partitions are meant"),
        (["list", "--state", "Stabel"], "there is no state 'Stabel'"),
        (["list", "--type", "queue"], "there is no type 'queue'"),
        (["config", "g", "--set", "consumer_session_timeout_ms=long"], "or a number of milliseconds"),
    ],
)
def test_what_makes_no_sense_is_told_before_any_server_is_asked(txnctl: Terminal, words: list[str], said: str) -> None:
    ended = txnctl("group", *words)
    assert (ended.status, ended.stdout) == (2, "")
    assert said in " ".join(ended.stderr.split())


# Listing and describing


def test_groups_are_listed(ask: Terminal, admin: Admin, server: str) -> None:
    assert "no group matches" in ask("group", "list").well().stderr
    commit(admin, orders_0=0)
    with member(server, group_id="busy"):
        assert rows(ask("group", "list", "--state", "stable", "-o", "json")) == [
            {"group_id": "busy", "group_type": "consumer", "state": "Stable", "protocol_type": "consumer"}
        ]
        assert ask("group", "list", "--type", "classic").well().lines[-1].split() == [GROUP, "classic", "Empty", "-"]


def test_a_share_group_is_shown_and_deleted(ask: Terminal, server: str) -> None:
    with grpc.insecure_channel(server) as channel:
        groups = group_pb2_grpc.GroupServiceStub(channel)
        names = group_pb2.TopicNames(names=["orders"])
        request = group_pb2.ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", subscribed_topic_names=names)
        assert not groups.ShareGroupHeartbeat(request).error_code
        assert ask("group", "list", "--type", "share").well().lines[-1].split() == [GROUP, "share", "Stable", "share"]
        told = ask("group", "describe", GROUP, "-o", "json").well().document
        assert (told["group_type"], told["assignor"], told["waits_for"]) == ("share", "simple", [])
        (found,) = told["members"]
        assert (found["member_id"], found["subscribed_topic_names"]) == ("m", ["orders"])
        ask("group", "delete", GROUP, "--yes").refused(1, "has 1 members: stop them first")
        request.member_epoch = -1
        assert not groups.ShareGroupHeartbeat(request).error_code
    ask("group", "delete", GROUP, "--yes").well()
    assert "no group matches" in ask("group", "list").well().stderr


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_are_shown_with_their_partitions(ask: Terminal, server: str, protocol: str) -> None:
    with member(server, group_protocol=protocol):
        (found,) = rows(ask("group", "members", GROUP, "-o", "json"))
        places = [{"topic": "orders", "partition": number} for number in (0, 1)]
        assert (found["client_id"], found["client_host"]) == ("app", "127.0.0.1")
        assert (found["assignment"], found["is_classic"]) == (places, protocol == "classic")
        assert found["target_assignment"] == (None if protocol == "classic" else places)
        assert "orders-0,1" in ask("group", "members", GROUP).well().stdout
        ask("group", "delete", GROUP, "--yes").refused(1, "has 1 members: stop them first")


def test_a_group_is_described(ask: Terminal, admin: Admin, server: str) -> None:
    append(server, 3)
    commit(admin, orders_0=1)
    with member(server):
        told = ask("group", "describe", GROUP, "-o", "json").well().document
        assert (told["group_type"], told["state"], len(told["members"])) == ("consumer", "Stable", 1)
        assert (told["lag_to_last_stable_offset"], told["lag_to_high_watermark"], told["waits_for"]) == (2, 2, [])
        assert [row["partition"] for row in told["offsets"]] == [0, 1]
        facts = ask("group", "describe", GROUP).well().stdout
        assert "Records it can read now  2" in facts
        assert "Members                  1" in facts


def test_a_group_that_is_not_there_is_told_with_the_one_that_may_be_meant(ask: Terminal, admin: Admin) -> None:
    commit(admin, orders_0=0)
    for command in (["describe"], ["members"], ["offsets"], ["delete-offsets", "--all-topics"]):
        ask("group", command[0], "reders", *command[1:]).refused(1, "no group 'reders'; did you mean readers?")
    ask("group", "delete", "x", "--yes").refused(1, "`txnctl group list` shows all")


# Offsets and lag


def test_lag_is_what_can_be_read_and_what_may_come(ask: Terminal, admin: Admin, server: str) -> None:
    append(server, 2)
    with Producer(server, transactional_id="late") as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"done", partition=0)
        with producer.transaction() as txn:
            txn.send("orders", b"open", partition=0)
            txn.flush()
            commit(admin, orders_0=1)
            with member(server):
                first, second = rows(ask("group", "offsets", GROUP, "-o", "json"))
    # Two records and a marker are decided, one record is open.
    assert (first["committed_offset"], first["lag_to_last_stable_offset"], first["lag_to_high_watermark"]) == (1, 2, 3)
    assert (first["last_stable_offset"], first["high_watermark"]) == (4, 5)
    assert (first["client_id"], first["pending"]) == ("app", [])
    assert (second["partition"], second["committed_offset"], second["client_id"]) == (1, None, "app")


def test_who_blocks_an_offset_is_named(ask: Terminal, admin: Admin, server: str) -> None:
    append(server, 3)
    commit(admin, orders_0=1)
    with (
        Producer(server, transactional_id="billing") as producer,
        Consumer(server, group_id=GROUP, enable_auto_commit=False) as consumer,
    ):
        consumer.assign([("orders", 0)])
        with producer.transaction() as txn:
            txn.send("orders", b"out", partition=1)
            txn.commit_offsets(consumer, {TopicPartition("orders", 0): 2})
            txn.flush()
            shown = ask("group", "offsets", GROUP).well()
            (found,) = rows(ask("group", "offsets", GROUP, "-o", "json"))
            described = ask("group", "describe", GROUP, "-o", "json").well().document
    assert "billing" in shown.lines[-1]
    assert "offsets wait for a transaction of billing: `txnctl describe billing`" in shown.stderr
    (waiting,) = found["pending"]
    assert (waiting["transactional_id"], waiting["offset"], waiting["state"]) == ("billing", 2, "Ongoing")
    assert waiting["age_ms"] >= 0
    assert found["committed_offset"] == 1
    assert described["waits_for"] == ["billing"]
    assert committed(admin) == {0: 2}


# Resets of offsets


@pytest.mark.parametrize(
    ("words", "expected", "told"),
    [
        (["--to-earliest"], [0, 0], 0),
        (["--to-latest"], [3, 1], 0),
        (["--to-current"], [2, 1], 0),
        (["--to-offset", "1"], [1, 1], 0),
        (["--to-datetime", "1970-01-01T01:30"], [2, 1], 1),
        (["--by-duration", "1ms"], [3, 1], 2),
    ],
)
def test_a_plan_is_shown_and_nothing_changes_without_a_word(
    ask: Terminal, admin: Admin, server: str, words: list[str], expected: list[int], told: int
) -> None:
    append(server, 2)
    append(server, timestamp_ms=2 * HOUR_MS)
    append(server, partition=1)
    commit(admin, orders_0=2)
    planned = ask("group", "reset-offsets", GROUP, "--topic", "orders", *words, "-o", "json")
    assert [(row["offset"], row["result"]) for row in rows(planned)] == [(at, "would be set") for at in expected]
    assert "nothing was changed; --execute does it" in planned.stderr
    assert committed(admin) == {0: 2}
    done = ask("group", "reset-offsets", GROUP, "--topic", "orders", *words, "--execute", "-o", "json")
    assert {row["result"] for row in rows(done)} == {"set"}
    assert [line.count("no record is that new") for line in done.stderr.splitlines()] == [1] * told
    assert committed(admin) == dict(enumerate(expected))


def test_offsets_are_shifted_within_the_log(ask: Terminal, admin: Admin, server: str) -> None:
    append(server, 5)
    commit(admin, orders_0=3)
    reset = ["group", "reset-offsets", GROUP, "--all-topics", "-o", "json", "--execute", "--shift-by"]
    assert [row["offset"] for row in rows(ask(*reset, "-2"))] == [1]
    ended = ask(*reset, "99")
    assert [(row["offset"], row["wanted_offset"]) for row in rows(ended)] == [(5, 100)]
    assert "orders-0: offset 100 is not in the log, 5 is taken" in ended.stderr
    some = ["group", "reset-offsets", GROUP, "--shift-by", "1", "--topic"]
    ask(*some, "orders").refused(1, "orders-1: nothing is committed that could be shifted")
    ask(*some, "orders:0,9").refused(1, "topic orders has no partition 9")


def test_a_group_with_members_is_left_alone(ask: Terminal, admin: Admin, server: str) -> None:
    with member(server):
        for words in ([], ["--execute"]):
            reset = ask("group", "reset-offsets", GROUP, "--topic", "orders", "--to-earliest", *words)
            reset.refused(1, "who would not hear of it: stop app at 127.0.0.1 first")
    assert committed(admin) == {}


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_plan_goes_into_a_file_and_comes_out_of_it(
    ask: Terminal, admin: Admin, server: str, tmp_path: Path, suffix: str
) -> None:
    append(server, 5)
    commit(admin, orders_0=1, orders_1=0)
    plan = tmp_path / f"plan{suffix}"
    ask("group", "reset-offsets", GROUP, "--all-topics", "--to-latest", "--plan-out", str(plan)).well()
    if suffix == ".csv":
        assert plan.read_text().splitlines() == ["orders,0,5", "orders,1,0"]
    else:
        assert [row["offset"] for row in json.loads(plan.read_text())] == [5, 0]
    append(server, 5)
    ask("group", "reset-offsets", GROUP, "--plan", str(plan), "--execute").well()
    assert committed(admin) == {0: 5, 1: 0}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.csv", "orders,0", "p.csv, line 1: it must be topic,partition,offset"),
        ("p.csv", "orders,0,1\norders,0,-1", "p.csv, line 2"),
        ("p.csv", "orders,0,1\norders,0,2", "plans orders-0 twice"),
        ("p.csv", "others,orders,0,1\n\n", "plans nothing for the group 'g'"),
        ("p.csv", "", "plans nothing for the group 'g'"),
        ("p.json", "{}", 'item 0: it must be a list of {"topic"'),
        ("p.json", '[{"topic": "t", "partition": true, "offset": 1}]', "item 0"),
        ("p.json", '[{"topic": "t", "partition": 0, "offset": 1, "group_id": 7}]', "item 0"),
        ("p.json", "[", "is no JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(txnctl: Terminal, tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    txnctl("group", "reset-offsets", "g", "--plan", str(tmp_path / name)).refused(2, said)


def test_a_reset_names_the_topics_that_it_was_planned_for(
    ask: Terminal, admin: Admin, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets found in a topic are never set in one of the same name that was made meanwhile."""
    append(server, 2)
    commit(admin, orders_0=2)
    (described,) = admin.describe_topics(["orders"])
    sent: list[Mapping[TopicPartition, bytes]] = []
    alter = Admin.alter_group_offsets

    def noted(self: Admin, group_id: str, offsets: Any, *, topic_ids: Any = MappingProxyType({})) -> None:
        sent.append(topic_ids)
        alter(self, group_id, offsets, topic_ids=topic_ids)

    monkeypatch.setattr(Admin, "alter_group_offsets", noted)
    ask("group", "reset-offsets", GROUP, "--topic", "orders", "--to-earliest", "--execute").well()
    (named,) = sent
    assert named[TopicPartition("orders", 0)] == described.topic_id


def test_the_lines_of_one_group_are_taken_from_the_plan_of_several(
    ask: Terminal, admin: Admin, server: str, tmp_path: Path
) -> None:
    append(server, 5)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{GROUP},orders,0,3\nothers,orders,0,4\n")
    ask("group", "reset-offsets", GROUP, "--plan", str(plan), "--execute").well()
    assert committed(admin) == {0: 3}
    assert [group.group_id for group in admin.list_groups()] == [GROUP]


def test_a_plan_that_cannot_be_written_changes_nothing(ask: Terminal, admin: Admin, tmp_path: Path) -> None:
    reset = ["group", "reset-offsets", GROUP, "--topic", "orders", "--to-earliest", "--execute", "--plan-out"]
    ask(*reset, str(tmp_path / "missing" / "plan.csv")).refused(1, "cannot be written")
    assert committed(admin) == {}


# Deletion


def test_offsets_are_deleted_where_they_are_meant(ask: Terminal, admin: Admin) -> None:
    commit(admin, orders_0=0, orders_1=0)
    delete = ["group", "delete-offsets", GROUP, "--topic"]
    assert "would be deleted" in ask(*delete, "orders", "--dry-run").well().stdout
    assert committed(admin) == {0: 0, 1: 0}
    refused = ask(*delete, "orders:1", stdin="n\n")
    assert (refused.status, committed(admin)) == (2, {0: 0, 1: 0})
    assert "orders-1: offset 0" in refused.stderr
    assert [row["partition"] for row in rows(ask(*delete, "orders:1", "--yes", "-o", "json"))] == [1]
    assert committed(admin) == {0: 0}
    assert "no offsets there" in ask(*delete, "orders:1", "--yes").well().stderr


def test_offsets_that_members_read_from_stay(ask: Terminal, admin: Admin, server: str) -> None:
    commit(admin, orders_0=0)
    with member(server):
        ended = ask("group", "delete-offsets", GROUP, "--all-topics", "--yes")
    ended.refused(1, "GROUP_SUBSCRIBED_TO_TOPIC")
    assert committed(admin) == {0: 0}


def test_a_group_is_deleted_with_all_it_left(ask: Terminal, admin: Admin) -> None:
    commit(admin, orders_0=0, orders_1=0)
    assert "would be deleted" in ask("group", "delete", GROUP, "--dry-run").well().stdout
    assert ask("group", "delete", GROUP).status == 2
    assert [group.group_id for group in admin.list_groups()] == [GROUP]
    (deleted,) = rows(ask("group", "delete", GROUP, GROUP, "-o", "json", stdin="y\n"))
    assert deleted == {"group_id": GROUP, "partitions": 2, "result": "deleted"}
    assert admin.list_groups() == []


# Settings


def test_settings_of_a_group_are_changed_and_shown(ask: Terminal) -> None:
    config = ["group", "config", GROUP]
    assert "follows the settings of the server" in ask(*config).well().stderr
    setting = {"name": "consumer_session_timeout_ms", "value": 50_000}
    assert rows(ask(*config, "--set", "consumer_session_timeout_ms=50s", "--dry-run", "-o", "json")) == [setting]
    assert rows(ask(*config, "-o", "json")) == []
    assert rows(ask(*config, "--set", "consumer_session_timeout_ms=50000", "-o", "json")) == [setting]
    ask(*config, "--set", "consumer_session_timeout_ms=1s").refused(1, "this server allows 45000 to 60000")
    ask(*config, "--set", "nonsense=1s").refused(1, "groups have no setting 'nonsense'")
    assert rows(ask(*config, "--unset", "consumer_session_timeout_ms", "-o", "json")) == []
    word = {"name": "share_auto_offset_reset", "value": "earliest"}
    assert rows(ask(*config, "--set", "share_auto_offset_reset=earliest", "-o", "json")) == [word]
    assert ask(*config).well().lines[-1].split() == ["share_auto_offset_reset", "earliest"]


def test_a_setting_that_is_text_may_be_of_digits_alone(ask: Terminal, admin: Admin) -> None:
    assert {name for name, setting in SETTINGS.items() if setting.has_words} == set(TEXT_SETTINGS)
    admin.create_topic("123", 1)
    named = {"name": "share_dead_letter_topic", "value": "123"}
    config = ["group", "config", "packers"]
    assert rows(ask(*config, "--set", "share_dead_letter_topic=123", "--dry-run", "-o", "json")) == [named]
    assert rows(ask(*config, "--set", "share_dead_letter_topic=123", "-o", "json")) == [named]
    ask(*config, "--set", "share_auto_offset_reset=5").refused(1, "give earliest, latest, or")


def test_a_share_group_is_described_reset_and_forgets_topics(ask: Terminal, server: str, admin: Admin) -> None:
    append(server, 3)
    channel = grpc.insecure_channel(server)
    stub = group_pb2_grpc.GroupServiceStub(channel)
    request = group_pb2.ShareGroupHeartbeatRequest(
        group_id="sharers", member_id="a", subscribed_topic_names=group_pb2.TopicNames(names=["orders"])
    )
    assert not stub.ShareGroupHeartbeat(request).error_code
    refused = ask("group", "reset-offsets", "sharers", "--all-topics", "--to-earliest", "--execute")
    assert "has members" in refused.stderr
    request.member_epoch = -1
    assert not stub.ShareGroupHeartbeat(request).error_code
    reset = rows(ask("group", "reset-offsets", "sharers", "--all-topics", "--to-earliest", "--execute", "-o", "json"))
    assert [(row["partition"], row["offset"], row["result"]) for row in reset] == [(0, 0, "set"), (1, 0, "set")]
    shown = ask("group", "describe", "sharers", "-o", "json").document
    assert (shown["group_type"], shown["lag_to_high_watermark"]) == ("share", 3)
    assert (shown["due_letters"], [row["due_letters"] for row in shown["offsets"]]) == (0, [0, 0])
    assert " ".join(ask("group", "describe", "sharers").well().lines[-1].split()) == "Dead letters to be written 0"
    assert "whole topics" in ask("group", "delete-offsets", "sharers", "--topic", "orders:0", "--yes").stderr
    deleted = rows(ask("group", "delete-offsets", "sharers", "--topic", "orders", "--yes", "-o", "json"))
    assert [row["result"] for row in deleted] == ["deleted", "deleted"]
    assert admin.share_group_offsets("sharers") == []
