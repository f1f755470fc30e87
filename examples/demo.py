"""Loads flights through crashes, and checks that Spark reads each of them once.

    .venv/bin/python examples/demo.py          all 336,776 flights; `make demo` does this
    .venv/bin/python examples/demo.py --rows 20000

The report goes to stdout, progress to stderr. Exit status: 0 = every row is right, 1 = something differs or failed, 130
= interrupted. No process is left running. Of the directory, only the server's log is left after a failure, and all of
it with --keep.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.demo_parts.failures import DemoFailed, Differs
from examples.demo_parts.interrupts import Interrupts
from examples.demo_parts.plan import PARTITIONS, ROWS_MIN, TOPIC, plan
from examples.demo_parts.server import Server
from scripts.java import java_problem
from txnctl.commands.page_process import MISSING, PageProcess, is_page_installed

INTERRUPTED: Final = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    asked = parser(
        "demo.py",
        "Loads flights in transactions while producers and the server are killed, reads them with Spark and compares"
        " every row with the data set.",
    ).parse_args(arguments)
    problem = java_problem()
    if problem:
        return fail(problem)
    # While the server is dead, gRPC would write lines of its own to stderr. They are expected here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    interrupts = Interrupts()
    directory = Path(tempfile.mkdtemp(prefix="txn-demo-"))
    is_failure = True
    server = Server(directory)
    try:
        run(server, directory, asked.rows, interrupts)
        is_failure = False
    except KeyboardInterrupt:
        is_failure = False
        tell("interrupted")
        return INTERRUPTED
    except DemoFailed as error:
        return fail(str(error))
    finally:
        server.stop()
        tidy(directory, [server.log], is_kept=asked.keep, is_failure=is_failure)
    return 0


def run(server: Server, directory: Path, rows: int, interrupts: Interrupts) -> None:
    """Run the demo beside a page. Raises Differs, and every other error of the demo."""
    tell(f"server started in {server.start():.1f} s, log {server.log}")
    page = page_of(server.endpoint)
    try:
        load_and_compare(server, directory, rows, interrupts)
    finally:
        if page is not None:
            page.stop()


def page_of(endpoint: str) -> PageProcess | None:
    """Start the page for the browser, which tells its address; None without the packages that it needs."""
    if not is_page_installed():
        tell(f"no page for the browser: {MISSING}")
        return None
    return PageProcess(endpoint, "127.0.0.1:0", sys.stderr)


def load_and_compare(server: Server, directory: Path, rows: int, interrupts: Interrupts) -> None:
    """Load, read, compare, report. Raises as `run`."""
    from coordinator_client.admin.admin import Admin
    from examples.demo_parts.load import run_load
    from examples.demo_parts.reading import read_and_compare, spark_session
    from examples.demo_parts.report import problems, report, verdict

    with Admin(server.endpoint, client_id="demo") as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    loaded = run_load(server, plan(rows, server.endpoint), tell)
    tell("loaded; starting Spark")
    with spark_session(directory, interrupts) as spark:
        tell("Spark reads and compares")
        result = read_and_compare(spark, server.endpoint, rows, directory / "flights.parquet")
    found = problems(rows, loaded, result)
    status = server.stop()
    if status:
        found.append(f"the server ended with status {status} when it was asked to stop")
    if found:
        raise Differs("\n".join(found))
    print(report(loaded, server, result))
    print(verdict(rows, result), flush=True)


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a demo's command line."""
    from examples.demo_parts.flights import ROWS

    arguments = argparse.ArgumentParser(prog=program, description=description)
    arguments.add_argument(
        "--rows", type=_rows, default=ROWS, metavar="N", help=f"only the first N flights, {ROWS_MIN:,} at least"
    )
    arguments.add_argument("--keep", action="store_true", help="keep the directory with everything in it")
    return arguments


def _rows(text: str) -> int:
    from examples.demo_parts.flights import ROWS

    if not text.isdecimal() or not ROWS_MIN <= int(text) <= ROWS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {ROWS_MIN} to {ROWS}")
    return int(text)


def tidy(directory: Path, logs: Sequence[Path], *, is_kept: bool, is_failure: bool) -> None:
    """Remove the directory, or after a failure all of it except the logs."""
    if is_kept:
        tell(f"kept {directory}")
        return
    logs = [log for log in logs if log.exists()]
    if not is_failure or not logs:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
    tell(f"logs: {', '.join(map(str, logs))}")


def fail(reason: str) -> int:
    """Print the reason of a failure; return the exit status."""
    for line in reason.splitlines():
        print(f"demo: FAILED, {line}", file=sys.stderr, flush=True)
    return 1


_began = time.monotonic()


def tell(line: str) -> None:
    """Print the progress of the demo."""
    print(f"demo: {time.monotonic() - _began:5.1f} s  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
