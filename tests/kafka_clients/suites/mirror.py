"""MirrorMaker 2: it copies a topic and the offsets of a group from one server to another, with exactly-once support.

It is killed amid its work. Its own topics, which are compacted, are on both servers.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.kafka_clients.cache import CannotRunError
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, filled_topic, java, read_topic, run_class

_RECORDS: Final = 2_000
"""Records of one round."""
_TOPIC: Final = "mirrored"
_COPY: Final = f"from.{_TOPIC}"
_GROUP: Final = "followers"
_STEP_S_MAX: Final = 300
_SETTINGS: Final = ("compaction_check_interval_ms=200",)
_PROPERTIES: Final = """\
clusters=from,to
from.bootstrap.servers={source}
to.bootstrap.servers={target}
from->to.enabled=true
from->to.topics={topic}
from->to.groups={group}
from->to.sync.group.offsets.enabled=true
from->to.sync.group.offsets.interval.seconds=2
from->to.emit.checkpoints.interval.seconds=2
refresh.groups.interval.seconds=1
from->to.offset.lag.max=0
to->from.enabled=false
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:0
to.exactly.once.source.support=enabled
"""


class _Failure(Exception):
    """Something else was seen than expected."""


class _Mirror:
    """MirrorMaker between the server of the suite and another one."""

    def __init__(self, place: Place, target: str) -> None:
        self._place = place
        self._target = target
        self._settings = place.directory / "mirror.properties"
        self._settings.write_text(_PROPERTIES.format(source=place.address, target=target, topic=_TOPIC, group=_GROUP))

    @contextmanager
    def process(self) -> Iterator[None]:
        """Run MirrorMaker, and kill it at the end."""
        command = java(self._place, "org.apache.kafka.connect.mirror.MirrorMaker", self._settings)
        with (self._place.directory / "mirror.log").open("a") as log:
            process = subprocess.Popen([str(each) for each in command], stdout=log, stderr=log)
            try:
                yield
            finally:
                process.kill()
                process.wait()

    def write(self) -> None:
        """Write the numbers from 0 into the topic, after those of earlier rounds."""
        words = ("--bootstrap-server", self._place.address, "--topic", _TOPIC, "--max-messages", str(_RECORDS))
        self._tool("VerifiableProducer", *words, wants=f'"acked":{_RECORDS}')

    def wait_for_copies(self, count: int) -> None:
        """Wait until at least so many offsets of the copy are taken."""
        words = ("--bootstrap-server", self._target, "--topic", _COPY)
        self._wait(lambda: _sum_of_ends(self._output("GetOffsetShell", *words)) >= count)

    def check_copies(self, rounds: int) -> None:
        """Every record is there once, in order."""
        self.wait_for_copies(rounds * _RECORDS)
        found = read_topic(self._place, _COPY, address=self._target)
        if found != [str(number) for number in range(_RECORDS)] * rounds:
            raise _Failure(f"{len(found)} of {rounds * _RECORDS} records are there")

    def follow(self) -> None:
        """Commit the end of the topic for a group."""
        words = ("--bootstrap-server", self._place.address, "--topic", _TOPIC, "--group", _GROUP)
        reading = ("--from-beginning", "--max-messages", str(_RECORDS))
        self._tool("consumer.ConsoleConsumer", *words, *reading, wants=f"^{_RECORDS - 1}$")

    def check_group(self) -> None:
        """Wait until the group has an offset at the copy."""
        words = ("--bootstrap-server", self._target, "--describe", "--group", _GROUP)
        tool = "consumer.group.ConsumerGroupCommand"
        self._wait(lambda: re.search(rf"{_COPY} +0 +[1-9]\d*", self._output(tool, *words)) is not None)

    def _tool(self, tool: str, *words: str, wants: str) -> None:
        output = self._output(tool, *words)
        if re.search(wants, output, re.MULTILINE) is None:
            raise _Failure(f"{tool}: {output.strip()[-200:]}")

    def _output(self, tool: str, *words: str) -> str:
        return run_class(self._place, f"org.apache.kafka.tools.{tool}", *words, timeout_s=_STEP_S_MAX).output

    def _wait(self, is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + _STEP_S_MAX
        while not is_done():
            if time.monotonic() > until:
                log = (self._place.directory / "mirror.log").read_text(errors="replace")
                errors = [line for line in log.splitlines() if "ERROR" in line]
                raise _Failure(f"nothing came for {_STEP_S_MAX} s: {errors[-1:]}")


def _sum_of_ends(output: str) -> int:
    return sum(int(end) for end in re.findall(rf"^{re.escape(_COPY)}:\d+:(\d+)$", output, re.MULTILINE))


def _scenarios(mirror: _Mirror) -> Iterator[str]:
    """Go through the scenarios; yields the name of each one that begins."""
    yield "copy"
    with mirror.process():
        mirror.check_copies(1)
        yield "offsets of a group"
        mirror.follow()
        mirror.check_group()
        yield "copy over a kill"
        mirror.write()
        mirror.wait_for_copies(_RECORDS + _RECORDS // 4)
    with mirror.process():
        mirror.write()
        mirror.check_copies(3)


def _run(place: Place) -> list[Case]:
    cases: list[Case] = []
    with place.another_server(()) as target:
        filled_topic(place, _TOPIC, partitions=1, records=_RECORDS)
        begun: list[str] = []
        try:
            for name in _scenarios(_Mirror(place, target)):
                begun.append(name)
                cases += [Case(each, Outcome.PASSED) for each in begun[-2:-1]]
            cases.append(Case(begun[-1], Outcome.PASSED))
        except (_Failure, CannotRunError) as failure:
            cases.append(Case(begun[-1], Outcome.FAILED, str(failure)[:300]))
    return cases


SUITE: Final = Suite(
    "mirror-maker",
    "MirrorMaker 2",
    KAFKA_VERSION,
    "a topic and the offsets of a group, from one server of ours to another with exactly-once support, over a kill",
    _run,
    settings=_SETTINGS,
)
