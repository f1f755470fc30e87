"""Open files: connections get what the store and the rest of the process do not need."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.host.handles import HANDLES_MIN, TooFewHandles, plan_handles, raise_handle_limit


@given(st.integers(HANDLES_MIN, 1 << 20), st.integers(1, 100_000))
def test_the_store_and_the_rest_of_the_process_come_before_connections(handles_max: int, wanted: int) -> None:
    plan = plan_handles(handles_max, wanted)
    assert plan.store_files_max >= 64
    assert 1 <= plan.connections_max <= wanted
    assert plan.connections_max + plan.store_files_max + 160 <= handles_max


def test_the_usual_limit_leaves_six_hundred_connections_and_a_large_one_as_many_as_wanted() -> None:
    assert plan_handles(1_024, 10_000).connections_max == 608
    assert plan_handles(65_536, 10_000).connections_max == 10_000


def test_a_limit_below_what_a_server_needs_is_refused_with_what_to_do() -> None:
    with pytest.raises(TooFewHandles, match=r"may open 239 files and needs at least 240: raise the limit with `ulimit"):
        plan_handles(HANDLES_MIN - 1, 10)


def test_the_soft_limit_becomes_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        raised = raise_handle_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, raised)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
