"""One line for unprocessed records, and for locks that expired."""

from __future__ import annotations

import pytest

from coordinator_runtime.decision import Turn
from coordinator_server.events.shares import share_tellers
from coordinator_server.logs import LogFormat
from coordinator_server.metrics.shares import ShareNumbers
from group_coordinator.share_partitions.draft import ArchiveReason, LetterEnd
from group_coordinator.share_partitions.events import LettersDelayed, LettersDropped, RecordsArchived
from tests.logs.lines import Lines, partition
from tests.metrics.observed_shares import ObservedShares


def test_unprocessed_records_have_a_line(lines: Lines) -> None:
    lines.configure(LogFormat.JSON)
    found = ObservedShares().shares
    of_partition = {"group_id": found.group_id, **partition(found.key.ordinal)}
    found.acquire("a", 5)
    lines.text()
    found.acknowledge("a", (0, 2, [1, 0, 2]))
    assert lines.events() == []
    found.acknowledge("a", (3, 3, [3]))
    rejected = {"event": "records_rejected", "level": "info", **of_partition, "offset": 3, "next_offset": 4}
    assert lines.only() == rejected
    found.world.pass_time(found.terms.lock_duration_ms)
    expired = {"event": "lock_expired", "level": "info", **of_partition, "member_id": "a", "records": 1}
    assert lines.only() == expired
    found.acquire("b", 1)
    found.end_member("b")
    (given_up, _other) = lines.events()
    assert {name: given_up[name] for name in ("event", "level", "offset", "next_offset", "deliveries")} == {
        "event": "records_given_up",
        "level": "warning",
        "offset": 2,
        "next_offset": 3,
        "deliveries": 2,
    }
    assert "handle the records by hand" in given_up["advice"]


LINES = {
    LetterEnd.NONE: ("records_given_up", "warning"),
    LetterEnd.WRITTEN: ("letters_written", "info"),
    LetterEnd.BARE: ("letters_written_bare", "warning"),
    LetterEnd.NO_TOPIC: ("records_given_up", "warning"),
    LetterEnd.OWN_TOPIC: ("letters_lost", "warning"),
    LetterEnd.REMOVED: ("letters_lost", "warning"),
}
"""Line and level of records whose letters ended so."""


@pytest.mark.parametrize("end", LINES)
def test_each_end_of_a_letter_has_its_line_and_its_count(lines: Lines, end: LetterEnd) -> None:
    numbers = ShareNumbers()
    archived = RecordsArchived("g", 3, 10, 12, ArchiveReason.DELIVERY_LIMIT, 5, end)
    share_tellers(numbers, partition)[RecordsArchived](archived, Turn(0))
    line = lines.only()
    assert (line["event"], line["level"], line["offset"], line["next_offset"]) == (*LINES[end], 10, 12)
    counted = numbers.readings()["txn_share_dead_letters_total"]
    assert counted.get((end.value,), 0) == (0 if end is LetterEnd.NONE else 2)


def test_letters_that_wait_and_letters_that_go_have_lines(lines: Lines) -> None:
    numbers = ShareNumbers()
    tellers = share_tellers(numbers, partition)
    tellers[LettersDelayed](LettersDelayed("g", 3, "dead", 7, "why"), Turn(0))
    delayed = {"event": "letters_delayed", "level": "warning", "group_id": "g", **partition(3)}
    assert lines.only() == {**delayed, "dead_letter_topic": "dead", "letters": 7, "why": "why"}
    tellers[LettersDropped](LettersDropped("g", 3, 7), Turn(0))
    assert lines.only() == {**delayed, "event": "letters_dropped", "letters": 7}
    assert numbers.readings()["txn_share_dead_letters_total"]["dropped",] == 7
