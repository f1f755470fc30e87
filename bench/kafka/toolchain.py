"""Finds JDK and Maven. Builds the broker's jars and the load programs, and makes the environments of librdkafka and
Spark's Kafka source.

Each build has a directory of its own, named after the digest of its sources, and is made once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kafka.settings import KAFKA_VERSION, LIBRDKAFKA_VERSION, SPARK_VERSION
from bench.results import CannotRun

_HERE: Final = Path(__file__).parent
_BUILD_S_MAX: Final = 900
_RELEASE: Final = "17"
_MAVEN: Final = ("-B", "-q", "-Dstyle.color=never")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A JDK and Maven, and the directory of builds."""

    java_home: Path
    maven: Path
    cache: Path
    say: Callable[[str], None]

    @property
    def java(self) -> Path:
        return self.java_home / "bin" / "java"

    def versions(self) -> dict[str, str]:
        """Return the versions of JDK, Kafka, its clients and Spark, for the head of the report."""
        said = subprocess.run([str(self.java), "-version"], capture_output=True, text=True, check=False)
        return {
            "JDK": (said.stderr or said.stdout).partition("\n")[0],
            "Kafka": KAFKA_VERSION,
            "librdkafka (confluent-kafka)": LIBRDKAFKA_VERSION,
            "Kafka's Spark": SPARK_VERSION,
        }

    def load_programs(self) -> Path:
        """Return the directory with `lib` (broker and clients) and `classes`, built if it is missing. Raises:
        CannotRun."""
        source = _HERE / "java"

        def build(target: Path) -> None:
            self.say("building the load programs for Kafka, and fetching Kafka itself (once)")
            goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime"]
            self._maven(source, *goals, f"-DoutputDirectory={target / 'lib'}", f"-Dbench.build={target}")

        return self._once("kafka", source, build)

    def spark(self) -> tuple[Path, Sequence[Path]]:
        """Return a Python with the PySpark of Spark's Kafka source, and the jars of the source. Raises: CannotRun."""
        source = _HERE / "spark"

        def build(target: Path) -> None:
            self.say("making an environment for Spark's Kafka source (once)")
            copied = f"-DoutputDirectory={target / 'lib'}"
            self._maven(source, "dependency:copy-dependencies", "-DincludeScope=runtime", copied)
            _environment(source, target)
            self._build_stand_ins(source, target)

        target = self._once("spark", source, build)
        return target / "venv" / "bin" / "python", sorted((target / "lib").glob("*.jar"))

    def librdkafka(self) -> Path:
        """Return a Python with Confluent's client, which wraps librdkafka. Raises: CannotRun."""
        source = _HERE / "librdkafka"

        def build(target: Path) -> None:
            self.say("making an environment for librdkafka (once)")
            _environment(source, target)

        return self._once("librdkafka", source, build) / "venv" / "bin" / "python"

    def _build_stand_ins(self, source: Path, target: Path) -> None:
        (site,) = (target / "venv" / "lib").glob("python*/site-packages/pyspark/jars")
        classes = target / "stand-ins"
        classes.mkdir()
        files = [str(path) for path in sorted((source / "stand_ins").rglob("*.java"))]
        binaries = self.java_home / "bin"
        _run([str(binaries / "javac"), "--release", _RELEASE, "-cp", f"{site}/*", "-d", str(classes), *files])
        _run([str(binaries / "jar"), "cf", str(target / "lib" / "stand-ins.jar"), "-C", str(classes), "."])

    def _maven(self, project: Path, *arguments: str) -> None:
        environment = os.environ | {"JAVA_HOME": str(self.java_home)}
        _run([str(self.maven), *_MAVEN, "-f", str(project / "pom.xml"), *arguments], environment)

    def _once(self, name: str, source: Path, build: Callable[[Path], None]) -> Path:
        """Build into a directory that gets its final name when it is complete. An interrupted build is repeated.

        The scripts of a virtual environment contain the path at which it was made. Only its interpreter is used, which
        does not.
        """
        target = self.cache / f"{name}-{_digest(source)}"
        if not target.is_dir():
            unfinished = target.with_name(f"{target.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            build(unfinished)
            unfinished.rename(target)
        return target


def find_toolchain(cache: Path, say: Callable[[str], None]) -> Toolchain:
    """Return the installed toolchain. Raises CannotRun with the missing program."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotRun("no Maven (mvn) is in the search path, and Kafka comes through it: install maven")
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=str(Path(home) / "bin") if home else None)
    if compiler is None:
        raise CannotRun("no JDK (javac) was found: install one of version 17 or newer, or set JAVA_HOME")
    return Toolchain(Path(compiler).resolve().parent.parent, Path(maven), cache, say)


def _environment(source: Path, target: Path) -> None:
    """Make a virtual environment with the requirements of a folder."""
    _run([sys.executable, "-m", "venv", str(target / "venv")])
    pip = [str(target / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    _run([*pip, "-r", str(source / "requirements.txt")])


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_BUILD_S_MAX
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{command[0]} took longer than {_BUILD_S_MAX} s: {' '.join(command)}") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CannotRun(f"{Path(command[0]).name} failed: {' / '.join(said[:3])}")


def _digest(folder: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content.update(f"{path.relative_to(folder)}\0".encode())
            content.update(path.read_bytes())
    return content.hexdigest()[:12]
