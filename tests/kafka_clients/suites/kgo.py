"""The tests of franz-go's client package, which are part of its module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.kafka_clients.cache import Cache, build_step, program
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Finished, Place, Suite

_VERSION: Final = "1.22.3"
_MODULE: Final = f"github.com/twmb/franz-go@v{_VERSION}"
_RECORDS: Final = 3_000
_RUN_S_MAX: Final = 1_500
_RESULT: Final = re.compile(r"^ *--- (?P<verdict>PASS|FAIL|SKIP): (?P<name>\S+) \(", re.MULTILINE)
_OUTCOMES: Final = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


def _tests(cache: Cache) -> Path:
    """Return the folder of the package with its test program, `kgo.test`. Raises: CannotRunError."""

    def build(target: Path) -> None:
        go = program("go")
        (target / "go.mod").write_text("module fetching\n")
        build_step([go, "mod", "download", "-modcacherw", _MODULE], target)
        build_step(["sh", "-c", f'cp -r "$({go} env GOMODCACHE)/{_MODULE}" franz && chmod -R u+w franz'], target)
        build_step([go, "test", "-c", "-o", "kgo.test", "."], target / "franz" / "pkg" / "kgo")

    return cache.once(f"kgo-{_VERSION}", [], build) / "franz" / "pkg" / "kgo"


def cases_of_go(finished: Finished) -> list[Case]:
    """Return a case for each top-level test and subtest in the output of `go test -v`."""
    found = [Case(each["name"], _OUTCOMES[each["verdict"]]) for each in _RESULT.finditer(finished.output)]
    if finished.status is None or (finished.status != 0 and all(each.outcome is not Outcome.FAILED for each in found)):
        found.append(Case("end of the program", Outcome.FAILED, finished.last_line()))
    return found


def _run(place: Place) -> list[Case]:
    folder = _tests(place.cache)
    environment = {
        "KGO_SEEDS": place.address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(_RECORDS),
    }
    command = ["./kgo.test", "-test.v", f"-test.timeout={_RUN_S_MAX}s"]
    return cases_of_go(place.run(command, timeout_s=_RUN_S_MAX + 60, environment=environment, folder=folder))


SUITE: Final = Suite(
    "kgo",
    "franz-go",
    _VERSION,
    "all tests of its package kgo, subtests counted",
    _run,
    # A test creates a topic with batches of up to 10 MiB.
    settings=("batch_bytes_max=12582912",),
)
