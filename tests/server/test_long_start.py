"""A start that takes long logs how far it is."""

from __future__ import annotations

from typing import Any, cast

from structlog.testing import capture_logs

from coordinator_runtime.decision import Coordinator, Shard, ShardKey
from coordinator_runtime.loader import ShardLoaded
from coordinator_server.events.shards import ShardObserver


class UncountedNumbers:
    """Metrics without a reader."""

    def __init__(self) -> None:
        self.runtime = self

    def shard_loaded(self, coordinator: Coordinator, elapsed_us: int) -> None:
        pass


NO_SHARD = cast("Shard", object())


def lines(*loads: tuple[int, int], is_start_over: bool = False) -> list[dict[str, Any]]:
    """Return the log lines of a start of eight shards, which are loaded at these times (ms) with these records."""
    observer = ShardObserver(cast("Any", UncountedNumbers()))
    observer.shards_to_load = 8
    observer.is_start_over = is_start_over
    with capture_logs() as logged:
        for number, (elapsed_ms, records) in enumerate(loads):
            observer(ShardLoaded(ShardKey(Coordinator.LOG, number), NO_SHARD, records, elapsed_ms * 1_000))
    return [dict(line) for line in logged if line["event"] == "loading"]


def test_a_start_under_two_seconds_has_no_line_of_its_progress() -> None:
    assert lines((500, 10), (1_999, 10)) == []


def test_a_long_start_tells_its_rate_and_the_time_that_is_left() -> None:
    found = lines((1_000, 500), (2_000, 500), (3_000, 500), (4_000, 1_000))
    assert [
        {name: line[name] for name in ("shards", "shards_to_load", "records", "records_per_second", "left_ms")}
        for line in found
    ] == [
        {"shards": 2, "shards_to_load": 8, "records": 1_000, "records_per_second": 500, "left_ms": 6_000},
        {"shards": 4, "shards_to_load": 8, "records": 2_500, "records_per_second": 625, "left_ms": 4_000},
    ]


def test_a_load_after_the_start_has_a_line_of_its_own() -> None:
    assert lines((9_000, 10), is_start_over=True) == []
