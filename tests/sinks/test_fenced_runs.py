"""Runs that were fenced stay fenced, as far back as a sink remembers them."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from tests.sinks.world import sink_world
from txn_coordinator.sinks.rules import FENCED_RUNS_REMEMBERED


def test_of_many_runs_those_that_were_fenced_last_cannot_come_back() -> None:
    world = sink_world()
    runs = [f"run {number}" for number in range(FENCED_RUNS_REMEMBERED + 4)]
    for run_id in runs:
        world.sinks.member(1, run_id=run_id)
    for run_id in runs[-FENCED_RUNS_REMEMBERED - 1 : -1]:
        with pytest.raises(Refused) as refusal:
            world.sinks.member(1, run_id=run_id)
        assert refusal.value.code is ErrorCode.PRODUCER_FENCED, run_id
    world.sinks.member(1, run_id=runs[-1])
