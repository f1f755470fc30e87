"""The timeout of a transaction on a real loop: it is a deadline, and not found by the next of many looks.

The loop runs by a manual clock, so nothing happens between two moments that the test names, however busy the machine.
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator_api.v1 import transaction_pb2
from tests.harness.in_process import in_process_server
from tests.harness.manual_clock import LoopOnClock, ManualClock
from tests.harness.patience import DEADLINE_SECONDS
from tests.metrics.busy_server import BusyServer, Seen

TIMEOUTS_MS = (70, 110, 180, 230)


@pytest.mark.slow
def test_an_idle_server_aborts_every_transaction_right_after_its_deadline() -> None:
    clock = ManualClock()
    with asyncio.Runner(loop_factory=lambda: LoopOnClock(clock)) as runner:
        assert runner.run(_lateness(clock)) == [1] * len(TIMEOUTS_MS), "the deadline itself still belongs to the client"


async def _lateness(clock: ManualClock) -> list[int]:
    """Open a transaction with each of the timeouts and let time pass; by how much each was aborted after its deadline,
    in milliseconds."""
    async with in_process_server(None, clock) as server:
        busy = BusyServer(server, Seen())
        await busy.topic("t")
        names = [f"patience-{timeout_ms}" for timeout_ms in TIMEOUTS_MS]
        for name, timeout_ms in zip(names, TIMEOUTS_MS, strict=True):
            await busy.opened(name, timeout_ms=timeout_ms)
        passed_ms = 0
        for number, timeout_ms in enumerate(TIMEOUTS_MS):
            clock.advance(timeout_ms - passed_ms)
            assert await states(busy, names) == ["CompleteAbort"] * number + ["Ongoing"] * (len(names) - number)
            clock.advance(1)
            passed_ms = timeout_ms + 1
            await busy.until_state("CompleteAbort", number + 1)
        return [
            each.last_update_ms - each.start_ms - each.transaction_timeout_ms for each in await described(busy, names)
        ]


async def described(busy: BusyServer, names: list[str]) -> list[transaction_pb2.TransactionDescription]:
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=names)
    return list((await busy.transactions.DescribeTransactions(request, timeout=DEADLINE_SECONDS)).transactions)


async def states(busy: BusyServer, names: list[str]) -> list[str]:
    return [each.state for each in await described(busy, names)]
