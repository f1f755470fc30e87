"""Flink's exactly-once sink: a job that fails some times copies a topic, and every record arrives once."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Final

from tests.kafka_clients.cache import TOOLCHAINS, Cache, build_step, program
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite, story_cases
from tests.kafka_clients.suites.java import MAVEN_COPY, RELEASE, filled_topic, read_topic

_FOLDER: Final = TOOLCHAINS / "flink"
_RECORDS: Final = 2_000
_RUN_S_MAX: Final = 600
_OPENED: Final = ("java.util", "java.lang", "java.time")
"""Packages of Java that Flink looks into."""


def _class_path(cache: Cache) -> str:
    def build(target: os.PathLike[str]) -> None:
        folder = os.fspath(target)
        fetched = [*MAVEN_COPY, "-DincludeScope=runtime", f"-DoutputDirectory={folder}/lib"]
        build_step([program("mvn"), "-B", "-q", "-f", _FOLDER / "pom.xml", *fetched])
        files = sorted((_FOLDER / "java").glob("*.java"))
        options = ["--release", RELEASE, "-cp", f"{folder}/lib/*", "-d", f"{folder}/classes"]
        build_step([program("javac"), *options, *files])

    target = cache.once("flink", [_FOLDER], build)
    return os.pathsep.join([str(target / "classes"), f"{target / 'lib'}/*"])


def _run(place: Place) -> list[Case]:
    filled_topic(place, "flink-from", partitions=2, records=_RECORDS)
    filled_topic(place, "flink-to", partitions=2, records=0)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    arguments = [place.address, "flink-from", "flink-to", str(_RECORDS)]
    command = [program("java"), "-Xmx1g", *opened, "-cp", _class_path(place.cache), "FlinkCopy", *arguments]
    copied = place.run(command, timeout_s=_RUN_S_MAX)
    times = Counter(read_topic(place, "flink-to"))
    is_good = times == Counter(str(number) for number in range(_RECORDS))
    detail = f"{len(times)} of {_RECORDS} records arrived, {sum(count > 1 for count in times.values())} more than once"
    checked = Case("every record once", Outcome.PASSED if is_good else Outcome.FAILED, "" if is_good else detail)
    return [*story_cases(copied), checked]


def _pinned(name: str) -> str:
    (version,) = re.findall(rf"<{name}>(\S+)</{name}>", (_FOLDER / "pom.xml").read_text())
    return str(version)


SUITE: Final = Suite(
    "flink",
    f"Flink {_pinned('flink.version')}, flink-connector-kafka",
    _pinned("connector.version"),
    "a copy with its exactly-once sink, over failures of the job",
    _run,
)
