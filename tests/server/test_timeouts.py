"""The timeout of a transaction on a real loop: it is a deadline, and not found by the next of many looks."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2
from tests.harness.in_process import in_process_server
from tests.harness.patience import DEADLINE_SECONDS
from tests.metrics.busy_server import BusyServer, Seen

TIMEOUTS_MS = (70, 110, 180, 230)
LATE_MS_MAX = 100


@pytest.mark.slow
async def test_an_idle_server_aborts_at_the_deadline() -> None:
    async with in_process_server() as server:
        busy = BusyServer(server, Seen())
        await busy.topic("t")
        names = [f"patience-{timeout_ms}" for timeout_ms in TIMEOUTS_MS]
        for name, timeout_ms in zip(names, TIMEOUTS_MS, strict=True):
            await busy.opened(name, timeout_ms=timeout_ms)
        await busy.until_state("CompleteAbort", len(names))
        request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=names)
        described = (await busy.transactions.DescribeTransactions(request, timeout=DEADLINE_SECONDS)).transactions
    late_ms = [each.last_update_ms - each.start_ms - each.transaction_timeout_ms for each in described]
    assert min(late_ms) > 0, "the deadline itself still belongs to the client"
    # Not all of them: the machine may have been busy with something else.
    assert min(late_ms) <= LATE_MS_MAX, late_ms
