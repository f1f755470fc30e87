"""Listeners of a server: the settings of one, and all of them opened as one transport.

Each listener is a transport of its own. The protection of a call depends on its listener, and gRPC does not tell which
one a call came by. All of them share one handler, so a call takes the same path from any listener.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from coordinator_protocol.acls import ANONYMOUS, check_principal
from coordinator_protocol.errors import Refused
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit
from coordinator_server.addresses import Address, AddressText, ListenText, is_local, parse_listen
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.grpc_front.handler import Handler
from coordinator_server.grpc_front.transport_choice import open_transport
from coordinator_server.grpc_front.transports import ServerTransport, TransportName, TransportOptions
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.listening import give_unix_address_back, is_unix
from coordinator_server.security.authentication import (
    AGAIN_SECONDS,
    WHOLE_SUBJECT,
    AuthenticationMethod,
    Authenticator,
    JwtPrincipals,
    JwtRules,
    NameRule,
    refusals_of,
)
from coordinator_server.security.reloading_credentials import Reloading, ReloadingCredentials
from coordinator_server.security.tls import ClientAuth, TlsFiles, TlsRefused
from coordinator_server.security.tokens import ReloadingTokens
from coordinator_server.validation import SettingPath


def authentication_methods(text: str) -> frozenset[AuthenticationMethod]:
    """Parse a comma-separated list of methods. Raises ValueError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(AuthenticationMethod))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no way to authenticate; there are {', '.join(AuthenticationMethod)}")
    return frozenset(map(AuthenticationMethod, names))


def _checked_methods(text: str) -> str:
    authentication_methods(text)
    return text


def checked_principal(text: str) -> str:
    try:
        check_principal(text)
    except Refused as refusal:
        raise ValueError(refusal.message) from refusal
    return text


AuthenticationText = Annotated[str, AfterValidator(_checked_methods)]
PrincipalText = Annotated[str, AfterValidator(checked_principal)]


@dataclass(frozen=True, slots=True)
class Identities:
    """Means to identify callers, on all listeners with authentication."""

    tokens: ReloadingTokens | None = None
    jwts: JwtPrincipals | None = None
    names: NameRule = WHOLE_SUBJECT

    @classmethod
    def read(cls, tokens_file: Path | None, jwt_rules: JwtRules | None, names: NameRule, clock: Clock) -> Identities:
        """Read the files that the settings name. Raises TokensRefused, KeySetRefused."""
        jwts = None
        if jwt_rules is not None:
            from coordinator_server.security.jwt_tokens import ReloadingKeySet  # Imported late, like `certificates`.

            jwts = ReloadingKeySet(jwt_rules, clock)
        return cls(None if tokens_file is None else ReloadingTokens(tokens_file, clock), jwts, names)

    @property
    def reloading(self) -> list[Reloading]:
        """Identities that are reloaded from files."""
        return [each for each in (self.tokens, self.jwts) if each is not None]

    def authenticator(
        self, methods: frozenset[AuthenticationMethod], credentials: ReloadingCredentials | None, clock: Clock
    ) -> Authenticator | None:
        """Return the authenticator of a listener; None without authentication."""
        if not methods:
            return None
        certificates = None
        if AuthenticationMethod.CERTIFICATE in methods:
            from coordinator_server.security.certificates import (
                CertificateNames,  # Late: its library takes 9 MB of memory.
            )

            assert credentials is not None, "who asks for certificates has TLS"
            certificates = CertificateNames(lambda: credentials.current.client_ca, self.names, clock)
        tokens = self.tokens if AuthenticationMethod.TOKEN in methods else None
        jwts = self.jwts if AuthenticationMethod.JWT in methods else None
        proven = self.tokens if AuthenticationMethod.SCRAM in methods else None
        return Authenticator(clock, tokens=tokens, jwts=jwts, certificates=certificates, proven=proven)


UNAUTHENTICATED: Final = Identities()


