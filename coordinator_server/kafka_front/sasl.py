"""Authentication of one connection: by its certificate, or by SASL with the identities of the server.

PLAIN carries a token of the server as password. OAUTHBEARER carries a JSON Web Token. SCRAM-SHA-256 proves a token and
carries none.

Source: RFC 4616 (PLAIN), RFC 7628 (OAUTHBEARER), RFC 7677 (SCRAM-SHA-256); Kafka's SaslHandshake and SaslAuthenticate
(KIP-43, KIP-152).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from coordinator_runtime.identity import new_secret
from coordinator_server.calls import Unanswered
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


class Step(Protocol):
    """The server's side of one mechanism, for one attempt."""

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        """Return the answer to a message of the client, and the credentials once they are complete. Raises
        ValueError."""


class Authentication:
    """The authentication of one connection."""

    def __init__(self, methods: frozenset[AuthenticationMethod], callers: Callers, host: str) -> None:
        self._methods = methods
        self._callers = callers
        self._host = host
        self._step: Step | None = None
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
            self._show(Presented(certificates=certificates))

    def answer(self, key: ApiKey, version: int, body: memoryview) -> list[Piece]:
        """Return the answer to one call of SASL. Raises Malformed."""
        if key is ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(sasl_handshake_request.decode(body, version).mechanism, version)
        return self._authenticate(sasl_authenticate_request.decode(body, version).auth_bytes, version)

    def _shake_hands(self, mechanism: str, version: int) -> list[Piece]:
        known = mechanism in self.mechanisms
        self._step = self._first_step(Mechanism(mechanism)) if known else None
        response = sasl_handshake_response.SaslHandshakeResponse(
            error_code=0 if known else UNSUPPORTED_SASL_MECHANISM, mechanisms=self.mechanisms
        )
        return sasl_handshake_response.encode(response, version)

    def _first_step(self, mechanism: Mechanism) -> Step:
        if mechanism is Mechanism.SCRAM_SHA_256:
            tokens = self._callers.proven_tokens
            assert tokens is not None, "the listener has SCRAM"
            return ScramStep(tokens)
        return SecretStep(_SECRETS[mechanism])

    def _authenticate(self, message: bytes, version: int) -> list[Piece]:
        code, reason, answer = 0, None, b""
        if self._step is None:
            code, reason = ILLEGAL_SASL_STATE, "SaslHandshake with a mechanism of this server comes first"
        else:
            try:
                answer, shown = self._step.take(message)
                if shown is not None:
                    self._show(shown)
                    self._step = None
            except ScramRefused as refusal:
                self._callers.refused(Unauthenticated(Reason.UNKNOWN_TOKEN, f"SCRAM: {refusal}"), self._host)
                code, reason, answer = SASL_AUTHENTICATION_FAILED, _FAILED, b""
            except (ValueError, Unanswered):
                code, reason, answer = SASL_AUTHENTICATION_FAILED, _FAILED, b""
        self.has_failed = bool(code)
        response = sasl_authenticate_response.SaslAuthenticateResponse(
            error_code=code, error_message=reason, auth_bytes=answer
        )
        return sasl_authenticate_response.encode(response, version)

    def _show(self, shown: Presented) -> None:
        """Authenticate by these credentials. Raises Unauthenticated."""
        principal = self._callers.principal(shown, self._host)
        if self.principal is not None and principal != self.principal:
            # As in Kafka: a connection stays with its principal.
            raise Unauthenticated(Reason.NO_PRINCIPAL, f"{principal} on a connection of {self.principal}")
        self.principal, self.shown = principal, shown


class SecretStep:
    """A mechanism of one message, which carries the secret."""

    def __init__(self, secret_in: Callable[[bytes], str]) -> None:
        self._secret_in = secret_in

    def take(self, message: bytes) -> tuple[bytes, Presented | None]:
        return b"", Presented(authorization=f"Bearer {self._secret_in(message)}")


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


_DECOY_KEY: Final = new_secret()
_DECOY: Final = verifier_of(new_secret().hex(), new_secret())
"""Verifier of a password that does not exist."""


def _decoy(user: str) -> Verifier:
    """Return the verifier of a user that does not exist, with the same salt each time."""
    return msgspec.structs.replace(_DECOY, salt=hmac.digest(_DECOY_KEY, user.encode(), "sha256"))


def _password(message: bytes) -> str:
    """Return the password of PLAIN. Raises ValueError."""
    _authorization_id, _user, password = message.decode().split("\0")
    return password


def _bearer(message: bytes) -> str:
    """Return the token of OAUTHBEARER. Raises ValueError."""
    fields = dict(part.split("=", 1) for part in message.decode().split("\x01")[1:] if "=" in part)
    kind, _, bearer = fields.get("auth", "").partition(" ")
    if kind.lower() != "bearer":
        raise ValueError("no bearer token")
    return bearer


_SECRETS: Final[Mapping[Mechanism, Callable[[bytes], str]]] = {
    Mechanism.PLAIN: _password,
    Mechanism.OAUTHBEARER: _bearer,
}
