"""The only module that draws random numbers: all other code takes ids as arguments."""

from __future__ import annotations

import secrets
import uuid
from base64 import urlsafe_b64encode
from typing import Final

UUID_BYTES: Final = 16
_SECRET_BYTES: Final = 32

_PADDING: Final = "=="

# Kafka reserves these two; a topic or member that had one would be mistaken for something of Kafka's own.
_RESERVED_UUIDS: Final = (bytes(UUID_BYTES), (1).to_bytes(UUID_BYTES, "big"))


def new_uuid() -> bytes:
    """Return 16 random bytes, unique in practice, and never an id that Kafka reserves.

    The text of the id never starts with a dash, so that a command line does not take it for an option.

    Source: Kafka `Uuid.randomUuid`."""
    while True:
        value = uuid.uuid4().bytes
        if value not in _RESERVED_UUIDS and not uuid_text(value).startswith("-"):
            return value


def new_secret() -> bytes:
    """Return 32 random bytes that cannot be guessed."""
    return secrets.token_bytes(_SECRET_BYTES)


def uuid_text(value: bytes) -> str:
    """Return the 22 characters by which Kafka's tools show a UUID: base64 with the URL alphabet, without padding."""
    assert len(value) == UUID_BYTES, f"a UUID has {UUID_BYTES} bytes, this one {len(value)}"
    return urlsafe_b64encode(value).decode("ascii").removesuffix(_PADDING)