class Listener(BaseModel):
    """One address to listen on, and its protection."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: ListenText
    tls_certificate_file: SettingPath | None = None
    tls_key_file: SettingPath | None = None
    tls_client_ca_file: SettingPath | None = None
    tls_client_auth: ClientAuth = ClientAuth.NONE
    authentication: AuthenticationText = ""
    principal: PrincipalText = ANONYMOUS

    @model_validator(mode="after")
    def _settings_make_sense_together(self) -> Self:
        self.tls_files()
        self.check_authentication()
        return self

    @property
    def methods(self) -> frozenset[AuthenticationMethod]:
        """Credentials that callers can show; empty means no authentication."""
        return authentication_methods(self.authentication)

    def check_authentication(self) -> None:
        """Check that callers can show the required credentials here. Raises ValueError."""
        here, methods = f"listen = {self.listen}: authentication = {self.authentication}", self.methods
        if AuthenticationMethod.CERTIFICATE in methods and self.tls_client_auth is ClientAuth.NONE:
            raise ValueError(
                f"{here}: callers show certificates where tls_client_auth = required or requested; set it, with the CA"
            )
        if AuthenticationMethod.SCRAM in methods and not self.has_scram:
            raise ValueError(f"{here}: scram is for listeners of Kafka's protocol; use token, jwt or certificate here")
        secrets = methods - {AuthenticationMethod.CERTIFICATE}
        if secrets and self.tls_certificate_file is None and not (self.may_show_secrets_here and self.is_local):
            raise ValueError(
                f"{here}: a token that travels without TLS is everybody's; set tls_certificate_file and tls_key_file"
            )
        if methods and self.principal != ANONYMOUS:
            raise ValueError(
                f"{here}: principal is for listeners without authentication; callers here say who they are"
            )

    @property
    def has_scram(self) -> bool:
        """True if the protocol of the listener has SCRAM."""
        return False

    @property
    def may_show_secrets_here(self) -> bool:
        """True if tokens may travel without TLS on this machine."""
        return False

    @property
    def address(self) -> Address:
        return parse_listen(self.listen)

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        return is_local(self.address.host)

    def tls_files(self, prefix: str = "") -> TlsFiles | None:
        """Return the TLS files, or None without TLS. `prefix` is the prefix of its setting names. Raises ValueError for
        an incomplete set."""
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

    def credentials(self, clock: Clock, prefix: str = "") -> ReloadingCredentials | None:
        """Load the TLS files; None without TLS. Raises TlsRefused with the setting and the listener."""
        files = self.tls_files(prefix)
        try:
            return None if files is None else ReloadingCredentials(files, clock)
        except TlsRefused as refusal:
            raise refusal.of(self.listen, prefix) from refusal


class KafkaListener(Listener):
    """One address that speaks Kafka's protocol."""

    advertised: AddressText | None = None

    @property
    def has_scram(self) -> bool:
        return True

    @property
    def may_show_secrets_here(self) -> bool:
        return True


def why_unsafe(listener: Listener, *, is_asking: bool = True) -> str | None:
    """Return the danger of a listener without sufficient protection, and the reason; None if it is protected. The
    server opens such a listener only if the operator permits it (`insecure`). `is_asking` is False for the listener of
    metrics, whose callers are not authenticated."""
    if listener.is_local:
        return None
    if listener.tls_certificate_file is None:
        return "others can reach it, read along and change everything, because it has no TLS"
    if listener.methods or not is_asking:
        return None
    return "every host that reaches it may do everything, because it authenticates no caller"


@dataclass(frozen=True, slots=True)
class OpenListener:
    """A listener that has its address."""

    address: Address
    """Address with the port that was taken, if any free one was asked for."""
    transport: ServerTransport
    credentials: ReloadingCredentials | None
    """Credentials for TLS; None without TLS."""

    @property
    def protection(self) -> str:
        """Protection in words, for the log and the line that reports that the server serves."""
        return protection_of(self.credentials)


def protection_of(credentials: ReloadingCredentials | None) -> str:
    """Return the protection of a listener with these credentials, in words."""
    match credentials:
        case None:
            return "plaintext"
        case ReloadingCredentials(client_auth=ClientAuth.NONE):
            return "TLS"
        case ReloadingCredentials(client_auth=auth):
            return f"TLS, client certificates {auth}"


class OtherFront(Protocol):
    """Listeners of another protocol, which share the identities and the end of the process. `kafka_front` has them."""

    @property
    def authenticators(self) -> Sequence[Authenticator | None]: ...

    def credentials_by_address(self) -> Mapping[str, ReloadingCredentials | None]: ...

    def numbers(self) -> ConnectionNumbers: ...

    def give_back(self) -> None: ...

    def announce_stop(self) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...


