"""The measurements of streams groups, small, on servers of their own and for a moment."""

from __future__ import annotations

import asyncio

import pytest

from bench import epoch_heartbeats, streams_targets, takeover
from bench.streams_targets import Size
from coordinator_runtime.worker import WorkerProcess


def test_a_target_is_computed_here_and_in_the_worker() -> None:
    async def computed() -> list[str]:
        worker = WorkerProcess()
        try:
            return await streams_targets.computed(worker, Size(3, 30), is_stateful=True, standbys=1)
        finally:
            worker.close()

    *times, leaves_the_loop, _packing, _whole_way = asyncio.run(computed())
    assert all(float(each) >= 0 for each in times)
    assert leaves_the_loop == "no"


@pytest.mark.slow
@pytest.mark.long
def test_a_standby_takes_over_after_the_session() -> None:
    (late_ms,) = takeover.measured(1)
    assert late_ms > 0


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", epoch_heartbeats.KINDS, ids=lambda kind: kind.name)
def test_members_of_both_kinds_settle_and_none_is_refused(kind: type[epoch_heartbeats.Member]) -> None:
    ((answers, spent_us),) = epoch_heartbeats.measured(kind, groups=2, members=2, round_seconds=0.1, rounds=1)
    assert len(answers) == 4
    assert not [each for each in answers if isinstance(each, BaseException)]
    assert spent_us >= 0
