"""The numbers past which a request is refused, in one value that every part is given and the Limits RPC tells to clients.

Source: design 6 (limits) and 5 (parking, fused); spec transactions 0 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from coordinator_protocol.names import ID_BYTES_MAX, TOPIC_NAME_LENGTH_MAX

KIBI: Final = 1024
MEBI: Final = 1024 * KIBI
EPOCH_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of requests; what lies outside is refused precisely and changes nothing.

    Raises: ValueError at construction where a number makes no sense, naming it.
    """

    transactional_id_bytes_max: int = ID_BYTES_MAX
    """Longest transactional id, in bytes of UTF-8. Also in every stored key, so not configurable upwards."""

    group_id_bytes_max: int = ID_BYTES_MAX
    """Longest group id, in bytes of UTF-8."""

    topic_name_length_max: int = TOPIC_NAME_LENGTH_MAX
    """Longest topic name, in characters; Kafka's number."""

    partitions_per_transaction_max: int = 10_000
    """Partitions and groups one transaction may touch. Larger: one PREPARE record and one burst of markers grow with it."""

    partitions_per_topic_max: int = 10_000
    """Partitions of one topic. Larger: an idle partition costs memory for ever, up to 64 KiB."""

    batch_bytes_max: int = MEBI
    """Stored size of one record batch, header included. Larger: one batch holds up the group commit it is in."""

    message_bytes_max: int = 16 * MEBI
    """One request or reply on the wire."""

    session_message_bytes_max: int = MEBI
    """One message of a Session stream; bulk produce and fetch have calls of their own."""

    offset_metadata_bytes_max: int = 4096
    """Free text beside one committed offset; Kafka's `offset.metadata.max.bytes`."""

    transaction_max_timeout_ms: int = 900_000
    """Longest transaction timeout a producer may ask for; Kafka's `transaction.max.timeout.ms`. Larger: a dead producer
    keeps the last stable offset, and every committed reader behind it, where it is for that long."""

    producer_epoch_max: int = EPOCH_MAX
    """Largest producer epoch; 3 in tests that want to see the rotation of producer ids. No client is ever given this one:
    it is kept so that the coordinator can fence once more."""

    fused_participants_max: int = 500
    """Partitions and groups up to which a transaction may end in one batch and one flush; above, it ends in two phases."""

    parked_wait_ms_max: int = 30_000
    """Longest wait of a request that brought no deadline and met a busy transaction or group."""

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if number < 1:
                raise ValueError(f"{field.name} is {number} and must be at least 1")
        if not 2 <= self.producer_epoch_max <= EPOCH_MAX:
            raise ValueError(f"producer_epoch_max is {self.producer_epoch_max} and must be between 2 and {EPOCH_MAX}")
        if self.transactional_id_bytes_max > ID_BYTES_MAX or self.group_id_bytes_max > ID_BYTES_MAX:
            raise ValueError(f"ids may not be allowed more than {ID_BYTES_MAX} bytes: they are part of every stored key")
        if self.batch_bytes_max >= self.message_bytes_max:
            raise ValueError(
                f"batch_bytes_max is {self.batch_bytes_max} and must be below message_bytes_max, "
                f"{self.message_bytes_max}: a batch travels inside a message"
            )

    @property
    def producer_epoch_exhausted(self) -> int:
        """First epoch that cannot be bumped and handed out again: from here on a new producer id is needed."""
        return self.producer_epoch_max - 1

    def is_exhausted(self, producer_epoch: int) -> bool:
        """Say whether the next initialisation at this epoch needs a new producer id."""
        return producer_epoch >= self.producer_epoch_max - 1
