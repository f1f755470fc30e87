"""Kafka Streams: its word count with exactly_once_v2, over a repartition topic and a changelog topic.

The changelog is compacted while the demo runs. In the last round the demo has lost its state directory, and restores
its counts from what is left.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import Final

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, java, read_keys, run_class

_DEMO: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
_ROUNDS: Final = ("word count", "word count after a kill", "word count after the loss of its state directory")
_LINES: Final = 50
_TEXT: Final = "all streams lead to kafka"
_STEP_S_MAX: Final = 300
_PROPERTIES: Final = """\
bootstrap.servers={address}
processing.guarantee=exactly_once_v2
commit.interval.ms=200
state.dir={state}
topic.min.cleanable.dirty.ratio=0.01
topic.max.compaction.lag.ms=1000
"""
_SETTINGS: Final = ("compaction_check_interval_ms=200",)


def _run(place: Place) -> list[Case]:
    for topic in ("streams-plaintext-input", "streams-wordcount-output"):
        words = ("--bootstrap-server", place.address, "--create", "--topic", topic)
        done = run_class(place, "org.apache.kafka.tools.TopicCommand", *words, timeout_s=_STEP_S_MAX)
        if done.status != 0:
            return [Case("create topics", Outcome.FAILED, done.last_line())]
    settings = place.directory / "streams.properties"
    settings.write_text(_PROPERTIES.format(address=place.address, state=place.directory / "state"))
    with (place.directory / "streams.log").open("w") as log:
        command = [str(each) for each in java(place, _DEMO, settings)]
        cases = []
        for round_number, name in enumerate(_ROUNDS, 1):
            if round_number == len(_ROUNDS):
                cases.append(_compacted(place))
                shutil.rmtree(place.directory / "state")
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as demo:
                try:
                    cases.append(_counted(place, name, round_number * _LINES))
                finally:
                    demo.kill()
    return cases


def _compacted(place: Place) -> Case:
    """Wait until compaction has taken most records of the changelog."""
    name, server = "compaction of the changelog", ("--bootstrap-server", place.address)
    listed = run_class(place, "org.apache.kafka.tools.TopicCommand", *server, "--list", timeout_s=_STEP_S_MAX)
    changelogs = re.findall(r"^\S+-changelog$", listed.output, re.MULTILINE)
    if len(changelogs) != 1:
        return Case(name, Outcome.FAILED, f"the changelogs are {changelogs}")
    written = (len(_ROUNDS) - 1) * _LINES * len(_TEXT.split())
    until = time.monotonic() + _STEP_S_MAX
    left = written
    while time.monotonic() < until:
        left = len(read_keys(place, changelogs[0]))
        if 0 < left < written // 4:
            return Case(name, Outcome.PASSED)
    return Case(name, Outcome.FAILED, f"{left} of {written} records are left")


def _counted(place: Place, name: str, wanted: int) -> Case:
    """Write lines, and wait until the count of each word is that of all lines so far. The demo is killed after it."""
    _write_lines(place)
    until = time.monotonic() + _STEP_S_MAX
    counts: dict[str, int] = {}
    while time.monotonic() < until:
        counts = _counts(place)
        if counts and set(counts.values()) == {wanted} and set(counts) == set(_TEXT.split()):
            return Case(name, Outcome.PASSED)
    return Case(name, Outcome.FAILED, f"the counts are {counts} instead of {wanted}")


def _write_lines(place: Place) -> None:
    command = java(
        place,
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        place.address,
        "--topic",
        "streams-plaintext-input",
    )
    words = [str(each) for each in command]
    subprocess.run(words, input=f"{_TEXT}\n" * _LINES, text=True, capture_output=True, timeout=_STEP_S_MAX, check=True)


def _counts(place: Place) -> dict[str, int]:
    """Return the newest committed count of each word. Raises ValueError if a count ever falls: it was counted twice."""
    deserializer = "org.apache.kafka.common.serialization.LongDeserializer"
    done = run_class(
        place,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        place.address,
        "--topic",
        "streams-wordcount-output",
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--timeout-ms",
        "5000",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        f"value.deserializer={deserializer}",
        timeout_s=_STEP_S_MAX,
    )
    counts: dict[str, int] = {}
    for word, count in re.findall(r"^(\w+)\t(\d+)$", done.output, re.MULTILINE):
        if int(count) <= counts.get(word, 0):
            raise ValueError(f"the count of {word} fell from {counts[word]} to {count}")
        counts[word] = int(count)
    return counts


SUITE: Final = Suite(
    "streams",
    "Kafka Streams",
    KAFKA_VERSION,
    "its word count with exactly_once_v2: a kill, and a lost state directory, restored from its compacted changelog",
    _run,
    settings=_SETTINGS,
)
