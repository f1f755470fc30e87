"""Authentication of callers by their credentials, before any other part of a call is examined.

Each listener sets which credentials it takes: certificates, tokens, or both. A caller without valid credentials only
learns that authentication is required. The log and a metric have the reason, for the operator. Credentials may become
invalid later. So those of an open session are checked again every few seconds.

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
from coordinator_server.security.scram import Verifier

AGAIN_SECONDS: Final = 5.0
"""Interval of the checks of credentials of open sessions."""
LEFT_TO_END_SECONDS: Final = 30.0
"""Time for which a session may wait for answers to its earlier calls after its credentials became invalid."""
SIGNATURES_PER_SECOND: Final = 20
SIGNATURES_AT_ONCE: Final = 50
"""Permitted wrong signatures of one host: per second, and in a burst. A check takes a quarter of a millisecond, so the
unauthenticated callers of one host take half a percent of the loop. Beyond the limit, unknown tokens are refused
without a check."""
_HOSTS_MAX: Final = 4_096
_LOG_MS: Final = 1_000
"""Interval of the log lines about refusals for one reason. A line has the number of refusals since the last one."""
_BEARER: Final = "bearer "
TOKEN_PREFIX: Final = "txl_"
"""Prefix of all our tokens, by which scanners for leaked secrets find them."""

_log = structlog.get_logger("audit")
"""Failed authentication is logged to the same audit log as denied operations."""


class AuthenticationMethod(StrEnum):
    """Kinds of credentials."""

    CERTIFICATE = "certificate"
    """A certificate of the client, by TLS (mTLS)."""
    TOKEN = "token"
    """`authorization: Bearer TOKEN` in the metadata of a call, with a token of ours."""
    JWT = "jwt"
    """The same, with a JSON Web Token that an outside issuer signed."""
    SCRAM = "scram"
    """A proof that the caller has a token of ours, for Kafka's protocol only."""


class Reason(StrEnum):
    """Reason of a refusal: the label of a metric, never sent to the caller."""

    NOTHING_SHOWN = "nothing_shown"
    NO_TOKEN_TAKEN = "no_token_taken"
    """The listener takes no tokens."""
    NO_BEARER = "no_bearer"
    UNKNOWN_TOKEN = "unknown_token"
    EXPIRED_TOKEN = "expired_token"
    NO_JWT = "no_jwt"
    UNKNOWN_KEY = "unknown_key"
    WRONG_ALGORITHM = "wrong_algorithm"
    BAD_SIGNATURE = "bad_signature"
    TOO_OFTEN = "too_often"
    """The caller's host has shown so many wrong signatures recently that this one was not checked."""
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    TOO_LONG = "too_long"
    """The token's lifetime is longer than permitted."""
    TOKEN_OF_TOMORROW = "token_of_tomorrow"
    EXPIRED_CERTIFICATE = "expired_certificate"
    UNKNOWN_CA = "unknown_ca"
    NO_PRINCIPAL = "no_principal"
    """The configured rule finds no name, or several, in the credentials."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A token that SCRAM has verified."""

    token_id: str
    verifier: Verifier = field(repr=False)
    """Verifier against which it was verified. The token counts as long as the file has it."""


@dataclass(frozen=True, slots=True)
class Presented:
    """Credentials of one caller. The repr leaves them out, because the token is a secret."""

    authorization: str | None = field(default=None, repr=False)
    certificates: tuple[bytes, ...] = field(default=(), repr=False)
    """PEM or DER, as the handshake verified them: the caller's own first, then those between it and the CA."""
    proven: Proven | None = None
    """Token that the caller has proven to have, without showing it."""


class IdentityRefused(Exception):
    """A file about callers cannot be used. The message has the file, the place and the reason."""


class Unauthenticated(Unanswered):
    """The caller could not be authenticated, which is all that it learns."""

    def __init__(self, reason: Reason, details: str = "") -> None:
        super().__init__(CallStatus.UNAUTHENTICATED, AUTHENTICATION_REQUIRED)
        self.reason = reason
        self.details = details
        """Details for the operator, without secrets."""


@dataclass(frozen=True, slots=True)
class JwtRules:
    """Conditions of valid JSON Web Tokens."""

    key_set_file: Path
    issuer: str
    audience: str
    principal_claim: str = "sub"


