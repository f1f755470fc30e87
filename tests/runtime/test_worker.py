"""The worker process: it computes, it may die, and it goes with the server."""

from __future__ import annotations

import os

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.worker import WorkerLost, WorkerProcess

pytestmark = pytest.mark.slow


def double(number: int) -> int:
    return 2 * number


def refuse(number: int) -> int:
    raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"not {number}")


def process_of(_task: int) -> int:
    return os.getpid()


def die(status: int) -> int:
    os._exit(status)


async def test_it_computes_in_another_process() -> None:
    worker = WorkerProcess()
    try:
        assert await worker.run(double, 21) == 42
        with pytest.raises(Refused, match="not 7"):
            await worker.run(refuse, 7)
    finally:
        worker.close()


async def test_when_it_dies_the_next_task_gets_a_new_one() -> None:
    worker = WorkerProcess()
    try:
        with pytest.raises(WorkerLost):
            await worker.run(die, 3)
        assert await worker.run(double, 21) == 42
    finally:
        worker.close()


async def test_however_much_is_lost_with_it_it_has_one_successor() -> None:
    worker = WorkerProcess()
    successors: list[Pending[int]] = []
    try:
        lost = [worker.run(die, 3), *[worker.run(double, number) for number in range(20)]]
        for task in lost:
            # Asked for as soon as anything is lost, while the rest is still to be heard of.
            task.on_settled(lambda _lost: successors.append(worker.run(process_of, 0)))
        for task in lost:
            with pytest.raises(WorkerLost):
                await task
        assert len({await task for task in successors}) == 1
    finally:
        worker.close()


async def test_what_waits_when_the_server_stops_is_told() -> None:
    worker = WorkerProcess()
    waiting = [worker.run(double, number) for number in range(20)]
    worker.close()
    for number, task in enumerate(waiting):
        try:
            assert await task == 2 * number
        except WorkerLost:
            break
    else:
        raise AssertionError("nothing was left to be told")
