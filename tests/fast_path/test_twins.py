"""The fast path and the general path do the same: two servers live through the same, one with a fast path and one
without."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import pytest
from hypothesis import given, settings

from coordinator_server.traffic.admission import AdmissionLimits
from tests.fast_path.calls import NEW_IDS, Call
from tests.fast_path.catching import NotCaught, catch, committed, live_through
from tests.fast_path.histories import ADMISSION, BUSY_HISTORY, BUSY_OPTIONS, HISTORY, OPTIONS
from tests.fast_path.mutants import CANARIES, MUTANTS
from tests.fast_path.stories import STORIES
from tests.fast_path.taking import Taken
from tests.fast_path.twins import Step, Twins
from tests.harness.inside import WorldOptions
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS as RULES
from txn_coordinator import counters

BUSY_EXAMPLES = 30
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
"""Bugs of the general path that must show at once as a difference from a twin without them."""


@given(OPTIONS, ADMISSION, HISTORY)
@settings(max_examples=20)
def test_random_histories_leave_the_same(
    options: WorldOptions, admission: AdmissionLimits, history: list[Step]
) -> None:
    live_through(Twins(options, admission), history)


@pytest.mark.slow
@pytest.mark.long
@given(BUSY_OPTIONS, BUSY_HISTORY)
@settings(max_examples=300)
def test_many_busy_histories_leave_the_same(options: WorldOptions, history: list[Step]) -> None:
    live_through(Twins(options), history)


def test_busy_histories_leave_the_same_and_go_by_the_fast_path(taken: Taken) -> None:
    """At least half of the calls of these histories that may take the fast path took it: two servers of which neither
    uses a lane would leave the same, too."""
    sent: Counter[str] = Counter()

    @given(BUSY_OPTIONS, BUSY_HISTORY)
    @committed(BUSY_EXAMPLES)
    def live(options: WorldOptions, history: list[Step]) -> None:
        twins = Twins(options)
        live_through(twins, history)
        sent.update(twins.clients.sent)

    live()
    assert 2 * taken.count("transact") >= sent["Transact"] >= 100
    assert 2 * taken.count("produce") >= sent["Produce"] >= 100
    assert 2 * taken.count("commit") >= sent["EndTxn"] >= 100
    assert 2 * taken.count("initialise") >= sent["InitProducerId"] >= 100


@pytest.mark.slow
@pytest.mark.long
@given(OPTIONS, ADMISSION, HISTORY)
@settings(max_examples=600)
def test_many_random_histories_leave_the_same(
    options: WorldOptions, admission: AdmissionLimits, history: list[Step]
) -> None:
    live_through(Twins(options, admission), history)


@pytest.mark.parametrize("name", STORIES)
def test_stories_leave_the_same(name: str) -> None:
    options, history = STORIES[name]
    live_through(Twins(options), history)


def test_the_fast_path_takes_what_is_common(taken: Taken) -> None:
    options, history = STORIES["the same id twice, and partitions that many write to"]
    live_through(Twins(options), history)
    assert taken.count("transact") >= 6
    assert taken.count("initialise") >= 2, "all but the first one, which takes a block of producer ids"
    options, history = STORIES["transactions that grow, and end"]
    live_through(Twins(options), history)
    assert taken.count("produce") >= 9
    assert taken.count("commit") >= 3
    options, history = STORIES["clients of version 1"]
    live_through(Twins(options), history)
    assert taken.count("produce") >= 9 + 15
    assert taken.count("commit") >= 3 + 8
    options, history = STORIES["offsets that open transactions hold"]
    live_through(Twins(options), history)
    assert taken.count("commit") >= 3 + 8 + 5


def test_the_fast_path_takes_batches_of_kafkas_once_the_store_has_their_feature(taken: Taken) -> None:
    options, history = STORIES["batches of Kafka's, of which the first begins a feature of the store"]
    live_through(Twins(options), history[:2])
    assert taken.count("transact") == 0
    live_through(Twins(options), history)
    assert taken.count("transact") >= 3
    assert taken.count("produce") >= 3


def test_more_new_ids_than_a_block_has(monkeypatch: pytest.MonkeyPatch, taken: Taken) -> None:
    monkeypatch.setattr(counters, "BLOCK_SIZE", 5)
    twins = Twins(WorldOptions())
    live_through(
        twins,
        [
            step
            for first in range(0, len(NEW_IDS), 8)
            for step in (
                Step("message", (0, tuple(Call("InitProducerId", name) for name in NEW_IDS[first : first + 8]))),
                Step("settle"),
                Step("crash", (0,)),
            )
        ],
    )
    assert taken.count("initialise") >= len(NEW_IDS) // 2


@pytest.mark.parametrize("mutant", CANARIES, ids=lambda mutant: mutant.name)
def test_the_twins_notice_the_canary(mutant: Mutant) -> None:
    catch(mutant.applied)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_fast_path_is_noticed(mutant: Mutant) -> None:
    catch(mutant.applied)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "mutant", [each for each in RULES if each.name in NOTICED_RULES], ids=lambda mutant: mutant.name
)
def test_a_changed_rule_of_the_general_path_is_noticed(mutant: Mutant) -> None:
    """The comparison sees what rules decide, and not only what lanes do."""
    catch(mutant.applied, lanes=WITHOUT_LANES)


def test_all_rules_that_must_be_noticed_are_there() -> None:
    assert {each.name for each in RULES} >= NOTICED_RULES


@pytest.mark.slow
@pytest.mark.long
def test_two_servers_without_a_difference_are_not_told_apart() -> None:
    with pytest.raises(NotCaught):
        catch(nullcontext, lanes=WITHOUT_LANES, examples_max=10)
