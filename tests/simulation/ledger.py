"""The ledger of simulated histories: how many runs were judged, at which commit, what they did, and what was found.

    python -m tests.simulation.ledger --histories 100000      judges as many runs as are missing
    python -m tests.simulation.ledger --histories 100000 --minutes 60
    python -m tests.simulation.ledger                         prints the table

Runs count from the first seed of the commit on, as those of the tests do. Of four seeds, three are storms, and one is
a storm with restores; to one of four comes a simulation of two servers and their lease. A run that is interrupted goes
on behind the last part that it wrote. Progress goes to stderr. A violation is printed with its seed, and the status is
1.

An entry stands for all commits with the same code in the packages of the product, `tests/harness`, `tests/lease` and
`tests/simulation`. The table says which one stands for the code that lies here. Code that is not committed is not
judged.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.harness.ledgers import PACKAGES, LedgerFile, digest_of, has_changes, headline, time_left
from tests.harness.of_commit import commit_here, first_seed
from tests.lease import simulation as lease
from tests.simulation import restores
from tests.simulation.auditor import Auditor
from tests.simulation.history import History
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation

LEDGER: Final = Path(__file__).with_name("ledger.json")
JUDGED: Final = (*PACKAGES, "tests/harness", "tests/lease", "tests/simulation")
"""Folders with the code that decides what a seed does, and what is said of it."""
RESTORES_EVERY: Final = 4
LEASES_EVERY: Final = 4
"""Number of seeds with one simulation of a lease, which takes as long as a storm."""
_PART: Final = 50
"""Number of seeds that a worker judges at once."""
_WORKERS: Final = 2


def judged(seed: int) -> Counter[str]:
    """Judge the runs of a seed. Returns the number of runs that had each kind of operation, and of the operations
    themselves. Raises AssertionError for a violation."""
    if seed % RESTORES_EVERY == 0:
        options = restores.options_of(seed)
        history: History = restores.RestoringSimulation(options).run()
    else:
        options = Options.of(seed)
        history = Simulation(options).run()
    Auditor(history).check()
    has_lease = seed % LEASES_EVERY == 1
    if has_lease:
        lease.Simulation(lease.options_of(seed)).run()
    return Counter(
        {
            "histories": 1,
            "leases of two servers": int(has_lease),
            "operations": len(history.ops),
            "reads": len(history.reads),
            **{f"with {name}": int(has) for name, has in _kinds(options, history).items()},
        }
    )


def _kinds(options: Options, history: History) -> dict[str, bool]:
    return {
        "crashes": bool(options.crash_weight),
        "restores": bool(history.restores),
        "groups": bool(options.member_weight),
        "share groups": bool(options.share_weight),
        "streams groups": bool(options.streams_weight),
        "Kafka clients": bool(options.kafka_share),
        "compaction": bool(history.compacted),
        "retention and deletion": bool(history.deletions or history.removed),
        "snapshots": bool(options.snapshot_weight),
        "sinks": bool(options.sink_weight),
        "outside decisions": bool(options.participant_ids),
        "moved shards": bool(options.shard_weight),
        "the fast path": options.lane,
    }


def _part(seeds: range) -> tuple[dict[str, int], list[str]]:
    """Judge some seeds, in a worker. Returns the sums, and the violations."""
    sums: Counter[str] = Counter()
    violations: list[str] = []
    for seed in seeds:
        try:
            with redirect_stdout(StringIO()):
                sums += judged(seed)
        except AssertionError as violation:
            violations.append(f"seed {seed}: {violation!s:.300}")
    return dict(sums), violations


class Ledger(LedgerFile):
    """The file."""

    def __init__(self, path: Path = LEDGER) -> None:
        super().__init__(path)

    def entry(self, judged: str, commit: str) -> dict[str, Any]:
        """Return the entry of the judged code with this digest. A new one has the first seed of this commit."""
        entry = super().entry(judged, commit)
        if "seeds" not in entry:
            entry.update(first_seed=first_seed(commit), seeds=0, violations=[], counts={})
        return entry

    def add(self, entry: dict[str, Any], seeds: int, sums: Mapping[str, int], violations: list[str]) -> None:
        """Add a part to an entry, and write the file."""
        entry["seeds"] += seeds
        entry["violations"] += violations
        entry["counts"] = dict(Counter(entry["counts"]) + Counter(sums))
        self.write()

    def table(self, judged_here: str) -> Iterator[str]:
        """Yield the lines of a table for people."""
        for entry in self.entries:
            yield (
                f"{headline(entry, judged_here)}: seeds {entry['first_seed']} to"
                f" {entry['first_seed'] + entry['seeds'] - 1}, {len(entry['violations'])} violations"
            )
            for name, count in entry["counts"].items():
                yield f"    {name:<24}{count:>12,}"
            yield from (f"    {each}" for each in entry["violations"])


def extend(ledger: Ledger, entry: dict[str, Any], histories: int, minutes: float) -> list[str]:
    """Judge the seeds that an entry lacks, for so long at most. Returns the new violations."""
    began, before = monotonic(), entry["seeds"]
    first, end = entry["first_seed"] + before, entry["first_seed"] + histories
    parts = [range(at, min(at + _PART, end)) for at in range(first, end, _PART)]
    found: list[str] = []
    workers = ProcessPoolExecutor(_WORKERS, initializer=_collect_rarely)
    try:
        # Workers go on with later parts while an earlier one is judged; parts are added in order.
        for part, (sums, violations) in zip(parts, workers.map(_part, parts), strict=True):
            ledger.add(entry, len(part), sums, violations)
            found += violations
            elapsed_s, done = monotonic() - began, entry["seeds"] - before
            left = time_left(done, histories - entry["seeds"], elapsed_s)
            print(f"{entry['seeds']:,} of {histories:,} seeds, {len(found)} violations, {left}", file=sys.stderr)
            if elapsed_s >= minutes * 60:
                break
    finally:
        workers.shutdown(cancel_futures=True)
    return found


def _collect_rarely() -> None:
    """Let the garbage collector pass over what stays, and look at the rest rarely: a world is garbage after its run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)


def main() -> int:
    """Extend the ledger, or print it. Returns the status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.ledger", description="Judge simulated histories, and keep the count."
    )
    parser.add_argument("--histories", type=int, default=0, help="number of seeds in all")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    asked = parser.parse_args()
    ledger, judged = Ledger(), digest_of(JUDGED)
    found: list[str] = []
    if asked.histories:
        if has_changes(JUDGED):
            parser.error("code that would be judged is not committed")
        found = extend(ledger, ledger.entry(judged, commit_here()), asked.histories, asked.minutes)
    print("\n".join(found or ledger.table(judged)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
