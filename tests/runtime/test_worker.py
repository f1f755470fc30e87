"""The worker process: it computes, it may die, and it goes with the server."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.worker import WorkerLost, WorkerProcess
from coordinator_runtime.worker_child import answer, receive, request, result, send
from tests.harness import forked
from tests.harness.patience import looks
from tests.harness.server_process import ROOT


def double(number: int) -> int:
    return 2 * number


def refuse(number: int) -> int:
    raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"not {number}")


def process_of(_task: int) -> int:
    return os.getpid()


def policy_of(_task: int) -> int:
    return os.sched_getscheduler(0)


def die(status: int) -> int:
    os._exit(status)


def never_end(_task: int) -> int:
    while True:
        time.perf_counter()


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds what cannot be sent")
        self.held = lambda: None


def hold(_task: int) -> int:
    raise Unpicklable


def alike(number: int) -> Callable[[], int]:
    return lambda: number


def test_a_message_that_is_cut_off_is_the_end() -> None:
    line = io.BytesIO()
    send(line, b"whole")
    send(line, b"")
    line.write((9).to_bytes(8, "big") + b"in part")
    line.seek(0)
    assert [receive(line) for _ in range(4)] == [b"whole", b"", None, None]


def test_an_error_is_raised_where_the_result_was_asked_for_and_says_where_it_comes_from() -> None:
    assert result(answer(request(double, 21))) == 42
    with pytest.raises(Refused, match="not 7") as refused:
        result(answer(request(refuse, 7)))
    assert "in refuse" in refused.value.__notes__[0]
    with pytest.raises(ModuleNotFoundError):
        result(answer(request(double, 21).replace(b"tests.runtime", b"testz.runtime")))


def test_what_cannot_be_sent_back_is_an_error_as_well() -> None:
    with pytest.raises(RuntimeError, match="holds what cannot be sent"):
        result(answer(request(hold, 1)))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        result(answer(request(alike, 1)))


@pytest.mark.slow
async def test_it_computes_in_another_process() -> None:
    worker = WorkerProcess()
    try:
        assert await worker.run(double, 21) == 42
        with pytest.raises(Refused, match="not 7"):
            await worker.run(refuse, 7)
    finally:
        worker.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no class for idle work")
@pytest.mark.parametrize("in_background", [False, True])
async def test_it_computes_at_a_low_priority_if_it_shall(in_background: bool) -> None:
    worker = WorkerProcess(in_background=in_background)
    try:
        assert (await worker.run(policy_of, 0) == os.SCHED_IDLE) == in_background
    finally:
        worker.close()


@pytest.mark.slow
async def test_what_cannot_be_sent_to_it_fails_alone() -> None:
    worker = WorkerProcess()
    try:
        process = await worker.run(process_of, 0)
        with pytest.raises((pickle.PicklingError, AttributeError)):
            await worker.run(lambda number: number, 1)
        assert await worker.run(process_of, 0) == process
    finally:
        worker.close()


@pytest.mark.slow
async def test_large_values_go_there_and_come_back() -> None:
    worker = WorkerProcess()
    try:
        assert await worker.run(bytes.upper, b"a" * 20_000_000) == b"A" * 20_000_000
    finally:
        worker.close()


@pytest.mark.slow
async def test_an_interrupt_from_the_terminal_does_not_end_it() -> None:
    worker = WorkerProcess()
    try:
        process = await worker.run(process_of, 0)
        os.kill(process, signal.SIGINT)
        assert await worker.run(process_of, 0) == process
    finally:
        worker.close()


@pytest.mark.slow
async def test_when_it_dies_the_next_task_gets_a_new_one() -> None:
    worker = WorkerProcess()
    try:
        with pytest.raises(WorkerLost):
            await worker.run(die, 3)
        assert await worker.run(double, 21) == 42
    finally:
        worker.close()


@pytest.mark.slow
async def test_one_that_died_while_it_had_nothing_to_do_is_replaced() -> None:
    worker = WorkerProcess()
    try:
        process = await worker.run(process_of, 0)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await worker.run(double, 1)
        assert await worker.run(process_of, 0) != process
    finally:
        worker.close()


@pytest.mark.slow
async def test_without_an_interpreter_every_task_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(WorkerLost, match="No such file"):
            await worker.run(double, 21)
    try:
        assert await worker.run(double, 21) == 42
    finally:
        worker.close()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_it_is_gone_once_its_server_has_closed_it_and_it_is_done() -> None:
    worker = WorkerProcess()
    process = await worker.run(process_of, 0)
    under_way = worker.run(double, 21)
    worker.close()
    with suppress(WorkerLost):
        assert await under_way == 42
    with pytest.raises(WorkerLost, match="the server stops"):
        await worker.run(double, 21)
    for _ in looks("the end of the worker"):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            break


PARENT = """
import asyncio
from coordinator_runtime.worker import WorkerProcess
from tests.runtime import test_worker

async def main():
    workers = WorkerProcess(), WorkerProcess()
    ids = [await worker.run(test_worker.process_of, 0) for worker in workers]
    for worker in workers if {is_busy} else ():
        worker.run(test_worker.never_end, 0)
    print(*ids, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def read_to_the_end(pipe: BinaryIO | None) -> bytes:
    """Read the rest of a pipe, once no process holds its other end any more."""
    assert pipe is not None
    return pipe.read()


@pytest.mark.slow
@pytest.mark.parametrize("is_busy", [pytest.param(False, marks=pytest.mark.long), True], ids=["idle", "busy"])
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_ends_with_its_parent_however_that_ends(number: signal.Signals, *, is_busy: bool) -> None:
    """The worker has its parent's output, so that is read to its end when both are gone."""
    command = [sys.executable, "-c", PARENT.format(is_busy=is_busy)]
    with forked.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [int(process) for process in parent.stdout.readline().split()]
        assert len(workers) == 2
        for worker in workers:
            os.kill(worker, 0)
        parent.send_signal(number)
        parent.wait()
        assert read_to_the_end(parent.stdout) == b""
