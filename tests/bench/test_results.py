"""The arithmetic of figures: medians, spreads, ratios, and the line between a load program and the table."""

from __future__ import annotations

import pytest

from bench.results import MILLISECONDS, LoadFailed, Run, Side, as_fields, ratio, rivals
from bench.window import with_latencies
from tests.bench.fakes import result


def test_the_figure_is_the_median_and_the_spread_is_relative_to_it() -> None:
    ours = result(Side.OURS, "SDK", 90, 130, 100)
    assert ours.figure == 100
    assert ours.spread == pytest.approx(0.4)
    assert ours.median_of("server_us") == 1_000
    assert ours.median_of("p50_ms") is None


def test_a_single_run_has_no_spread() -> None:
    assert result(Side.OURS, "SDK", 90).spread is None


def test_a_ratio_above_one_is_good_for_us_whichever_direction_is_better() -> None:
    assert ratio(result(Side.OURS, "SDK", 800), result(Side.KAFKA, "Java", 100)) == 8
    fast, slow = result(Side.OURS, "SDK", 5, unit=MILLISECONDS), result(Side.KAFKA, "Java", 20, unit=MILLISECONDS)
    assert ratio(fast, slow) == 4


def test_without_a_figure_there_is_no_ratio() -> None:
    assert ratio(result(Side.OURS, "SDK", 800), result(Side.KAFKA, "Java")) is None


def test_ours_is_compared_with_theirs_of_the_same_row_only() -> None:
    ours, theirs = result(Side.OURS, "SDK", 1), result(Side.KAFKA, "Java", 1)
    elsewhere = result(Side.KAFKA, "Java", 1, row="another")
    assert rivals(ours, [ours, theirs, elsewhere]) == [theirs]
    assert rivals(theirs, [ours, theirs]) == []


def test_a_run_survives_the_way_from_the_load_program() -> None:
    run = Run(figure=12.5, operations=100, elapsed_s=8, p50_ms=0.5, errors=2, error_kinds="Fenced 2")
    assert Run.from_fields(as_fields(run)) == run


def test_a_load_program_that_says_something_else_is_a_failure() -> None:
    with pytest.raises(LoadFailed, match="speed"):
        Run.from_fields({"figure": 1.0, "speed": 3})


def test_records_of_a_batch_share_its_cost() -> None:
    run = Run(figure=10, operations=100, server_us=512, client_us=256).per_item(256)
    assert (run.figure, run.operations, run.server_us, run.client_us) == (2_560, 25_600, 2, 1)


def test_quantiles_are_taken_over_all_latencies() -> None:
    run = with_latencies(Run(figure=1), [*range(1_000, 0, -1)])
    assert (run.p50_ms, run.p99_ms, run.p999_ms, run.max_ms) == (0.501, 0.991, 1.0, 1.0)
