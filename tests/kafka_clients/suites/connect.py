"""Kafka Connect: a distributed worker with its three topics here, and its file source with exactly-once support.

The worker is killed amid its work, after its topics were compacted. Another one goes on, and every line of the file is
in the topic once, in order (KIP-618).
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, eager_compaction, java, read_keys, read_topic, run_class

_TOPIC: Final = "lines"
_LINES: Final = 2_000
"""Lines of one round."""
_LINE_SIZE: Final = 1_100
"""Characters of a line. When a batch is full, the connector leaves what else is in its buffer of 1,024 or 2,048
characters until the file grows: there must not be a second line."""
_OWN_TOPICS: Final = ("connect-offsets", "connect-configs", "connect-status")
_STEP_S_MAX: Final = 180
_PAUSE_S: Final = 0.5
_SETTINGS: Final = ("compaction_check_interval_ms=200",)
_WORKER: Final = """\
bootstrap.servers={address}
group.id=connect-cluster
exactly.once.source.support=enabled
offset.storage.topic=connect-offsets
config.storage.topic=connect-configs
status.storage.topic=connect-status
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
listeners=http://127.0.0.1:{port}
plugin.discovery=only_scan
"""


class _Failure(Exception):
    """Something else was seen than expected."""


class _Connect:
    """The cluster: one worker at a time, and the file that its connector reads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._port = _free_port()
        self._settings = place.directory / "worker.properties"
        self._settings.write_text(_WORKER.format(address=place.address, port=self._port))
        self._log = place.directory / "connect.log"
        self._file = place.directory / "lines.txt"
        self._written = 0
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Run a worker, and kill it at the end."""
        command = java(self._place, "org.apache.kafka.connect.cli.ConnectDistributed", self._settings)
        with self._log.open("a") as log:
            self._process = process = subprocess.Popen([str(each) for each in command], stdout=log, stderr=log)
            try:
                self._wait("no worker serves", lambda: self._call("/connectors") is not None)
                yield
            finally:
                process.kill()
                process.wait()

    def begin(self) -> None:
        """Start the connector."""
        self.write()
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(self._file),
            "topic": _TOPIC,
            "batch.size": "20",
            "exactly.once.support": "required",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }
        self._call("/connectors", {"name": "lines", "config": config})

    def write(self) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{number:0{_LINE_SIZE}}\n" for number in range(self._written, self._written + _LINES))
        self._written += _LINES

    def wait_for_lines(self, count: int) -> None:
        """Wait until so many lines are in the topic, committed."""
        self._wait(f"there are not {count} lines in the topic", lambda: self._end() >= count)

    def check(self) -> None:
        """Every line is there once, in order."""
        self.wait_for_lines(self._written)
        found = [int(line) for line in read_topic(self._place, _TOPIC)]
        if found != list(range(self._written)):
            raise _Failure(f"{len(found)} of {self._written} lines are there, {len(set(found))} different ones")

    def compact(self) -> None:
        """Wait until the offsets of the connector, one key, are few records."""
        eager_compaction(self._place, *_OWN_TOPICS)
        self._wait(
            "the topic of offsets is not compacted", lambda: 0 < len(read_keys(self._place, _OWN_TOPICS[0])) < 10
        )

    def _end(self) -> int:
        """Return an offset that is at least the number of committed lines: markers take offsets, too."""
        words = ("--bootstrap-server", self._place.address, "--topic", _TOPIC)
        done = run_class(self._place, "org.apache.kafka.tools.GetOffsetShell", *words, timeout_s=_STEP_S_MAX)
        ends = [line.rpartition(":")[2] for line in done.output.splitlines() if line.startswith(f"{_TOPIC}:")]
        return sum(map(int, ends))

    def is_running(self) -> bool:
        status = self._call("/connectors/lines/status")
        return status is not None and [task["state"] for task in status["tasks"]] == ["RUNNING"]

    def wait_until_it_runs(self) -> None:
        self._wait("the task does not run", self.is_running)

    def _call(self, path: str, body: Any = None) -> Any:
        """Return the answer of the worker; None if there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=_STEP_S_MAX) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError) as error:
            if body is not None:
                raise _Failure(f"{path}: {error}") from error
            return None

    def _wait(self, failure: str, is_done: Any) -> None:
        until = time.monotonic() + _STEP_S_MAX
        while not is_done():
            if time.monotonic() > until or self._has_ended():
                raise _Failure(f"{failure}: {_last_line(self._log)}")

    def _has_ended(self) -> bool:
        """Whether the worker has ended by itself. Looks for a moment."""
        assert self._process is not None, "a worker was started"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PAUSE_S)
            return True
        return False


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
    return lines[-1][:200] if lines else ""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _run(place: Place) -> list[Case]:
    connect, cases = _Connect(place), list[Case]()
    step = "exactly-once source"
    try:
        with connect.worker():
            connect.begin()
            connect.wait_until_it_runs()
            connect.check()
            cases.append(Case(step, Outcome.PASSED))
            step = "compaction of its topics"
            connect.compact()
            cases.append(Case(step, Outcome.PASSED))
            step = "exactly-once source over a kill"
            connect.write()
            connect.wait_for_lines(_LINES + _LINES // 4)
        connect.write()
        with connect.worker():
            connect.wait_until_it_runs()
            connect.check()
            cases.append(Case(step, Outcome.PASSED))
    except _Failure as failure:
        cases.append(Case(step, Outcome.FAILED, str(failure)[:300]))
    return cases


SUITE: Final = Suite(
    "connect",
    "Kafka Connect",
    KAFKA_VERSION,
    "a distributed worker with its topics here, and its file source with exactly-once support, over a kill",
    _run,
    settings=_SETTINGS,
)
