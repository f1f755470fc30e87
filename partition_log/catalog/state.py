"""What the catalog knows, as frozen values."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from coordinator_runtime.decision import ShardKey
from coordinator_runtime.ports import PartitionName, PartitionRef

ORDINAL_MAX: Final = 2**32 - 2
"""Ordinals are 32 bits in every stored key, and the one after the last must still fit as the end of a range."""


class PayloadValidation(StrEnum):
    """How much of a batch is looked at before it is accepted; the value of the setting `validate_payload`."""

    FULL = "full"
    """Header, checksum, and whether every reader can decode the payload."""
    HEADER = "header"
    """Only its header and checksum: the writer vouches for the payload."""


class Topic(Struct, frozen=True):
    """A topic. One that is deleted and created again has another id and other ordinals."""

    name: str
    topic_id: bytes
    partition_ordinals: tuple[int, ...]
    """Ordinals of the partitions, by partition number."""
    created_ms: int
    validate_payload: PayloadValidation = PayloadValidation.FULL


class PlacedPartition(Struct, frozen=True):
    """A partition and the shard that holds its log."""

    ref: PartitionRef
    name: PartitionName
    """The partition's name with topic and topic id, as answers have it."""
    shard: ShardKey
    validates_payload: bool = True
