"""A gRPC channel that follows changed certificates. gRPC reads them once, so a new channel replaces the old one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from coordinator_client.errors import misconfigured
from coordinator_client.tls import Signature, Tls, TlsProblem, new_context, read_file, read_token, signature_of
from coordinator_client.transport.grpc_library import grpc
from coordinator_client.transport.transport import CHANNEL_OPTIONS
from coordinator_protocol.errors import ErrorCode

ChannelT = TypeVar("ChannelT")

ChannelOptions = tuple[tuple[str, int | str], ...]
Metadata = tuple[tuple[str, str], ...]


class CachedChannel(Generic[ChannelT]):
    """The newest channel to one server. Usable from any thread, as far as its channels are."""

    def __init__(
        self,
        tls: Tls | None,
        open_channel: Callable[[grpc.ChannelCredentials | None, ChannelOptions], ChannelT],
        close_channel: Callable[[ChannelT], object],
    ) -> None:
        """Open the first channel. Raises: Misconfigured if the files of TLS have become unusable."""
        self._tls = tls
        self._open = open_channel
        self._close = close_channel
        self._lock = threading.RLock()
        self._before: ChannelT | None = None
        self._seen: Signature = ()
        self.metadata: Metadata = ()
        """Metadata of every call on the channel: the token, if there is one.

        The call credentials of gRPC are not used for it, because they run Python in gRPC's own threads. Closing a
        channel while one of these threads wants to run may hang forever, with the interpreter's lock held.
        """
        if tls is None:
            self._channel = open_channel(None, CHANNEL_OPTIONS)
            return
        self._seen = signature_of(tls)
        try:
            self._channel = self._opened(tls)
        except TlsProblem as problem:
            raise misconfigured(ErrorCode.INVALID_CONFIG, str(problem)) from problem

    def current(self) -> ChannelT:
        """Return the channel for a new call or stream. Calls on the previous channel continue until the files change
        once more: rotations are hours apart, and calls are over by then."""
        if self._tls is not None and signature_of(self._tls) != self._seen:
            with self._lock:
                self._renew(self._tls)
        return self._channel

    def close(self) -> None:
        """Close the channels; calls in flight are lost."""
        for channel in (self._before, self._channel):
            if channel is not None:
                self._close(channel)

    def _renew(self, tls: Tls) -> None:
        seen = signature_of(tls)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            channel = self._opened(tls)
        except TlsProblem:
            # A rotation in progress: the current channel continues, and the next change is checked again.
            return
        before, self._before, self._channel = self._before, self._channel, channel
        if before is not None:
            self._close(before)

    def _opened(self, tls: Tls) -> ChannelT:
        new_context(tls)
        shown = [None if file is None else read_file(file) for file in (tls.key_file, tls.certificate_file)]
        credentials = grpc.ssl_channel_credentials(read_file(tls.ca_file), *shown)
        named = () if tls.server_name is None else (("grpc.ssl_target_name_override", tls.server_name),)
        if tls.token_file is not None:
            self.metadata = (("authorization", f"Bearer {read_token(tls.token_file)}"),)
        return self._open(credentials, (*CHANNEL_OPTIONS, *named))