class TokenPrincipals(Protocol):
    """Maps tokens to principals. Raises Unauthenticated."""

    def of_token(self, token: str) -> str: ...


class ProvenTokens(Protocol):
    """Tokens that callers may prove to have by SCRAM."""

    def verifier(self, token_id: str) -> Verifier | None:
        """Return the verifier of a token; None if there is no such token, or it has none."""

    def of_proven(self, proven: Proven) -> str:
        """Return the principal of a token that was proven. Raises Unauthenticated."""


class NameSource(StrEnum):
    """Field of a certificate that names the principal."""

    SUBJECT = "subject"
    """All of the subject, as RFC 4514 writes it: `CN=etl,O=Example`."""
    CN = "cn"
    URI = "uri"
    DNS = "dns"
    EMAIL = "email"


@dataclass(frozen=True, slots=True)
class NameRule:
    """Rule by which a certificate names its principal."""

    source: NameSource = NameSource.SUBJECT
    pattern: str | None = None
    """Pattern that the whole name must match; its first group is the principal's name. None takes the whole name."""


WHOLE_SUBJECT: Final = NameRule()


class JwtPrincipals(TokenPrincipals, Protocol):
    """Maps JSON Web Tokens to principals, by keys that are reloaded from a file."""

    def look(self) -> None: ...

    def is_known(self, token: str) -> bool:
        """Return True if the token's signature was verified before."""

    def ends_ms(self, token: str) -> int | None:
        """Return the expiry (Unix ms) of a token that was verified before; None for another one."""


class CertificatePrincipals(Protocol):
    """Maps certificates to principals. Raises Unauthenticated."""

    def of_certificates(self, certificates: tuple[bytes, ...]) -> str: ...


NOTHING_SHOWN: Final = Presented()


