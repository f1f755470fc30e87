"""Runs mutants until the auditor catches them. `make mutants` runs them all and says which seed caught which:

    .venv/bin/python -m tests.simulation.catching [NAME...]

A line per mutant. Ends with status 1 if one of them was not caught: then the net is torn, not the product.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO

from tests.simulation.auditor import Auditor
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS, SPECIFIED
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation

SEEDS_MAX = 300
_WITHOUT = {
    "member_weight": 0.0,
    "sink_weight": 0.0,
    "shard_weight": 0.0,
    "transact_share": 0.0,
    "snapshot_weight": 0.0,
    "kafka_share": 0.0,
    "share_weight": 0.0,
    "streams_weight": 0.0,
    "topic_keys": None,
}
"""What only some bugs need: it takes steps, and the others show themselves sooner without."""


class NotCaught(AssertionError):
    """A bug went through all of its runs unnoticed."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What gave a mutant away."""

    seed: int
    finding: AssertionError
    """The complaint: the auditor's, which sees what clients see, or the product's, which asserts what it believes of
    itself."""


def run(options: Options) -> Auditor:
    """One run, judged. The options are printed first, so that whatever happens can be repeated."""
    print(options)
    auditor = Auditor(Simulation(options).run())
    auditor.check()
    return auditor


def catch(mutant: Mutant) -> Caught:
    """Run seeds with the bug in until one shows it. Raises NotCaught."""
    with mutant.applied():
        for seed in range(SEEDS_MAX):
            try:
                run(replace(Options.of(seed), **{**_WITHOUT, **mutant.options}))
            except AssertionError as finding:
                return Caught(seed, finding)
    raise NotCaught(f"{mutant.name} was not caught in {SEEDS_MAX} runs: {mutant.what}")


def main(names: Sequence[str]) -> int:
    """Catch these mutants, or all. Returns the status of the process."""
    wanted = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    missed = 0
    for mutant in wanted:
        origin = "spec 12" if mutant in SPECIFIED else ""
        try:
            with redirect_stdout(StringIO()):
                caught = catch(mutant)
        except NotCaught:
            missed += 1
            print(f"{mutant.name:<27} {origin:<8} NOT CAUGHT in {SEEDS_MAX} runs: {mutant.what}", flush=True)
            continue
        print(
            f"{mutant.name:<27} {origin:<8} caught at seed {caught.seed:<4} {_shown(caught.finding):.120}", flush=True
        )
    print(f"{len(wanted) - missed} of {len(wanted)} caught")
    return 1 if missed else 0


def _shown(finding: AssertionError) -> str:
    """Its first line; of an assertion without words, what it asserts."""
    words = str(finding).partition("\n")[0] or traceback.extract_tb(finding.__traceback__)[-1].line
    return f"{type(finding).__name__}: {words}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
