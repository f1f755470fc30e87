"""Spark's Kafka source and sink, over a topic with records of aborted transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.kafka.settings import SPARK_VERSION
from bench.kafka.toolchain import find_toolchain
from bench.results import CannotRun
from tests.kafka_clients.cache import CannotRunError
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite, story_cases
from tests.kafka_clients.suites.java import filled_topic, run_class

_PROGRAM: Final = Path(__file__).parent.parent / "programs" / "spark_story.py"
_RECORDS: Final = 2_000
_RUN_S_MAX: Final = 600


def _run(place: Place) -> list[Case]:
    try:
        python, jars = find_toolchain(place.cache.directory, print).spark()
    except CannotRun as error:
        raise CannotRunError(str(error)) from error
    filled_topic(place, "plain", partitions=1, records=_RECORDS)
    for topic in ("mixed", "copy", "streamed"):
        filled_topic(place, topic, partitions=2, records=0)
    words = {
        "broker-list": place.address,
        "input-topic": "plain",
        "input-partition": "0",
        "output-topic": "mixed",
        "consumer-group": "copiers",
        "transactional-id": "copier",
        "transaction-size": "50",
    }
    options = [part for name, value in words.items() for part in (f"--{name}", value)]
    copier = "org.apache.kafka.tools.TransactionalMessageCopier"
    copied = run_class(place, copier, *options, "--enable-random-aborts", timeout_s=_RUN_S_MAX)
    if copied.status != 0:
        return [Case("records of aborted transactions", Outcome.FAILED, copied.last_line())]
    arguments = [place.address, ",".join(map(str, jars)), "mixed", "copy", "streamed", str(_RECORDS)]
    return story_cases(place.run([python, _PROGRAM, *arguments], timeout_s=_RUN_S_MAX))


SUITE: Final = Suite(
    "spark", "Spark's Kafka source and sink", SPARK_VERSION, "batch and stream at read_committed, and both sinks", _run
)
