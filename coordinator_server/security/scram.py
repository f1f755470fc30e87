"""SCRAM-SHA-256: a caller proves that it has a token, and the token does not travel.

The user name is the id of the token, and the password is the token. The file of tokens has a verifier, which is no
credential. The iterations protect weak passwords; a token has 256 random bits, so the fewest that clients accept
are enough.

Source: RFC 5802, RFC 7677; KIP-84.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

ITERATIONS: Final = 4_096
_HASH: Final = "sha256"
_HASH_BYTES: Final = 32
_NO_CHANNEL_BINDING: Final = ("n", "y")
_SEPARATOR: Final = "$"


class ScramRefused(ValueError):
    """A message is no step of SCRAM, or proves nothing."""


class Verifier(Struct, frozen=True):
    """Facts about a token by which the server verifies a proof."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def text(self) -> str:
        """Return the verifier for the file of tokens."""
        parts = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return _SEPARATOR.join((str(self.iterations), *parts))


class ClientFirst(Struct, frozen=True):
    """First message of the client."""

    header: str
    """Header of channel binding, which the last message repeats."""
    user: str
    nonce: str
    bare: str
    """The message without that header, as it is signed."""


def verifier_of(password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Return the verifier of a password. Takes a few milliseconds."""
    salted = hashlib.pbkdf2_hmac(_HASH, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", _HASH)
    return Verifier(salt, iterations, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", _HASH))


def parse_verifier(text: str) -> Verifier:
    """Return the verifier in a file of tokens. Raises ValueError with the reason."""
    try:
        iterations, *parts = text.split(_SEPARATOR)
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in parts)
        count = int(iterations)
    except (ValueError, NotBase64) as error:
        raise ValueError("is no verifier: `txnctl token create --scram` makes one") from error
    if count < ITERATIONS or not salt or len(stored_key) != _HASH_BYTES or len(server_key) != _HASH_BYTES:
        raise ValueError("is no verifier: `txnctl token create --scram` makes one")
    return Verifier(salt, count, stored_key, server_key)


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the first message of the client. Raises ScramRefused."""
    text = _text(message)
    binding, authorization_id, bare = ([*text.split(",", 2), "", ""])[:3]
    if binding not in _NO_CHANNEL_BINDING:
        raise ScramRefused("channel binding is not supported")
    if authorization_id:
        raise ScramRefused("a caller acts under its own name only")
    fields = _fields(bare)
    user, nonce = fields.get("n", ""), fields.get("r", "")
    if not user or not nonce or "m" in fields:
        raise ScramRefused("the first message has no user or no nonce")
    return ClientFirst(f"{binding},,", user.replace("=2C", ",").replace("=3D", "="), nonce, bare)


def server_first(first: ClientFirst, verifier: Verifier, nonce: bytes) -> bytes:
    """Return the first message of the server, with random bytes of its own."""
    own = b64encode(nonce).decode()
    return f"r={first.nonce}{own},s={b64encode(verifier.salt).decode()},i={verifier.iterations}".encode()


def server_final(first: ClientFirst, sent: bytes, verifier: Verifier, message: bytes) -> bytes:
    """Return the last message of the server to the client's, which proves the password. Raises ScramRefused."""
    text = _text(message)
    without_proof, comma, proof = text.rpartition(",p=")
    fields = _fields(without_proof)
    nonce = sent.decode().split(",", 1)[0].removeprefix("r=")
    binding = b64encode(first.header.encode()).decode()
    if not comma or fields.get("r") != nonce or fields.get("c") != binding:
        raise ScramRefused("the last message belongs to another exchange")
    signed = f"{first.bare},{sent.decode()},{without_proof}".encode()
    client_signature = hmac.digest(verifier.stored_key, signed, _HASH)
    try:
        shown = b64decode(proof, validate=True)
    except (ValueError, NotBase64) as error:
        raise ScramRefused("the proof is no base64") from error
    if len(shown) != _HASH_BYTES:
        raise ScramRefused("the proof has a wrong length")
    client_key = bytes(a ^ b for a, b in zip(shown, client_signature, strict=True))
    if not hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key):
        raise ScramRefused("the proof is wrong")
    return b"v=" + b64encode(hmac.digest(verifier.server_key, signed, _HASH))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramRefused("a message is no text") from error


def _fields(text: str) -> Mapping[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
