"""librdkafka's numbered tests, which the crate rdkafka-sys ships with its sources.

Several tests can have one number. Each number runs alone, since a failed test leaves threads behind that fail the next
ones, too. What the tests print stays in the cache, in `librdkafka-output`.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.kafka_clients.cache import CACHE, ROOT, TOOLCHAINS, Cache, CannotRunError, build_step, program
from tests.kafka_clients.results import Case, Outcome, read_expectations
from tests.kafka_clients.suite import Finished, Place, Suite
from tests.kafka_clients.suites.java import RELEASE, class_path, run_class

_FOLDER: Final = TOOLCHAINS / "librdkafka"
_ONE_REPLICA: Final = Path(__file__).parent.parent / "programs" / "one_replica.c"
_MANIFEST: Final = _FOLDER / "Cargo.toml"
_CRATE: Final = re.findall(r'rdkafka-sys = "=(\S+)"', _MANIFEST.read_text())[0]
_VERSION: Final = "2.12.1"
_CONFIGURE: Final = ("--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd")
_NUMBER_S_MAX: Final = 1_200
_STEP_S_MAX: Final = 240
_SCRIPTS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-run-class.sh": "",
}
"""Programs of a Kafka installation that some tests start, with their classes."""
_WITH_ACLS: Final = ("0109_auto_create_topics", "0115_producer_auth", "0119_consumer_auth")
"""Tests that deny something to everybody, so they need a server with ACLs."""
_WITH_SASL: Final = ("0135_sasl_credentials", "0142_reauthentication")
_OF_GROUPS: Final = (
    *("0018", "0026", "0029", "0030", "0033", "0034", "0045", "0050", "0051", "0056", "0061", "0069", "0081", "0084"),
    *("0089", "0091", "0093", "0098", "0102", "0109", "0112", "0113", "0118", "0122", "0130", "0132", "0137", "0140"),
    "0153",
)
"""Numbers of tests with groups."""
_SASL: Final = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\n"
_TEST: Final = re.compile(r"^    _TEST\((?P<name>\d{4}_\w+)(?P<rest>.*?)(?=^    _TEST|^\};)", re.MULTILINE | re.DOTALL)
_WITHOUT_BROKER: Final = re.compile(r"TEST_F_(LOCAL|MANUAL)")
_SCENARIO: Final = re.compile(r'\.scenario = "(\w+)')
_LINE: Final = re.compile(r"\|\s*(?P<name>\d{4}_\w+)\s*\|\s*(?P<verdict>PASSED|FAILED|SKIPPED) \|[^|]*\|(?P<text>.*)")
_ENDED: Final = re.compile(r"=+ Test (?P<name>\d{4}_\w+) (?P<verdict>PASSED|FAILED|SKIPPED) =+(?P<text>)")
"""Line at the end of each test. There is no summary after a crash."""
_COLOR: Final = re.compile(r"\x1b\[[\d;]*m")


class NumberedTest(msgspec.Struct, frozen=True):
    """A test in the table of the runner that talks to a broker, and the scenario that it wants."""

    name: str
    scenario: str

    @property
    def number(self) -> str:
        return self.name[:4]


_IN_PARTS: Final = NumberedTest("0081_admin", "default")
"""A test of all admin calls, which would end at its first failure."""
_PART: Final = re.compile(r"^(?:static void )?(?P<name>do_test_\w+)\((?:(?!^\}).)*?SUB_TEST", re.MULTILINE | re.DOTALL)


def numbered_tests(source: str) -> list[NumberedTest]:
    """Return the tests in the source of the runner, without those that need no broker, or a person."""
    return [
        NumberedTest(each["name"], (_SCENARIO.findall(each["rest"]) or ["default"])[0])
        for each in _TEST.finditer(source)
        if not _WITHOUT_BROKER.search(each["rest"])
    ]


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


def _headers_of_rapidjson(target: Path) -> Path:
    """Fetch the source of a Python package that contains RapidJSON, and return the folder of its headers."""
    pip: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    source: list[str | Path] = ["--no-binary", "python-rapidjson", "--dest", target]
    build_step([*pip, *source, "-r", _FOLDER / "requirements.txt"])
    (archive,) = target.glob("python_rapidjson-*.tar.gz")
    shutil.unpack_archive(archive, target, filter="data")
    return target / archive.name.removesuffix(".tar.gz") / "rapidjson" / "include"


def _tests(cache: Cache) -> Path:
    """Return the folder of librdkafka with its built test runner. Raises: CannotRunError."""

    def build(target: Path) -> None:
        folder = target / "librdkafka"
        shutil.copytree(_sources(), folder)
        build_step(["./configure", *_CONFIGURE, f"--CPPFLAGS=-I{_headers_of_rapidjson(target)}"], folder)
        build_step([program("make"), "-j2", "libs"], folder)
        build_step([program("make"), "-C", "tests", "build"], folder)

    return cache.once("librdkafka", [_FOLDER], build) / "librdkafka"


def _one_replica(place: Place) -> Path:
    """Build the library that gives topics one replica."""
    library = place.directory / "one_replica.so"
    build_step([program("cc"), "-shared", "-fPIC", "-o", library, _ONE_REPLICA])
    return library


def _installation(place: Place) -> Path:
    """Make a folder like that of an installed Kafka."""
    folder = place.directory / "kafka"
    (folder / "bin").mkdir(parents=True)
    for name, class_name in _SCRIPTS.items():
        script = folder / "bin" / name
        jars = f"$CLASSPATH:{class_path(place.cache)}"
        script.write_text(f'#!/bin/sh\nexec java -Xmx200m -cp "{jars}" {class_name} "$@"\n')
        script.chmod(0o755)
    return folder


def _working_directory(place: Place, address: str, tests: Path) -> Path:
    """Make a folder with what tests look for in theirs: a schema, and built programs in Java."""
    folder = place.directory / f"librdkafka-{address.rpartition(':')[2]}" / "tests"
    shutil.copytree(tests / "java", folder / "java")
    (folder / "Makefile").write_text("java:\n.PHONY: java\n")
    files = sorted((folder / "java").glob("*.java"))
    build_step([program("javac"), "--release", RELEASE, "-nowarn", "-cp", class_path(place.cache), *files])
    (folder.parent / "src").symlink_to(tests.parent / "src")
    return folder


class _Runner(msgspec.Struct, frozen=True):
    """The built runner of the tests, with their environment."""

    place: Place
    folder: Path
    """librdkafka's."""
    environment: Mapping[str, str]

    def tests(self) -> list[NumberedTest]:
        return numbered_tests((self.folder / "tests" / "test.c").read_text())

    def cases(self, tests: Sequence[NumberedTest], address: str, settings: str = "") -> Iterator[Case]:
        """Run the numbers of these tests of one scenario, with these settings of their clients. Yield a case for each
        test."""
        work = _working_directory(self.place, address, self.folder / "tests")
        (work / "test.conf").write_text(f"bootstrap.servers={address}\ntest.timeout.multiplier=2\n{settings}")
        output = self.place.cache.directory / "librdkafka-output" / self.environment["TEST_CONSUMER_GROUP_PROTOCOL"]
        output.mkdir(parents=True, exist_ok=True)
        for number, part in self._parts(tests):
            names = [each.name for each in tests if each.number == number]
            environment = {"BROKERS": address, "TEST_SCENARIO": tests[0].scenario, "TESTS": number, "SUBTESTS": part}
            finished = self.place.run(
                [self.folder / "tests" / "test-runner", "-p1", "-L"],
                timeout_s=_NUMBER_S_MAX,
                environment={**self.environment, **{name: value for name, value in environment.items() if value}},
                folder=work,
            )
            (output / f"{names[0]}{part}.log").write_text(finished.output)
            yield from cases_of_number(names, finished, part)

    def _parts(self, tests: Sequence[NumberedTest]) -> Iterator[tuple[str, str]]:
        """Yield numbers, and the parts of the test that runs in parts; an empty part is a whole test."""
        for number in dict.fromkeys(each.number for each in tests):
            if number == _IN_PARTS.number:
                source = (self.folder / "tests" / "0081-admin.c").read_text()
                yield from ((number, part) for part in dict.fromkeys(_PART.findall(source)))
            else:
                yield number, ""


