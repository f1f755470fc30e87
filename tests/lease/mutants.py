"""Bugs in the rules of the lease, and runs until the simulation catches them; part of `make mutants`."""

from __future__ import annotations

import sys

from coordinator_runtime.slate import lease as rules
from coordinator_runtime.slate.lease import LeaseState, Standing
from tests.lease.simulation import Simulation, options_of
from tests.simulation.catching import SEEDS_MAX, Caught, NotCaught
from tests.simulation.mutant import Mutant


def _from_the_answer(_original, own, answered_ms):
    return answered_ms + own.lease.ttl_ms - own.lease.ttl_ms // 10


def _half_a_time_to_live(_original, state, now_ms):
    seen = state.seen
    return seen is None or seen.lease.is_free or now_ms >= seen.since_ms + seen.lease.ttl_ms // 2


def _lost_is_done(original, state, now_ms):
    lost = original(state, now_ms)
    if state.standing is Standing.HOLDING and state.sent:
        return rules.replace(lost, valid_until_ms=now_ms + state.ttl_ms)
    return lost


MUTANTS = (
    Mutant(
        "lease-from-the-answer",
        "the holder counts from the answer, which may come long after others have seen the lease",
        ((rules, "_valid_until_ms", _from_the_answer),),
    ),
    Mutant(
        "lease-without-counter",
        "two leases are alike, so that a renewed one looks unchanged to the others (ABA)",
        ((rules, "_next_counter", lambda _original, _counters: 1),),
    ),
    Mutant(
        "lease-taken-early",
        "a lease is taken before it was unchanged for a whole time to live",
        ((rules, "is_claimable", _half_a_time_to_live),),
    ),
    Mutant(
        "lease-lost-answer-is-yes",
        "a renewal without an answer counts as done",
        ((rules, "was_lost", _lost_is_done),),
    ),
    Mutant(
        "lease-read-after-its-end",
        "a server answers as the owner though the time of its lease is over",
        ((LeaseState, "is_valid", lambda _original, state, _now_ms: state.standing is Standing.HOLDING),),
    ),
)


def catch(mutant: Mutant) -> Caught:
    """Run seeds with the bug in until one shows it. Raises NotCaught."""
    with mutant.applied():
        for seed in range(SEEDS_MAX):
            try:
                Simulation(options_of(seed)).run()
            except AssertionError as finding:
                return Caught(seed, finding)
    raise NotCaught(f"{mutant.name} was not caught in {SEEDS_MAX} runs: {mutant.what}")


def main() -> int:
    """Catch all mutants of the lease. Returns the status of the process."""
    missed = 0
    for mutant in MUTANTS:
        try:
            caught = catch(mutant)
        except NotCaught as missing:
            missed += 1
            print(missing)
        else:
            print(f"{mutant.name:<27} caught at seed {caught.seed:<4} {caught.finding!s:.110}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
