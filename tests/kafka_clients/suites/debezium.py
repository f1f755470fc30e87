"""Debezium's embedded engine: it copies the rows of a PostgreSQL into a compacted topic, with its offsets in another.

The engine is killed amid its work. Another one goes on from the offsets, and the topic has the newest row of each key.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from tests.kafka_clients.cache import TOOLCHAINS, Cache, CannotRunError, build_step, program
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import MAVEN_COPY, RELEASE, eager_compaction, filled_topic, read_keys, read_table

_FOLDER: Final = TOOLCHAINS / "debezium"
_TOPIC: Final = "items"
_OFFSETS: Final = "debezium-offsets"
_KEYS: Final = 100
"""Rows of the table."""
_CHANGES: Final = 2_000
"""Changes of one round."""
_DELETED: Final = 10
_STEP_S_MAX: Final = 180
_SETTINGS: Final = ("compaction_check_interval_ms=200",)


class _Failure(Exception):
    """Something else was seen than expected."""


class _Database:
    """A PostgreSQL with one table, in a program that makes changes on demand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        (self.port,) = self._lines(r"port (\d+)", last=r"port")

    @classmethod
    @contextmanager
    def started(cls, place: Place) -> Iterator[Self]:
        command = [program("java"), "-cp", _class_path(place.cache), "Database"]
        pipe = subprocess.PIPE
        with (
            (place.directory / "database.log").open("w") as log,
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as process,
        ):
            assert process.stdin is not None
            try:
                yield cls(process)
            finally:
                process.stdin.close()
                process.wait()

    def change(self, count: int) -> None:
        """Make so many changes, one after the other, each committed by itself."""
        self._call(f"change {count}")

    def delete(self, count: int) -> None:
        """Remove the rows of the first keys."""
        self._call(f"delete {count}")

    def rows(self) -> dict[int, int]:
        """Return the amount of each key."""
        return {int(key): int(amount) for key, amount in re.findall(r"row (\d+) (\d+)", self._call("rows"))}

    def _call(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return "".join(self._lines(r"(.*\n)", last="done"))

    def _lines(self, pattern: str, *, last: str) -> list[str]:
        """Return the matches in the lines up to the one that begins with `last`."""
        assert self._process.stdout is not None
        found: list[str] = []
        for line in self._process.stdout:
            found += re.findall(pattern, line)
            if line.startswith(last):
                return found
        raise CannotRunError(f"the database ended with status {self._process.wait()}")


class _Capture:
    """The engine, one process at a time, and its output."""

    def __init__(self, place: Place, database: _Database) -> None:
        self._place = place
        self._database = database
        self._log = place.directory / "capture.log"

    @contextmanager
    def process(self) -> Iterator[None]:
        """Run the engine, and kill it at the end."""
        arguments = [self._place.address, self._database.port, _TOPIC, _OFFSETS]
        command = [program("java"), "-cp", _class_path(self._place.cache), "CaptureChanges", *arguments]
        with self._log.open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield
            finally:
                process.kill()
                process.wait()

    def check(self) -> None:
        """Wait until the newest values in the topic are the rows of the table."""
        rows = self._database.rows()
        self._wait("the topic has not the rows of the table", lambda: self._table() == rows)

    def compact(self) -> None:
        """Wait until the topics have little more than the newest value of each key."""
        eager_compaction(self._place, _TOPIC, _OFFSETS)
        self._wait_for_few(_TOPIC, 2 * _KEYS)
        self._wait_for_few(_OFFSETS, 10)

    def check_continuation(self) -> None:
        """The engine that runs found the offsets of the one before, and read no snapshot again."""
        log = self._log.read_text(errors="replace")
        if "Found previous partition offset" not in log or "Snapshot step 1 " in log:
            raise _Failure("the engine did not go on from its offsets")

    def _table(self) -> dict[int, int]:
        """Return the newest amount of each key in the topic."""
        newest: dict[int, int] = {}
        for key, value in read_table(self._place, _TOPIC):
            row = json.loads(value)
            number = json.loads(key)["id"]
            newest.pop(number, None)
            if row is not None:
                newest[number] = row["amount"]
        return newest

    def _wait_for_few(self, topic: str, records_max: int) -> None:
        self._wait(f"{topic} is not compacted", lambda: 0 < len(read_keys(self._place, topic)) < records_max)

    def _wait(self, failure: str, is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + _STEP_S_MAX
        while not is_done():
            if time.monotonic() > until:
                log = self._log.read_text(errors="replace").splitlines()
                raise _Failure(f"{failure}: {[line for line in log if 'ERROR' in line][-1:]}")


def _class_path(cache: Cache) -> str:
    def build(target: os.PathLike[str]) -> None:
        folder = os.fspath(target)
        fetched = [*MAVEN_COPY, "-DincludeScope=runtime", f"-DoutputDirectory={folder}/lib"]
        build_step([program("mvn"), "-B", "-q", "-f", _FOLDER / "pom.xml", *fetched])
        files = sorted((_FOLDER / "java").glob("*.java"))
        options = ["--release", RELEASE, "-cp", f"{folder}/lib/*", "-d", f"{folder}/classes"]
        build_step([program("javac"), *options, *files])

    target = cache.once("debezium", [_FOLDER], build)
    return os.pathsep.join([str(target / "classes"), f"{target / 'lib'}/*"])


def _scenarios(capture: _Capture, database: _Database) -> Iterator[str]:
    """Go through the scenarios; yields the name of each one that begins."""
    yield "changes of a table"
    database.change(_CHANGES)
    with capture.process():
        capture.check()
        database.change(_CHANGES)
        capture.check()
        yield "compaction of its topics"
        capture.compact()
        capture.check()
        yield "changes over a kill"
        database.change(_CHANGES)
    database.delete(_DELETED)
    database.change(_KEYS // 2)
    with capture.process():
        database.delete(_DELETED)
        capture.check()
        capture.check_continuation()


def _run(place: Place) -> list[Case]:
    cases: list[Case] = []
    begun: list[str] = []
    try:
        filled_topic(place, _TOPIC, partitions=1, records=0)
        with _Database.started(place) as database:
            for name in _scenarios(_Capture(place, database), database):
                begun.append(name)
                cases += [Case(each, Outcome.PASSED) for each in begun[-2:-1]]
        cases.append(Case(begun[-1], Outcome.PASSED))
    except _Failure as failure:
        cases.append(Case(begun[-1], Outcome.FAILED, str(failure)[:300]))
    return cases


SUITE: Final = Suite(
    "debezium",
    "Debezium's embedded engine",
    re.findall(r"<debezium.version>(\S+)</debezium.version>", (_FOLDER / "pom.xml").read_text())[0],
    "changes of a PostgreSQL into a compacted topic, with its offsets in another, over a kill",
    _run,
    settings=_SETTINGS,
)
