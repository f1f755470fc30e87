"""`txnctl probe`: periodic end-to-end test of transactions."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import DEFAULT_SERVER, SERVER_WAIT, Output, Server, parse_duration_ms
from txnctl.output import OutputFormat, Row, RowStream, duration, moment, print_note

if TYPE_CHECKING:
    from coordinator_server.metrics.endpoint import MetricsEndpoint
    from coordinator_server.metrics.probe import ProbeMetrics
    from txnctl.commands.probing import StepResult

DEFAULT_TOPIC: Final = "txn-probe"
DEFAULT_INTERVAL_MS: Final = 5_000
DEFAULT_TIMEOUT_MS: Final = 5_000


def probe(
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Topic to write to; created with one partition if missing.")
    ] = DEFAULT_TOPIC,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="Transactional id of the probe. Two probes need two ids and two topics. [default: txn-probe-HOST]",
            show_default=False,
        ),
    ] = None,
    interval_ms: Annotated[
        int,
        typer.Option(
            "--interval",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Pause between two rounds. [default: 5s]",
        ),
    ] = DEFAULT_INTERVAL_MS,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="End after N rounds. [default: no limit]")
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            "--metrics-listen", metavar="HOST:PORT", help="Address to serve /metrics of the probe to Prometheus."
        ),
    ] = None,
    timeout_ms: Annotated[
        int,
        typer.Option(
            "--timeout",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Time after which a step has failed. [default: 5s]",
        ),
    ] = DEFAULT_TIMEOUT_MS,
    server: Server = DEFAULT_SERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Run small transactions as a client would, and time each step.

    A round commits one transaction, aborts another, and reads both back as a committed reader. Rounds follow each other
    every few seconds until the probe is interrupted. Each round leaves two records and two markers in its topic. Ends
    with status 1 if a round failed.
    """
    from coordinator_client.transport.transport import UNARY
    from coordinator_runtime.clock import SystemClock
    from coordinator_server.metrics.probe import ProbeMetrics
    from txnctl.commands.probing import Probe, ProbeStep, keep_probing

    remote.check_address(server)
    if SERVER_WAIT.get():
        remote.check_reachable(server)
    stopped = threading.Event()
    clock, metrics = SystemClock(), ProbeMetrics(tuple(ProbeStep))
    endpoint = None if metrics_listen is None else _published(metrics, metrics_listen)
    lines = RowStream(output, _line)
    failed = rounds = 0
    try:
        with (
            _signals_set(stopped),
            remote.failures_in_words(server),
            sdk.Connection(server, client_id="txnctl-probe", transport=UNARY, tls=remote.tls_for(server)) as connection,
        ):
            probe = Probe(
                connection,
                clock,
                topic=topic,
                transactional_id=transactional_id or f"txn-probe-{socket.gethostname()}",
                timeout_ms=timeout_ms,
            )
            for results in keep_probing(probe.round, stopped.wait, interval_ms=interval_ms, count=count):
                rounds += 1
                failed += _note(metrics, results, clock.wall_ms())
                lines.add(_row(results, clock.wall_ms()))
                lines.flush()
    finally:
        if endpoint is not None:
            endpoint.close()
    if failed:
        raise CommandFailed(ExitStatus.PROBLEM, f"{failed} of {rounds} rounds failed")


@contextmanager
def _signals_set(stopped: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the pause between two rounds, but not a round."""
    before = {
        number: signal.signal(number, lambda _number, _frame: stopped.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _published(metrics: ProbeMetrics, listen: str) -> MetricsEndpoint:
    """Serve the metrics. Raises CommandFailed if the address cannot be used."""
    from coordinator_server.addresses import parse_address
    from coordinator_server.metrics.endpoint import listen_for_scrapes

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise CommandFailed(ExitStatus.USAGE, f"--metrics-listen: {error}") from error
    try:
        endpoint = listen_for_scrapes(address.host, address.port)
    except OSError as error:
        raise CommandFailed(
            ExitStatus.ADDRESS_REFUSED,
            f"--metrics-listen: cannot listen on {address} ({error.strerror}): name a free port of this machine",
        ) from error
    endpoint.publish(metrics.registry)
    print_note(f"metrics at http://{address.host}:{endpoint.port}/metrics")
    return endpoint


def _note(metrics: ProbeMetrics, results: list[StepResult], now_ms: int) -> bool:
    """Count a round. Returns True if it failed."""
    failed_step = None
    for result in results:
        if result.failure is None:
            metrics.step(result.step, result.elapsed_us)
        else:
            failed_step = result.step
    metrics.ended(failed_step, now_ms)
    return failed_step is not None


def _row(results: list[StepResult], now_ms: int) -> Row:
    last = results[-1]
    return {
        "wall_ms": now_ms,
        "result": "ok" if last.failure is None else "failed",
        "steps_ms": {result.step.value: result.elapsed_us // 1_000 for result in results},
        "failure": None if last.failure is None else {"step": last.step.value, "message": last.failure},
    }


def _line(row: Row) -> str:
    steps = row["steps_ms"]
    assert isinstance(steps, dict)
    took = "  ".join(f"{step} {duration(elapsed_ms)}" for step, elapsed_ms in steps.items())
    failure = row["failure"]
    why = f"  FAILED in {failure['step']}: {failure['message']}" if isinstance(failure, dict) else ""
    return f"{moment(row['wall_ms'])}  {row['result']}  {took}{why}"