def _runner(place: Place, protocol: str) -> _Runner:
    folder = _tests(place.cache)
    environment = {
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
        "KAFKA_PATH": str(_installation(place)),
        "TEST_KAFKA_VERSION": "4.0.0",
        "LD_LIBRARY_PATH": f"{folder / 'src'}:{folder / 'src-cpp'}",
        "LD_PRELOAD": str(_one_replica(place)),
    }
    return _Runner(place, folder, environment)


def _run(place: Place) -> list[Case]:
    runner = _runner(place, "classic")
    return _cases(runner, [each for each in runner.tests() if not _leaves_out("librdkafka", each.name)])


def _run_of_groups(place: Place) -> list[Case]:
    runner = _runner(place, "consumer")
    return _cases(runner, [each for each in runner.tests() if each.number in _OF_GROUPS])


def _leaves_out(suite: str, name: str) -> bool:
    return any(each.matches(suite, name) for each in read_expectations().not_applicable)


def _cases(runner: _Runner, tests: Sequence[NumberedTest]) -> list[Case]:
    place = runner.place
    special = {*_WITH_ACLS, *_WITH_SASL}
    cases: list[Case] = []
    for scenario, creates in (("default", "true"), ("noautocreate", "false")):
        names = [each for each in tests if each.scenario == scenario and each.name not in special]
        if names:
            with place.another_server([f"kafka_auto_create_topics={creates}"]) as address:
                cases += runner.cases(names, address)
    guarded = [each for each in tests if each.name in special]
    cases += _guarded_cases(runner, guarded) if guarded else ()
    return sorted(cases, key=lambda case: case.name)


