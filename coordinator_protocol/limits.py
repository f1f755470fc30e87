"""Limits of requests, in one value that every part is given and DescribeLimits reports to clients.

Source: design 6 (limits) and 5 (fused); spec transactions 0 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from coordinator_protocol.names import ID_BYTES_MAX, TOPIC_NAME_LENGTH_MAX

KIBI: Final = 1024
MEBI: Final = 1024 * KIBI
EPOCH_MAX: Final = 2**15 - 1
SHARD_COUNT_MAX: Final = 2**16 - 1
"""Greatest number of shards. Shard numbers have 16 bits in stored rows, where the greatest one means that none is
known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of requests. A request outside them gets a precise refusal and changes nothing.

    Raises: ValueError at construction, with the name of a limit that makes no sense."""

    transactional_id_bytes_max: int = field(default=ID_BYTES_MAX, init=False)
    """Longest transactional id, in bytes of UTF-8. Reported to clients, but fixed: ids are part of every stored key."""

    group_id_bytes_max: int = field(default=ID_BYTES_MAX, init=False)
    """Longest group id, in bytes of UTF-8. Fixed, as above."""

    topic_name_length_max: int = field(default=TOPIC_NAME_LENGTH_MAX, init=False)
    """Longest topic name, in characters; Kafka's number. Fixed."""

    partitions_per_transaction_max: int = 10_000
    """Partitions and groups one transaction may touch. Larger: a longer PREPARE record, a larger burst of markers."""

    partitions_per_topic_max: int = 10_000
    """Partitions of one topic. Larger: an idle partition costs memory permanently, up to 64 KiB."""

    batch_bytes_max: int = MEBI
    """Stored size of one record batch, header included. Larger: one batch holds up the group commit it is in."""

    message_bytes_max: int = 16 * MEBI
    """Size of one request or reply on the wire."""

    transaction_max_timeout_ms: int = 900_000
    """Longest transaction timeout a producer may ask for; Kafka's `transaction.max.timeout.ms`. Larger: a dead producer
    holds back the last stable offset, and every committed reader, for that long."""

    producer_epoch_max: int = EPOCH_MAX
    """Largest producer epoch; 3 in tests of the rotation of producer ids. It is reserved for one more fencing by the
    coordinator, and never given to a client. So a client with the epoch below it continues with a new producer id."""

    fused_participants_max: int = 500
    """Partitions and groups up to which a transaction may end in one batch and one flush; above, in two phases."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            number = getattr(self, limit.name)
            if number < 1:
                raise ValueError(f"{limit.name} is {number} and must be at least 1")
        if not 2 <= self.producer_epoch_max <= EPOCH_MAX:
            raise ValueError(f"producer_epoch_max is {self.producer_epoch_max} and must be between 2 and {EPOCH_MAX}")
        if self.batch_bytes_max >= self.message_bytes_max:
            raise ValueError(
                f"batch_bytes_max is {self.batch_bytes_max} and must be below message_bytes_max, "
                f"{self.message_bytes_max}: a batch travels inside a message"
            )


LEASE_PARTS_MAX: Final = 100_000
"""Most parts in which the lease of a snapshot is given up: a bit of memory for each."""
