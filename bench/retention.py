"""What it costs when records go: room on the disk, and what commits and reads take meanwhile.

    python -m bench.retention removal --mib 2048
    python -m bench.retention retention --minutes 5 --limit-mib 64

`removal` fills a topic, lets commits and reads go on, deletes nine tenths of every partition, and tells how the disk
and the latencies were before and after. `retention` writes to 24 partitions as fast as they take it, once with a limit
of bytes for each and once without, and tells how far the disk went beyond the limits.

The longest turn of the loop is that of the server's own metric: the bound of the highest bucket in which a turn fell.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import grpc

from bench.server import OwnServer, metrics_address
from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_client import Admin, Producer, TopicPartition

TOPIC: Final = "bulk"
COMMITS: Final = "commits"
PARTITIONS: Final = 24
_MIB: Final = 1 << 20
_VALUE_BYTES: Final = 4_000
_VALUES_AT_ONCE: Final = 512
_SETTLED_S: Final = 40.0
"""How long is looked on after a deletion: the store pauses for ten seconds before it gives room back."""
_SAMPLE_S: Final = 1.0
_FETCH_BYTES: Final = 64 * 1024
_LOOP_BUCKET: Final = re.compile(r'txn_runtime_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')

_processes = get_context("spawn")


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long single calls took, in milliseconds."""

    took_ms: Sequence[float]

    def words(self) -> str:
        if len(self.took_ms) < 100:
            return "too few"
        return f"p50 {median(self.took_ms):.2f} ms, p99 {self.p99_ms:.2f} ms, longest {max(self.took_ms):.1f} ms"

    @property
    def p99_ms(self) -> float:
        return quantiles(self.took_ms, n=100)[-1]


class Callers:
    """Processes that do the same again and again, until they are stopped."""

    def __init__(self, *work: tuple[Callable[..., None], tuple[object, ...]]) -> None:
        self._over = _processes.Event()
        self._running = []
        for target, arguments in work:
            ours, theirs = _processes.Pipe()
            process = _processes.Process(target=target, args=(*arguments, theirs, self._over), daemon=True)
            process.start()
            self._running.append((process, ours))

    def take(self) -> list[Latencies]:
        """What each has measured since this was asked last."""
        for _process, pipe in self._running:
            pipe.send(None)
        return [Latencies(pipe.recv()) for _process, pipe in self._running]

    def stop(self) -> None:
        self._over.set()
        for process, _pipe in self._running:
            process.join()


def _report(pipe: Connection, took_ms: list[float]) -> None:
    if pipe.poll():
        pipe.recv()
        pipe.send(took_ms[:])
        took_ms.clear()


def commit(endpoint: str, pipe: Connection, over: Event) -> None:
    """One small transaction after the other."""
    took_ms: list[float] = []
    with Producer(endpoint, transactional_id="bench-commits") as producer:
        while not over.is_set():
            began = time.perf_counter()
            with producer.transaction() as txn:
                txn.send(COMMITS, b"x" * 100, partition=0)
            took_ms.append((time.perf_counter() - began) * 1_000)
            _report(pipe, took_ms)


def fetch(endpoint: str, first_offset: int, end_offset: int, pipe: Connection, over: Event) -> None:
    """One read of a random place after the other."""
    took_ms: list[float] = []
    drawn = random.Random(1)
    with grpc.insecure_channel(endpoint) as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        while not over.is_set():
            wanted = log_pb2.FetchPartition(
                topic=TOPIC,
                partition=drawn.randrange(PARTITIONS),
                fetch_offset=drawn.randrange(first_offset, end_offset),
            )
            began = time.perf_counter()
            stub.Fetch(log_pb2.FetchRequest(partitions=[wanted], max_bytes=_FETCH_BYTES))
            took_ms.append((time.perf_counter() - began) * 1_000)
            _report(pipe, took_ms)


def produce(endpoint: str, pipe: Connection, over: Event) -> None:
    """All partitions in turn, as fast as they take it; what is told is bytes, and no times."""
    sent: list[float] = []
    with Producer(endpoint) as producer:
        partition = 0
        while not over.is_set():
            send_some(producer, partition)
            sent.append(_VALUES_AT_ONCE * _VALUE_BYTES)
            partition = (partition + 1) % PARTITIONS
            _report(pipe, sent)


def send_some(producer: Producer, partition: int) -> None:
    for _ in range(_VALUES_AT_ONCE):
        producer.send(TOPIC, os.urandom(_VALUE_BYTES), partition=partition)
    producer.flush()


