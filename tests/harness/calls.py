"""What all calls of a test have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import PartitionName

T = TypeVar("T")


def partition_name(text: str) -> PartitionName:
    """`topic-3` as a request names it."""
    topic, _, number = text.rpartition("-")
    return PartitionName(topic, b"", int(number))


def called(call: Callable[[], Pending[T]]) -> Pending[T]:
    """Services may refuse at once; the edge makes both the same, and so does this."""
    try:
        return call()
    except Refused as refusal:
        return failed(refusal)
