"""Properties of the servers of tests are chosen pairwise: no two values of two choices are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from coordinator_server.grpc_front.transports import TransportName
from tests.harness import combinations
from tests.harness.combinations import CHOICES, COMBINATIONS, Libraries, missing_pairs, row_in_turn, rows_here
from tests.server import test_crash_points, test_whole_server
from tests.simulation.options import Options
from tests.simulation.test_simulation import FAST_SEEDS

OF_A_TEST: Final = ("lane", "two_phase", "transport")
"""The libraries are those of a whole run, and the tests that kill servers run on both."""


def test_any_two_choices_meet() -> None:
    assert missing_pairs(COMBINATIONS, CHOICES) == set()


def test_no_row_can_be_spared() -> None:
    for row in COMBINATIONS:
        assert missing_pairs([other for other in COMBINATIONS if other != row], CHOICES)


def test_any_two_other_choices_meet_without_the_compiled_transport() -> None:
    rows = [replace(row, transport=TransportName.GRPC) for row in COMBINATIONS]
    assert missing_pairs(rows, [choice for choice in CHOICES if choice != "transport"]) == set()


def test_every_row_runs_with_one_of_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for libraries in Libraries:
        monkeypatch.setattr(combinations, "installed_libraries", lambda libraries=libraries: libraries)
        found += rows_here()
    assert sorted(map(str, found)) == sorted(map(str, COMBINATIONS))


def test_servers_are_killed_in_any_two_choices() -> None:
    tables = test_crash_points.ROWS + test_crash_points.TRANSACT_ROWS
    assert missing_pairs(tables, OF_A_TEST) == set()


def test_a_module_whose_tests_take_turns_comes_round() -> None:
    rows = [row_in_turn(test_whole_server, name) for name in vars(test_whole_server) if name.startswith("test_")]
    assert missing_pairs(rows, OF_A_TEST) == set()


def test_storms_meet_both_lanes_and_both_ways_to_end_transactions() -> None:
    """Those of a commit, too, but for one commit in a thousand, which leaves a pair to the next one."""
    options = [Options.of(seed) for seed in range(FAST_SEEDS)]
    assert missing_pairs(options, ("lane", "two_phase")) == set()