class Listeners:
    """All listeners of one server. Implements `ServerTransport`, except for `bind`."""

    def __init__(self) -> None:
        self.opened: list[OpenListener] = []
        self._transports: list[ServerTransport] = []
        self._authenticators: list[Authenticator | None] = []
        self._idle: IdleSessions | None = None
        self._next_check: asyncio.TimerHandle | None = None
        self._other: OtherFront | None = None
        self.identities = UNAUTHENTICATED

    def open(
        self,
        wanted: Sequence[Listener],
        name: TransportName,
        services: Sequence[str],
        clock: Clock,
        options: TransportOptions,
        identities: Identities = UNAUTHENTICATED,
    ) -> None:
        """Take all the addresses. Each listener gets an equal share of the connections, and cannot take those of
        another. If one of them fails, `give_back` releases the earlier ones.

        Raises TlsRefused, TransportMissing, AddressRefused.
        """
        self.identities = identities
        self._idle = options.idle
        share = replace(options, connections_max=max(1, options.connections_max // len(wanted)))
        for listener in wanted:
            address, credentials = listener.address, listener.credentials(clock)
            own = replace(
                share,
                credentials=credentials,
                has_reflection=share.has_reflection and listener.is_local,
                authenticator=identities.authenticator(listener.methods, credentials, clock),
                principal=listener.principal,
            )
            self._authenticators.append(own.authenticator)
            if is_unix(address.host) and name is TransportName.AUTO:
                transport = open_transport(TransportName.GRPC, services, clock, own)
            else:
                transport = open_transport(name, services, clock, own)
            self._transports.append(transport)
            port = transport.bind(address.host, address.port)
            self.opened.append(OpenListener(Address(address.host, port), transport, credentials))

    def join(self, other: OtherFront) -> None:
        """Add the listeners of another front, which have their addresses. It serves them itself."""
        self._other = other
        self._authenticators += other.authenticators

    async def give_back(self) -> None:
        """Release the addresses without having served them."""
        if self._other is not None:
            self._other.give_back()
        await self.stop(0)
        for each in self.opened:
            if is_unix(each.address.host):
                give_unix_address_back(each.address.host)

    @property
    def credentials(self) -> list[ReloadingCredentials]:
        """Credentials of the listeners with TLS."""
        return [each for each in self.credentials_by_address().values() if each is not None]

    def credentials_by_address(self) -> dict[str, ReloadingCredentials | None]:
        """Return the credentials of every listener; None without TLS."""
        found = {str(each.address): each.credentials for each in self.opened}
        return found if self._other is None else {**found, **self._other.credentials_by_address()}

    @property
    def first(self) -> OpenListener:
        """The listener of the setting `listen`."""
        return self.opened[0]

    def on_failure(self, tell: Callable[[Exception], None]) -> None:
        """Set a callback for an unexpected end of any listener."""
        for each in self._transports:
            each.on_failure = tell

    async def start(self, handler: Handler, answer_limit: AnswerLimit = NO_ANSWER_LIMIT) -> None:
        """Serve on all listeners."""
        for each in self._transports:
            await each.start(handler, answer_limit)
        self._check_again()

    def check_credentials(self) -> None:
        """End the sessions whose credentials are no longer valid."""
        for each in self._authenticators:
            if each is not None:
                each.sessions.check_again()

    def end_idle_sessions(self) -> None:
        """End the sessions that have been idle for too long."""
        if self._idle is not None:
            self._idle.look()

    def _check_again(self) -> None:
        self.check_credentials()
        self.end_idle_sessions()
        self._next_check = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._check_again)

    async def set_ready(self, is_ready: bool) -> None:
        """Set the state of the services in every health service: taking work or not."""
        for each in self._transports:
            await each.set_ready(is_ready)

    async def set_health(self, name: str, *, is_serving: bool) -> None:
        """Set the state of something else that has a name in every health service."""
        for each in self._transports:
            await each.set_health(name, is_serving=is_serving)

    def numbers(self) -> ConnectionNumbers:
        """Return the sums of all listeners. On any thread."""
        numbers = [each.numbers() for each in self._transports]
        if self._other is not None:
            numbers.append(self._other.numbers())
        known = [each.open_connections for each in numbers if each.open_connections is not None]
        abuses: Counter[str] = Counter()
        for each in numbers:
            abuses.update(each.abuses)
        return ConnectionNumbers(
            sum(each.connections_max for each in numbers),
            sum(known) if known else None,
            abuses,
            handshakes=sum(each.handshakes for each in numbers),
            unauthenticated=refusals_of(self._authenticators),
        )

    async def announce_stop(self) -> None:
        """Tell the health services and all sessions that the process is shutting down."""
        if self._other is not None:
            self._other.announce_stop()
        for each in self._transports:
            await each.announce_stop()

    async def stop(self, grace_ms: int) -> None:
        """Take no further calls and wait for those under way, on all listeners at the same time."""
        if self._next_check is not None:
            self._next_check.cancel()
        stops = [each.stop(grace_ms) for each in self._transports]
        if self._other is not None:
            stops.append(self._other.stop(grace_ms))
        await asyncio.gather(*stops)
