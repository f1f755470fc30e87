"""Bugs on purpose in what keeps two lines of a log apart: the tests of leader epochs must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_protocol.batch import pack_place
from partition_log import fetch, fetch_progress, leadership, partition_state
from partition_log import shard as log_shard
from partition_log.leadership import Diverged
from partition_log.state import PartitionHead
from tests.log import test_leader_epochs as tests
from tests.log.driven_log import DrivenLog


def _not_stamped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_state, "pack_place", lambda offset, length, _epoch: pack_place(offset, length, 0))


def _not_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_shard, "raised", lambda _head, _incarnation, _now_ms: None)


def _one_too_late(patch: pytest.MonkeyPatch) -> None:
    genuine = leadership.divergence
    patch.setattr(leadership, "divergence", lambda head, epoch, offset: genuine(head, epoch, max(offset - 1, 0)))


def _one_too_early(patch: pytest.MonkeyPatch) -> None:
    genuine = leadership.divergence
    patch.setattr(leadership, "divergence", lambda head, epoch, offset: genuine(head, epoch, offset + 1))


def _not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "check_leader_epochs", lambda *_arguments, **_named: None)


def _range_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "check_range", lambda *_arguments: None)


def _range_by_its_end_alone(patch: pytest.MonkeyPatch) -> None:
    genuine = fetch.check_range
    patch.setattr(fetch, "check_range", lambda head, end, _epoch: genuine(head, end, head.leadership.epoch))


def _range_of_an_unknown_epoch(patch: pytest.MonkeyPatch) -> None:
    def lenient(head: PartitionHead, end_offset: int, end_epoch: int) -> None:
        found = leadership.divergence(head, end_epoch, end_offset)
        if found is not None and found.end_offset < end_offset:
            raise Diverged(found, "")

    patch.setattr(fetch, "check_range", lenient)


def _epoch_behind_the_next_offset(patch: pytest.MonkeyPatch) -> None:
    genuine = leadership.epoch_at
    patch.setattr(fetch_progress, "epoch_at", lambda line, offset: genuine(line, offset + 1))


def _driven() -> DrivenLog:
    driven = DrivenLog()
    driven.create(partition_count=2)
    driven.clock.step_wall(1_735_689_600_000 + tests.NOW_S * 1_000 - driven.clock.wall_ms())
    return driven


def _property() -> None:
    for seed in range(40):
        name = "test_who_names_the_epoch_it_read_is_never_shown_another_record_at_an_offset_it_has_read"
        getattr(tests, name)(seed)


def _pieces() -> None:
    for seed in range(20):
        tests.test_a_range_that_names_the_epoch_of_its_end_is_read_as_it_was_planned_or_not_at_all(seed)


@pytest.mark.parametrize(
    ("bug", "noticed_by"),
    [
        (_not_stamped, lambda: tests.test_another_line_begins_in_a_new_epoch_before_it_serves(_driven())),
        (_not_raised, _property),
        (_one_too_late, _property),
        (
            _one_too_early,
            lambda: tests.test_a_reader_is_told_where_its_line_left_this_one(_driven(), tests.FIRST_LINE, 3, None),
        ),
        (_not_checked, _property),
        (_range_not_checked, _pieces),
        (_range_by_its_end_alone, _pieces),
        (_range_of_an_unknown_epoch, _pieces),
        (
            _epoch_behind_the_next_offset,
            lambda: tests.test_a_fetch_names_the_epoch_of_what_lies_before_its_next_offset(_driven()),
        ),
    ],
    ids=lambda item: getattr(item, "__name__", "test"),
)
def test_a_bug_is_noticed(
    bug: Callable[[pytest.MonkeyPatch], None], noticed_by: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, LookupError)):
        noticed_by()
