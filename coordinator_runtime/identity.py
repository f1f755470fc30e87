"""The only module that draws random numbers: everybody else takes ids as arguments."""

from __future__ import annotations

import secrets
import uuid
from base64 import urlsafe_b64encode
from typing import Final

UUID_BYTES: Final = 16
_SECRET_BYTES: Final = 32

_PADDING: Final = "=="

# Kafka gives these two to things of its own; a topic or member that had one would be taken for them.
_RESERVED_UUIDS: Final = (bytes(UUID_BYTES), (1).to_bytes(UUID_BYTES, "big"))


def new_uuid() -> bytes:
    """16 bytes nobody had before. Never one that Kafka reserves, and never one whose text starts with a dash, so that a
    command line does not take it for an option.

    Source: Kafka `Uuid.randomUuid`."""
    while True:
        value = uuid.uuid4().bytes
        if value not in _RESERVED_UUIDS and not uuid_text(value).startswith("-"):
            return value


def new_secret() -> bytes:
    """32 bytes that nobody can guess."""
    return secrets.token_bytes(_SECRET_BYTES)


def uuid_text(value: bytes) -> str:
    """The 22 characters by which Kafka's tools show a UUID: base64 with the URL alphabet, without padding."""
    assert len(value) == UUID_BYTES, f"a UUID has {UUID_BYTES} bytes, this one {len(value)}"
    return urlsafe_b64encode(value).decode("ascii").removesuffix(_PADDING)
