"""librdkafka's numbered tests, which the crate rdkafka-sys ships with its sources.

A case is a number. Each runs alone, since a failed test leaves threads behind that fail the next ones, too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.kafka_clients.cache import CACHE, TOOLCHAINS, Cache, CannotRunError, build_step, program
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Finished, Place, Suite
from tests.kafka_clients.suites.java import class_path

_MANIFEST: Final = TOOLCHAINS / "librdkafka" / "Cargo.toml"
_CRATE: Final = re.findall(r'rdkafka-sys = "=(\S+)"', _MANIFEST.read_text())[0]
_VERSION: Final = "2.12.1"
_CONFIGURE: Final = ("--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd")
_NUMBER_S_MAX: Final = 600
_SCRIPTS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
"""Programs of a Kafka installation that some tests start."""
_LINE: Final = re.compile(r"\|\s*(?P<name>\d{4}_\w+)\s*\|\s*(?P<verdict>PASSED|FAILED|SKIPPED) \|")
_COLOR: Final = re.compile(r"\x1b\[\d*m")

NUMBERS: Final = (
    *("0001", "0002", "0005", "0008", "0011", "0012", "0013", "0014", "0015", "0017", "0018", "0019", "0020", "0021"),
    *("0022", "0026", "0028", "0029", "0030", "0031", "0033", "0034", "0036", "0038", "0039", "0040", "0041", "0042"),
    *("0044", "0045", "0046", "0048", "0049", "0050", "0051", "0052", "0053", "0054", "0055", "0056", "0057", "0059"),
    *("0060", "0061", "0063", "0064", "0065", "0067", "0068", "0069", "0070", "0073", "0074", "0075", "0076", "0077"),
    *("0081", "0082", "0083", "0084", "0085", "0086", "0088", "0089", "0090", "0091", "0092", "0093", "0094", "0098"),
    *("0099", "0100", "0102", "0103", "0107", "0109", "0110", "0111", "0112", "0113", "0114", "0118", "0120", "0122"),
    *("0123", "0125", "0127", "0129", "0130", "0132", "0137", "0140", "0149", "0151", "0153"),
)
"""The tests that talk to a broker. The others need none, or a mock of librdkafka's own."""


def _sources() -> Path:
    """Fetch the crate, and return the folder of librdkafka's sources in it. Raises: CannotRunError."""
    folder = CACHE / "crate"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    shutil.copy(_MANIFEST, folder / "Cargo.toml")
    (folder / "src" / "lib.rs").touch()
    build_step([program("cargo"), "fetch", "--quiet"], folder)
    told = subprocess.run(
        [program("cargo"), "metadata", "--format-version", "1"], cwd=folder, capture_output=True, check=True
    )
    for package in json.loads(told.stdout)["packages"]:
        if package["name"] == "rdkafka-sys":
            return Path(package["manifest_path"]).parent / "librdkafka"
    raise CannotRunError("cargo did not fetch rdkafka-sys")


def _tests(cache: Cache) -> Path:
    """Return the folder of librdkafka with its built test runner. Raises: CannotRunError."""

    def build(target: Path) -> None:
        folder = target / "librdkafka"
        shutil.copytree(_sources(), folder)
        build_step(["./configure", *_CONFIGURE], folder)
        build_step([program("make"), "-j2", "libs"], folder)
        build_step([program("make"), "-C", "tests", "build"], folder)

    return cache.once("librdkafka", [_MANIFEST], build) / "librdkafka"


def _installation(place: Place) -> Path:
    """Make a folder like that of an installed Kafka."""
    folder = place.directory / "kafka"
    (folder / "bin").mkdir(parents=True)
    for name, class_name in _SCRIPTS.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec java -Xmx200m -cp "{class_path(place.cache)}" {class_name} "$@"\n')
        script.chmod(0o755)
    return folder


def _run(place: Place) -> list[Case]:
    folder = _tests(place.cache)
    # The runner reads this file in its working directory, so tests run in a folder of the suite.
    work = place.directory / "tests"
    work.mkdir()
    (work / "test.conf").write_text(f"bootstrap.servers={place.address}\ntest.timeout.multiplier=2\n")
    environment = {
        "KAFKA_PATH": str(_installation(place)),
        "BROKERS": place.address,
        "TEST_KAFKA_VERSION": "4.0.0",
        "LD_LIBRARY_PATH": f"{folder / 'src'}:{folder / 'src-cpp'}",
    }
    cases = []
    for number in NUMBERS:
        finished = place.run(
            [folder / "tests" / "test-runner", "-p1"],
            timeout_s=_NUMBER_S_MAX,
            environment=environment | {"TESTS": number},
            folder=work,
        )
        cases.append(_case(number, finished))
    return cases


def _case(number: str, finished: Finished) -> Case:
    output = _COLOR.sub("", finished.output)
    found = _LINE.search(output)
    if finished.status == 0 and found is not None:
        outcome = Outcome.SKIPPED if found["verdict"] == "SKIPPED" else Outcome.PASSED
        return Case(found["name"], outcome)
    name = re.search(rf"\[({number}_\w+) ", output)
    failure = re.search(r"### Test .*?###\n(?P<text>.*)", output)
    text = failure["text"] if failure is not None else finished.last_line()
    return Case(number if name is None else name[1], Outcome.FAILED, text[:200])


SUITE: Final = Suite(
    "librdkafka",
    "librdkafka",
    _VERSION,
    f"{len(NUMBERS)} of its numbered tests, from the crate rdkafka-sys {_CRATE}",
    _run,
    settings=("kafka_auto_create_topics=true", "kafka_auto_create_partitions=4"),
)
