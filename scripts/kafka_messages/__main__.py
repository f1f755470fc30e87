"""Writes `coordinator_server/kafka_front/messages`, or checks it: `python -m scripts.kafka_messages`.

The definitions are resources of one pinned jar, which Maven fetches once into `.cache`. They are not kept here. So the
generated package records two digests, and `--check` always compares those: that of this generator, and that of the
modules. Where the jar is at hand, `--check` generates everything again and compares that, too.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.kafka_messages.definitions import read_messages
from scripts.kafka_messages.modules import HEAD, message_module, table_module

KAFKA_VERSION: Final = "4.3.1"
JAR_SHA256: Final = "52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36"
API_KEYS: Final = (
    *range(4),  # Produce, Fetch, ListOffsets, Metadata
    *range(8, 34),  # OffsetCommit to AlterConfigs
    36,  # SaslAuthenticate
    37,  # CreatePartitions
    42,  # DeleteGroups
    44,  # IncrementalAlterConfigs
    47,  # OffsetDelete
    60,  # DescribeCluster
    61,  # DescribeProducers
    65,  # DescribeTransactions
    66,  # ListTransactions
    68,  # ConsumerGroupHeartbeat
    69,  # ConsumerGroupDescribe
    *range(74, 80),  # ListConfigResources, DescribeTopicPartitions, the share groups' four
    *range(88, 93),  # the streams groups' two, offsets of share groups
)
"""APIs for clients that the front serves or may serve. Those among brokers are left out."""
ROOT: Final = Path(__file__).resolve().parents[2]
TARGET: Final = ROOT / "coordinator_server" / "kafka_front" / "messages"
CACHE: Final = ROOT / ".cache" / "kafka"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy"
_FETCH_S_MAX: Final = 600


class CannotGenerate(Exception):
    """The message has the reason."""


def main() -> int:
    """Write the package, or with `--check` only name what is not up to date (exit status 1)."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.kafka_messages", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything would change")
    parser.add_argument("--jar", type=Path, help=f"kafka-clients {KAFKA_VERSION} (default: fetched with Maven)")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            jar = arguments.jar or cached_jar()
            problems = [*stale_digests(), *(differences(jar) if jar is not None else ())]
            print("".join(f"{problem}: run `make kafka-messages`\n" for problem in problems), file=sys.stderr, end="")
            return int(bool(problems))
        write(generated(arguments.jar or cached_jar() or fetched_jar()))
    except CannotGenerate as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def cached_jar() -> Path | None:
    """Return the jar that was fetched before; None if there is none."""
    jar = CACHE / f"kafka-clients-{KAFKA_VERSION}.jar"
    return jar if jar.is_file() else None


def fetched_jar() -> Path:
    """Fetch the jar with Maven. Raises CannotGenerate."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotGenerate(
            f"no Maven (mvn) is in the search path: install it, or name kafka-clients {KAFKA_VERSION} by --jar"
        )
    artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
    command = [maven, "-B", "-q", "-Dstyle.color=never", _PLUGIN, artifact, f"-DoutputDirectory={CACHE}"]
    CACHE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False, timeout=_FETCH_S_MAX)
    jar = cached_jar()
    if done.returncode or jar is None:
        raise CannotGenerate(f"Maven could not fetch the jar: {(done.stdout + done.stderr).strip()[:2000]}")
    return jar


def generated(jar: Path) -> Mapping[str, str]:
    """Return the files of the package by name. Raises CannotGenerate for any other jar."""
    if hashlib.sha256(jar.read_bytes()).hexdigest() != JAR_SHA256:
        raise CannotGenerate(f"{jar} is not the kafka-clients {KAFKA_VERSION} that this generator was written for")
    messages = read_messages(jar, API_KEYS)
    files = {f"{message.module}.py": message_module(message, KAFKA_VERSION) for message in messages}
    files["tables.py"] = table_module(messages, KAFKA_VERSION)
    return {"__init__.py": package_module(digest_of(files)), **files}


def package_module(modules_sha256: str) -> str:
    """Return the source of the package itself, which records the digests."""
    return (
        HEAD.format(version=KAFKA_VERSION)
        + f"# Digests, which `make check` compares.\n# generator: {generator_digest()}\n# modules: {modules_sha256}\n"
        + '"""Codecs of the messages of Kafka\'s protocol: a module for each request and response, and `tables`."""\n'
    )


def generator_digest() -> str:
    """Return the digest of this generator."""
    return digest_of({path.name: path.read_text() for path in Path(__file__).parent.glob("*.py")})


def digest_of(files: Mapping[str, str]) -> str:
    """Return a digest of names and contents."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0{files[name]}".encode())
    return digest.hexdigest()


def stale_digests(target: Path = TARGET) -> list[str]:
    """Return the recorded digests that no longer hold, in words."""
    held = _held(target)
    package = held.pop("__init__.py", "")
    problems = []
    if f"# generator: {generator_digest()}\n" not in package:
        problems.append("the generator of Kafka's messages changed since it ran")
    if f"# modules: {digest_of(held)}\n" not in package:
        problems.append("a generated module of Kafka's messages was changed by hand")
    return problems


def differences(jar: Path, target: Path = TARGET) -> list[str]:
    """Return the files that are not as they are generated, in words. Raises CannotGenerate."""
    held, wanted = _held(target), generated(jar)
    return [f"{name} is not up to date" for name in sorted(held.keys() | wanted) if held.get(name) != wanted.get(name)]


def write(files: Mapping[str, str], target: Path = TARGET) -> None:
    """Make the package these files and no others."""
    target.mkdir(exist_ok=True)
    for name in _held(target).keys() - files:
        (target / name).unlink()
    for name, text in files.items():
        (target / name).write_text(text)


def _held(target: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in target.glob("*.py")}


if __name__ == "__main__":
    sys.exit(main())
