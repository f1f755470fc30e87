"""The ledger of kills: how many real servers and clients were killed, at which commit, and what both checkers found.

    python -m tests.kafka_front.kill_ledger --kills 1000      kills until so many are counted
    python -m tests.kafka_front.kill_ledger --kills 1000 --minutes 10
    python -m tests.kafka_front.kill_ledger                   prints the table

A round is a storm (`kill_storm`) over a server with a producer of each kind: librdkafka, the SDK, stubs. Of three
kills, two are of the server, and one is of a producer. Each comes when every producer has got something done since the
last one, and one of them is within a transaction. Then both checkers judge the round. The next round has the next seed,
counted from the first one of the commit on.

The file is written after each round, so an interrupted run goes on behind the last whole one. Progress goes to stderr.
A violation is printed with its seed and the folder of its round, which is kept, and the status is 1. A round that
stands still ends the run, with the stack of each thread.

An entry stands for all commits with the same code in the packages of the product, `tests/harness`, `tests/histories`
and `tests/kafka_front`.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.harness.ledgers import PACKAGES, LedgerFile, digest_of, has_changes, headline, time_left
from tests.harness.of_commit import commit_here, first_seed
from tests.kafka_front.storm_round import Round, by, run_round

LEDGER: Final = Path(__file__).with_name("kill_ledger.json")
JUDGED: Final = (*PACKAGES, "tests/harness", "tests/histories", "tests/kafka_front")
"""Folders with the code that is killed, that kills, and that judges."""
KILLS_PER_ROUND: Final = 50
"""To begin and to end a round takes as long as a dozen kills."""
PROGRESS: Final = 2
KINDS: Final = ("kafka", "sdk", "stub")
_STUCK_S: Final = 1_200


class KillLedger(LedgerFile):
    """The file."""

    def __init__(self, path: Path = LEDGER) -> None:
        super().__init__(path)

    def entry(self, judged: str, commit: str) -> dict[str, Any]:
        """Return the entry of the judged code with this digest. A new one has the first seed of this commit."""
        entry = super().entry(judged, commit)
        if "rounds" not in entry:
            entry.update(first_seed=first_seed(commit), rounds=0, kills={}, transactions={}, operations=0)
            entry.update(interrupting=0, violations=[])
        return entry

    def add(self, entry: dict[str, Any], done: Round) -> None:
        """Add a round to an entry, and write the file."""
        entry["rounds"] += 1
        entry["kills"] = dict(Counter(entry["kills"]) + Counter(done.kills))
        entry["transactions"] = dict(Counter(entry["transactions"]) + Counter(done.transactions))
        entry["interrupting"] += done.interrupting
        entry["operations"] += done.operations
        self.write()

    def add_violation(self, entry: dict[str, Any], violation: str) -> None:
        """Add a round that broke a promise. Its kills are not counted."""
        entry["rounds"] += 1
        entry["violations"].append(violation)
        self.write()

    def table(self, judged_here: str) -> Iterator[str]:
        """Yield the lines of a table for people."""
        for entry in self.entries:
            yield (
                f"{headline(entry, judged_here)}: {killed(entry):,} kills in {entry['rounds']} rounds,"
                f" {len(entry['violations'])} violations"
            )
            kills = {f"killed: {name}": count for name, count in entry["kills"].items()}
            ends = {f"transactions {name}": count for name, count in entry["transactions"].items()}
            others = {"kills within a transaction": entry["interrupting"], "operations": entry["operations"]}
            for name, count in {**kills, **ends, **others}.items():
                yield f"    {name:<32}{count:>12,}"
            yield from (f"    {each}" for each in entry["violations"])


def killed(entry: dict[str, Any]) -> int:
    """Return the number of kills of an entry."""
    return sum(entry["kills"].values())


def extend(
    ledger: KillLedger, entry: dict[str, Any], kills: int, minutes: float, go_through: Callable[[int, int], Round]
) -> list[str]:
    """Go through rounds until an entry has so many kills, or a round is wrong, or the time is over. Returns the new
    violations. `go_through` takes the seed and the number of kills of a round."""
    began, before = monotonic(), killed(entry)
    while killed(entry) < kills and monotonic() - began < minutes * 60:
        seed = entry["first_seed"] + entry["rounds"]
        try:
            done = go_through(seed, min(KILLS_PER_ROUND, kills - killed(entry)))
        except AssertionError as violation:
            ledger.add_violation(entry, f"seed {seed}: {violation!s:.300}")
            return entry["violations"][-1:]
        ledger.add(entry, done)
        left = time_left(killed(entry) - before, kills - killed(entry), monotonic() - began)
        print(f"{killed(entry):,} of {kills:,} kills in {entry['rounds']} rounds, {left}", file=sys.stderr)
    return []


def go_through(seed: int, kills: int) -> Round:
    """Go through a round in a folder of its own, which is kept if the round is wrong."""
    directory = Path(tempfile.mkdtemp(prefix=f"kills-{seed}-"))
    faulthandler.dump_traceback_later(_STUCK_S, exit=True)
    try:
        done = run_round(directory, seed, [by(kind, f"{kind}-0") for kind in KINDS], kills, progress=PROGRESS)
    except AssertionError as violation:
        raise AssertionError(f"{violation} (see {directory})") from violation
    finally:
        faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(directory)
    return done


def main() -> int:
    """Extend the ledger, or print it. Returns the status of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kafka_front.kill_ledger", description="Kill servers and clients, and keep the count."
    )
    parser.add_argument("--kills", type=int, default=0, help="number of kills in all")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no round after so long")
    asked = parser.parse_args()
    ledger, judged = KillLedger(), digest_of(JUDGED)
    found: list[str] = []
    if asked.kills:
        if has_changes(JUDGED):
            parser.error("code that would be judged is not committed")
        found = extend(ledger, ledger.entry(judged, commit_here()), asked.kills, asked.minutes, go_through)
    print("\n".join(found or ledger.table(judged)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
