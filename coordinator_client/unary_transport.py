"""Carries each request as a unary call, as plain stubs do: for callers that block their thread, and for servers without
sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from coordinator_client.errors import Loss
from coordinator_client.grpc_library import grpc, loss_of
from coordinator_client.methods import ReplyT, RequestT, Rpc
from coordinator_client.process import THIS_PROCESS
from coordinator_client.transport import CHANNEL_OPTIONS, Call


class UnaryTransport:
    """Makes calls over the channel that all connections of this process to one endpoint share."""

    is_direct: Final = True

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._channel = _SHARED.acquire(endpoint)
        self._calls: dict[str, grpc.UnaryUnaryMultiCallable[Any, Any]] = {}

    def start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        timeout_ms: int,
        on_done: Callable[[ReplyT | Loss], None],
    ) -> Call:
        call = self._callable(rpc).future(request, timeout=timeout_ms / 1_000)

        def report(_: object) -> None:
            # A cancelled future raises from result() and exception() alike; the status answers in every case.
            status = call.code()
            on_done(call.result() if status is grpc.StatusCode.OK else loss_of(status, call.details()))

        call.add_done_callback(report)
        return call

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        try:
            return self._callable(rpc)(request, timeout=timeout_ms / 1_000)
        except grpc.RpcError as error:
            return loss_of(error.code(), error.details())

    def close(self) -> None:
        self._calls.clear()
        _SHARED.release(self._endpoint)

    def _callable(self, rpc: Rpc[RequestT, ReplyT]) -> grpc.UnaryUnaryMultiCallable[RequestT, ReplyT]:
        known = self._calls.get(rpc.method)
        if known is None:
            known = self._channel.unary_unary(
                rpc.path, request_serializer=rpc.request_type.SerializeToString, response_deserializer=rpc.parse
            )
            self._calls[rpc.method] = known
        return known


class _SharedChannels:
    """The open channels of this process, with the number of users of each. A fork begins without any: those of its
    parent are of no use to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, str], tuple[grpc.Channel, int]] = {}

    def acquire(self, endpoint: str) -> grpc.Channel:
        key = (THIS_PROCESS.process_id, endpoint)
        with self._lock:
            channel, users = self._channels.get(key, (None, 0))
            if channel is None:
                channel = grpc.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
            self._channels[key] = (channel, users + 1)
        return channel

    def release(self, endpoint: str) -> None:
        key = (THIS_PROCESS.process_id, endpoint)
        with self._lock:
            channel, users = self._channels.pop(key)
            if users > 1:
                self._channels[key] = (channel, users - 1)
                return
        channel.close()


_SHARED: Final = _SharedChannels()
