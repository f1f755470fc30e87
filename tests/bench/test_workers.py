"""Workers, counted and replaced. Each run here ends because enough was done, long before its time is over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from bench.load.workers import Span, run_as_tasks, run_in_threads
from bench.results import LoadFailed, Run

ENOUGH = Span(warm_up_s=0, measured_s=60, operations_max=20)
NO_TIME = Span(warm_up_s=0, measured_s=0)
IN_VAIN = Span(warm_up_s=0, measured_s=0, first_s_max=0)


class Stumbling:
    """Fails once, however many workers share the turns."""

    def __init__(self, turns: Iterator[int]) -> None:
        self._turns = turns

    def perform(self) -> None:
        if next(self._turns) == 3:
            raise ConnectionError("lost")

    def close(self) -> None:
        pass


class AsyncStumbling(Stumbling):
    """The same on a loop."""

    async def perform(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().perform()


def in_threads() -> Run:
    return run_in_threads([partial(Stumbling, count(1))] * 2, ENOUGH, os.getpid())


def as_tasks() -> Run:
    return run_as_tasks(lambda: [AsyncStumbling(count(1))] * 2, ENOUGH, os.getpid())


@pytest.mark.parametrize("run", [in_threads, as_tasks])
def test_operations_that_fail_are_counted_apart_and_the_work_goes_on(run: Callable[[], Run]) -> None:
    measured = run()
    assert measured.operations >= 20
    assert (measured.errors, measured.error_kinds) == (1, "ConnectionError 1")
    assert measured.p50_ms is not None


def test_a_worker_that_cannot_be_opened_fails_the_load() -> None:
    def refuse() -> Stumbling:
        raise PermissionError("no")

    with pytest.raises(LoadFailed, match="could not be opened: PermissionError"):
        run_in_threads([refuse], ENOUGH, os.getpid())


def test_a_load_in_which_everything_fails_ends() -> None:
    class Broken(Stumbling):
        def perform(self) -> None:
            raise ConnectionError("lost")

    with pytest.raises(LoadFailed):
        run_in_threads([partial(Broken, count(1))], ENOUGH, os.getpid())


def test_a_load_in_which_nothing_happened_is_no_measurement() -> None:
    with pytest.raises(LoadFailed, match="no operation ended"):
        run_as_tasks(list, IN_VAIN, os.getpid())


@pytest.mark.parametrize(
    "run",
    [
        lambda: run_in_threads([partial(Stumbling, count(1))], NO_TIME, os.getpid()),
        lambda: run_as_tasks(lambda: [AsyncStumbling(count(1))], NO_TIME, os.getpid()),
    ],
)
def test_a_span_that_is_too_short_for_an_operation_lasts_until_the_first(run: Callable[[], Run]) -> None:
    assert run().operations >= 1
