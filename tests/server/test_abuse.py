"""A server as it would stand in a network, with TLS and authentication, and what strangers and a known caller can do to
it: garbage, floods, bombs, masses of everything. Each time its memory stays bounded, others go on committing, nothing
of it fails by a defect, and the compiled transport counts and tells what it refused.

What they cost the others in time is measured by `python -m bench.exhaustion --tls`.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import ssl
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import grpc
import pytest
from grpc import aio

from bench.processes import peak_mib, resident_mib
from bench.raw_http2 import RawPeer, call, connected, floods, http2_over_tls, message, request_headers
from coordinator_api.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    log_pb2,
    log_pb2_grpc,
    session_pb2,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_client import Admin, Connection, Producer, Tls, read
from coordinator_client.transport.grpc_transport import SESSION_PATH
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import MEBI
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front.transports import TransportName
from coordinator_server.traffic.quotas.budgets import PATIENCE_PER_SECOND
from tests.fuzz.choices import Choices
from tests.fuzz.requests import Requests
from tests.harness.certificates import Authority
from tests.harness.patience import DEADLINE_SECONDS, looks
from tests.harness.server_process import ServerProcess
from tests.harness.transports import ONE_SHORT
from tests.ops.prometheus_process import metrics_address
from tests.permissions.guarded_front import GuardedFront
from tests.server.asking_server import Tokens
from tests.server.test_exhaustion import FLOODED_GROWTH_MIB_MAX, FLOODS_LAST_SECONDS, GROWTH_MIB_MAX, gives_back

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("transport", ONE_SHORT, indirect=True)]

HOST: Final = "127.0.0.1"
ABUSER: Final = "127.0.0.9"
"""Strangers come from another host than those who work."""
TOPIC: Final = "canary"
LIMITS: Final = "/coordinator_api.v1.AdminService/DescribeLimits"
FETCH: Final = "/coordinator_api.v1.LogService/Fetch"
PRODUCE: Final = "/coordinator_api.v1.LogService/Produce"
GARBAGE: Final = 300
IDLE: Final = 2_000
SESSIONS: Final = 2_000
LONG_POLLS: Final = 12_000
"""More than `long_polls_max`."""
IDS: Final = 10_000
FUZZED: Final = 3_000
LISTS: Final = {
    FETCH: b"\x32\0",
    "/coordinator_api.v1.LogService/CreateTopics": b"\x12\0",
    "/coordinator_api.v1.TransactionService/DescribeTransactions": b"\x12\0",
    "/coordinator_api.v1.GroupService/DeleteGroups": b"\x12\0",
}
"""Procedures, and an empty element of a list of their requests."""
GATHERED_MIB_MAX: Final = 330
"""Memory for requests that have come in part, and some buffers. Those of the test would take 336 and those."""
LISTS_GROWTH_MIB_MAX: Final = 200
"""Such a request and some copies of it; its elements would take 400 and more."""
ENDED: Final = {
    "resets": "resets",
    "continuations": "rules",
    "streams without data": "unfinished_calls",
    "pings": "control_frames",
}
"""Floods that the compiled transport ends, and what it calls them."""
THROTTLE_IGNORING: Final = "throttle-ignoring"
HEEDED_PER_SECOND: Final = 20
"""The quota of that client."""
_OWN: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]


@dataclass
class Victim:
    """The server, and those who know its CA."""

    server: ServerProcess
    authority: Authority
    token_file: Path
    """The token of the caller who goes on working."""
    abuser_file: Path
    """The token of an authenticated caller, who does the harm."""
    transport: TransportName
    leaving: ExitStack
    commits: int = 0
    before_mib: float = 0.0
    random: random.Random = field(default_factory=lambda: random.Random(20))

    @property
    def tls(self) -> ssl.SSLContext:
        return http2_over_tls(self.authority.ca_file)

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.abuser_file.read_text()}"),)

    def peer(self) -> RawPeer:
        """A connection after its handshake, which says what the test makes it say."""
        return self.leaving.enter_context(RawPeer(self.server.port, tls=self.tls, by=ABUSER))

    def plain(self) -> socket.socket:
        """A connection without a handshake."""
        return self.leaving.enter_context(connected(self.server.port, ABUSER))

    def channel(
        self, *, is_known: bool = True, compression: grpc.Compression = grpc.Compression.NoCompression
    ) -> grpc.Channel:
        """A connection of its own."""
        made = grpc.secure_channel(self.server.address, self._credentials(is_known=is_known), _OWN, compression)
        return self.leaving.enter_context(made)

    def aio_channel(self) -> aio.Channel:
        return aio.secure_channel(self.server.address, self._credentials(is_known=True), _OWN)

    def _credentials(self, *, is_known: bool) -> grpc.ChannelCredentials:
        credentials = grpc.ssl_channel_credentials(self.authority.ca_file.read_bytes())
        if not is_known:
            return credentials
        shown = grpc.access_token_call_credentials(self.abuser_file.read_text())
        return grpc.composite_channel_credentials(credentials, shown)

    def connection(self) -> Connection:
        return Connection(self.server.address, tls=Tls(ca_file=self.authority.ca_file, token_file=self.token_file))

    def is_well(self) -> None:
        """Another caller commits, and reads everything that was committed so far."""
        with self.connection() as connection:
            with Producer(connection, transactional_id="canary") as producer, producer.transaction() as txn:
                txn.send(TOPIC, str(self.commits).encode())
            self.commits += 1
            values = [record.value for record in read(TOPIC, connection)]
        assert values == [str(number).encode() for number in range(self.commits)]

    def figure(self, name: str) -> float:
        """One line of the metrics."""
        with urlopen(f"http://{metrics_address(self.server)}/metrics", timeout=DEADLINE_SECONDS) as page:
            lines = page.read().decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")))

    def counted_and_told(self, kind: str) -> None:
        """grpc.aio cannot say what it refused."""
        if self.transport is TransportName.NATIVE:
            assert self.figure(f'txn_rpc_harm_total{{kind="{kind}"}}') > 0
            for _ in looks("the line of the log"):
                if f'"kind": "{kind}"' in self.server.output:
                    break


@pytest.fixture
def victim(tmp_path: Path, transport: TransportName) -> Iterator[Victim]:
    authority, tokens = Authority(tmp_path, "ca"), Tokens(tmp_path)
    pair, token_file, abuser_file = authority.issue("server"), tmp_path / "token", tmp_path / "abuser"
    token_file.write_text(tokens.add("User:operator"))
    abuser_file.write_text(tokens.add("User:abuser"))
    quotas_file = tmp_path / "quotas.toml"
    quotas_file.write_text(
        f'[[quotas]]\nprincipal = "User:abuser"\nclient_id = "{THROTTLE_IGNORING}"\n'
        f"requests_per_second = {HEEDED_PER_SECOND}\n"
    )
    settings = {
        "quotas_file": str(quotas_file),
        "tls_certificate_file": pair.certificate,
        "tls_key_file": pair.key,
        "authentication": "token",
        "tokens_file": tokens.file,
        "super_users": "User:operator;User:abuser",
        "metrics_listen": f"{HOST}:0",
        "log_format": "json",
    }
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with ServerProcess(tmp_path / "data", *arguments) as server, ExitStack() as leaving:
        victim = Victim(server, authority, token_file, abuser_file, transport, leaving)
        with victim.connection() as connection:
            Admin(connection).create_topic(TOPIC, partition_count=1)
        victim.is_well()
        victim.before_mib = resident_mib(server.process_id) or 0.0
        yield victim
        victim.is_well()
        leaving.close()
        growth = FLOODED_GROWTH_MIB_MAX[transport]
        gives_back(server, victim.before_mib, growth)
        assert '"event": "defect"' not in server.output
        assert "Traceback" not in server.output
        assert victim.figure("txn_runtime_defects_total") == 0
        assert server.terminate() == ExitStatus.OK


# Strangers


def garbage(victim: Victim, kind: int) -> None:
    """One connection with bytes of no protocol."""
    noise = victim.random.randbytes
    if kind < 3:
        with connected(victim.server.port, ABUSER) as plain:
            plain.sendall((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", noise(2_000), b"\x16\x03\x01" + noise(200))[kind])
    else:
        with RawPeer(victim.server.port, tls=victim.tls, by=ABUSER) as peer:
            peer.send((noise(2_000), b"\xff\xff\xff\0\0\0\0\0\1", call(1, FETCH, noise(40)))[kind - 3])


def test_garbage_of_strangers(victim: Victim) -> None:
    for number in range(GARBAGE):
        with suppress(OSError):
            garbage(victim, number % 6)
        if number % 100 == 0:
            victim.is_well()
    victim.counted_and_told("handshakes")


@pytest.mark.long
@pytest.mark.parametrize("is_known", [False, True], ids=["strangers", "known"])
def test_floods(victim: Victim, *, is_known: bool) -> None:
    for name, frames in floods(LIMITS, victim.authorization if is_known else ()).items():
        # On a busy machine it takes a while until a flood is one.
        is_ended = name in ENDED and victim.transport is TransportName.NATIVE
        with suppress(OSError), RawPeer(victim.server.port, tls=victim.tls, by=ABUSER) as peer:
            peer.flood(frames, DEADLINE_SECONDS if is_ended else FLOODS_LAST_SECONDS)
        victim.is_well()
    for kind in ENDED.values():
        # Calls of strangers are a flood sooner, whatever is wrong with them besides.
        victim.counted_and_told("unknown_calls" if kind == "unfinished_calls" and not is_known else kind)


@pytest.mark.long
def test_unauthenticated_who_only_connect(victim: Victim) -> None:
    for number in range(IDLE):
        with suppress(OSError):
            if number % 4:
                victim.plain()
            else:
                victim.peer()
        if number % 500 == 0:
            victim.is_well()
    victim.is_well()
    victim.counted_and_told("unauthenticated")


@pytest.mark.long
def test_calls_of_strangers_are_not_read(victim: Victim) -> None:
    calls = victim.channel(is_known=False).unary_unary(PRODUCE)
    for size in (0, MEBI, 15 * MEBI):
        with pytest.raises(grpc.RpcError) as refused:
            calls(bytes(size), timeout=DEADLINE_SECONDS)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert victim.figure('txn_rpc_unauthenticated_total{reason="nothing_shown"}') == 3
    assert '"event": "unauthenticated"' in victim.server.output


# An authenticated caller


@pytest.mark.long
def test_headers_without_end(victim: Victim) -> None:
    calls = victim.channel().unary_unary(LIMITS)
    for size in (20_000, 200_000, 2_000_000):
        with pytest.raises(grpc.RpcError) as refused:
            calls(b"", timeout=DEADLINE_SECONDS, metadata=[("x-big", "y" * size)])
        assert refused.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    calls(b"", timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("mebi", [17, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_messages_that_are_too_large_also_when_they_were_small_on_their_way(
    victim: Victim, mebi: int, compression: grpc.Compression
) -> None:
    calls = victim.channel(compression=compression).unary_unary(PRODUCE)
    with pytest.raises(grpc.RpcError) as refused:
        calls(bytes(mebi * MEBI), timeout=DEADLINE_SECONDS)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    victim.counted_and_told("messages")


@pytest.mark.long
def test_requests_that_come_in_part_and_never_end(victim: Victim) -> None:
    if victim.transport is TransportName.GRPC:
        pytest.skip("nothing bounds them there (SECURITY.md)")
    headers, part = request_headers(PRODUCE, victim.authorization), message(bytes(15 * MEBI))[: 14 * MEBI]
    for _ in range(2):
        peer = victim.peer()
        for number in range(12):
            peer.begin(2 * number + 1, headers, part)
    victim.is_well()
    victim.counted_and_told("requests")
    assert peak_mib(victim.server.process_id) < victim.before_mib + GATHERED_MIB_MAX


@pytest.mark.long
def test_calls_with_tokens_that_do_not_count_again_and_again(victim: Victim) -> None:
    wrong = (("authorization", f"Bearer {'x' * 14_000}"),)
    with suppress(OSError), RawPeer(victim.server.port, tls=victim.tls, by=ABUSER) as peer:
        peer.flood((call(number, LIMITS, b"", wrong) for number in range(1, 20_000, 2)), DEADLINE_SECONDS)
    victim.counted_and_told("unknown_calls")


def test_lists_without_end_that_were_small_on_their_way(victim: Victim) -> None:
    channel = victim.channel(compression=grpc.Compression.Gzip)
    for method, empty in LISTS.items():
        answer = channel.unary_unary(method)(empty * (7 * MEBI), timeout=DEADLINE_SECONDS)
        # Every answer has its error in the same place.
        assert log_pb2.FetchResponse.FromString(answer).error_code == ErrorCode.INVALID_REQUEST
        victim.is_well()
    for calls, status in (
        (MEBI // 2, grpc.StatusCode.INVALID_ARGUMENT),
        (7 * MEBI, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        stream = channel.stream_stream(SESSION_PATH)(iter([b"\x12\0" * calls]), timeout=DEADLINE_SECONDS)
        with pytest.raises(grpc.RpcError) as refused:
            list(stream)
        assert refused.value.code() is status
    assert peak_mib(victim.server.process_id) < victim.before_mib + LISTS_GROWTH_MIB_MAX


@pytest.mark.long
def test_requests_of_every_procedure_with_anything_in_them(victim: Victim) -> None:
    requests, channel = Requests(GuardedFront()), victim.channel()
    waiting: list[grpc.Future[bytes]] = []
    for number in range(FUZZED):
        method, body = requests.request(Choices(victim.random.randbytes(victim.random.randrange(400))))
        if re.fullmatch(r"/[\w./]+", method, re.ASCII):
            waiting.append(channel.unary_unary(method).future(body, timeout=DEADLINE_SECONDS))
        if number % 100 == 99:
            # Some of them wait for what never comes.
            for each in waiting:
                each.cancel()
            waiting.clear()
        if number % 1_000 == 0:
            victim.is_well()


@pytest.mark.long
async def test_sessions_without_end(victim: Victim) -> None:
    hello = session_pb2.SessionRequest(calls=[session_pb2.SessionCall(correlation_id=1, method="DescribeLimits")])
    body = hello.SerializeToString()
    async with AsyncExitStack() as leaving:
        channels = [await leaving.enter_async_context(victim.aio_channel()) for _ in range(20)]
        streams = [channels[number % 20].stream_stream(SESSION_PATH)() for number in range(SESSIONS)]
        for stream in streams:
            await stream.write(body)
        for stream in streams:
            assert await stream.read()
        await asyncio.to_thread(victim.is_well)


def test_calls_that_never_pause_when_they_are_told_to(victim: Victim) -> None:
    ask = admin_pb2_grpc.AdminServiceStub(victim.channel()).DescribeLimits
    request = admin_pb2.DescribeLimitsRequest(header=common_pb2.RequestHeader(client_id=THROTTLE_IGNORING))
    waiting = deque(ask.future(request) for _ in range(64))
    codes: Counter[int] = Counter()
    for number in range(PATIENCE_PER_SECOND + 100):
        codes[waiting.popleft().result(DEADLINE_SECONDS).error_code] += 1
        waiting.append(ask.future(request))
        if number % 100 == 0:
            victim.is_well()
    for each in waiting:
        codes[each.result(DEADLINE_SECONDS).error_code] += 1
    assert set(codes) == {0, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    refused = victim.figure('txn_quota_refusals_total{quota="requests_per_second"}')
    assert refused == codes[ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    for _ in looks("the line of the audit log"):
        if re.search(r'"User:abuser".*"quota": "requests_per_second"', victim.server.output):
            break


@pytest.mark.long
def test_more_long_polls_than_there_may_be(victim: Victim) -> None:
    request = log_pb2.FetchRequest(max_wait_ms=30_000, min_bytes=1)
    request.partitions.add(topic=TOPIC, partition=0, fetch_offset=2 * victim.commits)
    fetches = [log_pb2_grpc.LogServiceStub(victim.channel()).Fetch for _ in range(4)]
    polls = [fetches[number % 4].future(request) for number in range(LONG_POLLS)]
    for _ in looks("a refusal"):
        refused = [poll for poll in polls if poll.done()]
        if refused:
            break
    assert refused[0].result().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    victim.is_well()
    for poll in polls:
        poll.cancel()
    assert victim.figure('txn_rpc_rejected_total{reason="overload"}') > 0


def test_unread_answers(victim: Victim) -> None:
    payload = log_pb2.Records(records=[log_pb2.Record(value=bytes(900_000))]).SerializeToString()
    batch = log_pb2.RecordBatch(record_count=1, encoding=log_pb2.ENCODING_RECORDS_V1, payload=payload)
    log = log_pb2_grpc.LogServiceStub(victim.channel())
    log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="large", partition_count=1)]))
    request = log_pb2.ProduceRequest()
    request.batches.add(topic="large", partition=0).batch.CopyFrom(batch)
    for _ in range(20):
        assert not log.Produce(request, timeout=DEADLINE_SECONDS).results[0].error_code
    fetch = log_pb2.FetchRequest(max_bytes=15 * MEBI)
    fetch.partitions.add(topic="large", partition=0, fetch_offset=0)
    body = fetch.SerializeToString()
    for _ in range(20):
        calls = (call(2 * number + 1, FETCH, body, victim.authorization) for number in range(90))
        victim.peer().send(b"".join(calls))
    for _ in looks("answers that wait"):
        if (resident_mib(victim.server.process_id) or 0) - victim.before_mib > GROWTH_MIB_MAX:
            break
    victim.is_well()
    assert victim.figure('txn_rpc_answers_refused_total{scope="principal"}') > 0


@pytest.mark.long
def test_transactional_ids_without_end(victim: Victim) -> None:
    init = transaction_pb2_grpc.TransactionServiceStub(victim.channel()).InitProducerId
    waiting: deque[grpc.Future[transaction_pb2.InitProducerIdResponse]] = deque()
    for number in range(IDS):
        request = transaction_pb2.InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000)
        waiting.append(init.future(request, timeout=DEADLINE_SECONDS))
        if len(waiting) > 400:
            assert waiting.popleft().result().error_code == 0
    for each in waiting:
        assert each.result().error_code == 0
