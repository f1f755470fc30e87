"""The server is killed again and again (SIGKILL) under producers of librdkafka and of the SDK, and so are producers.

Every acknowledged transaction is read exactly once afterwards, by a Kafka consumer and by the SDK, and the offset that
it committed stands. Aborted ones are never read. One of unknown end is read whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.of_commit import first_seed
from tests.kafka_front.kill_storm import KILLS
from tests.kafka_front.storm_round import by, run_round

pytestmark = [pytest.mark.slow, pytest.mark.kill]

FEW_KILLS = 2


@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_acknowledged_transactions_outlive_kills(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    seed = first_seed(request.config.getoption("--commit")) + number
    print(f"seed {seed}")
    clients = [by("kafka", "kafka-0"), by("kafka", "kafka-1"), by("sdk", "sdk-0")]
    run_round(tmp_path, seed, clients, KILLS)


def test_two_checkers_agree_on_a_storm_of_all_kinds_of_producers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The second one is that of `tests/histories`."""
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    seed = first_seed(request.config.getoption("--commit"))
    print(f"seed {seed}")
    done = run_round(tmp_path, seed, [by(kind, f"{kind}-0") for kind in ("kafka", "sdk", "stub")], FEW_KILLS)
    assert done.kills == {"server, status -9": FEW_KILLS}
