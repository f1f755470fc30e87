"""Measures the page of a large server, and what it costs that server: `python -m bench.page`.

    python -m bench.page --ids 10000 --partitions 1000

The server has that many transactional ids with an open transaction, and that many partitions whose committed readers
wait. Half of the partitions have deleted records. Each page is asked for one time after the other, as a browser does.
A turn of the server's loop is measured in the processor time of its thread, while the page is asked for: all other
callers wait that long. Garbage is collected before, and not meanwhile. Server and page are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.inside import HERE

PAGES: Final = (
    "/",
    "/transactions",
    "/transactions?page=50",
    "/transactions?q=id-77",
    "/transaction?id=id-00077",
    "/topics",
    "/topics?only=blocked",
    "/topic?name=t0",
    "/records?name=t0&partition=7",
    "/groups",
    "/sinks",
    "/events",
    "/quotas",
    "/configuration",
)
_TOPICS: Final = 10
_BLOCKERS: Final = 20
_CALLS_AT_ONCE: Final = 200
_TIMEOUT_MS: Final = 900_000
_ROUNDS: Final = 15


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ids", type=int, default=10_000, help="transactional ids (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of each page (default: %(default)s)")
    parser.add_argument("--pages", nargs="+", default=PAGES, help="only these pages")
    asked = parser.parse_args(arguments)
    with ExitStack() as until_the_end:
        directory = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="bench-page-")))
        program = "import sys; from bench.page import serve; serve(*sys.argv[1:])"
        server = _started(until_the_end, [sys.executable, "-c", program, str(directory)])
        endpoint = _line(server).split()[-1]
        held = _fill(endpoint, asked.ids, asked.partitions)
        page = _started(
            until_the_end,
            [sys.executable, "-m", "txnctl", "page", "--listen", "127.0.0.1:0", "--server", endpoint],
        )
        address = _line(page).split()[2].removeprefix("http://").strip("/")
        print("| page | size | median | slowest | longest turn of the server |\n| --- | --- | --- | --- | --- |")
        for path in asked.pages:
            size, times_s = _asked(address, path, asked.rounds)
            server.send_signal(signal.SIGUSR1)
            _line(server)
            _asked(address, path, asked.rounds)
            server.send_signal(signal.SIGUSR1)
            turn_ms = float(_line(server))
            median_ms, slowest_ms = 1_000 * statistics.median(times_s), 1_000 * max(times_s)
            print(f"| `{path}` | {size:,} | {median_ms:.0f} ms | {slowest_ms:.0f} ms | {turn_ms:.1f} ms |", flush=True)
        assert held
    return 0


def _started(until_the_end: ExitStack, command: list[str]) -> subprocess.Popen[str]:
    process = until_the_end.enter_context(
        subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    )
    until_the_end.callback(process.terminate)
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "a pipe was asked for"
    line = process.stdout.readline()
    assert line, "the process has ended"
    return line


def _asked(address: str, path: str, rounds: int) -> tuple[int, list[float]]:
    """Ask for a page one time after the other. Returns its size and the times."""
    connection = http.client.HTTPConnection(address)
    times_s, size = [], 0
    for _round in range(rounds):
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        times_s.append(time.perf_counter() - began)
        assert answer.status == 200, path
    connection.close()
    return size, times_s


def _fill(endpoint: str, ids: int, partitions: int) -> list[object]:
    """Fill the server, and return what keeps transactions open."""
    from coordinator_client import Admin, Producer, TopicPartition

    per_topic = partitions // _TOPICS
    every = [(f"t{number % _TOPICS}", number // _TOPICS) for number in range(per_topic * _TOPICS)]
    with Admin(endpoint) as admin:
        for number in range(_TOPICS):
            admin.create_topic(f"t{number}", per_topic)
        with Producer(endpoint, transactional_id="early") as producer, producer.transaction() as transaction:
            for topic, partition in every:
                transaction.send(topic, b"early", partition=partition)
        admin.delete_records({TopicPartition(*place): 1 for place in every[::2]})
    asyncio.run(_open(endpoint, ids))
    held: list[object] = []
    for number in range(_BLOCKERS):
        producer = Producer(endpoint, transactional_id=f"blocker-{number}", transaction_timeout_ms=_TIMEOUT_MS)
        transaction = producer.transaction().__enter__()
        for topic, partition in every[number::_BLOCKERS]:
            transaction.send(topic, b"a value", key=b"key", partition=partition)
        transaction.flush()
        held += [producer, transaction]
    return held


async def _open(endpoint: str, ids: int) -> None:
    """Open a transaction for each id."""
    from grpc import aio

    from coordinator_api.v1 import common_pb2, transaction_pb2, transaction_pb2_grpc

    limit = asyncio.Semaphore(_CALLS_AT_ONCE)
    async with aio.insecure_channel(endpoint) as channel:
        stub: Any = transaction_pb2_grpc.TransactionServiceStub(channel)

        async def open_one(name: str) -> None:
            async with limit:
                identity = await stub.InitProducerId(
                    transaction_pb2.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
                )
                added = await stub.AddPartitionsToTxn(
                    transaction_pb2.AddPartitionsToTxnRequest(
                        transactional_id=name,
                        producer_id=identity.producer_id,
                        producer_epoch=identity.producer_epoch,
                        topics=[common_pb2.TopicPartitions(topic="t0", partitions=[0])],
                    )
                )
                assert not added.error_code, added

        await asyncio.gather(*(open_one(f"id-{number:05}") for number in range(ids)))


def serve(directory: str) -> None:
    """Run a server that measures the longest turn of its loop between two signals SIGUSR1, and prints it (ms)."""
    from coordinator_server.logs import LogLevel
    from coordinator_server.process import end_process, run
    from coordinator_server.settings.config import Config

    config = Config(data_dir=Path(directory) / "data", listen="127.0.0.1:0", log_level=LogLevel.ERROR)
    longest_s: list[float] = []

    def announce(listeners: Sequence[Any], kafka: Sequence[Any]) -> None:
        loop = asyncio.get_running_loop()
        last = 0.0

        def look() -> None:
            nonlocal last
            now = time.thread_time()
            if longest_s:
                longest_s[0] = max(longest_s[0], now - last)
                last = now
                loop.call_soon(look)

        def toggle() -> None:
            nonlocal last
            if longest_s:
                print(f"{1_000 * longest_s.pop():.2f}", flush=True)
                gc.enable()
            else:
                gc.collect()
                gc.disable()
                longest_s.append(0.0)
                last = time.thread_time()
                loop.call_soon(look)
                print("measuring", flush=True)

        loop.add_signal_handler(signal.SIGUSR1, toggle)
        print(f"serving on {listeners[0].address}", flush=True)

    end_process(run(config, announce))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
