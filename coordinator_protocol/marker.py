"""The marker: the control record that ends one transaction in one partition.

Payload of its batch, big-endian: version u16, type i16 (the outcome), coordinator_epoch i32, txn_epoch i16, next_epoch
i16, csn u64, coordinator_shard u16. The producer id stands in the batch header. Later versions may only add bytes at
the end, so a reader takes a higher version and a longer value, as Kafka's readers do.

Source: design 6 (csn) and 10; spec log 1.2 and 1.5; spec transactions 2.7.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused

MARKER_VERSION: Final = 2
MARKER_BYTES: Final = 22

_PAYLOAD: Final = struct.Struct(">HhihhQH")
_VERSION_MAX: Final = 2**15 - 1


class Outcome(IntEnum):
    """How a transaction ended, in the numbers of Kafka's control records."""

    ABORT = 0
    COMMIT = 1


_OUTCOMES: Final = tuple(Outcome)


class MarkerPayload(Struct, frozen=True, kw_only=True, gc=False):
    """A marker as its payload holds it: everything but the producer id, which is in the batch header."""

    txn_epoch: int
    next_epoch: int
    coordinator_shard: int
    coordinator_epoch: int
    outcome: Outcome
    csn: int


class Marker(Struct, frozen=True, kw_only=True, gc=False):
    """The order to end the transaction `(producer_id, txn_epoch)`; every repetition is the same value.

    `next_epoch` is the epoch that the producer has afterwards: lower ones are fenced in this partition. `csn` (commit
    sequence number) was given when the outcome was decided; a partition tells a repeated marker from a stale one by it.
    It is compared with csns of the same `coordinator_shard` only, that of the transactional id, and so is the epoch of
    the coordinator: another shard may have another counter.
    """

    producer_id: int
    txn_epoch: int
    next_epoch: int
    coordinator_shard: int
    coordinator_epoch: int
    outcome: Outcome
    csn: int


def encode_marker_payload(marker: Marker) -> bytes:
    """Return the payload of the control batch for `marker`."""
    return _PAYLOAD.pack(
        MARKER_VERSION,
        marker.outcome,
        marker.coordinator_epoch,
        marker.txn_epoch,
        marker.next_epoch,
        marker.csn,
        marker.coordinator_shard,
    )


def decode_marker_payload(payload: bytes | memoryview) -> MarkerPayload:
    """Return what a control batch says.

    Raises: Refused (CORRUPT_MESSAGE) where it is too short, or holds a version, type or epoch that no writer ever
    wrote.
    """
    if len(payload) < MARKER_BYTES:
        raise _corrupt(f"it has {len(payload)} bytes of at least {MARKER_BYTES}")
    version, outcome, coordinator_epoch, txn_epoch, next_epoch, csn, shard = _PAYLOAD.unpack_from(payload)
    if not MARKER_VERSION <= version <= _VERSION_MAX:
        raise _corrupt(f"its version is {version}")
    if not 0 <= outcome < len(_OUTCOMES):
        raise _corrupt(f"its type is {outcome}, neither abort (0) nor commit (1)")
    if coordinator_epoch < 0 or txn_epoch < 0 or next_epoch < 0:
        raise _corrupt(
            f"its epochs are {coordinator_epoch} (coordinator), {txn_epoch} (transaction) and {next_epoch} (next)"
        )
    return MarkerPayload(
        txn_epoch=txn_epoch,
        next_epoch=next_epoch,
        coordinator_shard=shard,
        coordinator_epoch=coordinator_epoch,
        outcome=_OUTCOMES[outcome],
        csn=csn,
    )


def _corrupt(what: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"not a marker: {what}")
