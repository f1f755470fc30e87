"""Measures the effect of one noisy client on 16 well-behaved ones, with and without quotas, for each transport.

    python -m bench.noisy                        both kinds of noise, on each installed transport: two minutes
    python -m bench.noisy --transport native     on this transport alone

The server has TLS and requires tokens. Sixteen *quiet* callers commit with a pause in between, each on a connection of
its own. The *noisy* client is another principal in a process of its own. If it is throttle-aware, it is 64 producers of
the SDK that write as fast as they can and obey throttling. If it ignores throttling, it is bare stubs with 64 calls
under way. Each round measures the quiet commits without it, then beside it. Rounds with and without quotas take turns.
The table has the 99th percentile of all rounds, and the number of noisy commits.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from bench.exhaustion import Target, asking
from bench.load.stubs import checked
from bench.load.transact import transact_request
from bench.results import LoadFailed
from bench.server import OwnServer
from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_client import AsyncProducer, Connection, Tls

QUIET: Final = 16
_PAUSE_S: Final = 0.02
"""Mean pause of a quiet caller between two commits (s)."""
_NOISY: Final = 64
_ROUNDS: Final = 3
_SECONDS: Final = 4.0
_TOPIC: Final = "noisy"
_VALUE_BYTES: Final = 1_000
RATE: Final = 100_000
"""Quota of the noisy client (bytes per second): a hundred transactions of one record."""
KINDS: Final = ("throttle-aware", "throttle-ignoring")


@dataclass(frozen=True, slots=True)
class Found:
    """Figures of one kind of noisy client, with or without a quota."""

    alone_ms: list[float]
    beside_ms: list[float]
    noisy_commits: int

    def row(self) -> str:
        alone, beside = (statistics.quantiles(waits, n=100)[-1] for waits in (self.alone_ms, self.beside_ms))
        return f"{alone:.1f} ms | {beside:.1f} ms | {beside / alone:.1f} | {self.noisy_commits}"


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transport", choices=_transports(), help="this one alone")
    parser.add_argument("--kind", choices=KINDS, help="this one alone")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of each kind (default: %(default)s)")
    about = "of a round; the shorter, the more it is about the start (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=about)
    asked = parser.parse_args(arguments)
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"{load}, {asked.rounds} rounds of {asked.seconds} s\n")
    print("| transport | noisy client | quota | commit p99 before | meanwhile | p99 x | noisy commits |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for transport in [asked.transport] if asked.transport else _transports():
        for kind in [asked.kind] if asked.kind else KINDS:
            for is_bound, found in measured(transport, kind, asked.rounds, asked.seconds).items():
                quota = f"{RATE // 1_000} kB/s" if is_bound else "none"
                print(f"| {transport} | {kind} | {quota} | {found.row()} |", flush=True)


def _transports() -> list[str]:
    return ["grpc", "native"] if importlib.util.find_spec("txn_native_transport") is not None else ["grpc"]


def measured(transport: str, kind: str, rounds: int, seconds: float) -> dict[bool, Found]:
    """Return the figures by True for a client with a quota and False for one without."""
    with tempfile.TemporaryDirectory(prefix="noisy-") as directory:
        settings, shown = asking(Path(directory))
        quotas = Path(directory) / "quotas.toml"
        quotas.touch()
        settings |= {"transport": transport, "quotas_file": str(quotas)}
        arguments = [word for each in settings.items() for word in ("--set", "=".join(each))]
        server = OwnServer(Path(directory), arguments=arguments)
        server.start()
        try:
            port = int(server.endpoint.rpartition(":")[2])
            quiet, noisy = (Target(port, **each) for each in shown)
            with quiet.channel() as channel:
                wanted = [log_pb2.NewTopic(name=_TOPIC, partition_count=4)]
                LogServiceStub(channel).CreateTopics(log_pb2.CreateTopicsRequest(topics=wanted))
            _waits_ms(quiet, partial(time.sleep, seconds / 2))
            found = {True: Found([], [], 0), False: Found([], [], 0)}
            for _ in range(rounds):
                for is_bound, so_far in [*found.items()]:
                    _set_quota(quotas, is_bound=is_bound)
                    found[is_bound] = _round(so_far, quiet, noisy, kind, seconds)
        finally:
            server.stop()
    return found


def _set_quota(file: Path, *, is_bound: bool) -> None:
    table = f'[[quotas]]\nprincipal = "User:noisy"\nproduce_bytes_per_second = {RATE}\n'
    file.write_text(table if is_bound else "")
    # The server checks the file every second.
    time.sleep(1.5)


def _round(so_far: Found, quiet: Target, noisy: Target, kind: str, seconds: float) -> Found:
    alone = _waits_ms(quiet, partial(time.sleep, seconds))
    program = (
        "from bench.noisy import be_noisy; from bench.exhaustion import Target;"
        f" print(); input(); print(be_noisy({kind!r}, {noisy!r}, {seconds}))"
    )
    command = [sys.executable, "-u", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "its output was asked for"
        process.stdout.readline()
        said: list[str] = []
        beside = _waits_ms(quiet, lambda: said.append(process.communicate("\n")[0]))
    if process.returncode:
        raise LoadFailed("the noisy process failed")
    return Found(so_far.alone_ms + alone, so_far.beside_ms + beside, so_far.noisy_commits + int(said[0]))


def _waits_ms(target: Target, meanwhile: Callable[[], object]) -> list[float]:
    """Return the waits of the quiet callers for their commits while something else is done (ms)."""
    is_over = threading.Event()
    waited_ms: list[float] = []
    callers = [threading.Thread(target=_be_quiet, args=(target, number, is_over, waited_ms)) for number in range(QUIET)]
    for caller in callers:
        caller.start()
    meanwhile()
    is_over.set()
    for caller in callers:
        caller.join()
    return waited_ms


def _be_quiet(target: Target, number: int, is_over: threading.Event, waited_ms: list[float]) -> None:
    pauses = random.Random(number)
    with target.channel() as channel:
        stub = TransactionServiceStub(channel)
        request = _first_request(stub, f"quiet-{number}")
        while not is_over.wait(pauses.expovariate(1 / _PAUSE_S)):
            begun = time.perf_counter()
            _again(request, checked(stub.Transact(request)))
            waited_ms.append((time.perf_counter() - begun) * 1_000)


def _first_request(stub: TransactionServiceStub, transactional_id: str) -> transaction_pb2.TransactRequest:
    init = transaction_pb2.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    me = checked(stub.InitProducerId(init))
    request = transact_request(transactional_id, _TOPIC, range(1), value_bytes=_VALUE_BYTES, committed=True)
    request.header.request_id = os.urandom(16)
    request.producer_id, request.producer_epoch = me.producer_id, me.producer_epoch
    return request


def _again(request: transaction_pb2.TransactRequest, done: transaction_pb2.TransactResponse) -> None:
    request.header.request_id = os.urandom(16)
    request.producer_id, request.producer_epoch = done.producer_id, done.producer_epoch


def be_noisy(kind: str, target: Target, seconds: float) -> int:
    """Write as much as the server accepts, for so long. Returns the number of commits."""
    return (
        _throttle_ignoring(target, seconds)
        if kind == "throttle-ignoring"
        else asyncio.run(_throttle_aware(target, seconds))
    )


async def _throttle_aware(target: Target, seconds: float) -> int:
    commits = 0
    until = time.monotonic() + seconds

    async def write(connection: Connection, number: int) -> None:
        nonlocal commits
        async with AsyncProducer(connection, transactional_id=f"noisy-{number}") as producer:
            while time.monotonic() < until:
                async with producer.transaction() as transaction:
                    await transaction.send(_TOPIC, bytes(_VALUE_BYTES), partition=number % 4)
                commits += 1

    tls = Tls(ca_file=target.ca_file, token_file=target.token_file)
    with Connection(target.endpoint, tls=tls) as connection:
        await asyncio.gather(*(write(connection, number) for number in range(_NOISY)))
    return commits


def _throttle_ignoring(target: Target, seconds: float) -> int:
    commits = 0
    until = time.monotonic() + seconds

    def write(channel: grpc.Channel, number: int) -> None:
        nonlocal commits
        stub = TransactionServiceStub(channel)
        request = _first_request(stub, f"noisy-{number}")
        while time.monotonic() < until:
            done = stub.Transact(request)
            if not done.error_code:
                commits += 1
                _again(request, done)

    with target.channel() as channel:
        writers = [threading.Thread(target=write, args=(channel, number)) for number in range(_NOISY)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    return commits


if __name__ == "__main__":
    main(sys.argv[1:])
