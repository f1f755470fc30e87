"""The ledger of kills counts rounds, goes on where it ended, and stops at a violation."""

from __future__ import annotations

from pathlib import Path

from tests.harness.of_commit import first_seed
from tests.kafka_front.kill_ledger import KILLS_PER_ROUND, KillLedger, extend, killed
from tests.kafka_front.storm_round import Round

COMMIT = "c0ffee00" * 5
JUDGED = "a" * 64


class Rounds:
    """Rounds without processes."""

    def __init__(self, wrong: int | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self._wrong = wrong

    def __call__(self, seed: int, kills: int) -> Round:
        self.asked.append((seed, kills))
        if len(self.asked) == self._wrong:
            raise AssertionError("a Kafka consumer reads twice")
        return Round({"server, status -9": kills}, {"committed": 10 * kills}, operations=100, interrupting=kills)


def test_rounds_go_on_until_the_kills_are_counted_and_behind_an_interruption(tmp_path: Path) -> None:
    path, rounds, wanted = tmp_path / "ledger.json", Rounds(), KILLS_PER_ROUND + 7
    begun = KillLedger(path)
    assert extend(begun, begun.entry(JUDGED, COMMIT), KILLS_PER_ROUND, 60, rounds) == []
    again = KillLedger(path)
    assert extend(again, again.entry(JUDGED, "f" * 40), wanted, 60, rounds) == []
    first = first_seed(COMMIT)
    assert rounds.asked == [(first, KILLS_PER_ROUND), (first + 1, 7)]
    (entry,) = KillLedger(path).entries
    assert (killed(entry), entry["transactions"], entry["operations"]) == (wanted, {"committed": 10 * wanted}, 200)


def test_no_round_begins_when_the_time_is_over(tmp_path: Path) -> None:
    ledger, rounds = KillLedger(tmp_path / "ledger.json"), Rounds()
    extend(ledger, ledger.entry(JUDGED, COMMIT), 1_000, 0, rounds)
    assert rounds.asked == []


def test_a_violation_ends_the_run_and_stays_in_the_ledger(tmp_path: Path) -> None:
    ledger, rounds = KillLedger(tmp_path / "ledger.json"), Rounds(wrong=2)
    (violation,) = extend(ledger, ledger.entry(JUDGED, COMMIT), 1_000, 60, rounds)
    assert violation == f"seed {first_seed(COMMIT) + 1}: a Kafka consumer reads twice"
    assert len(rounds.asked) == 2
    *_, last = [line.strip() for line in KillLedger(tmp_path / "ledger.json").table(JUDGED)]
    assert last == violation
    assert killed(ledger.entries[0]) == KILLS_PER_ROUND
