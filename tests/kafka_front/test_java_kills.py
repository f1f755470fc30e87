"""The same kills under transactional producers of Kafka's Java clients, which use transaction version 2 (KIP-890).

A read_committed Java consumer reads from the first transaction on, through every life of the server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from scripts.java import java_program
from tests.harness.of_commit import first_seed
from tests.kafka_clients.cache import Cache
from tests.kafka_clients.suites.java import RELEASE, jars
from tests.kafka_front.kill_storm import Client, Storm, check_readers
from tests.kafka_front.storm_history import check_again

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.kill, pytest.mark.requires_java]

SOURCE: Final = Path(__file__).parent / "java" / "KilledClient.java"
OPTIONS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For programs that are started often and do little."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command that runs the program, which is compiled now."""
    found = jars(Cache())
    if found is None:
        pytest.skip("Kafka's jars were never fetched here: `make kafka-clients` does")
    program = java_program()
    assert program is not None, "a test that needs Java is skipped without it"
    compiler = Path(program).resolve().with_name("javac")
    if not compiler.exists():
        pytest.skip(f"the Java at {compiler.parent} has no compiler (javac): install a JDK")
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run([compiler, "--release", RELEASE, "-cp", f"{found}/*", "-d", classes, SOURCE], check=True)
    return (program, *OPTIONS, "-cp", f"{classes}:{found}/*", "KilledClient")


class Reader:
    """The consumer. It starts after the server and ends before it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()

    def end(self) -> tuple[list[list[str]], dict[str, int]]:
        """Let it read to the end. Returns the values of each partition, and the offset of each group."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0, "the consumer failed"
        found = json.loads(output)
        return found["values"], found["offsets"]


@pytest.mark.parametrize("number", range(2))
def test_acknowledged_transactions_of_java_producers_outlive_kills(
    number: int, java: Sequence[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = first_seed(request.config.getoption("--commit")) + number
    print(f"seed {seed}")

    def client(transactional_id: str) -> Client:
        return Client(
            transactional_id, lambda storm, life: (*java, "produce", storm.kafka, transactional_id, str(life))
        )

    clients = [client("java-0"), client("java-1")]
    with (
        Storm(tmp_path / "data", seed, clients) as storm,
        Reader([*java, "read", storm.kafka, "of-java-0", "of-java-1"]) as reader,
    ):
        storm.rage()
        storm.calm()
        check_readers(storm, *reader.end())
        check_again(storm, None, tmp_path / "history.jsonl")