class Authenticator:
    """Authenticates the callers of one listener. Called on the loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        tokens: TokenPrincipals | None = None,
        jwts: JwtPrincipals | None = None,
        certificates: CertificatePrincipals | None = None,
        proven: ProvenTokens | None = None,
    ) -> None:
        """Set the credentials that the listener takes; None for those that it does not take."""
        self._clock = clock
        self._tokens = tokens
        self._jwts = jwts
        self._certificates = certificates
        self.proven = proven
        """Tokens for SCRAM; None if the listener has no SCRAM."""
        self._wrong_signatures = _WrongSignatures(clock)
        self._refusals: Counter[str] = Counter()
        self._logged: dict[Reason, tuple[int, int]] = {}
        """For each reason the time of its last log line, and the number of refusals up to it."""
        self.sessions = SessionCredentials(self, clock)

    @property
    def refusals(self) -> Mapping[str, int]:
        """Number of refused callers, by reason."""
        return self._refusals

    def principal(self, shown: Presented, host: str) -> str:
        """Return the principal of the credentials: `User:name`. A token takes precedence, and an invalid one is refused
        even if there is a valid certificate. Raises Unauthenticated."""
        try:
            return self._principal(shown, host)
        except Unauthenticated as refusal:
            if refusal.reason is Reason.BAD_SIGNATURE:
                self._wrong_signatures.count(host)
            self.count(refusal, host)
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
        if shown.proven is not None and self.proven is not None:
            return self.proven.of_proven(shown.proven)
        if self._certificates is not None and shown.certificates:
            return self._certificates.of_certificates(shown.certificates)
        raise Unauthenticated(Reason.NOTHING_SHOWN)

    def lifetime_ms(self, shown: Presented) -> int | None:
        """Return the time to the expiry of an accepted JSON Web Token; None for other credentials. They are the same
        after another authentication."""
        if self._jwts is None or shown.authorization is None:
            return None
        ends_ms = self._jwts.ends_ms(shown.authorization[len(_BEARER) :])
        return None if ends_ms is None else ends_ms - self._clock.wall_ms()

    def count(self, refusal: Unauthenticated, host: str) -> None:
        """Count and log a refused caller."""
        reason, now_ms = refusal.reason, self._clock.monotonic_ms()
        self._refusals[reason] += 1
        logged = self._logged.get(reason)
        if logged is None or now_ms - logged[0] >= _LOG_MS:
            number = self._refusals[reason]
            self._logged[reason] = now_ms, number
            since = number - (0 if logged is None else logged[1])
            _log.warning("unauthenticated", reason=reason, host=host, details=refusal.details, number=since)


class _WrongSignatures:
    """Recent number of wrong signatures by host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: dict[str, tuple[float, int]] = {}
        """Remaining count, and the time of its last change; the newest last."""

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
    """Callers of one listener: those that its authenticator knows, or all under one name."""

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        principal: str = ANONYMOUS,
        levels: Levels | None = None,
        idle: IdleSessions | None = None,
    ) -> None:
        """Set up the callers. Without an authenticator all callers are `principal`. Without `idle` sessions may be idle
        for any time."""
        self._authenticator = authenticator
        self._principal = principal
        self._levels = levels
        self._idle = idle
        self._sessions: dict[WatchedSession, str] = {}
        """Principal of each open session."""
        self._connections: dict[int, str] = {}
        """Principal of each connection, if the transport reports when one ends."""

    @property
    def are_asked(self) -> bool:
        return self._authenticator is not None

    @property
    def proven_tokens(self) -> ProvenTokens | None:
        """Tokens for SCRAM; None if the listener has no SCRAM."""
        return None if self._authenticator is None else self._authenticator.proven

    def principal(self, shown: Presented, host: str) -> str:
        """Return the principal of a call. Raises Unauthenticated."""
        return self._principal if self._authenticator is None else self._authenticator.principal(shown, host)

    def lifetime_ms(self, shown: Presented) -> int | None:
        """Return the time to the expiry of credentials that their owner renews; None for others."""
        return None if self._authenticator is None else self._authenticator.lifetime_ms(shown)

    def refused(self, refusal: Unauthenticated, host: str) -> None:
        """Count a caller that the front itself found to be unauthenticated."""
        if self._authenticator is not None:
            self._authenticator.count(refusal, host)

    def connection(self, principal: str, connection: int | str) -> Connection:
        """Return the connection of a call, with its principal if callers are authenticated."""
        return connection if self._authenticator is None else KnownConnection(principal, connection)

    def principal_of_session(self, shown: Presented, host: str) -> str:
        """Return the principal of a new session. Raises Unauthenticated, and Unanswered if it has its maximum of
        sessions."""
        principal = self.principal(shown, host)
        self._check(Level.SESSIONS, principal)
        return principal

    def enter(self, principal: str, connection: int) -> None:
        """Count a connection for the principal of its first call. Raises Unanswered if that has its maximum."""
        if connection not in self._connections and self._levels is not None:
            self._check(Level.CONNECTIONS, principal)
            self._connections[connection] = principal
            self._levels.add(Level.CONNECTIONS, principal)

    def left(self, connection: int) -> None:
        """Remove a connection that has ended, if it was counted."""
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

    def watch(
        self, session: WatchedSession, shown: Presented, host: str, principal: str, *, is_session: bool = True
    ) -> None:
        """Track an open session: recheck its credentials, and end it when it is idle. Count it, too, with
        `is_session`."""
        if self._levels is not None and is_session:
            self._sessions[session] = principal
            self._levels.add(Level.SESSIONS, principal)
        if self._idle is not None:
            self._idle.watch(session)
        if self._authenticator is not None:
            self._authenticator.sessions.watch(session, shown, host, principal)

    def forget(self, session: WatchedSession) -> None:
        """Remove a session that has ended. Idempotent."""
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
        """End the stream now, because its caller is no longer authenticated."""


class SessionCredentials:
    """Credentials of the open sessions of a listener, for repeated checks."""

    def __init__(self, authenticator: Authenticator, clock: Clock) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._shown: dict[WatchedSession, tuple[Presented, str, str]] = {}
        """Credentials, host and principal of each session."""
        self._revoked_ms: dict[WatchedSession, int] = {}

    def watch(self, session: WatchedSession, shown: Presented, host: str, principal: str) -> None:
        """Check the session's credentials from now on."""
        self._shown[session] = shown, host, principal

    def forget(self, session: WatchedSession) -> None:
        """Remove a session that has ended. Idempotent."""
        self._shown.pop(session, None)
        self._revoked_ms.pop(session, None)

    def check_again(self) -> None:
        """Announce the end to sessions with invalid credentials, and cut those that did not end in time."""
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
    """Return the sums over all listeners, by reason; every reason has a number."""
    sums: Counter[str] = Counter(dict.fromkeys(Reason, 0))
    for each in authenticators:
        if each is not None:
            sums.update(each.refusals)
    return sums
