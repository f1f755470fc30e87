"""Measures the effect of floods and of clients that never read on other callers, for each installed transport.

    python -m bench.exhaustion                                    every kind of abuse, on both transports: three minutes
    python -m bench.exhaustion --only unread --transport native   some of them
    python -m bench.exhaustion --tls                              with TLS, on a server that requires tokens

With `--tls` the committing callers show a token. So does the abusive one, another principal from another host, which
has a quota of a thousand requests a second. Some abuse is unauthenticated. During each kind of abuse, four callers
commit without a pause. The abuse comes from a process of its own, which comes and goes: each round measures the commits
without it, then with it. The table has the 99th percentile and the longest of the waits of all rounds. It also has the
memory of the server before, at its peak, and some seconds after all is over.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from bench.credentials import new_authority, new_tokens
from bench.load.stubs import checked
from bench.load.transact import transact_request
from bench.processes import peak_mib, resident_mib
from bench.raw_http2 import RawPeer, call, connected, floods, http2_over_tls
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
"""Longer than the time after which the server returns memory to the system (s)."""
_READERS: Final = 20
_FETCHES: Final = 90
_FILLED: Final = 20
_ANSWER_BYTES_MAX: Final = 15 * MEBI
_TOPIC: Final = "exhaustion"
_REQUESTS_PER_SECOND: Final = 1_000
"""Quota of the authenticated abusive caller."""
_LIMITS: Final = "/coordinator_api.v1.AdminService/DescribeLimits"
_FETCH: Final = "/coordinator_api.v1.LogService/Fetch"

_UNREAD: Final = f"{_READERS} connections, {_FETCHES} unread Fetches each"
_HARMFUL_HOST: Final = "127.0.0.2"
"""Address of the abusive caller, which a server sees as a host different from that of the committing callers."""
_IDLE_CONNECTIONS: Final = 2_000
_CONNECTED: Final = f"strangers: {_IDLE_CONNECTIONS} connections that say nothing"
_GARBAGE: Final = "strangers: handshakes that fail, one after the other"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the credentials for it."""

    port: int
    ca_file: str = ""
    """CA file, if the server has TLS."""
    token_file: str = ""
    """Token file of the caller."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def peer(self) -> RawPeer:
        return RawPeer(self.port, tls=http2_over_tls(Path(self.ca_file)) if self.ca_file else None, by=_HARMFUL_HOST)

    def channel(self) -> grpc.Channel:
        """Open a new connection."""
        own = [("grpc.use_local_subchannel_pool", 1)]
        if not self.ca_file:
            return grpc.insecure_channel(self.endpoint, own)
        shown = grpc.access_token_call_credentials(Path(self.token_file).read_text().strip())
        tls = grpc.ssl_channel_credentials(Path(self.ca_file).read_bytes())
        return grpc.secure_channel(self.endpoint, grpc.composite_channel_credentials(tls, shown), own)

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        """Header of calls that are framed by hand."""
        if not self.token_file:
            return ()
        return (("authorization", f"Bearer {Path(self.token_file).read_text().strip()}"),)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transport", choices=_transports(), help="this one alone")
    parser.add_argument("--only", default="", help="harm with this in its name")
    parser.add_argument("--tls", action="store_true", help="with TLS, on a server that asks its callers for tokens")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of each harm (default: %(default)s)")
    asked = parser.parse_args(arguments)
    print(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {asked.rounds} rounds of {_SECONDS} s\n"
    )
    print("| transport | one caller | commit p99 / longest before | meanwhile | p99 x | MiB before | peak | after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for transport in [asked.transport] if asked.transport else _transports():
        for name in harms(with_tls=asked.tls):
            if asked.only in name:
                found = _measured(transport, name, asked.rounds, with_tls=asked.tls)
                print(f"| {transport} | {name} | {found} |", flush=True)


def _transports() -> list[str]:
    return ["grpc", "native"] if importlib.util.find_spec("txn_native_transport") is not None else ["grpc"]


def harms(*, with_tls: bool = False) -> list[str]:
    """Return the names of all kinds of abuse by one caller."""
    strangers = [_CONNECTED, _GARBAGE] if with_tls else []
    return [_UNREAD, *strangers, *(f"flood: {kind}" for kind in floods(_LIMITS))]


def do_harm(name: str, target: Target) -> None:
    """Abuse the server in this way, for some seconds."""
    match name:
        case _ if name == _UNREAD:
            _stand_still(target)
        case _ if name == _CONNECTED:
            _connect(target)
        case _ if name == _GARBAGE:
            _fail_handshakes(target)
        case _:
            _flood(name.removeprefix("flood: "), target)


def _flood(kind: str, target: Target) -> None:
    """Flood the server over one connection at a time, and open a new one when it is closed."""
    until = time.monotonic() + _SECONDS
    while (left := until - time.monotonic()) > 0:
        # The server may also end the next handshake.
        with suppress(OSError), target.peer() as peer:
            peer.flood(floods(_LIMITS, target.authorization)[kind], left)


def _connect(target: Target) -> None:
    until = time.monotonic() + _SECONDS
    with ExitStack() as leaving:
        for _ in range(_IDLE_CONNECTIONS):
            with suppress(OSError):
                leaving.enter_context(connected(target.port, _HARMFUL_HOST))
        time.sleep(max(0, until - time.monotonic()))


def _fail_handshakes(target: Target) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        with suppress(OSError), connected(target.port, _HARMFUL_HOST) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00" + os.urandom(512))
            connection.recv(1_024)


def _stand_still(target: Target) -> None:
    fetch = log_pb2.FetchRequest(max_bytes=_ANSWER_BYTES_MAX)
    fetch.partitions.add(topic=_TOPIC, partition=1, fetch_offset=0)
    body = fetch.SerializeToString()
    with ExitStack() as leaving:
        for _ in range(_READERS):
            peer = leaving.enter_context(target.peer())
            shown = target.authorization
            peer.send(b"".join(call(2 * number + 1, _FETCH, body, shown) for number in range(_FETCHES)))
        time.sleep(_SECONDS)


def _measured(transport: str, name: str, rounds: int, *, with_tls: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="exhaustion-") as directory:
        settings, shown = asking(Path(directory)) if with_tls else ({}, [{}, {}])
        settings["transport"] = transport
        arguments = [word for each in settings.items() for word in ("--set", "=".join(each))]
        server = OwnServer(Path(directory), arguments=arguments)
        server.start()
        try:
            port = int(server.endpoint.rpartition(":")[2])
            quiet, noisy = (Target(port, **each) for each in shown)
            _fill(quiet)
            _waits_ms(quiet, lambda: time.sleep(_WARM_UP_S))
            memory = [_mib(server.process_id)]
            alone, beside = list[float](), list[float]()
            for _ in range(rounds):
                alone += _waits_ms(quiet, lambda: time.sleep(_SECONDS))
                with _harm_process(name, noisy) as harm:
                    beside += _waits_ms(quiet, partial(_have_harm_done, harm))
            memory.append(peak_mib(server.process_id))
            time.sleep(_SETTLE_S)
            memory.append(_mib(server.process_id))
        finally:
            server.stop()
    times = [f"{_p99(waits):.0f} / {max(waits):.0f} ms" for waits in (alone, beside)]
    return " | ".join([*times, f"{_p99(beside) / _p99(alone):.1f}", *(f"{each:.0f}" for each in memory)])


def asking(directory: Path) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the settings of a server with TLS that requires tokens, and the credentials of two callers."""
    ca_file, issue = new_authority(directory)
    pair, (tokens_file, files) = issue("server"), new_tokens(directory, "quiet", "noisy")
    quotas_file = directory / "quotas.toml"
    quotas_file.write_text(f'[[quotas]]\nprincipal = "User:noisy"\nrequests_per_second = {_REQUESTS_PER_SECOND}\n')
    settings = {
        "tls_certificate_file": f"{pair}.crt",
        "tls_key_file": f"{pair}.key",
        "authentication": "token",
        "tokens_file": str(tokens_file),
        "super_users": "User:quiet;User:noisy",
        "quotas_file": str(quotas_file),
    }
    return settings, [{"ca_file": str(ca_file), "token_file": str(file)} for file in files]


def _harm_process(name: str, target: Target) -> subprocess.Popen[str]:
    """Start a process that is ready for abuse. In this process, abuse would also block the callers whose waits are
    measured."""
    program = f"from bench.exhaustion import Target, do_harm; print(); input(); do_harm({name!r}, {target!r})"
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


def _fill(target: Target) -> None:
    with target.channel() as channel:
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


def _waits_ms(target: Target, meanwhile: Callable[[], None]) -> list[float]:
    """Return the waits of callers for their commits while something else is done (ms)."""
    is_over = threading.Event()
    waited_ms: list[float] = []
    callers = [
        threading.Thread(target=_commit, args=(target, f"caller-{number}", is_over, waited_ms))
        for number in range(_CALLERS)
    ]
    for caller in callers:
        caller.start()
    meanwhile()
    is_over.set()
    for caller in callers:
        caller.join()
    return waited_ms


def _commit(target: Target, transactional_id: str, is_over: threading.Event, waited_ms: list[float]) -> None:
    with target.channel() as channel:
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


if __name__ == "__main__":
    main(sys.argv[1:])
