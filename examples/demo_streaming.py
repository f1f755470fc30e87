"""Exactly once from topic to topic: Spark copies the flights while it and the server are killed repeatedly.

    .venv/bin/python examples/demo_streaming.py          all 336,776 flights; `make demo-streaming` does this
    .venv/bin/python examples/demo_streaming.py --rows 20000

A producer writes the flights to one topic, in transactions, some of which it aborts. A Spark stream copies them to
another topic. Meanwhile an executor is killed, then the server, then the driver with all its processes. This is done
twice. At the end every row of the second topic is compared with the data set.

The report goes to stdout, progress to stderr. Exit status: 0 = every row is there, once, and right; 1 = something
differs or failed; 130 = interrupted. No process is left running. Of the directory, only the logs are left after a
failure, and all of it with --keep.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from examples.demo import INTERRUPTED, fail, parser, tell, tidy
from examples.demo_parts.failures import DemoFailed, Differs, LoadFailed, StreamFailed
from examples.demo_parts.interrupts import Interrupts
from examples.demo_parts.server import Server
from examples.demo_parts.stream import StreamJob
from scripts.java import java_problem

SOURCE: Final = "departures"
TARGET: Final = "departures-copied"
PARTITIONS: Final = 4
ROWS_PER_TRANSACTION: Final = 2_000
ABORT_EVERY: Final = 10
"""One transaction in this many is aborted. The next one writes its rows again."""
ROUNDS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    asked = parser("demo_streaming.py", "Copies flights from topic to topic with Spark while everything is killed.")
    options: argparse.Namespace = asked.parse_args(arguments)
    problem = java_problem()
    if problem:
        return fail(problem)
    # While the server is dead, gRPC would write lines of its own to stderr. They are expected here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    Interrupts()
    directory = Path(tempfile.mkdtemp(prefix="txn-demo-"))
    is_failure = True
    server = Server(directory)
    job = StreamJob(directory, server.endpoint, SOURCE, TARGET, options.rows)
    try:
        run(server, job, options.rows)
        is_failure = False
    except KeyboardInterrupt:
        is_failure = False
        tell("interrupted")
        return INTERRUPTED
    except DemoFailed as error:
        return fail(str(error))
    finally:
        job.kill()
        server.stop()
        tidy(directory, [server.log, job.log], is_kept=options.keep, is_failure=is_failure)
    return 0


def run(server: Server, job: StreamJob, rows: int) -> None:
    """Load, copy, kill, compare, report. Raises Differs, and every other error of the demo."""
    from coordinator_client import Admin, read
    from examples.demo_parts.compared import compare

    tell(f"server started in {server.start():.1f} s, log {server.log}")
    with Admin(server.endpoint, client_id="demo") as admin:
        for topic in (SOURCE, TARGET):
            admin.create_topic(topic, PARTITIONS)
    loading = Loading(server.endpoint, rows, on_failure=job.kill)
    job.start()
    loading.thread.start()
    tell(f"the stream starts, log {job.log}")
    try:
        for _ in range(ROUNDS):
            _kill_everything_once(server, job)
    except StreamFailed:
        # If the load has failed, the stream had nothing to copy.
        loading.check()
        raise
    loading.join()
    tell("everything is loaded; the stream is killed once more, and then goes on to the end")
    job.kill()
    job.finish()
    tell("every row is compared")
    matching, differences = compare(read(TARGET, server.endpoint), rows)
    status = server.stop()
    if status:
        differences.append(f"the server ended with status {status} when it was asked to stop")
    if differences:
        raise Differs("\n".join(differences))
    print(
        f"killed: {ROUNDS} executors, {ROUNDS} times the server, {ROUNDS + 1} times the driver;"
        f" {loading.aborted_rows} aborted rows were never copied"
    )
    print(f"demo-streaming: OK, {matching} of {rows} flights copied once, 0 missing, 0 duplicated", flush=True)


def _kill_everything_once(server: Server, job: StreamJob) -> None:
    job.await_micro_batches(1)
    tell("an executor is killed")
    job.kill_an_executor()
    job.await_micro_batches(1)
    tell("the server is killed")
    server.kill()
    tell(f"and is back after {server.start():.1f} s")
    job.await_micro_batches(1)
    tell("the driver is killed, with its executors")
    job.kill()
    job.start()


class Loading:
    """Writes the flights in transactions, each over all partitions, in a thread."""

    def __init__(self, endpoint: str, rows: int, on_failure: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._on_failure = on_failure
        self._rows = rows
        self._failure: Exception | None = None
        self.aborted_rows = 0
        self.thread = threading.Thread(target=self._load, daemon=True)

    def join(self) -> None:
        """Return when all flights are written. Raises: LoadFailed."""
        self.thread.join()
        self.check()

    def check(self) -> None:
        """Raise LoadFailed if the flights cannot be written."""
        if self._failure is not None:
            raise LoadFailed(f"the flights could not be written: {self._failure}") from self._failure

    def _load(self) -> None:
        from coordinator_client import Producer

        try:
            with Producer(self._endpoint, transactional_id="departures") as producer:
                for number, first in enumerate(range(1, self._rows + 1, ROWS_PER_TRANSACTION)):
                    if number % ABORT_EVERY == ABORT_EVERY // 2:
                        self.aborted_rows += self._write(producer, first, is_aborted=True)
                    self._write(producer, first)
        except Exception as failure:  # noqa: BLE001  raised again by `check`
            self._failure = failure
            self._on_failure()

    def _write(self, producer: object, first: int, *, is_aborted: bool = False) -> int:
        """Write one transaction, and return its number of rows.

        If it was aborted, or its outcome is unknown, because the server was killed, it is written again."""
        from coordinator_client import Producer
        from coordinator_client.errors import Abortable
        from examples.demo_parts.flights import records

        assert isinstance(producer, Producer)
        flights = [*records(first, min(first + ROWS_PER_TRANSACTION, self._rows + 1))]
        while True:
            try:
                with producer.transaction() as transaction:
                    for flight in flights:
                        transaction.send(SOURCE, flight.value, key=flight.key)
                    if is_aborted:
                        transaction.flush()
                        transaction.abort()
            except Abortable:
                continue
            return len(flights)


if __name__ == "__main__":
    sys.exit(main())
