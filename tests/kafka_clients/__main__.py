"""Run suites one after the other, each on a server of its own: `python -m tests.kafka_clients [--only NAME ...]`."""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.harness.server_process import ServerProcess
from tests.kafka_clients.cache import ROOT, Cache, CannotRunError
from tests.kafka_clients.results import (
    Case,
    Expectations,
    Outcome,
    Run,
    SuiteResult,
    merged,
    read_expectations,
    table,
    unexpected_failures,
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
    results: list[SuiteResult] = []
    is_good = True
    for suite in wanted:
        print(f"{suite.name}: {suite.client} {suite.version}", flush=True)
        result = _result(suite)
        results.append(result)
        is_good &= _report(result, expectations)
        if arguments.json:
            _write(arguments.json, results)
    print(table(results))
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
    with tempfile.TemporaryDirectory(prefix="kafka-clients-") as directory:
        folder = Path(directory)
        settings = [part for each in (*_SETTINGS, *suite.settings) for part in ("--set", each)]
        with ServerProcess(folder / "data", *settings) as server:
            address = server.read_until(_LISTENER)["address"]
            try:
                cases = suite.run(Place(address=address, cache=Cache(), directory=folder))
            except CannotRunError as error:
                cases = [Case("start of the suite", Outcome.FAILED, str(error))]
            if not server.is_running:
                cases.append(Case("life of the server", Outcome.FAILED, server.output[-500:]))
    return SuiteResult(
        suite=suite.name,
        client=suite.client,
        version=suite.version,
        content=suite.content,
        cases=tuple(cases),
        duration_s=round(time.monotonic() - began),
    )


def _report(result: SuiteResult, expectations: Expectations) -> bool:
    """Print the failures of a suite, and return True if all were expected."""
    unexpected = unexpected_failures(result, expectations)
    numbers = ", ".join(f"{len(result.having(outcome))} {outcome}" for outcome in Outcome)
    print(f"  {numbers}, {result.duration_s} s")
    for case in result.having(Outcome.FAILED):
        reason = expectations.reason_for(result.suite, case.name)
        print(f"  {'FAILED' if reason is None else 'expected'}: {case.name}: {reason or case.detail}")
    return not unexpected


def _write(path: Path, results: list[SuiteResult]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    older = msgspec.json.decode(path.read_bytes(), type=Run) if path.exists() else None
    now = datetime.datetime.now(datetime.UTC).date().isoformat()
    run = merged(older, Run(date=now, commit=commit, suites=tuple(results)))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
