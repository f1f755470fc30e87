"""The ledger counts runs, goes on where it ended, and shows violations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.harness.of_commit import first_seed
from tests.simulation import ledger
from tests.simulation.ledger import Ledger, judged
from tests.simulation.told import Violation

COMMIT = "c0ffee00" * 5


def test_a_seed_counts_its_runs_and_operations() -> None:
    counts = judged(4) + judged(5)
    assert counts["histories"] == counts["leases of two servers"] == 2
    assert counts["with restores"] <= 1
    assert counts["operations"] > 10


def test_an_interrupted_run_goes_on_behind_its_last_part(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    Ledger(path).add(COMMIT, 50, Counter(histories=50), [])
    again = Ledger(path)
    again.add(COMMIT, 50, Counter(histories=49), ["seed 7: I3"])
    (entry,) = Ledger(path).entries
    assert (entry["first_seed"], entry["seeds"], entry["counts"]) == (first_seed(COMMIT), 100, {"histories": 99})
    assert [line.strip() for line in again.table()][-1] == "seed 7: I3"


def test_a_violation_is_kept_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> Counter[str]:
        if seed == 3:
            raise Violation("I1: an epoch went back")
        return Counter(histories=1)

    monkeypatch.setattr(ledger, "judged", broken)
    assert ledger._part(range(2, 5)) == ({"histories": 2}, ["seed 3: I1: an epoch went back"])
