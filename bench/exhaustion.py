"""What floods and readers that stand still cost the others: a table, for each transport that is installed.

Beside each of them four callers commit without a pause. The table has the 99th percentile of their commits before and
meanwhile, and the memory of the server before, at its peak, and when all is over.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from bench.load.stubs import checked
from bench.load.transact import transact_request
from bench.processes import resident_mib
from bench.raw_http2 import RawPeer, call, floods
from bench.server import OwnServer
from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_protocol.limits import MEBI

_CALLERS: Final = 4
_SECONDS: Final = 4.0
_READERS: Final = 20
_FETCHES: Final = 90
_FILLED: Final = 20
_ANSWER_BYTES_MAX: Final = 15 * MEBI
_TOPIC: Final = "exhaustion"
_LIMITS: Final = "/coordinator_api.v1.AdminService/Limits"
_FETCH: Final = "/coordinator_api.v1.LogService/Fetch"

Harm = Callable[[int], None]
"""Does it to the server on this port, for `_SECONDS`."""


def main() -> None:
    """Print the table."""
    print("| transport | what one caller does | commit p99 before | meanwhile | MiB before | peak | after |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for transport in _transports():
        for name, harm in _harms().items():
            print(f"| {transport} | {name} | {_measured(transport, harm)} |")


def _transports() -> list[str]:
    return ["grpc", "native"] if importlib.util.find_spec("txn_native_transport") is not None else ["grpc"]


def _harms() -> Mapping[str, Harm]:
    return {
        f"{_READERS} connections, {_FETCHES} unread Fetches each": _stand_still,
        **{f"flood: {kind}": partial(_flood, kind) for kind in floods(_LIMITS)},
    }


def _flood(kind: str, port: int) -> None:
    """Over one connection at a time; one that is cut is followed by the next."""
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


def _measured(transport: str, harm: Harm) -> str:
    with tempfile.TemporaryDirectory(prefix="exhaustion-") as directory:
        server = OwnServer(Path(directory), arguments=("--set", f"transport={transport}"))
        server.start()
        try:
            port = int(server.endpoint.rpartition(":")[2])
            _fill(server.endpoint)
            before = _p99_ms(server.endpoint, lambda: time.sleep(_SECONDS))
            memory = [_mib(server.process_id)]
            meanwhile = _p99_ms(server.endpoint, lambda: harm(port))
            memory += [_peak_mib(server.process_id), _mib(server.process_id)]
        finally:
            server.stop()
    return " | ".join([f"{before:.1f} ms", f"{meanwhile:.1f} ms", *(f"{each:.0f}" for each in memory)])


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


def _p99_ms(endpoint: str, meanwhile: Callable[[], None]) -> float:
    """The 99th percentile of what callers wait for a commit while something else is done."""
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
    return statistics.quantiles(waited_ms, n=100)[-1]


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
    main()
