"""Bugs on purpose in compaction: its tests must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_protocol.batch import Compression, Encoding
from partition_log.compaction import passes, payloads
from partition_log.compaction.chunks import LeftIndex
from partition_log.compaction.rules import Survivors
from partition_log.shard import LogShard
from tests.log import test_compaction as tests

Bug = Callable[[pytest.MonkeyPatch], None]


def older_values_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(payloads, "_newest", lambda _table, _key: -1)


def the_newest_value_goes(patch: pytest.MonkeyPatch) -> None:
    newest = payloads._newest
    patch.setattr(payloads, "_newest", lambda table, key: newest(table, key) + 1)


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passes, "retired_below", lambda compaction, _now, _retention: compaction.end_offset)


def aborted_records_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passes, "_is_hidden", lambda _row, _aborted: False)


def markers_go_before_their_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Survivors, "keep", lambda _self, _header: None)


def a_resumed_pass_trusts_what_it_did_not_see(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passes, "Survivors", lambda _below: Survivors(10**9))


def totals_before_a_chunk_stay(patch: pytest.MonkeyPatch) -> None:
    replace = LeftIndex.replace

    def forgetful(index: Any, old: Any, kept: Any, less: Any) -> Any:
        changed = dict(replace(index, old, kept, less))
        return [(at, stretch) for at, stretch in changed.items() if at >= old[0].first_offset or stretch is None]

    patch.setattr(LeftIndex, "replace", forgetful)


def leases_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    decide = LogShard.decide_compact

    def hasty(shard: Any, ordinal: int, step: Any) -> Any:
        leases, shard._leases = shard._leases, type("None_", (), {"oldest": lambda *_: None})()
        try:
            return decide(shard, ordinal, step)
        finally:
            shard._leases = leases

    patch.setattr(LogShard, "decide_compact", hasty)


def rows_below_a_log_start_come_back(patch: pytest.MonkeyPatch) -> None:
    import partition_log.shard as module

    patch.setattr(module, "from_log_start", lambda step, _start: step)


def a_pass_goes_beyond_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    from partition_log.compaction import choice

    end = choice._end

    def hasty(view: Any, *args: Any) -> int:
        store, ordinal, head = view
        return end((store, ordinal, rules_replace(head, last_stable_offset=head.log_end_offset)), *args)

    patch.setattr(choice, "_end", hasty)


def rules_replace(head: Any, **fields: Any) -> Any:
    from msgspec.structs import replace

    return replace(head, **fields)


def a_batch_without_records_keeps_the_place_of_its_last_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(payloads, "_with_records", _shrunk)


def _shrunk(header: Any, records: Any) -> bytes:
    shifted = [(at, *record[1:]) for at, record in enumerate(records)]
    return _WITH_RECORDS(header, shifted)


_WITH_RECORDS = payloads._with_records

MUTANTS: dict[Bug, Callable[[], None]] = {
    older_values_stay: tests.test_the_newest_record_of_each_key_stays,
    the_newest_value_goes: tests.test_the_newest_record_of_each_key_stays,
    tombstones_go_at_once: tests.test_tombstones_and_markers_stay_for_delete_retention_after_the_first_pass,
    aborted_records_count: tests.test_aborted_records_go_at_once_and_replace_nothing,
    markers_go_before_their_records: tests.test_tombstones_and_markers_stay_for_delete_retention_after_the_first_pass,
    a_resumed_pass_trusts_what_it_did_not_see: tests.test_a_crash_at_any_step_loses_nothing_and_the_pass_goes_on,
    totals_before_a_chunk_stay: tests.test_totals_before_a_chunk_are_corrected,
    leases_hold_nothing: tests.test_a_snapshot_taken_during_a_pass_stops_it,
    rows_below_a_log_start_come_back: tests.test_records_below_a_log_start_that_moves_during_a_pass_do_not_come_back,
    a_pass_goes_beyond_the_last_stable_offset: tests.test_nothing_from_the_last_stable_offset_on_goes_and_it_goes_later,
    a_batch_without_records_keeps_the_place_of_its_last_one: lambda: (
        tests.test_a_batch_of_any_encoding_keeps_its_offsets(Encoding.RECORDS_V1, Compression.NONE)
    ),
}


@pytest.mark.parametrize("bug", MUTANTS, ids=lambda bug: bug.__name__)
def test_bugs_are_noticed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  what notices a bug is an assertion of a test or of the code
        MUTANTS[bug]()
