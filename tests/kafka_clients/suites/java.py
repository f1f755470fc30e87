"""Kafka's own jars: where they are, and how a class of them is run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_clients.cache import TOOLCHAINS, Cache, build_step, program
from tests.kafka_clients.suite import Finished, Place

_POM: Final = TOOLCHAINS / "java" / "pom.xml"
_SOURCES: Final = Path(__file__).parent.parent / "java"
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy-dependencies"
# The console brings these itself, in a newer version.
_LEFT_OUT: Final = re.compile(r"junit-(jupiter|platform-(commons|engine|launcher)).*")
_MEMORY: Final = "-Xmx600m"
_RELEASE: Final = "17"

KAFKA_VERSION: Final = re.findall(r"<kafka.version>(\S+)</kafka.version>", _POM.read_text())[0]


def class_path(cache: Cache) -> str:
    """Return the class path: our classes first, since one replaces a class of theirs. Raises: CannotRunError."""

    def build(target: Path) -> None:
        build_step([program("mvn"), "-B", "-q", "-f", _POM, _GOAL, f"-DoutputDirectory={target / 'lib'}"])
        for jar in (target / "lib").iterdir():
            if _LEFT_OUT.fullmatch(jar.name) and "standalone" not in jar.name:
                jar.unlink()
        files = sorted(_SOURCES.rglob("*.java"))
        options = ["--release", _RELEASE, "-cp", f"{target / 'lib'}/*", "-d", target / "classes"]
        build_step([program("javac"), *options, *files])

    target = cache.once("java", [_POM, _SOURCES], build)
    return os.pathsep.join([str(target / "classes"), f"{target / 'lib'}/*"])


def java(place: Place, *arguments: str | Path) -> Sequence[str | Path]:
    """Return the command that runs a class of Kafka's jars, or of ours."""
    return [program("java"), _MEMORY, "-cp", class_path(place.cache), *arguments]


def run_class(
    place: Place, *arguments: str | Path, timeout_s: int, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a class to its end, with properties before its name and its arguments behind."""
    return place.run(java(place, *arguments), timeout_s=timeout_s, environment=environment)
