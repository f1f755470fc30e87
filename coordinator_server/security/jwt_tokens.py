"""JSON Web Tokens of callers: checked with the public keys of a file, which is reloaded when it changes.

Nothing is fetched: the operator puts the key set (JWKS) of the issuer into the file. Only algorithms with public keys
are valid. Each needs a key of its own kind, named by the header's `kid`. A token must have issuer, audience, time of
issue and expiry, and lives a day at most. Invalid tokens are refused as cheaply as possible: the signature is checked
last, and once for each token.

Source: RFC 7519, RFC 8725.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import structlog

from coordinator_protocol.acls import principal_named
from coordinator_protocol.errors import Refused
from coordinator_runtime.clock import Clock
from coordinator_server.file_signature import signature_of
from coordinator_server.security.authentication import IdentityRefused, JwtRules, Reason, Unauthenticated

TOKEN_LENGTH_MAX: Final = 8_192
CLOCK_SKEW_SECONDS: Final = 30
"""Maximum difference between the clock of the issuer and ours."""
LIFETIME_SECONDS_MAX: Final = 86_400
ALGORITHMS: Final = frozenset({"RS256", "PS256", "ES256", "EdDSA"})
_OF_RSA: Final = frozenset({"RS256", "PS256"})
_RSA_BITS_MIN: Final = 2_048
_REQUIRED: Final = ("exp", "iat", "iss", "aud")
_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999. Later times are invalid, because arithmetic with arbitrary numbers can fail."""
_SECRET_PARTS: Final = frozenset({"d", "k"})
"""Members of a JWK that only a secret key has: its reader could sign (RFC 7518)."""
_KNOWN_MAX: Final = 10_000
"""Size of the cache of verified tokens. A full cache is cleared."""

_log = structlog.get_logger("jwt")


class KeySetRefused(IdentityRefused):
    """The key set cannot be used. The message has the place and the reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Content of a token with a valid signature."""

    principal: str
    begins: float
    ends: float
    """Unix seconds."""


class _PassedOver(Exception):
    """A key that cannot verify tokens here. The message names it and has the reason."""


