"""The transport of a server: the one asked for, the best that is there, or a refusal that says what to do."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from coordinator_runtime.clock import SystemClock
from coordinator_server.compiled import fastest_conversions, fastest_examine_batch
from coordinator_server.grpc_front.transport_choice import TransportMissing, open_transport
from coordinator_server.grpc_front.transports import ServerTransport, TransportName, TransportOptions
from partition_log.codec import examine_batch
from partition_log.conversion import kafka_payload_of, records_payload_of
from tests.harness.transports import skip_what_is_missing


def opened(name: TransportName) -> ServerTransport:
    return open_transport(name, [], SystemClock(), TransportOptions(1 << 20))


async def stopped(transport: ServerTransport) -> TransportName:
    await transport.stop(0)
    return transport.name


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "txn_native_transport", None)
    for module in ("native_interface", "grpc_front.native_exchange", "grpc_front.native_transport"):
        monkeypatch.delitem(sys.modules, f"coordinator_server.{module}", raising=False)


@pytest.mark.usefixtures("not_installed")
async def test_without_the_compiled_transport_auto_is_grpc_and_native_is_refused() -> None:
    assert await stopped(opened(TransportName.AUTO)) is TransportName.GRPC
    with pytest.raises(
        TransportMissing,
        match=r"txn_native_transport.*: install txn-coordinator\[native\], in a checkout by `make native`",
    ):
        opened(TransportName.NATIVE)


@pytest.mark.usefixtures("not_installed")
def test_without_it_batches_are_examined_and_converted_in_python() -> None:
    assert fastest_examine_batch() is examine_batch
    assert fastest_conversions.__wrapped__() == (kafka_payload_of, records_payload_of)


async def test_with_it_auto_is_native_and_grpc_can_be_had() -> None:
    skip_what_is_missing(TransportName.NATIVE)
    assert await stopped(opened(TransportName.AUTO)) is TransportName.NATIVE
    assert await stopped(opened(TransportName.GRPC)) is TransportName.GRPC


async def test_one_of_another_interface_is_as_good_as_none(
    not_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ModuleType("txn_native_transport")
    monkeypatch.setattr(old, "INTERFACE", 99, raising=False)
    monkeypatch.setitem(sys.modules, old.__name__, old)
    assert await stopped(opened(TransportName.AUTO)) is TransportName.GRPC
    assert fastest_examine_batch() is examine_batch
    with pytest.raises(TransportMissing, match="has interface 99, and this server knows"):
        opened(TransportName.NATIVE)
