"""What floods and readers that stand still cost the others: a table, for each transport that is installed.

    python -m bench.exhaustion                                    every kind of harm, on both transports: three minutes
    python -m bench.exhaustion --only unread --transport native   some of them

Beside each of them four callers commit without a pause. A process of its own does the harm, which comes and goes:
each round measures the commits without it, then with it. The table has the 99th percentile and the longest of the
waits of all rounds, and the memory of the server before, at its peak, and some seconds after all is over.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from bench.load.stubs import checked
from bench.load.transact import transact_request
from bench.processes import resident_mib
from bench.raw_http2 import RawPeer, call, floods
from bench.results import LoadFailed
from bench.server import OwnServer
from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_protocol.limits import MEBI

_CALLERS: Final = 4
_ROUNDS: Final = 2
_SECONDS: Final = 2.0
_WARM_UP_S: Final = 1.0
_SETTLE_S: Final = 2.5
"""Longer than the server waits until it gives memory back."""
_READERS: Final = 20
_FETCHES: Final = 90
_FILLED: Final = 20
_ANSWER_BYTES_MAX: Final = 15 * MEBI
_TOPIC: Final = "exhaustion"
_LIMITS: Final = "/coordinator_api.v1.AdminService/Limits"
_FETCH: Final = "/coordinator_api.v1.LogService/Fetch"

_UNREAD: Final = f"{_READERS} connections, {_FETCHES} unread Fetches each"


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transport", choices=_transports(), help="this one alone")
    parser.add_argument("--only", default="", help="harm with this in its name")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of each harm (default: %(default)s)")
    asked = parser.parse_args(arguments)
    print(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {asked.rounds} rounds of {_SECONDS} s\n"
    )
    print("| transport | one caller | commit p99 / longest before | meanwhile | p99 x | MiB before | peak | after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for transport in [asked.transport] if asked.transport else _transports():
        for name in harms():
            if asked.only in name:
                print(f"| {transport} | {name} | {_measured(transport, name, asked.rounds)} |", flush=True)


def _transports() -> list[str]:
    return ["grpc", "native"] if importlib.util.find_spec("txn_native_transport") is not None else ["grpc"]


def harms() -> list[str]:
    """Return the names of what one caller can do to harm others."""
    return [_UNREAD, *(f"flood: {kind}" for kind in floods(_LIMITS))]


def do_harm(name: str, port: int) -> None:
    """Do this harm to the server on this port, for some seconds."""
    if name == _UNREAD:
        _stand_still(port)
    else:
        _flood(name.removeprefix("flood: "), port)


def _flood(kind: str, port: int) -> None:
    """Flood the server over one connection at a time; one that is cut is followed by the next."""
    until = time.monotonic() + _SECONDS
    while (left := until - time.monotonic()) > 0:
        with RawPeer(port) as peer:
            peer.flood(floods(_LIMITS)[kind], left)


def _stand_still(port: int) -> None:
    fetch = log_pb2.FetchRequest(max_bytes=_ANSWER_BYTES_MAX)
    fetch.partitions.add(topic=_TOPIC, partition=1, fetch_offset=0)
    body = fetch.SerializeToString()
    with ExitStack() as leaving:
        for _ in range(_READERS):
            peer = leaving.enter_context(RawPeer(port))
            peer.send(b"".join(call(2 * number + 1, _FETCH, body) for number in range(_FETCHES)))
        time.sleep(_SECONDS)


def _measured(transport: str, name: str, rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="exhaustion-") as directory:
        server = OwnServer(Path(directory), arguments=("--set", f"transport={transport}"))
        server.start()
        try:
            port = int(server.endpoint.rpartition(":")[2])
            _fill(server.endpoint)
            _waits_ms(server.endpoint, lambda: time.sleep(_WARM_UP_S))
            memory = [_mib(server.process_id)]
            alone, beside = list[float](), list[float]()
            for _ in range(rounds):
                alone += _waits_ms(server.endpoint, lambda: time.sleep(_SECONDS))
                with _harm_process(name, port) as harm:
                    beside += _waits_ms(server.endpoint, partial(_have_harm_done, harm))
            memory.append(_peak_mib(server.process_id))
            time.sleep(_SETTLE_S)
            memory.append(_mib(server.process_id))
        finally:
            server.stop()
    times = [f"{_p99(waits):.0f} / {max(waits):.0f} ms" for waits in (alone, beside)]
    return " | ".join([*times, f"{_p99(beside) / _p99(alone):.1f}", *(f"{each:.0f}" for each in memory)])


def _harm_process(name: str, port: int) -> subprocess.Popen[str]:
    """Start a process that is ready to do harm. In this process it would also hold up the callers whose waits are
    measured."""
    program = f"from bench.exhaustion import do_harm; print(); input(); do_harm({name!r}, {port})"
    command = [sys.executable, "-u", "-c", program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "its output was asked for"
    process.stdout.readline()
    return process


def _have_harm_done(harm: subprocess.Popen[str]) -> None:
    harm.communicate("\n")
    if harm.returncode:
        raise LoadFailed("what should have harmed the server failed")


def _p99(waits_ms: Sequence[float]) -> float:
    return statistics.quantiles(waits_ms, n=100)[-1]


def _fill(endpoint: str) -> None:
    with grpc.insecure_channel(endpoint) as channel:
        log = LogServiceStub(channel)
        log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name=_TOPIC, partition_count=2)]))
        payload = log_pb2.Records(records=[log_pb2.Record(value=bytes(900_000))]).SerializeToString()
        for _ in range(_FILLED):
            checked(log.Produce(_produce(1, payload)))


def _produce(partition: int, payload: bytes) -> log_pb2.ProduceRequest:
    request = log_pb2.ProduceRequest()
    batch = log_pb2.RecordBatch(record_count=1, encoding=log_pb2.ENCODING_RECORDS_V1, payload=payload)
    request.batches.add(topic=_TOPIC, partition=partition).batch.CopyFrom(batch)
    return request


def _waits_ms(endpoint: str, meanwhile: Callable[[], None]) -> list[float]:
    """Return how long callers wait for their commits while something else is done."""
    is_over = threading.Event()
    waited_ms: list[float] = []
    callers = [
        threading.Thread(target=_commit, args=(endpoint, f"caller-{number}", is_over, waited_ms))
        for number in range(_CALLERS)
    ]
    for caller in callers:
        caller.start()
    meanwhile()
    is_over.set()
    for caller in callers:
        caller.join()
    return waited_ms


def _commit(endpoint: str, transactional_id: str, is_over: threading.Event, waited_ms: list[float]) -> None:
    with grpc.insecure_channel(endpoint, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = TransactionServiceStub(channel)
        init = transaction_pb2.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        me = checked(stub.InitProducerId(init))
        request = transact_request(transactional_id, _TOPIC, range(1), value_bytes=100, committed=True)
        request.producer_id, request.producer_epoch = me.producer_id, me.producer_epoch
        while not is_over.is_set():
            request.header.request_id = os.urandom(16)
            begun = time.perf_counter()
            done = checked(stub.Transact(request))
            waited_ms.append((time.perf_counter() - begun) * 1_000)
            request.producer_id, request.producer_epoch = done.producer_id, done.producer_epoch


def _mib(process_id: int) -> float:
    return resident_mib(process_id) or 0.0


def _peak_mib(process_id: int) -> float:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM:")), 0.0)


if __name__ == "__main__":
    main(sys.argv[1:])
