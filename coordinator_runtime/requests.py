"""What clients send to more than one of the siblings, as frozen values: by a call of its own, or in a Transact."""

from __future__ import annotations

from msgspec import Struct

from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import PartitionName


class ClientBatch(Struct, frozen=True):
    """One batch of records for one partition, as a client sent it: by Produce, or in a Transact."""

    name: PartitionName
    header: BatchHeader | Refused
    """A batch that cannot be understood at all is its own refusal."""
    payload: bytes
    crc: int | None
    """What the client computed; None: it left that to us."""


class Committer(Struct, frozen=True):
    """The member, or nobody, that a request about offsets claims to come from."""

    member_id: str = ""
    generation_or_epoch: int = -1
    """Generation of a classic member, epoch of a consumer member; -1 = not a member."""
    instance_id: str | None = None


class NamedOffset(Struct, frozen=True):
    """One offset to be committed, as the request has it."""

    name: PartitionName
    committed_offset: int
    leader_epoch: int | None
    metadata: str


class GroupOffsets(Struct, frozen=True):
    """Offsets for one group."""

    group_id: str
    committer: Committer
    offsets: tuple[NamedOffset, ...]