def _guarded_cases(runner: _Runner, tests: Sequence[NumberedTest]) -> Iterator[Case]:
    """Run tests on a server with ACLs, which permit everything to callers that show nothing at its first address.

    The second address wants SASL.
    """
    place = runner.place
    tokens = place.directory / "tokens.toml"
    create: list[str | Path] = ["token", "create", tokens, "--id", "admin", "--principal", "User:admin"]
    created = place.run([sys.executable, "-m", "txnctl", *create], timeout_s=_STEP_S_MAX, folder=ROOT)
    token = created.output.split()[0]
    guarded = {"listen": f"127.0.0.1:{_free_port()}", "authentication": "token"}
    settings = (
        f"kafka_listeners={json.dumps([guarded])}",
        f"tokens_file={tokens}",
        "super_users=User:admin",
        "kafka_auto_create_topics=true",
    )
    with place.another_server(settings) as address:
        permitted = _permit_everything(place, guarded["listen"], token)
        if permitted.status != 0:
            yield Case("rules for callers that show nothing", Outcome.FAILED, permitted.last_line())
        yield from runner.cases([each for each in tests if each.name in _WITH_ACLS], address)
        yield from runner.cases(
            [each for each in tests if each.name in _WITH_SASL], guarded["listen"], _SASL + f"sasl.password={token}\n"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _permit_everything(place: Place, address: str, token: str) -> Finished:
    settings = place.directory / "admin.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'sasl.jaas.config={module} required username="admin" password="{token}";\n'
    settings.write_text(_SASL.replace("sasl.username=admin\n", jaas))
    return run_class(
        place,
        "org.apache.kafka.tools.AclCommand",
        *("--bootstrap-server", address, "--command-config", settings),
        *("--add", "--allow-principal", "User:ANONYMOUS", "--operation", "All"),
        *("--topic", "*", "--group", "*", "--transactional-id", "*", "--cluster"),
        timeout_s=_STEP_S_MAX,
    )


def cases_of_number(names: Sequence[str], finished: Finished, part: str = "") -> list[Case]:
    """Return a case for each of these tests, which ran together. One without a verdict did not end."""
    output = _COLOR.sub("", finished.output)
    found = {each["name"]: each for pattern in (_ENDED, _LINE) for each in pattern.finditer(output)}
    failure = re.search(r"### Test .*?###\n(?P<text>.*)", output)
    first_words = failure["text"].strip() if failure is not None else finished.last_line()
    cases = []
    for name in names:
        shown = f"{name} {part}".strip()
        verdict = found[name]["verdict"] if name in found else "FAILED"
        text = found[name]["text"].strip() if name in found else ""
        if verdict == "PASSED":
            cases.append(Case(shown, Outcome.PASSED))
        elif verdict == "SKIPPED":
            cases.append(Case(shown, Outcome.SKIPPED, text[:200]))
        else:
            cases.append(Case(shown, Outcome.FAILED, (text or first_words)[:200]))
    if finished.status != 0 and all(each.outcome is not Outcome.FAILED for each in cases):
        cases.append(Case(f"{names[0][:4]}, end of the program", Outcome.FAILED, finished.last_line()))
    return cases


_CRATE_CONTENT: Final = f"from the crate rdkafka-sys {_CRATE}"
_SETTINGS: Final = ("kafka_auto_create_partitions=4",)
SUITES: Final = (
    Suite(
        "librdkafka",
        "librdkafka",
        _VERSION,
        f"its numbered tests that talk to a broker, {_CRATE_CONTENT}",
        _run,
        settings=_SETTINGS,
    ),
    Suite(
        "librdkafka-consumer",
        "librdkafka, group.protocol=consumer",
        _VERSION,
        f"its numbered tests of groups, {_CRATE_CONTENT}",
        _run_of_groups,
        settings=_SETTINGS,
    ),
)
