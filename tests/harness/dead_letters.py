"""Records of a dead-letter topic, as a reader of it sees them."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import payload_of
from partition_log.batches import batches
from tests.harness.calls import partition_name
from tests.harness.world import World

_PREFIX = "__dlq.errors."


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """One letter: the record, and what the headers say about it."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    """Headers of the record itself."""
    about: dict[str, str]
    """Headers of the letter, without their prefix."""

    @property
    def place(self) -> tuple[str, int]:
        """Partition and offset of the record."""
        return f"{self.about['topic']}-{self.about['partition']}", int(self.about["offset"])


def letters_in(world: World, partition: str) -> list[FoundLetter]:
    """The letters in a partition, in their order, with what is not durable yet left out."""
    placed = world.inside.catalog.place(*partition_name(partition))
    head = world.inside.runtime.shard(placed.shard).durable_head(placed.ref.ordinal)
    found: list[FoundLetter] = []
    for header, stored in batches(world.shelf.store, placed.ref.ordinal, head.log_start_offset):
        if header.base_offset < head.log_end_offset:
            found += map(_letter, log_pb2.Records.FromString(bytes(payload_of(stored))).records)
    return found


def _letter(record: log_pb2.Record) -> FoundLetter:
    about = {header.key.removeprefix(_PREFIX): header.value.decode() for header in record.headers if _is_about(header)}
    own = {header.key: header.value for header in record.headers if not _is_about(header)}
    key = record.key if record.HasField("key") else None
    return FoundLetter(key, record.value if record.HasField("value") else None, own, about)


def _is_about(header: log_pb2.Header) -> bool:
    return header.key.startswith(_PREFIX)
