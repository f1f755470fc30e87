"""The server is killed again and again (SIGKILL) under producers of librdkafka and of the SDK, and so are producers.

Every acknowledged transaction is read exactly once afterwards, by a Kafka consumer and by the SDK, and the offset that
it committed stands. Aborted ones are never read. One of unknown end is read whole or not at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness import forked
from tests.harness.of_commit import first_seed
from tests.kafka_front.kill_storm import ENVIRONMENT, KILLS, PROGRESS, Client, Storm, Watcher, check_readers
from tests.kafka_front.storm_history import check_again

pytestmark = [pytest.mark.slow, pytest.mark.kill]

FEW_KILLS = 2


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.kafka_front.killed_producer", *arguments]


def by_librdkafka(transactional_id: str) -> Client:
    return Client(transactional_id, lambda storm, life: program("kafka", storm.kafka, transactional_id, str(life)))


def by_sdk(transactional_id: str) -> Client:
    return Client(
        transactional_id, lambda storm, life: program("sdk", storm.server.address, transactional_id, str(life))
    )


def by_stubs(transactional_id: str) -> Client:
    return Client(
        transactional_id, lambda storm, life: program("stub", storm.server.address, transactional_id, str(life))
    )


@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_acknowledged_transactions_outlive_kills(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    seed = first_seed(request.config.getoption("--commit")) + number
    print(f"seed {seed}")
    clients = [by_librdkafka("kafka-0"), by_librdkafka("kafka-1"), by_sdk("sdk-0")]
    run(tmp_path, seed, clients, KILLS)


def test_two_checkers_agree_on_a_storm_of_all_kinds_of_producers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The second one is that of `tests/histories`."""
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    seed = first_seed(request.config.getoption("--commit"))
    print(f"seed {seed}")
    run(tmp_path, seed, [by_librdkafka("kafka-0"), by_sdk("sdk-0"), by_stubs("stub-0")], FEW_KILLS)


def run(directory: Path, seed: int, clients: Sequence[Client], kills: int) -> None:
    """Go through a storm. Raises for what one of the checkers finds."""
    with Storm(directory / "data", seed, clients) as storm:
        with Watcher(program("watch", storm.kafka)) as watcher:
            storm.rage(kills)
            storm.calm()
        groups = [client.told[0].group for client in clients if client.transactional_id.startswith("kafka")]
        shown = forked.run(
            program("read", storm.kafka, *groups), stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT
        )
        found = json.loads(shown.stdout)
        check_readers(storm, found["values"], found["offsets"], ended_min=kills * PROGRESS)
        check_again(storm, found, directory / "history.jsonl", watcher.polls)
