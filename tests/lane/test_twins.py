"""The lane and the general path do the same: two servers live through the same, one with a lane and one without."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given, settings

from coordinator_core.lane import Lane
from coordinator_server.admission import AdmissionLimits
from tests.harness.world import WorldOptions
from tests.lane.catching import NotCaught, catch, live_through
from tests.lane.histories import ADMISSION, HISTORY, OPTIONS
from tests.lane.mutants import CANARIES, MUTANTS
from tests.lane.stories import STORIES
from tests.lane.twins import Step, Twins
from tests.simulation.mutants import MUTANTS as RULES
from tests.simulation.mutants import Mutant

WITHOUT_LANES = (False, False)

NOTICED_RULES = frozenset(
    {
        "any_sequence",
        "forget_the_fence",
        "forget_the_request_id",
        "no_bump_at_end",
        "no_group_marker",
        "no_marker_for_one",
        "same_csn",
        "tell_what_is_left",
        "transact_forgets_offsets",
        "transact_swallows_a_refusal",
    }
)
"""Bugs of the general path that a twin without them must be told from at once."""


@given(OPTIONS, ADMISSION, HISTORY)
@settings(max_examples=40)
def test_random_histories_leave_the_same(
    options: WorldOptions, admission: AdmissionLimits, history: list[Step]
) -> None:
    live_through(Twins(options, admission), history)


@pytest.mark.slow
@given(OPTIONS, ADMISSION, HISTORY)
@settings(max_examples=1_000)
def test_many_random_histories_leave_the_same(
    options: WorldOptions, admission: AdmissionLimits, history: list[Step]
) -> None:
    live_through(Twins(options, admission), history)


@pytest.mark.parametrize("name", STORIES)
def test_stories_leave_the_same(name: str) -> None:
    options, history = STORIES[name]
    live_through(Twins(options), history)


def test_the_lane_takes_what_is_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers of which neither uses a lane would leave the same, too."""
    taken = []
    transact = Lane.transact

    def noting(lane: Lane, *call: object) -> object:
        result = transact(lane, *call)  # type: ignore[arg-type]
        taken.append(result is not None)
        return result

    monkeypatch.setattr(Lane, "transact", noting)
    options, history = STORIES["the same id twice, and partitions that many write to"]
    live_through(Twins(options), history)
    assert taken.count(True) >= 6


@pytest.mark.parametrize("mutant", CANARIES, ids=lambda mutant: mutant.name)
def test_the_twins_notice_the_canary(mutant: Mutant) -> None:
    catch(mutant.applied)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_lane_is_noticed(mutant: Mutant) -> None:
    catch(mutant.applied)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [each for each in RULES if each.name in NOTICED_RULES], ids=lambda mutant: mutant.name
)
def test_a_changed_rule_of_the_general_path_is_noticed(mutant: Mutant) -> None:
    """The comparison sees what rules decide, and not only what lanes do."""
    catch(mutant.applied, lanes=WITHOUT_LANES)


def test_all_rules_that_must_be_noticed_are_there() -> None:
    assert {each.name for each in RULES} >= NOTICED_RULES


def test_two_servers_without_a_difference_are_not_told_apart() -> None:
    with pytest.raises(NotCaught):
        catch(nullcontext, lanes=WITHOUT_LANES, examples_max=10)
