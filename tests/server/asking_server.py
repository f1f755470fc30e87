"""A server with authentication, in this process, and the tokens and calls of its callers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import session_pb2, transaction_pb2
from coordinator_runtime.clock import Clock, SystemClock
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listeners import Identities, Listener, Listeners
from coordinator_server.security.authentication import Authenticator, NameRule, Presented, Reason, Unauthenticated
from coordinator_server.security.certificates import CertificateNames
from coordinator_server.security.tokens import new_token
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness.certificates import Authority, Pair
from tests.harness.gated import GatedDispatcher
from tests.harness.manual_clock import ManualClock
from tests.harness.transports import wanted_transport
from tests.server.fake_servicer import FIND_COORDINATOR, SERVICE, FakeTransactionServicer

CLOCK = SystemClock()
HOST = "127.0.0.1"


class Tokens:
    """A tokens file, and the tokens that were put into it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "tokens.toml"
        self.file.write_text("")
        self._made = 0

    def add(self, principal: str, *, expires: str = "") -> str:
        self._made += 1
        token, table = new_token(f"t{self._made}", bytes([self._made]) * 32, principal, None)
        self.file.write_text(self.file.read_text() + table + (f"expires = {expires}\n" if expires else ""))
        return token

    def withdraw_all(self) -> None:
        self.file.write_text("# nobody\n")


def secret_of(token: str) -> str:
    """Return the secret part of a token, behind its prefix and its id; it may hold underscores of its own."""
    _prefix, _id, secret = token.split("_", 2)
    return secret


def reason(authenticator: Authenticator, shown: Presented) -> Reason:
    with pytest.raises(Unauthenticated) as refused:
        authenticator.principal(shown, "10.0.0.7")
    assert refused.value.message == "authentication required"
    return refused.value.reason


def bearer(token: str) -> Presented:
    return Presented(f"Bearer {token}")


def names(authority: Authority, rule: NameRule | None = None, clock: ManualClock | None = None) -> CertificateNames:
    return CertificateNames(authority.ca_file.read_bytes, rule or NameRule(), clock or CLOCK)


@asynccontextmanager
async def serving(
    listener: Listener,
    identities: Identities,
    name: TransportName | None = None,
    *,
    clock: Clock = CLOCK,
    options: TransportOptions | None = None,
) -> AsyncIterator[tuple[Listeners, FakeTransactionServicer]]:
    listeners, servicer = Listeners(), FakeTransactionServicer()
    try:
        options = options or TransportOptions(1 << 20)
        listeners.open([listener], name or wanted_transport(), [SERVICE.full_name], clock, options, identities)
        dispatcher = GatedDispatcher(
            [SERVICE], Admission(AdmissionLimits(), lambda: 0), CLOCK, message_bytes_max=1 << 20
        )
        dispatcher.open([servicer])
        await listeners.start(dispatcher)
        yield listeners, servicer
    finally:
        await listeners.give_back()


def with_tls(pair: Pair, **more: object) -> Listener:
    return Listener.model_validate(
        {"listen": f"{HOST}:0", "tls_certificate_file": pair.certificate, "tls_key_file": pair.key} | more
    )


def channel_to(listeners: Listeners, authority: Authority, shown: Pair | None = None, token: str = "") -> aio.Channel:
    pair = () if shown is None else (shown.key.read_bytes(), shown.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.ca_file.read_bytes(), *pair)
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return aio.secure_channel(str(listeners.first.address), credentials)


async def find(channel: aio.Channel, method: str = FIND_COORDINATOR, body: bytes = b"") -> bytes:
    answer: bytes = await channel.unary_unary(method)(body)
    return answer


def end_txn(correlation_id: int) -> session_pb2.SessionCall:
    return session_pb2.SessionCall(
        correlation_id=correlation_id,
        method=f"/{SERVICE.full_name}/EndTxn",
        body=transaction_pb2.EndTxnRequest().SerializeToString(),
    )
