"""One line per fence, timeout, administrative act and slow commit, with the client concerned and the cause."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Outcome
from coordinator_server.logs import LogFormat, LogLevel
from partition_log.catalog.settings import SettingsChange
from partition_log.catalog.state import TopicToAlter
from partition_log.requests import AlterTopicConfigs, DeleteTopics, TopicName
from partition_log.state import Isolation
from tests.harness.inside import WorldOptions
from tests.harness.memory_store import Damage
from tests.logs.lines import Lines
from tests.metrics.observed import INTRUDER, LOADER, PARTITION, TOPIC, ObservedWorld
from txn_coordinator.config import TwoPhase


@pytest.fixture
def world(lines: Lines) -> ObservedWorld:
    return world_of(lines)


def world_of(lines: Lines, **options: object) -> ObservedWorld:
    world = ObservedWorld(WorldOptions(**options))  # type: ignore[arg-type]  # the names are those of WorldOptions
    world.create_topic(TOPIC, 2)
    lines.text()
    return world


def test_a_fence_names_the_id_both_epochs_and_the_newcomer(world: ObservedWorld, lines: Lines) -> None:
    identity = world.opened("billing")
    world.initialised("billing", INTRUDER)
    assert lines.only() == {
        "event": "fenced",
        "level": "info",
        "transactional_id": "billing",
        "producer_id": identity.producer_id,
        "old_epoch": 0,
        "producer_epoch": 1,
        "old_state": "Ongoing",
        "new_state": "PrepareAbort",
        "cause": "fence",
        "client_id": "loader-2",
        "host": "10.0.0.2",
    }


def test_a_damaged_place_is_told_once_with_where_it_is_and_where_the_log_goes_on(
    world: ObservedWorld, lines: Lines
) -> None:
    world.opened()
    world.damage_batch(PARTITION, 0, Damage.VALUE)
    for _ in range(2):
        with pytest.raises(Refused, match="t-0 is damaged at offset 0"):
            world.read(PARTITION, isolation=Isolation.READ_UNCOMMITTED)
    line = lines.only()
    assert "store verify" in line.pop("advice")
    assert line == {
        "event": "damage_found",
        "level": "error",
        "topic": TOPIC,
        "partition": 0,
        "family": "log",
        "offset": 0,
        "next_offset": 1,
        "reason": "a segment does not hold what was written",
    }
    assert world.non_zero("txn_partition_damaged_places_total") == {(TOPIC, "log"): 1}


def test_a_take_over_of_an_idle_id_names_the_newcomer(world: ObservedWorld, lines: Lines) -> None:
    world.ended(world.opened("billing"), Outcome.COMMIT, "billing")
    world.initialised("billing", INTRUDER)
    assert lines.only() == {
        "event": "taken_over",
        "level": "info",
        "transactional_id": "billing",
        "producer_id": 0,
        "old_epoch": 1,
        "producer_epoch": 2,
        "old_state": "CompleteCommit",
        "new_state": "Empty",
        "cause": "init",
        "client_id": "loader-2",
        "host": "10.0.0.2",
    }


def test_a_take_over_of_a_transaction_that_is_kept_names_the_newcomer(world: ObservedWorld, lines: Lines) -> None:
    world.prepare("billing", world.opened("billing"))
    world.settle()
    world.recover("billing", INTRUDER, keep_prepared=True)
    world.settle()
    event = lines.only()
    assert (event["event"], event["old_epoch"], event["producer_epoch"]) == ("taken_over", 0, 1)
    assert (event["old_state"], event["new_state"], event["cause"]) == ("Ongoing", "Ongoing", "keep")
    assert (event["client_id"], event["host"]) == ("loader-2", "10.0.0.2")


def test_a_producer_that_goes_on_with_its_own_identity_fences_none(world: ObservedWorld, lines: Lines) -> None:
    identity = world.initialised("billing")
    world.initialised("billing", expected=identity)
    assert lines.events() == []


def test_a_first_initialisation_fences_none(world: ObservedWorld, lines: Lines) -> None:
    world.initialised("billing")
    assert lines.events() == []


def test_a_timeout_is_a_line(world: ObservedWorld, lines: Lines) -> None:
    world.opened("billing")
    world.tick(60_001)
    assert lines.events() == [], "nothing is told before it is durable"
    world.settle()
    event = lines.only()
    assert (event["event"], event["transactional_id"], event["cause"]) == (
        "transaction_timed_out",
        "billing",
        "timeout",
    )
    assert (event["old_state"], event["new_state"]) == ("Ongoing", "PrepareAbort")
    assert (event["old_epoch"], event["producer_epoch"]) == (0, 1)


def test_the_end_of_topics_and_their_transactions(world: ObservedWorld, lines: Lines) -> None:
    world.opened("billing")
    world.inside.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), LOADER)
    world.settle()
    aborted, deleted = lines.events()
    assert (aborted["event"], aborted["transactional_id"], aborted["cause"]) == (
        "transaction_aborted_with_topic",
        "billing",
        "topic_deleted",
    )
    assert (deleted["event"], deleted["topic"], deleted["partitions"]) == ("topic_deleted", TOPIC, 2)
    assert (deleted["client_id"], deleted["host"]) == ("loader-1", "10.0.0.1")


def test_a_topic_that_is_made(world: ObservedWorld, lines: Lines) -> None:
    made = world.create_topic("u", 3)
    event = lines.only()
    assert (event["event"], event["topic"], event["topic_id"], event["partitions"]) == (
        "topic_created",
        "u",
        made.topic_id.hex(),
        3,
    )


def alter_topic(world: ObservedWorld, topic: str, wanted: dict[str, str]) -> None:
    change = TopicToAlter(topic, b"", SettingsChange(wanted))
    altered = world.inside.topics.alter_topic_configs(AlterTopicConfigs([change]), LOADER)
    world.settle()
    assert altered.result()[0].error is None


def test_an_outcome_that_the_client_wanted_is_no_line(world: ObservedWorld, lines: Lines) -> None:
    for outcome in Outcome:
        world.ended(world.opened("billing"), outcome, "billing")
        lines.text()  # Of the take-over by the second `opened`.
    world.read(PARTITION)
    assert lines.events() == []


def test_a_slow_commit_says_how_slow(lines: Lines) -> None:
    world = world_of(lines, two_phase=TwoPhase.SPLIT)
    identity = world.opened("billing")
    world.end("billing", identity, Outcome.COMMIT, LOADER)
    world.flush()
    world.clock.advance(1_000)
    world.settle()
    event = lines.only()
    assert (event["event"], event["level"], event["elapsed_ms"]) == ("slow_commit", "warning", 1_000)
    assert (event["old_state"], event["new_state"]) == ("PrepareCommit", "CompleteCommit")


def test_a_slow_disk_makes_a_slow_commit_in_one_flush_too(world: ObservedWorld, lines: Lines) -> None:
    identity = world.opened("billing")
    world.end("billing", identity, Outcome.COMMIT, LOADER)
    world.seal()
    world.clock.advance(999)
    world.settle()
    assert lines.events() == []
    identity = world.initialised("quick")
    world.produce("quick", identity, PARTITION, ["x"], sequence=0)
    world.end("quick", identity, Outcome.ABORT, LOADER)
    world.seal()
    world.clock.advance(1_000)
    world.settle()
    event = lines.only()
    assert (event["event"], event["transactional_id"], event["elapsed_ms"]) == ("slow_commit", "quick", 1_000)
    assert (event["client_id"], event["host"]) == ("loader-1", "10.0.0.1")


def test_every_other_step_is_a_line_at_debug(world: ObservedWorld, lines: Lines) -> None:
    lines.configure(LogFormat.JSON, LogLevel.DEBUG)
    world.observe()
    world.ended(world.opened("billing"), Outcome.COMMIT, "billing")
    steps = [(event["event"], event["level"], event["old_state"], event["new_state"]) for event in lines.events()]
    assert steps == [
        ("stepped", "debug", None, "Empty"),
        ("stepped", "debug", "Empty", "Ongoing"),
        ("stepped", "debug", "Ongoing", "PrepareCommit"),
        ("stepped", "debug", "PrepareCommit", "CompleteCommit"),
    ]


def test_the_steps_of_a_whole_transaction_are_lines_at_debug_too(world: ObservedWorld, lines: Lines) -> None:
    lines.configure(LogFormat.JSON, LogLevel.DEBUG)
    world.observe()
    world.transacted(world.initialised("billing"), Outcome.ABORT, "billing")
    assert [(event["old_state"], event["new_state"], event["cause"]) for event in lines.events()] == [
        (None, "Empty", "init"),
        ("Empty", "Ongoing", "add"),
        ("Ongoing", "PrepareAbort", "client"),
        ("PrepareAbort", "CompleteAbort", "client"),
    ]


def test_in_a_terminal_a_line_can_be_read(world: ObservedWorld, lines: Lines) -> None:
    lines.configure(LogFormat.CONSOLE)
    world.opened("billing")
    world.initialised("billing", INTRUDER)
    (line,) = lines.text().splitlines()
    assert "fenced" in line
    assert "transactional_id=billing" in line
    assert "host=10.0.0.2" in line


def test_a_restart_tells_no_old_story(world: ObservedWorld, lines: Lines) -> None:
    world.opened("billing")
    world.crash(down_ms=100)
    world.settle()
    assert lines.events() == []
    world.tick(60_000)
    world.settle()
    assert lines.only()["event"] == "transaction_timed_out"


def test_a_bug_in_telling_is_told_and_stops_nothing(world: ObservedWorld, lines: Lines) -> None:
    def broken(*_arguments: object) -> None:
        raise KeyError("ours")

    world.transactions.stepped = broken  # type: ignore[assignment,method-assign]
    identity = world.opened("billing")
    world.end("billing", identity, Outcome.COMMIT)
    world.settle()
    events = lines.events()
    assert {(event["event"], event["told"]) for event in events} == {("defect", "TransactionStepped")}
    assert "KeyError: 'ours'" in events[0]["exception"]
    assert world.describe("billing").state.api_name == "CompleteCommit"
