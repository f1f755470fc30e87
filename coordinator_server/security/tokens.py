"""Tokens of callers: made once, kept as hashes in a file, and reloaded when the file changes.

A token is `txl_ID_SECRET`. The file has the SHA-256 of the secret, so a reader of the file cannot call with it. A fast
hash is enough, because a secret has 256 random bits. If the file cannot be used, the old tokens stay valid, which is
logged. A token that is removed from the file becomes invalid within seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from coordinator_protocol.acls import ANY_PRINCIPAL, check_principal
from coordinator_protocol.errors import Refused
from coordinator_runtime.clock import Clock
from coordinator_server.file_signature import signature_of
from coordinator_server.security.authentication import TOKEN_PREFIX, IdentityRefused, Proven, Reason, Unauthenticated
from coordinator_server.security.scram import Verifier, parse_verifier, verifier_of
from coordinator_server.validation import first_problem

TOKEN_LENGTH_MAX: Final = 200

_NO_HASH: Final = "0" * 64
"""Placeholder hash for unknown ids, so that the comparison takes as long as for a known one."""

_NAMES: Final = ("tokens", "id", "principal", "sha256", "expires", "scram_sha_256")
"""Names that may be in the file."""

_log = structlog.get_logger("tokens")


class TokensRefused(IdentityRefused):
    """The file of tokens cannot be used. The message has the place, the reason and the remedy."""


def _principal(name: str) -> str:
    try:
        check_principal(name)
    except Refused as refusal:
        raise ValueError(refusal.message) from refusal
    if name == ANY_PRINCIPAL:
        raise ValueError("a token is one caller's: write User:NAME")
    return name


def _verifier(text: str) -> str:
    parse_verifier(text)
    return text


class TokenRow(BaseModel):
    """One token, as the file has it: a table `[[tokens]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9-]{1,64}$")]
    principal: Annotated[str, AfterValidator(_principal)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    expires: AwareDatetime | None = None
    """Expiry; None if the token never expires."""
    scram_sha_256: Annotated[str, AfterValidator(_verifier)] | None = None
    """Verifier for SCRAM; None if the token cannot be used with it."""


class _TokenFile(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tokens: list[TokenRow] = []


def read_tokens(file: Path) -> Mapping[str, TokenRow]:
    """Return the tokens of a file, by id. Raises TokensRefused."""
    try:
        found = _TokenFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).tokens
    except OSError as error:
        raise TokensRefused(f"the tokens file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TokensRefused(f"the tokens file {file} is no TOML: {error}") from error
    except ValidationError as error:
        raise TokensRefused(f"the tokens file {file}: {first_problem(error, _NAMES)}") from error
    tokens = {token.id: token for token in found}
    if len(tokens) < len(found):
        raise TokensRefused(f"the tokens file {file} has two tokens of one id: each needs an id of its own")
    return tokens


def new_token(
    token_id: str, secret: bytes, principal: str, expires: datetime | None, scram_salt: bytes | None = None
) -> tuple[str, str]:
    """Return a token for the caller, and its table for the file. The secret is random bytes. With a salt, also random
    bytes, the token can be used with SCRAM."""
    text = urlsafe_b64encode(secret).rstrip(b"=").decode()
    token = f"{TOKEN_PREFIX}{token_id}_{text}"
    verifier = None if scram_salt is None else verifier_of(token, scram_salt).text()
    row = TokenRow(id=token_id, principal=principal, sha256=_hash(text), expires=expires, scram_sha_256=verifier)
    named = json.dumps(row.principal, ensure_ascii=False)
    lines = ["[[tokens]]", f'id = "{row.id}"', f"principal = {named}", f'sha256 = "{row.sha256}"']
    if row.expires is not None:
        lines.append(f"expires = {row.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    if row.scram_sha_256 is not None:
        lines.append(f'scram_sha_256 = "{row.scram_sha_256}"')
    return token, "\n".join(lines) + "\n"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ReloadingTokens:
    """The newest valid tokens of a file. Implements `authentication.TokenPrincipals`."""

    def __init__(self, file: Path, clock: Clock) -> None:
        """Read the tokens. Raises TokensRefused."""
        self._file = file
        self._clock = clock
        self._seen = signature_of(file)
        self._tokens = read_tokens(file)
        self.refusal: str | None = None
        """Reason for which the current file is not used; None if it is used."""

    def of_token(self, token: str) -> str:
        """Return the principal of a token. Raises Unauthenticated."""
        token_id, _, secret = token[:TOKEN_LENGTH_MAX].removeprefix(TOKEN_PREFIX).partition("_")
        row = self._tokens.get(token_id)
        is_right = hmac.compare_digest(_hash(secret), _NO_HASH if row is None else row.sha256)
        if row is None or not is_right or not token.startswith(TOKEN_PREFIX):
            raise Unauthenticated(Reason.UNKNOWN_TOKEN)
        return self._principal(row)

    def verifier(self, token_id: str) -> Verifier | None:
        """Return the verifier of a token for SCRAM; None if there is no such token, or it has none."""
        row = self._tokens.get(token_id)
        return None if row is None or row.scram_sha_256 is None else parse_verifier(row.scram_sha_256)

    def of_proven(self, proven: Proven) -> str:
        """Return the principal of a token that was proven by SCRAM. Raises Unauthenticated."""
        row = self._tokens.get(proven.token_id)
        if row is None or self.verifier(proven.token_id) != proven.verifier:
            raise Unauthenticated(Reason.UNKNOWN_TOKEN)
        return self._principal(row)

    def _principal(self, row: TokenRow) -> str:
        if row.expires is not None and row.expires.timestamp() * 1_000 <= self._clock.wall_ms():
            raise Unauthenticated(Reason.EXPIRED_TOKEN, f"token {row.id} of {row.principal}")
        return row.principal

    def look(self) -> None:
        """Reload the file if it has changed and is valid. Reads the file."""
        signature = signature_of(self._file)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._tokens = read_tokens(self._file)
        except TokensRefused as refused:
            self.refusal = str(refused)
            _log.warning("tokens_refused", reason=self.refusal, advice="the old ones count until the file is right")
            return
        self.refusal = None
        _log.info("tokens_changed", file=str(self._file), number=len(self._tokens))
