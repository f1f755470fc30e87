"""Who calls: what a caller shows is checked here, before anything of its call is looked at.

Each listener says what it takes: certificates, tokens, or both. Who shows neither, or something that does not count, is
told that authentication is required and nothing else; why is in the log and in a metric, for the operator. What is
right now may be wrong later: a session is asked about again, every few seconds, with what it showed at its beginning.

Source: KIP-368 (a session ends with its credential).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import structlog

from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.errors import Refused
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import Connection, KnownConnection, Level, Levels
from coordinator_server.calls import AUTHENTICATION_REQUIRED, CallStatus, Unanswered
from coordinator_server.idle_sessions import IdleSession, IdleSessions

AGAIN_SECONDS: Final = 5.0
"""How often the credentials of open sessions are checked again."""
LEFT_TO_END_SECONDS: Final = 30.0
"""How long a session whose credential ended may wait for answers to what it asked before."""
SIGNATURES_PER_SECOND: Final = 20
SIGNATURES_AT_ONCE: Final = 50
"""Signatures of one host that may be wrong in a second, and at once. A check takes a quarter of a millisecond, so
unauthenticated callers of one host take half a hundredth of the loop. Beyond that, unknown tokens are refused without
one."""
_HOSTS_MAX: Final = 4_096
_LOG_MS: Final = 1_000
"""Refusals for one reason are logged once in this time, with how many there were."""
_BEARER: Final = "bearer "
TOKEN_PREFIX: Final = "txl_"
"""How every token of ours begins, so that programs which look for leaked secrets find it."""

_log = structlog.get_logger("audit")
"""Who is refused at the door is on record with what is refused inside."""


class AuthenticationMethod(StrEnum):
    """What a caller can show of itself."""

    CERTIFICATE = "certificate"
    """A certificate of the client, by TLS (mTLS)."""
    TOKEN = "token"
    """`authorization: Bearer TOKEN` in the metadata of a call, with a token of ours."""
    JWT = "jwt"
    """The same, with a JSON Web Token that somebody else signed."""


class Reason(StrEnum):
    """Why a caller is refused: a label of a metric, and never told to the caller."""

    NOTHING_SHOWN = "nothing_shown"
    NO_TOKEN_TAKEN = "no_token_taken"
    """A token was shown where the listener takes none."""
    NO_BEARER = "no_bearer"
    UNKNOWN_TOKEN = "unknown_token"
    EXPIRED_TOKEN = "expired_token"
    NO_JWT = "no_jwt"
    UNKNOWN_KEY = "unknown_key"
    WRONG_ALGORITHM = "wrong_algorithm"
    BAD_SIGNATURE = "bad_signature"
    TOO_OFTEN = "too_often"
    """Its host has shown so many wrong signatures just now that this one was not looked at."""
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    TOO_LONG = "too_long"
    """It lives longer than tokens may."""
    TOKEN_OF_TOMORROW = "token_of_tomorrow"
    EXPIRED_CERTIFICATE = "expired_certificate"
    UNKNOWN_CA = "unknown_ca"
    NO_PRINCIPAL = "no_principal"
    """No name, or several, in what was shown, by the rule that is configured."""


@dataclass(frozen=True, slots=True)
class Presented:
    """What one caller shows. Printed without its contents, because the token is a secret."""

    authorization: str | None = field(default=None, repr=False)
    certificates: tuple[bytes, ...] = field(default=(), repr=False)
    """PEM or DER, as the handshake verified them: the caller's own first, then those between it and the CA."""


class IdentityRefused(Exception):
    """A file about callers cannot be used. The message says which, where and why."""


class Unauthenticated(Unanswered):
    """Nobody that is known here. The caller learns only that."""

    def __init__(self, reason: Reason, details: str = "") -> None:
        super().__init__(CallStatus.UNAUTHENTICATED, AUTHENTICATION_REQUIRED)
        self.reason = reason
        self.details = details
        """For the operator, without secrets."""


@dataclass(frozen=True, slots=True)
class JwtRules:
    """Which JSON Web Tokens count."""

    key_set_file: Path
    issuer: str
    audience: str
    principal_claim: str = "sub"


class TokenPrincipals(Protocol):
    """Whose a token is. Raises Unauthenticated."""

    def of_token(self, token: str) -> str: ...


class NameSource(StrEnum):
    """What of a certificate the principal is taken from."""

    SUBJECT = "subject"
    """All of the subject, as RFC 4514 writes it: `CN=etl,O=Example`."""
    CN = "cn"
    URI = "uri"
    DNS = "dns"
    EMAIL = "email"


@dataclass(frozen=True, slots=True)
class NameRule:
    """How a certificate names its principal."""

    source: NameSource = NameSource.SUBJECT
    pattern: str | None = None
    """A pattern that all of the name must match, and whose first group is the principal's name; None: all of it is."""


WHOLE_SUBJECT: Final = NameRule()


class JwtPrincipals(TokenPrincipals, Protocol):
    """Whose a JSON Web Token is, by keys that are kept of a file."""

    def look(self) -> None: ...

    def is_known(self, token: str) -> bool:
        """Whether its signature was looked at, and was right."""


class CertificatePrincipals(Protocol):
    """Whose a certificate is. Raises Unauthenticated."""

    def of_certificates(self, certificates: tuple[bytes, ...]) -> str: ...


NOTHING_SHOWN: Final = Presented()


class Authenticator:
    """Says who calls, for one listener. Called on the loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        tokens: TokenPrincipals | None = None,
        jwts: JwtPrincipals | None = None,
        certificates: CertificatePrincipals | None = None,
    ) -> None:
        """`None`: the listener does not take them."""
        self._clock = clock
        self._tokens = tokens
        self._jwts = jwts
        self._certificates = certificates
        self._wrong_signatures = _WrongSignatures(clock)
        self._refusals: Counter[str] = Counter()
        self._logged: dict[Reason, tuple[int, int]] = {}
        """When each was logged last, and how many there had been."""
        self.sessions = SessionCredentials(self, clock)

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many callers were refused, by reason."""
        return self._refusals

    def principal(self, shown: Presented, host: str) -> str:
        """Whose this is: `User:name`. Where there is a token, it decides; a broken one never gives way to the
        certificate. Raises Unauthenticated."""
        try:
            return self._principal(shown, host)
        except Unauthenticated as refusal:
            if refusal.reason is Reason.BAD_SIGNATURE:
                self._wrong_signatures.count(host)
            self._count(refusal, host)
            raise

    def _principal(self, shown: Presented, host: str) -> str:
        if shown.authorization is not None:
            kind, token = shown.authorization[: len(_BEARER)], shown.authorization[len(_BEARER) :]
            if kind.lower() != _BEARER:
                raise Unauthenticated(Reason.NO_BEARER)
            if self._jwts is not None and not token.startswith(TOKEN_PREFIX):
                if self._wrong_signatures.are_too_many(host) and not self._jwts.is_known(token):
                    raise Unauthenticated(Reason.TOO_OFTEN)
                return self._jwts.of_token(token)
            if self._tokens is None:
                raise Unauthenticated(Reason.NO_TOKEN_TAKEN)
            return self._tokens.of_token(token)
        if self._certificates is not None and shown.certificates:
            return self._certificates.of_certificates(shown.certificates)
        raise Unauthenticated(Reason.NOTHING_SHOWN)

    def _count(self, refusal: Unauthenticated, host: str) -> None:
        reason, now_ms = refusal.reason, self._clock.monotonic_ms()
        self._refusals[reason] += 1
        logged = self._logged.get(reason)
        if logged is None or now_ms - logged[0] >= _LOG_MS:
            number = self._refusals[reason]
            self._logged[reason] = now_ms, number
            since = number - (0 if logged is None else logged[1])
            _log.warning("unauthenticated", reason=reason, host=host, details=refusal.details, number=since)


class _WrongSignatures:
    """How many wrong signatures each host has shown lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: dict[str, tuple[float, int]] = {}
        """What is left of the number, and when it was that; the newest last."""

    def count(self, host: str) -> None:
        counted = self._left(host) + 1, self._clock.monotonic_ms()
        self._counted.pop(host, None)
        if len(self._counted) >= _HOSTS_MAX:
            del self._counted[next(iter(self._counted))]
        self._counted[host] = counted

    def are_too_many(self, host: str) -> bool:
        return host in self._counted and self._left(host) >= SIGNATURES_AT_ONCE

    def _left(self, host: str) -> float:
        number, counted_ms = self._counted.get(host, (0, 0))
        return max(0, number - (self._clock.monotonic_ms() - counted_ms) * SIGNATURES_PER_SECOND / 1_000)


class Callers:
    """Who calls, on one listener: whom its authenticator knows, or everybody by the same name."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        principal: str = ANONYMOUS,
        levels: Levels | None = None,
        idle: IdleSessions | None = None,
    ) -> None:
        """Without an authenticator nobody is asked, and everybody is `principal`; without `idle` sessions may be idle
        for ever."""
        self._authenticator = authenticator
        self._principal = principal
        self._levels = levels
        self._idle = idle
        self._sessions: dict[WatchedSession, str] = {}
        """Whose each open session is."""
        self._connections: dict[int, str] = {}
        """Whose each connection is, as far as the transport tells when one ends."""

    @property
    def are_asked(self) -> bool:
        return self._authenticator is not None

    def principal(self, shown: Presented, host: str) -> str:
        """The principal of a call. Raises Unauthenticated."""
        return self._principal if self._authenticator is None else self._authenticator.principal(shown, host)

    def connection(self, principal: str, connection: int | str) -> Connection:
        """What a call came by: with whose it is, where callers are asked."""
        return connection if self._authenticator is None else KnownConnection(principal, connection)

    def principal_of_session(self, shown: Presented, host: str) -> str:
        """The principal of a new session. Raises Unauthenticated, and Unanswered where it has as many as it may."""
        principal = self.principal(shown, host)
        self._check(Level.SESSIONS, principal)
        return principal

    def enter(self, principal: str, connection: int) -> None:
        """Count a connection as the principal's whose call is the first on it. Raises Unanswered where it has as
        many as it may."""
        if connection not in self._connections and self._levels is not None:
            self._check(Level.CONNECTIONS, principal)
            self._connections[connection] = principal
            self._levels.add(Level.CONNECTIONS, principal)

    def left(self, connection: int) -> None:
        """A connection has ended, which may be nobody's."""
        principal = self._connections.pop(connection, None)
        if principal is not None and self._levels is not None:
            self._levels.add(Level.CONNECTIONS, principal, -1)

    def _check(self, level: Level, principal: str) -> None:
        if self._levels is None:
            return
        try:
            self._levels.check(level, principal)
        except Refused as refusal:
            raise Unanswered(CallStatus.RESOURCE_EXHAUSTED, refusal.message) from refusal

    def watch(self, session: WatchedSession, shown: Presented, host: str, principal: str) -> None:
        """Count a session, ask about its caller again, and see whether it is idle, for as long as it is open."""
        if self._levels is not None:
            self._sessions[session] = principal
            self._levels.add(Level.SESSIONS, principal)
        if self._idle is not None:
            self._idle.watch(session)
        if self._authenticator is not None:
            self._authenticator.sessions.watch(session, shown, host, principal)

    def forget(self, session: WatchedSession) -> None:
        """The session has ended. Idempotent."""
        principal = self._sessions.pop(session, None)
        if principal is not None and self._levels is not None:
            self._levels.add(Level.SESSIONS, principal, -1)
        if self._idle is not None:
            self._idle.forget(session)
        if self._authenticator is not None:
            self._authenticator.sessions.forget(session)


class WatchedSession(IdleSession, Protocol):
    """A session that ends with its credential."""

    def cut(self) -> None:
        """End the stream now: the caller is nobody that is known."""


class SessionCredentials:
    """What the open sessions of a listener showed at their beginning, to be asked about again."""

    def __init__(self, authenticator: Authenticator, clock: Clock) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._shown: dict[WatchedSession, tuple[Presented, str, str]] = {}
        """What was shown, from which host, and whose it was."""
        self._revoked_ms: dict[WatchedSession, int] = {}

    def watch(self, session: WatchedSession, shown: Presented, host: str, principal: str) -> None:
        """Ask about it from now on."""
        self._shown[session] = shown, host, principal

    def forget(self, session: WatchedSession) -> None:
        """It has ended. Idempotent."""
        self._shown.pop(session, None)
        self._revoked_ms.pop(session, None)

    def check_again(self) -> None:
        """Revoke the sessions whose credential counts no more, and cut those that were revoked long ago."""
        now_ms = self._clock.monotonic_ms()
        for session, since_ms in list(self._revoked_ms.items()):
            if now_ms - since_ms >= LEFT_TO_END_SECONDS * 1_000:
                self._revoked_ms.pop(session)
                session.cut()
        for session in [each for each, shown in self._shown.items() if not self._still_counts(*shown)]:
            self._shown.pop(session)
            self._revoked_ms[session] = now_ms
            session.announce_stop()

    def _still_counts(self, shown: Presented, host: str, principal: str) -> bool:
        try:
            return self._authenticator.principal(shown, host) == principal
        except Unauthenticated:
            return False


def refusals_of(authenticators: Iterable[Authenticator | None]) -> Mapping[str, int]:
    """The sums over all listeners, by reason; every reason has a number."""
    sums: Counter[str] = Counter(dict.fromkeys(Reason, 0))
    for each in authenticators:
        if each is not None:
            sums.update(each.refusals)
    return sums
