"""Requests of several items, each of which is served or refused by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.pending import Pending, all_of, settled

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def each_by_itself(
    items: Iterable[ItemT],
    serve: Callable[[ItemT], Pending[ResultT]],
    refused: Callable[[ItemT, CoordinatorError], ResultT],
) -> Pending[list[ResultT]]:
    """Serve the items in their order. `serve` may raise the error of its item, or return it with the Pending."""

    def one(item: ItemT) -> Pending[ResultT]:
        try:
            pending = serve(item)
        except CoordinatorError as error:
            return settled(refused(item, error))
        return pending.answer_error(lambda error: refused(item, error))

    return all_of([one(item) for item in items])


def only(results: Sequence[ResultT]) -> ResultT:
    """Return the result of a command about one item."""
    (result,) = results
    return result
