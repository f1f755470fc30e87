"""The ledger of simulated histories: how many runs of each commit were judged, what they did, and what was found.

    python -m tests.simulation.ledger --histories 100000      judges as many runs of this commit as are missing
    python -m tests.simulation.ledger --histories 100000 --minutes 60
    python -m tests.simulation.ledger                         prints the table

Runs count from the first seed of the commit on, as those of the tests do. Of four seeds, three are storms, and one is
a storm with restores; to each comes a simulation of two servers and their lease. A run that is interrupted goes on
behind the last part that it wrote. A violation is printed with its seed, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.harness.of_commit import commit_here, first_seed
from tests.lease import simulation as lease
from tests.simulation import restores
from tests.simulation.auditor import Auditor
from tests.simulation.history import History
from tests.simulation.options import Options
from tests.simulation.simulation import Simulation

LEDGER: Final = Path(__file__).with_name("ledger.json")
RESTORES_EVERY: Final = 4
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
    lease.Simulation(lease.options_of(seed)).run()
    return Counter(
        {
            "histories": 1,
            "leases of two servers": 1,
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


class Ledger:
    """The file, with an entry for each commit."""

    def __init__(self, path: Path = LEDGER) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []

    def entry(self, commit: str) -> dict[str, Any]:
        """Return the entry of a commit, which may be new."""
        for entry in self.entries:
            if entry["commit"] == commit:
                return entry
        self.entries.append({"commit": commit, "first_seed": first_seed(commit), "seeds": 0, "violations": []})
        return self.entries[-1]

    def add(self, commit: str, seeds: int, sums: Mapping[str, int], violations: list[str]) -> None:
        """Add a part to the entry of a commit, and write the file."""
        entry = self.entry(commit)
        entry["seeds"] += seeds
        entry["violations"] += violations
        entry["counts"] = dict(Counter(entry.get("counts", {})) + Counter(sums))
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self.entries, indent=1) + "\n")
        partial.replace(self._path)

    def table(self) -> Iterator[str]:
        """Yield the lines of a table for people."""
        for entry in self.entries:
            counts = entry.get("counts", {})
            yield (
                f"{entry['commit'][:8]}: seeds {entry['first_seed']} to {entry['first_seed'] + entry['seeds'] - 1},"
                f" {len(entry['violations'])} violations"
            )
            for name, count in counts.items():
                yield f"    {name:<24}{count:>12,}"
            yield from (f"    {each}" for each in entry["violations"])


def extend(ledger: Ledger, commit: str, histories: int, minutes: float) -> list[str]:
    """Judge the seeds of a commit that are missing, for so long at most. Returns the new violations."""
    entry, ends = ledger.entry(commit), monotonic() + minutes * 60
    first, end = entry["first_seed"] + entry["seeds"], entry["first_seed"] + histories
    parts = [range(at, min(at + _PART, end)) for at in range(first, end, _PART)]
    found: list[str] = []
    with ProcessPoolExecutor(_WORKERS) as workers:
        for at in range(0, len(parts), _WORKERS):
            if monotonic() >= ends:
                break
            some = parts[at : at + _WORKERS]
            for part, (sums, violations) in zip(some, workers.map(_part, some), strict=True):
                ledger.add(commit, len(part), sums, violations)
                found += violations
                print(f"{entry['seeds']:,} of {histories:,} seeds, {len(found)} violations", flush=True)
    return found


def main() -> int:
    """Extend the ledger, or print it. Returns the status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.ledger", description="Judge simulated histories, and keep the count."
    )
    parser.add_argument("--histories", type=int, default=0, help="number of seeds of this commit in all")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    asked = parser.parse_args()
    ledger = Ledger()
    found = extend(ledger, commit_here(), asked.histories, asked.minutes) if asked.histories else []
    print("\n".join(found or ledger.table()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
