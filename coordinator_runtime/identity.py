"""The only module that draws random numbers: everybody else takes ids and tokens as arguments."""

from __future__ import annotations

import random
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from typing import Final

UUID_BYTES: Final = 16

_UUID_TEXT_LENGTH: Final = 22
_PADDING: Final = "=="
_TOKEN_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"

# Kafka gives these two to things of its own; a topic or member that had one would be taken for them.
_RESERVED_UUIDS: Final = (bytes(UUID_BYTES), (1).to_bytes(UUID_BYTES, "big"))

_random: Final = random.SystemRandom()


def new_uuid() -> bytes:
    """16 bytes nobody had before. Never one that Kafka reserves, and never one whose text starts with a dash, so that a
    command line does not take it for an option.

    Source: Kafka `Uuid.randomUuid`."""
    while True:
        value = uuid.uuid4().bytes
        if value not in _RESERVED_UUIDS and not uuid_text(value).startswith("-"):
            return value


def uuid_text(value: bytes) -> str:
    """The 22 characters by which Kafka's tools show a UUID: base64 with the URL alphabet, without padding."""
    assert len(value) == UUID_BYTES, f"a UUID has {UUID_BYTES} bytes, this one {len(value)}"
    return urlsafe_b64encode(value).decode("ascii").removesuffix(_PADDING)


def uuid_bytes(text: str) -> bytes:
    """The inverse of `uuid_text`. Raises ValueError for anything that `uuid_text` would not have written."""
    try:
        value = urlsafe_b64decode(text + _PADDING) if len(text) == _UUID_TEXT_LENGTH else b""
    except (BadBase64, ValueError):
        value = b""
    # The decoder drops characters it does not know and ignores spare bits, so only the way back proves the text.
    if len(value) != UUID_BYTES or uuid_text(value) != text:
        raise ValueError(f"{text!r} is not a UUID: expected {_UUID_TEXT_LENGTH} characters of URL-safe base64")
    return value


def random_token(length: int) -> str:
    """A name part nobody can guess, of lower-case letters and digits: 5 bits for each of `length` characters."""
    assert length > 0, "an empty token names nothing"
    return "".join(_random.choices(_TOKEN_ALPHABET, k=length))
