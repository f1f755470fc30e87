"""Authentication of one connection: by its certificate, or by SASL with the identities of the server.

PLAIN carries a token of the server as password. OAUTHBEARER carries a JSON Web Token. SCRAM-SHA-256 proves a token and
carries none.

Source: RFC 4616 (PLAIN), RFC 7628 (OAUTHBEARER), RFC 7677 (SCRAM-SHA-256); Kafka's SaslHandshake and SaslAuthenticate
(KIP-43, KIP-152), session lifetimes (KIP-368).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from coordinator_runtime.identity import new_secret
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.errors import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from coordinator_server.kafka_front.messages import (
    sasl_authenticate_request,
    sasl_authenticate_response,
    sasl_handshake_request,
    sasl_handshake_response,
)
from coordinator_server.kafka_front.writing import Piece
from coordinator_server.security.authentication import (
    NOTHING_SHOWN,
    AuthenticationMethod,
    Callers,
    Presented,
    Proven,
    ProvenTokens,
    Reason,
    Unauthenticated,
)
from coordinator_server.security.scram import (
    ClientFirst,
    ScramRefused,
    Verifier,
    parse_client_first,
    server_final,
    server_first,
    verifier_of,
)

_FAILED: Final = "authentication failed: the credentials are not valid here"
"""Complete reason to an unauthenticated caller."""
_REFUSED_BEARER: Final = '{"status":"invalid_token"}'
"""Answer to a JSON Web Token that is not valid (RFC 7628, section 3.2.2), as Kafka gives it."""
LIFETIME_MS_MIN: Final = 1_000
"""Shortest lifetime in an answer; 0 would mean an endless one."""


class Mechanism(StrEnum):
    """Mechanisms of SASL, with their names on the wire."""

    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"
    SCRAM_SHA_256 = "SCRAM-SHA-256"


MECHANISM_OF: Final[Mapping[AuthenticationMethod, Mechanism]] = {
    AuthenticationMethod.TOKEN: Mechanism.PLAIN,
    AuthenticationMethod.JWT: Mechanism.OAUTHBEARER,
    AuthenticationMethod.SCRAM: Mechanism.SCRAM_SHA_256,
}


class NotAuthenticated(Exception):
    """The connection ends, because its caller is not authenticated."""


class AttemptFailed(ValueError):
    """A message of the client ends its attempt. The message has the reason, which may be sent."""


class Step(Protocol):
    """The server's side of one mechanism, for one attempt."""

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        """Return the answer to a message of the client, and the credentials once they are complete. Raises
        ValueError."""

    def refused(self) -> bytes | None:
        """Return the answer to complete credentials that are not valid; None if the attempt fails without one."""


