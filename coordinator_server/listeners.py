"""Where a server listens: the settings of one listener, and all of them opened, as one transport.

Each listener is a transport of its own, because what protects a call is a matter of the listener it came by, and gRPC
does not tell that of a call. Below them is the same handler, so a call takes the same path whichever it came by.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import BOUNDLESS_ROOM, AnswerRoom
from coordinator_server.addresses import Address, ListenText, is_local, parse_listen
from coordinator_server.kept_credentials import KeptCredentials
from coordinator_server.listening import give_unix_address_back, is_unix
from coordinator_server.tls import ClientAuth, TlsFiles
from coordinator_server.transport import Handler
from coordinator_server.transport_choice import open_transport
from coordinator_server.transports import ConnectionNumbers, Transport, TransportName, TransportOptions


class Listener(BaseModel):
    """One address to listen on, and what protects it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: ListenText
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    tls_client_auth: ClientAuth = ClientAuth.NONE

    @model_validator(mode="after")
    def _settings_make_sense_together(self) -> Self:
        self.tls_files()
        return self

    @property
    def address(self) -> Address:
        return parse_listen(self.listen)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_local(self.address.host)

    def tls_files(self, prefix: str = "") -> TlsFiles | None:
        """The files of TLS, None without TLS. Raises ValueError where half of them are named; `prefix` is how the names
        of its settings begin."""
        certificate, key, client_ca = self.tls_certificate_file, self.tls_key_file, self.tls_client_ca_file
        here = f"{prefix}listen = {self.listen}: {prefix}"
        if (certificate is None) != (key is None):
            given, missing = ("tls_certificate_file", "tls_key_file")[:: 1 if key is None else -1]
            raise ValueError(f"{here}{given} is set and {prefix}{missing} is not; a certificate needs its key")
        if (client_ca is None) != (self.tls_client_auth is ClientAuth.NONE):
            raise ValueError(
                f"{here}tls_client_ca_file and {prefix}tls_client_auth = requested or required go together:"
                " one says who signs the certificates of callers, the other whether they must show one"
            )
        if certificate is None or key is None:
            if client_ca is not None:
                raise ValueError(
                    f"{here}tls_client_ca_file is set, and callers can show certificates only where the server has one:"
                    f" set {prefix}tls_certificate_file and {prefix}tls_key_file"
                )
            return None
        if is_unix(self.listen):
            raise ValueError(
                f"listen = {self.listen}: a Unix socket has no TLS, because its bytes never leave this machine;"
                " the mode of the file says who may connect"
            )
        return TlsFiles(certificate, key, client_ca, self.tls_client_auth)


def why_unsafe(listener: Listener) -> str | None:
    """Return what somebody on the network can do who should not, and what would prevent that; None where nothing is
    missing. Such a listener is opened only if the operator says so (`insecure`)."""
    if listener.is_local or listener.tls_certificate_file is not None:
        return None
    return "others can reach it, read along and change everything, because it has no TLS"


@dataclass(frozen=True, slots=True)
class OpenListener:
    """A listener that has its address."""

    address: Address
    """With the port that was taken, if any free one was asked for."""
    transport: Transport
    credentials: KeptCredentials | None
    """None without TLS."""

    @property
    def protection(self) -> str:
        """In the words of the log and of the line that says that the server serves."""
        match self.credentials:
            case None:
                return "plaintext"
            case KeptCredentials(client_auth=ClientAuth.NONE):
                return "TLS"
            case KeptCredentials(client_auth=auth):
                return f"TLS, client certificates {auth}"


class Listeners:
    """All listeners of one server. Implements `Transport`, but for `bind`."""

    def __init__(self) -> None:
        self.opened: list[OpenListener] = []
        self._transports: list[Transport] = []

    def open(
        self,
        wanted: Sequence[Listener],
        name: TransportName,
        services: Sequence[str],
        clock: Clock,
        options: TransportOptions,
    ) -> None:
        """Take all the addresses. Connections are shared out evenly: none of the listeners can take those of another.
        Of what was opened before one failed, `give_back` gives back.

        Raises TlsRefused, TransportMissing, AddressRefused."""
        share = replace(options, connections_max=max(1, options.connections_max // len(wanted)))
        for listener in wanted:
            files, address = listener.tls_files(), listener.address
            credentials = None if files is None else KeptCredentials(files, clock)
            own = replace(share, credentials=credentials, has_reflection=share.has_reflection and listener.is_local)
            if is_unix(address.host) and name is TransportName.AUTO:
                transport = open_transport(TransportName.GRPC, services, clock, own)
            else:
                transport = open_transport(name, services, clock, own)
            self._transports.append(transport)
            port = transport.bind(address.host, address.port)
            self.opened.append(OpenListener(Address(address.host, port), transport, credentials))

    async def give_back(self) -> None:
        """Give the addresses back without having served them."""
        await self.stop(0)
        for each in self.opened:
            if is_unix(each.address.host):
                give_unix_address_back(each.address.host)

    @property
    def credentials(self) -> list[KeptCredentials]:
        """Those of the listeners with TLS."""
        return [each.credentials for each in self.opened if each.credentials is not None]

    @property
    def first(self) -> OpenListener:
        """The one that `listen` names."""
        return self.opened[0]

    def on_failure(self, tell: Callable[[Exception], None]) -> None:
        """Have `tell` called if one of them cannot serve any more although nobody stopped it."""
        for each in self._transports:
            each.on_failure = tell

    async def start(self, handler: Handler, room: AnswerRoom = BOUNDLESS_ROOM) -> None:
        """Serve on all of them."""
        for each in self._transports:
            await each.start(handler, room)

    async def set_ready(self, is_ready: bool) -> None:
        """Tell every health service whether the services take work."""
        for each in self._transports:
            await each.set_ready(is_ready)

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        """Tell every health service of something else that has a name there."""
        for each in self._transports:
            await each.set_health(name, is_serving=is_serving)

    def numbers(self) -> ConnectionNumbers:
        """The sums of all listeners. On any thread."""
        numbers = [each.numbers() for each in self._transports]
        known = [each.open_connections for each in numbers if each.open_connections is not None]
        harms: Counter[str] = Counter()
        for each in numbers:
            harms.update(each.harms)
        return ConnectionNumbers(sum(each.connections_max for each in numbers), sum(known) if known else None, harms)

    async def announce_stop(self) -> None:
        """Tell the health services and all sessions that the process is going, for good."""
        for each in self._transports:
            await each.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        """Take no further calls and wait for those under way; on all listeners at the same time."""
        await asyncio.gather(*(each.stop(grace_ms) for each in self._transports))
