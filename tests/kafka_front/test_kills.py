"""The server is killed again and again (SIGKILL) under producers of librdkafka and of the SDK, and so are producers.

Every acknowledged transaction is read exactly once afterwards, by a Kafka consumer and by the SDK, and the offset that
it committed stands. Aborted ones are never read. One of unknown end is read whole or not at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import forked
from tests.harness.of_commit import first_seed
from tests.kafka_front.kill_storm import ENVIRONMENT, Client, Storm, check_readers

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.kill]


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.kafka_front.killed_producer", *arguments]


def by_librdkafka(transactional_id: str) -> Client:
    return Client(transactional_id, lambda storm, life: program("kafka", storm.kafka, transactional_id, str(life)))


def by_sdk(transactional_id: str) -> Client:
    return Client(
        transactional_id, lambda storm, life: program("sdk", storm.server.address, transactional_id, str(life))
    )


@pytest.mark.parametrize("number", range(2))
def test_acknowledged_transactions_outlive_kills(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    seed = first_seed(request.config.getoption("--commit")) + number
    print(f"seed {seed}")
    clients = [by_librdkafka("kafka-0"), by_librdkafka("kafka-1"), by_sdk("sdk-0")]
    with Storm(tmp_path / "data", seed, clients) as storm:
        storm.rage()
        storm.calm()
        groups = [client.told[0].group for client in clients[:2]]
        shown = forked.run(
            program("read", storm.kafka, *groups), stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT
        )
        found = json.loads(shown.stdout)
        check_readers(storm, found["values"], found["offsets"])
