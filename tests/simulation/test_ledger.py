"""The ledger counts runs, goes on where it ended, and shows violations."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.ledgers import ROOT, digest_of, time_left
from tests.harness.of_commit import first_seed
from tests.simulation import ledger
from tests.simulation.ledger import Ledger, judged
from tests.simulation.told import Violation

COMMIT = "c0ffee00" * 5


def test_a_seed_counts_its_runs_and_operations() -> None:
    counts = judged(4) + judged(5)
    assert counts["histories"] == 2
    assert counts["leases of two servers"] == 1
    assert counts["with restores"] <= 1
    assert counts["operations"] > 10


def test_an_interrupted_run_goes_on_behind_its_last_part(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    begun = Ledger(path)
    begun.add(begun.entry("a" * 64, COMMIT), 50, Counter(histories=50), [])
    again = Ledger(path)
    again.add(again.entry("a" * 64, "f" * 40), 50, Counter(histories=49), ["seed 7: I3"])
    (entry,) = Ledger(path).entries
    assert (entry["first_seed"], entry["seeds"], entry["counts"]) == (first_seed(COMMIT), 100, {"histories": 99})
    assert [line.strip() for line in again.table("a" * 64)][-1] == "seed 7: I3"


def test_seeds_of_other_code_are_counted_apart(tmp_path: Path) -> None:
    kept = Ledger(tmp_path / "ledger.json")
    for digest in ("a" * 64, "b" * 64):
        kept.add(kept.entry(digest, COMMIT), 1, Counter(histories=1), [])
    heads = [line for line in kept.table("b" * 64) if not line.startswith(" ")]
    assert ["the code here" in line for line in heads] == [False, True]


def test_all_test_code_that_a_seed_runs_is_judged() -> None:
    """Modules of the tests that they import lie in judged folders, too."""
    seen, todo = set[str](), ["tests.simulation.ledger"]
    while todo:
        name = todo.pop()
        file = ROOT / f"{name.replace('.', '/')}.py"
        if name not in seen and file.exists():
            seen.add(name)
            imported = re.findall(r"^\s*(?:from|import) (tests[.\w]*)(?: import (.+))?", file.read_text(), re.MULTILINE)
            todo += [module for source, names in imported for module in (source, *_members(source, names))]
    assert len(seen) > 40
    folders = tuple(folder.replace("/", ".") for folder in ledger.JUDGED)
    assert {each for each in seen if not each.startswith(folders)} == set()


def _members(source: str, names: str) -> list[str]:
    return [f"{source}.{name}" for name in re.findall(r"\w+", names)]


def test_a_violation_is_kept_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> Counter[str]:
        if seed == 3:
            raise Violation("I1: an epoch went back")
        return Counter(histories=1)

    monkeypatch.setattr(ledger, "judged", broken)
    assert ledger._part(range(2, 5)) == ({"histories": 2}, ["seed 3: I1: an epoch went back"])


def test_a_digest_is_of_code_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/one.py").write_text("limit = 1")
    before = digest_of(["rules"], tmp_path)
    (tmp_path / "rules/ledger.json").write_text("[]")
    (tmp_path / "page.py").write_text("")
    assert digest_of(["rules"], tmp_path) == before


def test_a_digest_is_the_same_for_the_commit_of_a_release(tmp_path: Path) -> None:
    version = tmp_path / "coordinator_protocol/version.py"
    version.parent.mkdir()
    (version.parent / "errors.py").write_text("NONE = 0")
    without = digest_of(["coordinator_protocol"], tmp_path)
    version.write_text('BASE = "1.1.0"')
    assert digest_of(["coordinator_protocol"], tmp_path) == without


def test_other_code_has_another_digest(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/one.py").write_text("limit = 1")
    before = digest_of(["rules"], tmp_path)
    (tmp_path / "rules/one.py").write_text("limit = 2")
    assert digest_of(["rules"], tmp_path) != before


@pytest.mark.parametrize(
    ("done", "missing", "left"),
    [(0, 5, "time left unknown"), (10, 5, "5 s left"), (10, 600, "10 min left"), (10, 7_500, "2 h 05 min left")],
)
def test_the_time_left_follows_from_the_time_that_was_needed(done: int, missing: int, left: str) -> None:
    assert time_left(done, missing, elapsed_s=10) == left