def read_key_set(file: Path) -> Mapping[str, jwt.PyJWK]:
    """Return the keys of a file by their `kid`. Keys of other algorithms are skipped and logged, because issuers put
    the keys of all their users into one set. Raises KeySetRefused."""
    keys, passed_over = [], []
    try:
        for said in json.loads(file.read_text(encoding="utf-8"))["keys"]:
            if said.get("use", "sig") == "sig":
                try:
                    keys.append(_key(file, said))
                except _PassedOver as reason:
                    passed_over.append(str(reason))
    except OSError as error:
        raise KeySetRefused(f"the key set {file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeySetRefused(f'the key set {file} is no JWKS, {{"keys": [...]}}: {error}') from error
    by_id = {str(key.key_id): key for key in keys}
    if len(by_id) < len(keys):
        raise KeySetRefused(f"the key set {file} has two keys of one kid")
    if not keys:
        raise KeySetRefused(f"the key set {file} has no key for signatures that counts here{_listed(passed_over)}")
    if passed_over:
        _log.warning("keys_passed_over", file=str(file), keys=passed_over)
    return by_id


def _listed(passed_over: Sequence[str]) -> str:
    return f": {'; '.join(passed_over)}" if passed_over else ""


def _key(file: Path, said: Mapping[str, Any]) -> jwt.PyJWK:
    """Return one key of a file. Raises _PassedOver, and KeySetRefused for a secret, which does not belong there.

    The library's message about a wrong key is not passed on: it shows the key, which may be a secret.
    """
    named = f"key {said.get('kid')!a:.100}"
    if _SECRET_PARTS & said.keys():
        raise KeySetRefused(
            f"the key set {file}: {named} is a private or shared one, and who reads it can sign; put the public keys"
            " of the issuer there, and replace this one"
        )
    if not said.get("kid"):
        raise _PassedOver("a key without kid, which no token can name")
    key = None
    with suppress(jwt.PyJWTError, ValueError, TypeError):
        key = jwt.PyJWK(dict(said))
    if key is None or key.algorithm_name not in ALGORITHMS:
        raise _PassedOver(f"{named} is no public key for {', '.join(sorted(ALGORITHMS))}")
    if key.algorithm_name in _OF_RSA and key.key.key_size < _RSA_BITS_MIN:
        raise _PassedOver(f"{named} has {key.key.key_size} bits, which can be broken; {_RSA_BITS_MIN} are the least")
    return key


class ReloadingKeySet:
    """The newest valid key set of a file. Implements `authentication.JwtPrincipals`."""

    def __init__(self, rules: JwtRules, clock: Clock) -> None:
        """Read the key set. Raises KeySetRefused."""
        self._rules = rules
        self._clock = clock
        self._seen = signature_of(rules.key_set_file)
        self._keys = read_key_set(rules.key_set_file)
        self._known: dict[str, _Known] = {}
        self.refusal: str | None = None
        """Reason for which the current file is not used; None if it is used."""

    def look(self) -> None:
        """Reload the file if it has changed and is valid. Reads the file."""
        signature = signature_of(self._rules.key_set_file)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._keys = read_key_set(self._rules.key_set_file)
        except KeySetRefused as refused:
            self.refusal = str(refused)
            _log.warning("key_set_refused", reason=self.refusal, advice="the old keys count until the file is right")
            return
        self.refusal = None
        # A new dict, because `look` runs on another thread than the one that adds to it.
        self._known = {}
        _log.info("key_set_changed", file=str(self._rules.key_set_file), keys=sorted(self._keys))

    def is_known(self, token: str) -> bool:
        """Return True if the token's signature was verified before."""
        return token in self._known

    def ends_ms(self, token: str) -> int | None:
        """Return the expiry (Unix ms) of a token that was verified before; None for another one."""
        known = self._known.get(token)
        return None if known is None else int(known.ends * 1_000)

    def of_token(self, token: str) -> str:
        """Return the principal of a token. Raises Unauthenticated."""
        all_known = self._known
        known = all_known.get(token)
        if known is None:
            known = self._checked(token)
            if len(all_known) >= _KNOWN_MAX:
                all_known.clear()
            all_known[token] = known
        now = self._clock.wall_ms() / 1_000
        if known.ends + CLOCK_SKEW_SECONDS <= now:
            raise Unauthenticated(Reason.EXPIRED_TOKEN, known.principal)
        if known.begins - CLOCK_SKEW_SECONDS > now:
            raise Unauthenticated(Reason.TOKEN_OF_TOMORROW, known.principal)
        return known.principal

    def _checked(self, token: str) -> _Known:
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthenticated(Reason.NO_JWT, f"{len(token)} characters")
        try:
            header, claims = jwt.get_unverified_header(token), _unverified(token)
            key = self._keys.get(str(header.get("kid")))
            if key is None:
                raise Unauthenticated(Reason.UNKNOWN_KEY, f"kid {header.get('kid')!a:.100}")
            if header.get("alg") != key.algorithm_name:
                raise Unauthenticated(Reason.WRONG_ALGORITHM, f"alg {header.get('alg')!a:.100}, key {key.key_id!a}")
            self._check_claims(claims)
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._rules.issuer,
                audience=self._rules.audience,
                # Times are compared with our clock, each time that the token is shown.
                options={"require": list(_REQUIRED), "verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
        except jwt.InvalidSignatureError as error:
            raise Unauthenticated(Reason.BAD_SIGNATURE) from error
        except jwt.InvalidIssuerError as error:
            raise Unauthenticated(Reason.WRONG_ISSUER) from error
        except jwt.InvalidAudienceError as error:
            raise Unauthenticated(Reason.WRONG_AUDIENCE) from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthenticated(Reason.NO_JWT, type(error).__name__) from error
        return self._said_by(claims)

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        """Check the claims. Done before the signature, because that costs a hundred times as much."""
        if claims.get("iss") != self._rules.issuer:
            raise Unauthenticated(Reason.WRONG_ISSUER, f"iss {claims.get('iss')!a:.100}")
        begins, ends = _seconds(claims, "iat"), _seconds(claims, "exp")
        if "nbf" in claims:
            _seconds(claims, "nbf")
        if ends - begins > LIFETIME_SECONDS_MAX:
            raise Unauthenticated(Reason.TOO_LONG, f"{ends - begins:.0f} s, {LIFETIME_SECONDS_MAX} at most")
        if ends + CLOCK_SKEW_SECONDS <= self._clock.wall_ms() / 1_000:
            raise Unauthenticated(Reason.EXPIRED_TOKEN)

    def _said_by(self, claims: Mapping[str, Any]) -> _Known:
        name, not_before = claims.get(self._rules.principal_claim), claims.get("nbf", claims["iat"])
        if not isinstance(name, str):
            raise Unauthenticated(Reason.NO_PRINCIPAL, f"{self._rules.principal_claim} is no name")
        try:
            principal = principal_named(name)
        except Refused as refusal:
            raise Unauthenticated(Reason.NO_PRINCIPAL, refusal.message) from refusal
        return _Known(principal, max(claims["iat"], not_before), claims["exp"])


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    """Return a time in Unix seconds. NaN, which Python's JSON accepts, is refused, because it passes every
    comparison."""
    value = claims.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= _SECONDS_MAX:
        raise Unauthenticated(Reason.NO_JWT, f"{name} is no time in seconds")
    return value


def _unverified(token: str) -> Mapping[str, Any]:
    claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims
