"""Measures a store in a bucket: takeovers, openings, requests and their price: `python -m bench.bucket`.

    python -m bench.bucket                                 everything, about a quarter of an hour
    python -m bench.bucket --only takeover --rounds 50     one part

The bucket is the emulator of the tests, in this process, whose answers come late by a fixed time. Programs that put
load on a server run in processes of their own. On a busy machine an owner loses its lease of two seconds, which ends
the measurement with an error. The parts:

- takeover: the owner of a lease of two seconds is killed; time until another transaction commits at the other server
- hand-over: the same after SIGTERM
- opening: time from the lease to serving after kills, and its parts, with a slower bucket
- transactions: processor time of the server for each transaction of 64 producers, beside that of a store on a disk;
  requests for each flush of the log, and their price
- idle: requests of a server without work and without a lease
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from grpc import aio

from bench.arena import create_topic, of_server
from bench.load.stubs import Refusal, StubProducer
from bench.programs import load_command, output_of, run_of_output
from bench.results import LoadFailed, Run
from bench.server import OwnServer, metrics_address, scraped
from tests.harness.object_store import BUCKET, ObjectServer

ROUNDS: Final = 50
_LEASE_TTL_MS: Final = 2_000
_FAST_S: Final = 0.005
_SLOW_S: Final = 0.030
_PRODUCERS: Final = 64
_TOPIC: Final = "bucket"
_VALUE_BYTES: Final = 100
_COMMITS_BEFORE: Final = 50
"""Transactions before each kill, so that the other server has something to recover."""
_LOAD_ROUNDS: Final = 3
_WARM_UP_S: Final = 3.0
_MEASURED_S: Final = 10.0
_IDLE_S: Final = 60
_WAIT_S_MAX: Final = 60
_CALL_S: Final = 1.0
_PAUSE_S: Final = 0.002
_LOOK_S: Final = 0.05
_DOLLARS: Final = {"PUT": 5.0, "GET": 0.4}
"""Price of a million requests: S3 Standard, us-east-1, 2026."""


def main(arguments: Sequence[str] = ()) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=_PARTS, help="this part alone")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="ends of owners; at most 3 of loads (default: %(default)s)"
    )
    asked = parser.parse_args(arguments)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name, part in _PARTS.items():
        if asked.only in (None, name):
            print(part(asked.rounds), flush=True)


class _Pair:
    """Two servers of one store with a lease."""

    def __init__(self, stack: ExitStack, delay_s: float) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-bucket-")))
        _objects(stack, delay_s)
        self.owner, self.waits = (
            OwnServer(
                directory / f"node-{number}",
                arguments=_settings("--lease", f"node_id={number}", f"lease_ttl_ms={_LEASE_TTL_MS}"),
            )
            for number in (1, 2)
        )
        for server in (self.owner, self.waits):
            server.endpoint = f"127.0.0.1:{_free_port()}"
            stack.callback(server.stop)
        self.owner.start()
        create_topic(self.owner, _TOPIC)
        self._begin_to_wait(self.waits)

    def round(self, number: signal.Signals) -> float:
        """End the owner, and return the time until a transaction commits at the other server (s)."""
        self.owner.check()
        asyncio.run(_commits(self.owner.endpoint, _COMMITS_BEFORE))
        former, self.owner, self.waits = self.owner, self.waits, self.owner
        began_s = time.monotonic()
        os.kill(former.process_id, number)
        asyncio.run(_commits(self.owner.endpoint, 1))
        elapsed_s = time.monotonic() - began_s
        former.stop()
        self._begin_to_wait(former)
        return elapsed_s

    def _begin_to_wait(self, server: OwnServer) -> None:
        before = len(_times(server, "lease_awaited"))
        server.launch()
        _await(lambda: len(_times(server, "lease_awaited")) > before)


def _takeover(rounds: int) -> str:
    return _ends("owner killed to first commit", signal.SIGKILL, rounds)


def _hand_over(rounds: int) -> str:
    return _ends("owner ended to first commit", signal.SIGTERM, rounds)


def _ends(what: str, number: signal.Signals, rounds: int) -> str:
    with ExitStack() as stack:
        pair = _Pair(stack, _FAST_S)
        found_s = [pair.round(number) for _ in range(rounds)]
    return f"{what}, lease {_LEASE_TTL_MS / 1_000:g} s, store {_FAST_S * 1_000:g} ms: {_spread(found_s)}"


def _opening(rounds: int) -> str:
    with ExitStack() as stack:
        pair = _Pair(stack, _SLOW_S)
        steps: dict[str, list[float]] = {"lease to serving": [], "SlateDB": [], "look": [], "loading": []}
        for _ in range(rounds):
            pair.round(signal.SIGKILL)
            opened, loaded = (_lines(pair.owner, event)[-1] for event in ("bucket_opened", "loaded"))
            steps["lease to serving"].append(_times(pair.owner, "serving")[-1] - _times(pair.owner, "lease_held")[-1])
            steps["SlateDB"].append(opened["engine_ms"] / 1_000)
            steps["look"].append(opened["look_ms"] / 1_000)
            steps["loading"].append(loaded["elapsed_ms"] / 1_000)
    said = "; ".join(f"{step}: {_spread(found_s)}" for step, found_s in steps.items())
    return f"opening after kills, store {_SLOW_S * 1_000:g} ms: {said}"


@dataclass(frozen=True, slots=True)
class _Requests:
    """Requests of one load, and the flushes of the log in it."""

    by_method: dict[str, int]
    flushes: float
    transactions: int

    def text(self) -> str:
        puts, gets = self.by_method.get("PUT", 0), self.by_method.get("GET", 0)
        dollars = sum(_DOLLARS.get(method, 0.0) * count for method, count in self.by_method.items())
        return (
            f"{puts / self.flushes:.2f} PUT a flush, {self.transactions / self.flushes:.1f} transactions a flush, "
            f"{puts / self.transactions:.4f} PUT and {gets / self.transactions:.4f} GET a transaction, "
            f"${dollars / self.transactions:.2f} a million transactions"
        )


def _transactions(rounds: int) -> str:
    """Compare a store in a bucket with one on a disk, in turns."""
    bucket: list[Run] = []
    disk: list[Run] = []
    requests: list[_Requests] = []
    for _ in range(min(rounds, _LOAD_ROUNDS)):
        run, found = _load_of_bucket(_PRODUCERS)
        bucket.append(run)
        requests.append(found)
        disk.append(_load_of_disk())
    _, alone = _load_of_bucket(1)
    ours_us, disk_us = (median(run.server_us or 0.0 for run in runs) for runs in (bucket, disk))
    rates = " and ".join(f"{median(run.figure for run in runs):,.0f}" for runs in (bucket, disk))
    return "\n".join(
        [
            f"server time a transaction of {_PRODUCERS} producers: bucket {ours_us:.0f} us, disk {disk_us:.0f} us",
            f"quotient {ours_us / disk_us:.2f}; {rates} transactions a second",
            f"{_PRODUCERS} producers: {requests[-1].text()}",
            f"one producer: {alone.text()}",
        ]
    )


def _load_of_bucket(producers: int) -> tuple[Run, _Requests]:
    with ExitStack() as stack:
        objects = _objects(stack, _FAST_S)
        server = _own(stack, _settings("metrics_listen=127.0.0.1:0"))
        metrics = metrics_address(server.log)
        before, flushed = objects.requests.copy(), scraped(metrics)
        run = _loaded(server, producers)
        flushes = scraped(metrics)[_FLUSHES] - flushed.get(_FLUSHES, 0.0)
        # All transactions count, those of the warm-up too.
        counted = scraped(metrics)
        ended = counted[_ENDED] - flushed.get(_ENDED, 0.0)
        return run, _Requests(dict(objects.requests - before), flushes, int(ended))


def _load_of_disk() -> Run:
    with ExitStack() as stack:
        return _loaded(_own(stack, []), _PRODUCERS)


def _loaded(server: OwnServer, producers: int) -> Run:
    settings = {
        **of_server(server),
        "driver": "stubs",
        "producers": producers,
        "value_bytes": _VALUE_BYTES,
        "warm_up_s": _WARM_UP_S,
        "measured_s": _MEASURED_S,
        "topic": _TOPIC,
    }
    command, environment = load_command("transactions", settings)
    return run_of_output(output_of(command, "the load program transactions", environment))


def _idle(_rounds: int) -> str:
    with ExitStack() as stack:
        objects = _objects(stack, _FAST_S)
        server = _own(stack, _settings())
        asyncio.run(_commits(server.endpoint, 1))
        # What follows the last write is over by then.
        time.sleep(_IDLE_S)
        before = objects.requests.copy()
        time.sleep(_IDLE_S)
        found = objects.requests - before
    rates = ", ".join(f"{found[method] / _IDLE_S:.2f} {method}/s" for method in ("PUT", "GET"))
    return f"idle, without a lease: {rates}"


_PARTS: Final[dict[str, Callable[[int], str]]] = {
    "takeover": _takeover,
    "hand-over": _hand_over,
    "opening": _opening,
    "transactions": _transactions,
    "idle": _idle,
}
_FLUSHES: Final = "txn_object_store_log_flushes_total"
_ENDED: Final = "txn_coordinator_completed_total"


def _objects(stack: ExitStack, delay_s: float) -> ObjectServer:
    objects = stack.enter_context(ObjectServer(wall_seconds=None, delay_s=delay_s))
    os.environ.update(objects.environment())
    return objects


def _settings(*settings: str) -> list[str]:
    """Return the arguments of a server with its store in the bucket. A word that begins with a dash is no setting."""
    parts = [[each] if each.startswith("-") else ["--set", each] for each in settings]
    return ["--store", f"s3://{BUCKET}/bench", *(word for part in parts for word in part)]


def _own(stack: ExitStack, arguments: Sequence[str]) -> OwnServer:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-bucket-")))
    server = OwnServer(directory, arguments=arguments)
    server.start()
    stack.callback(server.stop)
    create_topic(server, _TOPIC)
    return server


async def _commits(endpoint: str, count: int) -> None:
    """Commit so many transactions one after the other. Repeats what is refused or lost. Raises: LoadFailed."""
    # Without a pause of gRPC's before it connects again.
    options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
    until_s = time.monotonic() + _WAIT_S_MAX
    async with aio.insecure_channel(endpoint, options=[*options, ("grpc.enable_http_proxy", 0)]) as channel:
        producer = StubProducer(channel, f"bucket-{time.time_ns()}", topic=_TOPIC, partition_count=1)
        producer.set_transaction(_VALUE_BYTES, committed=True)
        while count:
            try:
                async with asyncio.timeout(_CALL_S):
                    await producer.perform()
            except (Refusal, aio.AioRpcError, TimeoutError) as error:
                if time.monotonic() > until_s:
                    raise LoadFailed(f"no commit at {endpoint}: {error}") from error
                await asyncio.sleep(_PAUSE_S)
            else:
                count -= 1


def _times(server: OwnServer, event: str) -> list[float]:
    """Return the times of an event in the log of a server (Unix s)."""
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in _lines(server, event)]


def _lines(server: OwnServer, event: str) -> list[dict[str, Any]]:
    """Return the lines of an event in the log of a server."""
    if not server.log.exists():
        return []
    said = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in said if line["event"] == event]


def _await(is_there: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _WAIT_S_MAX
    while not is_there():
        if time.monotonic() > until_s:
            raise LoadFailed("the other server does not begin to wait for the lease")
        time.sleep(_LOOK_S)


def _spread(found_s: Sequence[float]) -> str:
    return f"median {median(found_s):.2f} s, worst {max(found_s):.2f} s of {len(found_s)}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
