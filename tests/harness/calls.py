"""Parts that calls share in all tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coordinator_protocol.errors import Refused
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import PartitionName

T = TypeVar("T")


def partition_name(text: str) -> PartitionName:
    """Return the name of a partition that is written `topic-3`."""
    topic, _, number = text.rpartition("-")
    return PartitionName(topic, b"", int(number))


def called(call: Callable[[], Pending[T]]) -> Pending[T]:
    """Make a call, and turn a refusal that is raised at once into a Pending: services may refuse either way."""
    try:
        return call()
    except Refused as refusal:
        return failed(refusal)
