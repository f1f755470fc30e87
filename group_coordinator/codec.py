"""Bytes of the group coordinator's records (storage/v1/group.proto), put together from its parts' codecs.

Record types are numbers in stored keys: never change one, never use one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from coordinator_runtime.rows import EncodedRecord

CLASSIC_GROUP: Final = 1
CONSUMER_GROUP_EPOCH: Final = 2
CONSUMER_MEMBER: Final = 3
CONSUMER_REGEX: Final = 4
CONSUMER_TARGET_EPOCH: Final = 5
CONSUMER_TARGET_MEMBER: Final = 6
CONSUMER_CURRENT_ASSIGNMENT: Final = 7
GROUP_CONFIG: Final = 8
OFFSET: Final = 9
PENDING_OFFSET: Final = 10
GROUP_ADMINISTERED: Final = 11
"""Only ever in the history, with no value: who deleted the group, or offsets of it."""

Encoders = Mapping[type, Callable[[Any], EncodedRecord | None]]
"""Functions that make the bytes of a record, by class of its value; None for a change that lives in memory only."""
Decoders = Mapping[int, Callable[[bytes, bytes], object]]
"""Functions that make a record from key and value, by record type."""


class GroupCodec:
    """Implements `coordinator_runtime.rows.StateCodec`."""

    def __init__(self, parts: Iterable[tuple[Encoders, Decoders]]) -> None:
        self._encoders: dict[type, Callable[[Any], EncodedRecord | None]] = {}
        self._decoders: dict[int, Callable[[bytes, bytes], object]] = {}
        for encoders, decoders in parts:
            assert self._encoders.keys().isdisjoint(encoders), "every class of record belongs to one part"
            assert self._decoders.keys().isdisjoint(decoders), "every record type belongs to one part"
            self._encoders |= encoders
            self._decoders |= decoders

    def encode(self, value: object) -> EncodedRecord | None:
        return self._encoders[type(value)](value)

    def decode(self, record_type: int, key: bytes, value: bytes) -> object | None:
        decoder = self._decoders.get(record_type)
        return None if decoder is None else decoder(key, value)
