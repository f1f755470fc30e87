"""Counting on the hot path agrees with counting afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.metrics.instruments import AGES_SECONDS, MS, SECONDS, SIZES, US, Distribution, counts

scales = st.sampled_from(((SECONDS, MS), (SECONDS, US), (AGES_SECONDS, MS), (SIZES, 1)))


@given(scales, st.lists(st.integers(0, 10_000_000) | st.sampled_from((0, 1, 2, 3, 500, 2_500, 5_000))))
def test_a_distribution_holds_how_many_values_were_at_most_each_bound(
    scale: tuple[tuple[float, ...], int], observed: list[int]
) -> None:
    bounds, per_unit = scale
    distribution = Distribution(bounds, per_unit)
    for value in observed:
        distribution.observe(value)
    copy = distribution.copy()
    expected = [(str(bound), sum(value / per_unit <= bound for value in observed)) for bound in bounds]
    assert copy.cumulative == (*expected, ("+Inf", len(observed)))
    assert copy.count == len(observed)
    assert copy.total == pytest.approx(sum(observed) / per_unit)


def test_a_copy_does_not_change_any_more() -> None:
    distribution = Distribution(SIZES)
    copy = distribution.copy()
    distribution.observe(1)
    assert (copy.count, distribution.copy().count) == (0, 1)


def test_what_is_known_beforehand_begins_at_zero() -> None:
    outcomes = counts("commit", "abort")
    outcomes["abort"] += 1
    outcomes["another"] += 1
    assert outcomes == {"commit": 0, "abort": 1, "another": 1}