class Authentication:
    """The authentication of one connection."""

    def __init__(self, methods: frozenset[AuthenticationMethod], callers: Callers, host: str) -> None:
        self._methods = methods
        self._callers = callers
        self._host = host
        self._step: Step | None = None
        self._mechanism: Mechanism | None = None
        """Mechanism of the attempt under way, or of the last one."""
        self._authenticated_by: Mechanism | None = None
        """None before the first success of SASL."""
        self.expects_raw = False
        """True while messages of SASL come in frames of their own, as after SaslHandshake version 0."""
        self.principal: str | None = None
        """None before authentication."""
        self.shown: Presented = NOTHING_SHOWN
        self.has_failed = False
        """True after a failure. The connection ends once the client has its answer."""

    @property
    def mechanisms(self) -> list[str]:
        """Names of the mechanisms, as SaslHandshake lists them."""
        return sorted(MECHANISM_OF[method] for method in self._methods if method in MECHANISM_OF)

    def connected(self, certificates: tuple[bytes, ...]) -> None:
        """Authenticate by certificate, if there is one, or without credentials where none are asked for. Raises
        Unauthenticated."""
        if not self._callers.are_asked:
            self.principal = self._callers.principal(NOTHING_SHOWN, self._host)
        elif AuthenticationMethod.CERTIFICATE in self._methods and (certificates or not self.mechanisms):
            try:
                self._show(Presented(certificates=certificates))
            except Unauthenticated:
                # It may still authenticate by SASL, which takes precedence.
                if not self.mechanisms:
                    raise

    def answer(self, key: ApiKey, version: int, body: memoryview) -> list[Piece]:
        """Return the answer to one call of SASL. Raises Malformed."""
        if key is ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(sasl_handshake_request.decode(body, version).mechanism, version)
        return self._authenticate(sasl_authenticate_request.decode(body, version).auth_bytes, version)

    def answer_raw(self, message: bytes) -> bytes:
        """Return the answer to a message of SASL in a frame of its own. Raises NotAuthenticated, which is all that a
        client of this version learns."""
        code, reason, answer = self._next(message)
        if code:
            raise NotAuthenticated(reason)
        self.expects_raw = self._step is not None
        return answer

    def _shake_hands(self, mechanism: str, version: int) -> list[Piece]:
        known = mechanism in self.mechanisms
        self._mechanism = Mechanism(mechanism) if known else None
        self._step = None if self._mechanism is None else self._first_step(self._mechanism)
        self.expects_raw = known and version == 0
        response = sasl_handshake_response.SaslHandshakeResponse(
            error_code=0 if known else UNSUPPORTED_SASL_MECHANISM, mechanisms=self.mechanisms
        )
        return sasl_handshake_response.encode(response, version)

    def _first_step(self, mechanism: Mechanism) -> Step:
        if mechanism is Mechanism.SCRAM_SHA_256:
            tokens = self._callers.proven_tokens
            assert tokens is not None, "the listener has SCRAM"
            return ScramStep(tokens)
        return PlainStep() if mechanism is Mechanism.PLAIN else BearerStep()

    def _authenticate(self, message: bytes, version: int) -> list[Piece]:
        code, reason, answer = self._next(message)
        self.has_failed = bool(code)
        response = sasl_authenticate_response.SaslAuthenticateResponse(
            error_code=code,
            error_message=reason,
            auth_bytes=answer,
            session_lifetime_ms=0 if code or self._step is not None else self._lifetime_ms(),
        )
        return sasl_authenticate_response.encode(response, version)

    def _lifetime_ms(self) -> int:
        """Return the time after which the client should authenticate again; 0 if it need not (KIP-368)."""
        lifetime_ms = self._callers.lifetime_ms(self.shown)
        return 0 if lifetime_ms is None else max(LIFETIME_MS_MIN, lifetime_ms)

    def _next(self, message: bytes) -> tuple[int, str | None, bytes]:
        """Take a message of SASL. Return error code, its reason, and the answer."""
        if self._step is None:
            return ILLEGAL_SASL_STATE, "SaslHandshake with a mechanism of this server comes first", b""
        try:
            return 0, None, self._advance(self._step, message)
        except ScramRefused as refusal:
            self._callers.refused(Unauthenticated(Reason.UNKNOWN_TOKEN, f"SCRAM: {refusal}"), self._host)
        except AttemptFailed as failure:
            return SASL_AUTHENTICATION_FAILED, str(failure), b""
        except Unauthenticated:
            # Counted by those who refused it.
            pass
        except ValueError:
            self._callers.refused(Unauthenticated(Reason.UNKNOWN_TOKEN, f"{self._mechanism}: malformed"), self._host)
        return SASL_AUTHENTICATION_FAILED, _FAILED, b""

    def _advance(self, step: Step, message: bytes) -> bytes:
        """Return the answer to a message. Raises ValueError, Unauthenticated."""
        answer, shown = step.take(message)
        if shown is None:
            return answer
        if self._authenticated_by not in (None, self._mechanism):
            # As in Kafka.
            raise AttemptFailed(f"authenticate again by {self._authenticated_by}, as before")
        try:
            self._show(shown, stays=self._authenticated_by is not None)
        except Unauthenticated:
            refused = step.refused()
            if refused is None:
                raise
            return refused
        self._step, self._authenticated_by = None, self._mechanism
        return answer

    def _show(self, shown: Presented, *, stays: bool = False) -> None:
        """Authenticate by these credentials. Raises Unauthenticated."""
        principal = self._callers.principal(shown, self._host)
        if stays and principal != self.principal:
            # As in Kafka: a connection stays with its principal.
            refusal = Unauthenticated(Reason.NO_PRINCIPAL, f"{principal} on a connection of {self.principal}")
            self._callers.refused(refusal, self._host)
            raise refusal
        self.principal, self.shown = principal, shown


class PlainStep:
    """PLAIN: one message, which carries a token as password."""

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        _authorization_id, _user, password = message.decode().split("\0")
        return b"", Presented(authorization=f"Bearer {password}")

    def refused(self) -> None:
        return None


class BearerStep:
    """OAUTHBEARER: one message with a JSON Web Token. A refusal is an answer, and the client ends the attempt."""

    def __init__(self) -> None:
        self._is_refused = False

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        if self._is_refused:
            raise AttemptFailed(_REFUSED_BEARER)
        return b"", Presented(authorization=f"Bearer {_bearer(message)}")

    def refused(self) -> bytes:
        self._is_refused = True
        return _REFUSED_BEARER.encode()


class ScramStep:
    """SCRAM: two messages of the client, two answers."""

    def __init__(self, tokens: ProvenTokens) -> None:
        self._tokens = tokens
        self._first: ClientFirst | None = None
        self._sent = b""
        self._verifier = _DECOY

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        if self._first is None:
            first = parse_client_first(message)
            # An unknown user fails after the same messages as a wrong token.
            self._first, self._verifier = first, self._tokens.verifier(first.user) or _decoy(first.user)
            self._sent = server_first(first, self._verifier, new_secret())
            return self._sent, None
        answer = server_final(self._first, self._sent, self._verifier, message)
        return answer, Presented(proven=Proven(self._first.user, self._verifier))

    def refused(self) -> None:
        return None


_DECOY_KEY: Final = new_secret()
_DECOY: Final = verifier_of(new_secret().hex(), new_secret())
"""Verifier of a password that does not exist."""


def _decoy(user: str) -> Verifier:
    """Return the verifier of a user that does not exist, with the same salt each time."""
    return msgspec.structs.replace(_DECOY, salt=hmac.digest(_DECOY_KEY, user.encode(), "sha256"))


def _bearer(message: bytes) -> str:
    """Return the token of OAUTHBEARER. Raises ValueError."""
    fields = dict(part.split("=", 1) for part in message.decode().split("\x01")[1:] if "=" in part)
    kind, _, bearer = fields.get("auth", "").partition(" ")
    if kind.lower() != "bearer":
        raise ValueError("no bearer token")
    return bearer