class Server:
    """A server on a directory that goes with it."""

    def __init__(self, directory: Path, *settings: str) -> None:
        arguments = [word for setting in ("metrics_listen=127.0.0.1:0", *settings) for word in ("--set", setting)]
        self._own = OwnServer(directory, arguments=arguments)
        self._own.start()
        self.endpoint = self._own.endpoint
        self._metrics = metrics_address(self._own.log)
        self._turns = self._buckets()

    def disk_bytes(self) -> int:
        total = 0
        for path in self._own.data_dir.rglob("*"):
            try:
                total += path.stat().st_blocks * 512 if path.is_file() else 0
            except FileNotFoundError:
                continue
        return total

    def longest_turn_ms(self) -> float:
        """Since this was asked last."""
        before, self._turns = self._turns, self._buckets()
        counts = [(bound, count - before.get(bound, 0)) for bound, count in sorted(self._turns.items())]
        below = 0.0
        for bound, count in counts:
            if count == counts[-1][1]:
                return bound * 1_000
            below = bound
        return below * 1_000

    def _buckets(self) -> dict[float, float]:
        with urllib.request.urlopen(self._metrics) as scraped:
            return {float(bound): float(count) for bound, count in _LOOP_BUCKET.findall(scraped.read().decode())}

    def stop(self) -> None:
        self._own.stop()


def removal(mib: int) -> None:
    """Delete nine tenths of a topic, and look on."""
    with tempfile.TemporaryDirectory(prefix="bench-retention-") as directory:
        server = Server(Path(directory))
        callers: Callers | None = None
        try:
            end_offset = _fill(server.endpoint, mib)
            kept_from = end_offset * 9 // 10
            callers = Callers((commit, (server.endpoint,)), (fetch, (server.endpoint, kept_from, end_offset)))
            _pause(5)
            callers.take()
            server.longest_turn_ms()
            _pause(20)
            _tell("before", server, callers)
            with Admin(server.endpoint) as admin:
                began = time.monotonic()
                admin.delete_records({TopicPartition(TOPIC, partition): kept_from for partition in range(PARTITIONS)})
                print(f"DeleteRecords of {PARTITIONS} partitions took {(time.monotonic() - began) * 1_000:.1f} ms")
            _pause(_SETTLED_S)
            _tell("meanwhile", server, callers)
            _pause(10)
            _tell("afterwards", server, callers)
        finally:
            if callers is not None:
                callers.stop()
            server.stop()


def _fill(endpoint: str, mib: int) -> int:
    """Returns the log end of each partition."""
    rounds = max(1, mib * _MIB // (PARTITIONS * _VALUES_AT_ONCE * _VALUE_BYTES))
    with Admin(endpoint) as admin, Producer(endpoint) as producer:
        admin.create_topic(TOPIC, PARTITIONS)
        admin.create_topic(COMMITS, 1)
        for _ in range(rounds):
            for partition in range(PARTITIONS):
                send_some(producer, partition)
    return rounds * _VALUES_AT_ONCE


def _tell(when: str, server: Server, callers: Callers) -> None:
    commits, reads = callers.take()
    print(f"{when}: {server.disk_bytes() / _MIB:,.0f} MiB on disk; longest turn {server.longest_turn_ms():.0f} ms")
    print(f"  commits: {commits.words()}")
    print(f"  reads:   {reads.words()}")


def retention(minutes: float, limit_mib: int) -> None:
    """Write with a limit and without."""
    p99s = {}
    for limit in (limit_mib, None):
        with tempfile.TemporaryDirectory(prefix="bench-retention-") as directory:
            settings = [] if limit is None else [f"default_retention_bytes={limit * _MIB}"]
            server = Server(Path(directory), *settings)
            with Admin(server.endpoint) as admin:
                admin.create_topic(TOPIC, PARTITIONS)
                admin.create_topic(COMMITS, 1)
            callers = Callers((commit, (server.endpoint,)), (produce, (server.endpoint,)))
            try:
                commits, sent_bytes, largest = _watch(server, callers, minutes * 60)
                turn_ms = server.longest_turn_ms()
            finally:
                callers.stop()
                server.stop()
            p99s[limit] = commits.p99_ms
            rate = sent_bytes / _MIB / (minutes * 60)
            print(f"{'no limit' if limit is None else f'{limit} MiB for each partition'}: {rate:.0f} MiB/s")
            print(f"  commits: {commits.words()}; longest turn {turn_ms:.0f} ms")
            allowed = "" if limit is None else f", {largest / (limit * PARTITIONS * _MIB):.2f} of the limits"
            print(f"  on disk at most: {largest / _MIB:,.0f} MiB{allowed}")
    print(f"commit p99 with the limit is {p99s[limit_mib] / p99s[None]:.2f} of that without")


def _watch(server: Server, callers: Callers, seconds: float) -> tuple[Latencies, float, int]:
    """Commits, bytes that were sent, and the most that was on the disk."""
    _pause(5)
    callers.take()
    end, largest = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        largest = max(largest, server.disk_bytes())
        _pause(_SAMPLE_S)
    commits, sent = callers.take()
    return commits, sum(sent.took_ms), largest


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure one of the two and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("part", choices=("removal", "retention"), nargs="?", default="removal")
    parser.add_argument("--mib", type=int, default=2_048, help="how much is written before (default: %(default)d)")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long is written (default: %(default)g)")
    parser.add_argument("--limit-mib", type=int, default=64, help="limit of each partition (default: %(default)d)")
    asked = parser.parse_args(arguments)
    if asked.part == "removal":
        removal(asked.mib)
    else:
        retention(asked.minutes, asked.limit_mib)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
