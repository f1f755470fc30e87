"""Limits on the connections and sessions of a principal, on listeners that authenticate callers."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import transaction_pb2
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.ports import Level
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.listeners import Identities, Listeners
from coordinator_server.security.authentication import NOTHING_SHOWN, Callers
from coordinator_server.security.tokens import ReloadingTokens
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.rules import QuotaRow, QuotaRules
from tests.harness.certificates import Authority
from tests.harness.manual_clock import ManualClock
from tests.harness.patience import until
from tests.harness.transports import skip_what_is_missing
from tests.server.asking_server import Tokens, serving, with_tls
from tests.server.fake_servicer import FIND_COORDINATOR

ETL = "User:etl"


def budgets(**levels: int) -> Budgets:
    rules = QuotaRules([QuotaRow.model_validate({"principal": ETL, **levels})])
    return Budgets(ManualClock(), lambda: rules)


class Session:
    def announce_stop(self) -> None:
        raise AssertionError("no second question is expected")

    def cut(self) -> None:
        raise AssertionError("no second question is expected")


def test_a_connection_counts_once_until_it_has_ended() -> None:
    held = budgets(connections=2)
    callers = Callers(levels=held)
    for connection in (1, 2, 1):
        callers.enter(ETL, connection)
    with pytest.raises(Unanswered, match="holds 2 of connections, and may hold 2") as refused:
        callers.enter(ETL, 3)
    assert refused.value.status is CallStatus.RESOURCE_EXHAUSTED
    callers.enter("User:other", 4)
    callers.left(3)
    callers.left(1)
    callers.left(1)
    callers.enter(ETL, 5)
    assert held.of(ETL).held[Level.CONNECTIONS] == 2


def test_a_session_counts_until_it_has_ended() -> None:
    held = budgets(sessions=1)
    callers = Callers(principal=ETL, levels=held)
    session = Session()
    assert callers.principal_of_session(NOTHING_SHOWN, "host") == ETL
    callers.watch(session, NOTHING_SHOWN, "host", ETL)
    with pytest.raises(Unanswered, match="holds 1 of sessions"):
        callers.principal_of_session(NOTHING_SHOWN, "host")
    callers.forget(session)
    callers.forget(session)
    assert held.of(ETL).held[Level.SESSIONS] == 0
    assert callers.principal_of_session(NOTHING_SHOWN, "host") == ETL


async def test_one_connection_more_is_refused_until_another_has_ended(tmp_path: Path) -> None:
    skip_what_is_missing(TransportName.NATIVE)
    authority, tokens, held = Authority(tmp_path, "ca"), Tokens(tmp_path), budgets(connections=2)
    token = tokens.add(ETL)
    listener = with_tls(authority.issue("server"), authentication="token")
    identities = Identities(ReloadingTokens(tokens.file, SystemClock()))
    options = TransportOptions(1 << 20, levels=held)
    async with serving(listener, identities, TransportName.NATIVE, options=options) as (listeners, _servicer):
        channels = [own_connection(listeners, authority) for _ in range(3)]
        for channel in channels[:2]:
            assert not (await find_coordinator(channel, token)).error_code
        with pytest.raises(aio.AioRpcError) as refused:
            await find_coordinator(channels[2], token)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "holds 2 of connections" in (refused.value.details() or "")
        await channels[0].close()
        await until(lambda: held.of(ETL).held[Level.CONNECTIONS] == 1)
        assert not (await find_coordinator(channels[2], token)).error_code
        for channel in channels[1:]:
            await channel.close()


def own_connection(listeners: Listeners, authority: Authority) -> aio.Channel:
    credentials = grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
    options = [("grpc.use_local_subchannel_pool", 1)]
    return aio.secure_channel(f"localhost:{listeners.first.address.port}", credentials, options)


async def find_coordinator(channel: aio.Channel, token: str) -> transaction_pb2.FindCoordinatorResponse:
    call = channel.unary_unary(
        FIND_COORDINATOR,
        request_serializer=transaction_pb2.FindCoordinatorRequest.SerializeToString,
        response_deserializer=transaction_pb2.FindCoordinatorResponse.FromString,
    )
    request = transaction_pb2.FindCoordinatorRequest(keys=["a"])
    return await call(request, metadata=[("authorization", f"Bearer {token}")])
