"""The history of rates: what it computes, and how much it keeps."""

from __future__ import annotations

from coordinator_server.metrics.history import INTERVAL_MS, POINTS_MAX, RateMemory
from tests.harness.world import World


def test_counters_become_rates_and_levels_stay() -> None:
    world = World()
    counted = {"commits": 5.0}
    history = RateMemory(world.inside.runtime, lambda: dict(counted), lambda now_ms: {"open_transactions": 3.0})
    assert history.rates().series == {}
    history.start()
    assert history.rates().series == {}
    counted["commits"] += 20
    world.tick(INTERVAL_MS)
    world.tick(INTERVAL_MS)
    counted["commits"] = 0
    world.tick(INTERVAL_MS)
    rates = history.rates()
    assert rates.series == {"commits": [2.0, 0.0, 0.0], "open_transactions": [3.0] * 3}, "a count that falls is no rate"
    assert (rates.interval_ms, rates.end_ms) == (INTERVAL_MS, world.clock.wall_ms())


def test_no_more_than_an_hour_is_kept() -> None:
    world = World()
    history = RateMemory(world.inside.runtime, dict, lambda now_ms: {"open_transactions": float(now_ms)})
    history.start()
    for _point in range(POINTS_MAX + 5):
        world.tick(INTERVAL_MS)
    values = history.rates().series["open_transactions"]
    assert len(values) == POINTS_MAX
    assert values[-1] == world.clock.wall_ms()
