"""Kafka Streams with `group.protocol=streams`: three instances of its word count with exactly_once_v2.

One instance is killed amid its work, another loses its state, and the first one leaves. Each word must be counted once
for each line: its committed counts are 1, 2, 3, up to the number of lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, java, run_class

_DEMO: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
_TOOLS: Final = "org.apache.kafka.tools."
_GROUP: Final = "streams-wordcount"
_INPUT: Final = "streams-plaintext-input"
_OUTPUT: Final = "streams-wordcount-output"
_PARTITIONS: Final = 6
_LINES: Final = 400
"""Lines of one round."""
_WORDS: Final = (
    "all",
    "streams",
    "lead",
    "to",
    "kafka",
    "and",
    "each",
    "word",
    "of",
    "a",
    "line",
    "is",
    "counted",
    "once",
)
_STEP_S_MAX: Final = 300
_PROPERTIES: Final = """\
bootstrap.servers={address}
group.protocol=streams
processing.guarantee=exactly_once_v2
commit.interval.ms=100
state.dir={state}
"""
_SETTINGS: Final = (
    "group_streams_session_timeout_ms_min=15000",
    "group_streams_session_timeout_ms=15000",
    "group_streams_heartbeat_interval_ms_min=1000",
    "group_streams_heartbeat_interval_ms=1000",
)


class _Failure(Exception):
    """Something else was seen than expected."""


class _Instance:
    """One process of the application, with a state directory of its own."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self.state = place.directory / f"state-{name}"
        self._settings = place.directory / f"{name}.properties"
        self._settings.write_text(_PROPERTIES.format(address=place.address, state=self.state))
        self._log = place.directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(each) for each in java(self._place, _DEMO, self._settings)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Let it close, so that it leaves the group. Raises _Failure if it does not."""
        assert self._process is not None, "it was started"
        self._process.terminate()
        try:
            self._process.wait(_STEP_S_MAX)
        except subprocess.TimeoutExpired:
            raise _Failure("an instance does not stop") from None
        self._process = None


class _Story:
    """The application, the lines that were written for it, and its steps in order."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._written = 0
        self.instances = [_Instance(place, name) for name in ("first", "second", "third")]

    def share(self) -> None:
        for each in self.instances:
            each.start()
        with self._writer() as writer:
            self._write(writer, _LINES)
        self._check_counts()
        self._tool("--describe", "--state", wants=rf"{_GROUP} .*Stable +3\s*$")

    def kill_one(self) -> None:
        _first, second, _third = self.instances
        with self._writer() as writer:
            self._write(writer, _LINES // 2)
            second.kill()
            self._write(writer, _LINES // 2)
        self._check_counts()

    def lose_state(self) -> None:
        _first, second, third = self.instances
        with self._writer() as writer:
            self._write(writer, _LINES // 2)
            third.kill()
            shutil.rmtree(third.state)
            second.start()
            third.start()
            self._write(writer, _LINES // 2)
        self._check_counts()

    def leave(self) -> None:
        """Let only those instances go on that were killed, and so restored their state."""
        self.instances[0].stop()
        with self._writer() as writer:
            self._write(writer, _LINES)
        self._check_counts()

    def administer(self) -> None:
        self._call("GroupsCommand", "--list", wants=rf"{_GROUP} +Streams")
        self._call("streams.StreamsGroupCommand", "--list", wants=rf"^{_GROUP}\s*$")
        self._tool("--describe", "--members", wants=rf"{_GROUP} ")
        self._tool("--describe", "--offsets", wants=rf"{_INPUT} ")
        for each in self.instances[1:]:
            each.stop()
        self._tool("--describe", "--state", wants=rf"{_GROUP} .*Empty +0\s*$")
        self._tool("--reset-offsets", "--input-topic", _INPUT, "--to-earliest", "--execute", wants=rf"{_INPUT} +\d +0")
        self._tool("--delete", wants="successful")

    def _tool(self, *words: str, wants: str) -> None:
        self._call("streams.StreamsGroupCommand", *words, "--group", _GROUP, wants=wants)

    def _call(self, tool: str, *words: str, wants: str = "") -> None:
        address = ("--bootstrap-server", self._place.address)
        done = run_class(self._place, f"{_TOOLS}{tool}", *address, *words, timeout_s=_STEP_S_MAX)
        if done.status != 0 or re.search(wants, done.output, re.MULTILINE) is None:
            raise _Failure(f"{tool} {' '.join(words)}: {done.status}: {done.last_line()}")

    def make_topics(self) -> None:
        for topic in (_INPUT, _OUTPUT):
            self._call("TopicCommand", "--create", "--topic", topic, "--partitions", str(_PARTITIONS))

    @contextmanager
    def _writer(self) -> Iterator[IO[str]]:
        """Give the input of a producer whose lines are in the topic at the end."""
        address = ("--bootstrap-server", self._place.address, "--topic", _INPUT)
        keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        command = java(self._place, f"{_TOOLS}ConsoleProducer", *address, *keys)
        words = [str(each) for each in command]
        with subprocess.Popen(words, stdin=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL) as producer:
            assert producer.stdin is not None
            yield producer.stdin
            producer.stdin.close()
            if producer.wait(_STEP_S_MAX):
                raise _Failure("the lines were not written")

    def _write(self, writer: IO[str], lines: int) -> None:
        for _ in range(lines):
            writer.write(f"{self._written}:{' '.join(_WORDS)}\n")
            self._written += 1
        writer.flush()

    def _check_counts(self) -> None:
        """Wait until each word has the count of all lines, and check the way there."""
        until = time.monotonic() + _STEP_S_MAX
        newest: dict[str, int] = {}
        while time.monotonic() < until:
            counts = self._counts()
            for word, each in counts.items():
                if each != list(range(1, len(each) + 1)):
                    raise _Failure(f"the counts of {word} are {_shown(each)}")
            newest = {word: len(each) for word, each in counts.items()}
            if newest == dict.fromkeys(_WORDS, self._written):
                return
        raise _Failure(f"the counts are {newest} instead of {self._written}")

    def _counts(self) -> dict[str, list[int]]:
        """Return all committed counts of each word."""
        done = run_class(
            self._place,
            f"{_TOOLS}consumer.ConsoleConsumer",
            *("--bootstrap-server", self._place.address, "--topic", _OUTPUT, "--from-beginning"),
            *("--isolation-level", "read_committed", "--timeout-ms", "5000"),
            *("--formatter-property", "print.key=true"),
            *("--formatter-property", "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer"),
            timeout_s=_STEP_S_MAX,
        )
        counts: dict[str, list[int]] = {}
        for word, count in re.findall(r"^(\w+)\t(\d+)$", done.output, re.MULTILINE):
            counts.setdefault(word, []).append(int(count))
        return counts


def _shown(counts: Sequence[int]) -> str:
    """Return the first place at which counts are not one more than the one before."""
    at = next(place for place, count in enumerate(counts) if count != place + 1)
    return f"{list(counts[max(0, at - 3) : at + 3])} from the place {max(0, at - 3)} on"


_STEPS: Final[tuple[tuple[str, Callable[[_Story], None]], ...]] = (
    ("word count of three instances", _Story.share),
    ("word count over the kill of an instance", _Story.kill_one),
    ("word count over the loss of a state directory", _Story.lose_state),
    ("word count of the restored instances alone", _Story.leave),
    ("StreamsGroupCommand, GroupsCommand", _Story.administer),
)


def _run(place: Place) -> list[Case]:
    story, cases = _Story(place), list[Case]()
    try:
        story.make_topics()
        for name, act in _STEPS:
            act(story)
            cases.append(Case(name, Outcome.PASSED))
    except _Failure as failure:
        name = _STEPS[len(cases)][0]
        cases.append(Case(name, Outcome.FAILED, str(failure)[:300]))
    finally:
        for each in story.instances:
            each.kill()
    return cases


SUITE: Final = Suite(
    "streams-protocol",
    "Kafka Streams, group.protocol=streams",
    KAFKA_VERSION,
    "its word count with exactly_once_v2 in three instances: a kill, a lost state directory, a leave",
    _run,
    settings=_SETTINGS,
)
