"""Kafka's own jars: where they are, and how a class of them is run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_clients.cache import TOOLCHAINS, Cache, CannotRunError, build_step, program
from tests.kafka_clients.suite import Finished, Place

_POM: Final = TOOLCHAINS / "java" / "pom.xml"
_SOURCES: Final = Path(__file__).parent.parent / "java"
MAVEN_COPY: Final = ("org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy-dependencies",)
"""Goal of Maven that copies jars into a folder."""
RELEASE: Final = "17"
"""Version of Java that our classes are built for."""
# The console brings these itself, in a newer version.
_LEFT_OUT: Final = re.compile(r"junit-(jupiter|platform-(commons|engine|launcher)).*")
_TOOL_S_MAX: Final = 240
_OPTIONS: Final = ("-Xmx600m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")

KAFKA_VERSION: Final = re.findall(r"<kafka.version>(\S+)</kafka.version>", _POM.read_text())[0]


def class_path(cache: Cache) -> str:
    """Return the class path: our classes first, since one replaces a class of theirs. Raises: CannotRunError."""

    def build(target: Path) -> None:
        build_step([program("mvn"), "-B", "-q", "-f", _POM, *MAVEN_COPY, f"-DoutputDirectory={target / 'lib'}"])
        for jar in (target / "lib").iterdir():
            if _LEFT_OUT.fullmatch(jar.name) and "standalone" not in jar.name:
                jar.unlink()
        files = sorted(_SOURCES.rglob("*.java"))
        options: list[str | Path] = ["--release", RELEASE, "-cp", f"{target / 'lib'}/*", "-d", target / "classes"]
        build_step([program("javac"), *options, *files])

    target = cache.once("java", [_POM, _SOURCES], build)
    return os.pathsep.join([str(target / "classes"), f"{target / 'lib'}/*"])


def jars(cache: Cache) -> Path | None:
    """Return the folder of jars, if an earlier run fetched Kafka's clients of this version. Nothing is fetched now."""
    found = sorted(cache.directory.glob(f"java-*/lib/kafka-clients-{KAFKA_VERSION}.jar"))
    return found[-1].parent if found else None


def java(place: Place, *arguments: str | Path) -> Sequence[str | Path]:
    """Return the command that runs a class of Kafka's jars, or of ours."""
    return [program("java"), *_OPTIONS, "-cp", class_path(place.cache), *arguments]


def run_class(
    place: Place, *arguments: str | Path, timeout_s: int, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a class to its end, with properties before its name and its arguments behind."""
    return place.run(java(place, *arguments), timeout_s=timeout_s, environment=environment)


def filled_topic(place: Place, topic: str, *, partitions: int, records: int) -> None:
    """Create a topic, and write the numbers from 0 into it. Raises: CannotRunError."""
    server = ("--bootstrap-server", place.address, "--topic", topic)
    calls: list[tuple[str, ...]] = [("TopicCommand", *server, "--create", "--partitions", str(partitions))]
    if records:
        calls.append(("VerifiableProducer", *server, "--max-messages", str(records)))
    for tool, *words in calls:
        done = run_class(place, f"org.apache.kafka.tools.{tool}", *words, timeout_s=_TOOL_S_MAX)
        if done.status != 0:
            raise CannotRunError(f"{tool}: {done.last_line()}")


def read_topic(place: Place, topic: str, *, address: str = "") -> list[str]:
    """Return the committed numbers in a topic. Reads until nothing has come for some seconds."""
    return [line for line in _consumed(place, topic, address or place.address) if line.isdigit()]


def read_keys(place: Place, topic: str) -> list[str]:
    """Return the keys of the committed records of a topic, read in the same way."""
    printed = ("--formatter-property", "print.key=true", "--formatter-property", "print.value=false")
    # A line of the tool itself has several words.
    return [line for line in _consumed(place, topic, place.address, *printed) if line and " " not in line]


def read_table(place: Place, topic: str) -> list[tuple[str, str]]:
    """Return key and value of the committed records of a topic, read in the same way; "null" is no value."""
    separator = "\t"
    printed = ("--formatter-property", "print.key=true", "--formatter-property", f"key.separator={separator}")
    lines = [line.partition(separator) for line in _consumed(place, topic, place.address, *printed)]
    return [(key, value) for key, found, value in lines if found]


def _consumed(place: Place, topic: str, address: str, *options: str) -> list[str]:
    words = ("--bootstrap-server", address, "--topic", topic, "--from-beginning")
    ends = ("--isolation-level", "read_committed", "--timeout-ms", "10000")
    console = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return run_class(place, console, *words, *ends, *options, timeout_s=_TOOL_S_MAX).output.splitlines()


def eager_compaction(place: Place, *topics: str) -> None:
    """Let topics be compacted as soon as anything of them can go. Raises: CannotRunError."""
    settings = "cleanup.policy=compact,min.cleanable.dirty.ratio=0.01,max.compaction.lag.ms=1000,delete.retention.ms=0"
    for topic in topics:
        words = ("--bootstrap-server", place.address, "--entity-type", "topics", "--entity-name", topic)
        altered = ("--alter", "--add-config", settings)
        done = run_class(place, "kafka.admin.ConfigCommand", *words, *altered, timeout_s=_TOOL_S_MAX)
        if done.status != 0:
            raise CannotRunError(f"ConfigCommand: {done.last_line()}")
