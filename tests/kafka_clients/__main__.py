"""Run suites one after the other, each on a server of its own: `python -m tests.kafka_clients [--only NAME ...]`."""

from __future__ import annotations

import argparse
import datetime
import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.harness.server_process import ServerFailed, ServerProcess
from tests.kafka_clients.cache import ROOT, Cache, CannotRunError
from tests.kafka_clients.results import (
    Case,
    Expectations,
    Outcome,
    Record,
    SuiteResult,
    merged,
    read_expectations,
    read_records,
    record,
    table,
    unexpected_failures,
    write_records,
)
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites import SUITES

_LISTENER: Final = re.compile(r"Kafka's protocol on (?P<address>\S+:\d+)")
_SETTINGS: Final = ("kafka_listen=127.0.0.1:0", "group_session_timeout_ms_min=100")


def main() -> int:
    """Return 0 if every failure is an expected one, else 1."""
    arguments = _arguments()
    if arguments.list:
        for each in SUITES:
            print(f"{each.name:<20} {each.client} {each.version}: {each.content}")
        return 0
    wanted = [each for each in SUITES if not arguments.only or each.name in arguments.only]
    expectations = read_expectations()
    records: list[Record] = []
    commit = _commit()
    is_good = True
    for suite in wanted:
        print(f"{suite.name}: {suite.client} {suite.version}", flush=True)
        result = _result(suite)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        records.append(record(result, date=today, commit=commit))
        is_good &= _report(result, expectations)
        if arguments.json:
            write_records(arguments.json, merged(read_records(arguments.json), records[-1:]))
    print(table(records))
    return 0 if is_good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_clients", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only print the suites")
    names = [each.name for each in SUITES]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="run these suites")
    parser.add_argument("--json", type=Path, metavar="FILE", help="put the results into this file, beside its others")
    return parser.parse_args()


def _result(suite: Suite) -> SuiteResult:
    """Run a suite on a new server. A suite that cannot run has one failed case that says why."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-clients-", ignore_cleanup_errors=True) as directory:
        folder = Path(directory)
        numbers = itertools.count()

        def another_server(settings: Sequence[str] = ()) -> AbstractContextManager[str]:
            return _server(folder / f"data-{next(numbers)}", (*suite.settings, *settings))

        with another_server() as address:
            try:
                cases = suite.run(Place(address, Cache(), folder, another_server))
            except CannotRunError as error:
                cases = [Case("start of the suite", Outcome.FAILED, str(error))]
    return SuiteResult(
        suite=suite.name,
        client=suite.client,
        version=suite.version,
        content=suite.content,
        cases=tuple(cases),
        duration_s=round(time.monotonic() - began),
    )


@contextmanager
def _server(data: Path, settings: Sequence[str]) -> Iterator[str]:
    """Run a server of this tree. Raises: ServerFailed if it ends before its suite."""
    arguments = [part for each in (*_SETTINGS, *settings) for part in ("--set", each)]
    with ServerProcess(data, *arguments) as server:
        yield server.read_until(_LISTENER)["address"]
        if not server.is_running:
            raise ServerFailed(f"the server ended:\n{server.output[-1_000:]}")


def _report(result: SuiteResult, expectations: Expectations) -> bool:
    """Print the failures of a suite, and return True if all were expected."""
    unexpected = unexpected_failures(result, expectations)
    numbers = ", ".join(f"{len(result.having(outcome))} {outcome}" for outcome in Outcome)
    print(f"  {numbers}, {result.duration_s} s")
    for case in result.having(Outcome.FAILED):
        reason = expectations.reason_for(result.suite, case.name)
        print(f"  {'FAILED' if reason is None else 'expected'}: {case.name}: {reason or case.detail}")
    return not unexpected


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
