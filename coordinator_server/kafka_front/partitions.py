"""Partitions as requests of Kafka's protocol name them, and results in the order of the request.

Kafka refuses a partition that cannot exist by itself, and the core refuses the whole request. So such a partition has
its result from the start, and the core is not asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import PartitionName

QueryT = TypeVar("QueryT")
ResultT = TypeVar("ResultT")

ANY_PARTITION: Final = PartitionName("", b"", -1)
"""Name in a result that stands for every partition of a request."""


def epoch_of(number: int) -> int | None:
    """Return a leader epoch in a request; None for a negative number, which stands for none."""
    return None if number < 0 else number


def impossible(name: PartitionName) -> Refused | None:
    """Return the refusal of a partition that no topic can have; None if the core may be asked for it."""
    if name.partition >= 0 and (name.topic or name.topic_id):
        return None
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"no topic has partition {name.partition}" if name.partition < 0 else "no topic has an empty name",
    )


def answered(
    plan: Sequence[QueryT | ResultT],
    query_type: type[QueryT],
    ask: Callable[[list[QueryT]], Pending[list[ResultT]]],
) -> Pending[Sequence[ResultT]]:
    """Return all results in the order of the plan. Each query in it becomes a result of `ask`, which is not called
    without any."""
    queries = [each for each in plan if isinstance(each, query_type)]
    if not queries:
        return settled(cast(Sequence[ResultT], plan))

    def merged(results: list[ResultT]) -> Sequence[ResultT]:
        if len(results) == len(plan):
            return results
        found = iter(results)
        return [next(found) if isinstance(each, query_type) else cast(ResultT, each) for each in plan]

    return ask(queries).map(merged)
