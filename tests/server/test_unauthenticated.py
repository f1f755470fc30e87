"""Connections without an authenticated caller: bounded, to leave room for the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from grpc import aio

from bench.raw_http2 import RawPeer, http2_over_tls
from coordinator_runtime.clock import SystemClock
from coordinator_server.grpc_front.transports import UNAUTHENTICATED_LEAST, TransportName, TransportOptions
from coordinator_server.listeners import Identities, Listeners
from coordinator_server.security.tokens import ReloadingTokens
from tests.harness.certificates import Authority
from tests.harness.patience import DEADLINE_SECONDS, looks, until
from tests.harness.transports import skip_what_is_missing
from tests.server.asking_server import HOST, Tokens, channel_to, find, serving, with_tls


@dataclass(frozen=True, slots=True)
class Asking:
    """A server with TLS that asks its callers for tokens, and one that counts."""

    listeners: Listeners
    authority: Authority
    token: str

    @property
    def port(self) -> int:
        return self.listeners.first.address.port

    def stranger(self) -> RawPeer:
        """A connection that shakes hands and makes no call."""
        return RawPeer(self.port, tls=http2_over_tls(self.authority.ca_file))

    def known(self) -> aio.Channel:
        """A channel with a connection of its own, whose calls count."""
        return channel_to(self.listeners, self.authority, token=self.token)

    @property
    def open_connections(self) -> int:
        return self.listeners.numbers().open_connections or 0

    @property
    def refused(self) -> int:
        return self.listeners.numbers().abuses["unauthenticated"]


@asynccontextmanager
async def asking(
    tmp_path: Path, connections_max: int = 8 * UNAUTHENTICATED_LEAST, authentication: str = "token"
) -> AsyncIterator[Asking]:
    skip_what_is_missing(TransportName.NATIVE)
    authority, tokens = Authority(tmp_path, "ca"), Tokens(tmp_path)
    token = tokens.add("User:etl")
    listener = with_tls(authority.issue("server"), authentication=authentication)
    options = TransportOptions(1 << 20, connections_max=connections_max)
    identities = Identities(ReloadingTokens(tokens.file, SystemClock()))
    async with serving(listener, identities, TransportName.NATIVE, options=options) as (listeners, _):
        yield Asking(listeners, authority, token)


async def test_unauthenticated_take_an_eighth_of_the_places_and_those_who_are_known_the_others(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        async with asking(tmp_path) as server:
            peers = [await asyncio.to_thread(server.stranger) for _ in range(UNAUTHENTICATED_LEAST)]
            await until(lambda: server.open_connections == UNAUTHENTICATED_LEAST)
            # The oldest had its moment, and goes.
            async with server.known() as channel:
                await call_until_answered(channel)
                assert await asyncio.to_thread(peers[0].read_until_closed, DEADLINE_SECONDS)
                # Authenticated callers no longer count: the next stranger finds a place without another's leaving.
                gone = server.refused
                peers.append(await asyncio.to_thread(server.stranger))
                await until(lambda: server.open_connections == UNAUTHENTICATED_LEAST + 1)
                assert server.refused == gone
                await find(channel)
            for peer in peers:
                peer.close()
    assert gone >= 1
    (line,) = (line for line in lines if line["event"] == "harm")
    assert (line["kind"], line["details"]) == ("unauthenticated", HOST)


async def call_until_answered(channel: aio.Channel) -> None:
    """A host that opened many connections just now waits a moment for its next one."""
    for _ in looks("the place of a stranger that was there for a moment"):
        try:
            await find(channel)
        except aio.AioRpcError:
            await asyncio.sleep(0)
        else:
            return


async def test_a_stranger_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    async with asking(tmp_path) as server:
        for _ in range(3 * UNAUTHENTICATED_LEAST):
            with await asyncio.to_thread(server.stranger):
                pass
            await until(lambda: server.open_connections == 0)
        assert server.refused == 0


@pytest.mark.parametrize("authentication", ["token", ""])
async def test_connections_that_never_shake_hands_are_strangers(tmp_path: Path, authentication: str) -> None:
    async with asking(tmp_path, authentication=authentication) as server:
        silent = [socket.create_connection((HOST, server.port)) for _ in range(UNAUTHENTICATED_LEAST)]
        await until(lambda: server.open_connections == UNAUTHENTICATED_LEAST)
        async with server.known() as channel:
            await call_until_answered(channel)
        for each in silent:
            each.close()


async def test_without_authentication_a_handshake_is_enough(tmp_path: Path) -> None:
    async with asking(tmp_path, authentication="") as server:
        peers = [await asyncio.to_thread(server.stranger) for _ in range(3 * UNAUTHENTICATED_LEAST)]
        await until(lambda: server.open_connections == len(peers))
        assert server.refused == 0
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(("connections_max", "unauthenticated_max"), [(1, UNAUTHENTICATED_LEAST), (10_000, 1_250)])
def test_how_many_strangers_there_may_be(connections_max: int, unauthenticated_max: int) -> None:
    assert TransportOptions(1, connections_max=connections_max).unauthenticated_max == unauthenticated_max
