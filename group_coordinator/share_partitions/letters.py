"""Dead letters: what a group's dead-letter topic gets of the records that the group has given up. Pure functions.

A letter has the key, the value and the headers of the record. Further headers tell where it is from and why it is here,
with the names and texts of Kafka's. A letter without key and value says why.

Source: KIP-1191; decision 61.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.ports import PartitionRef
from group_coordinator.share_partitions.draft import Archived, ArchiveReason, Draft, LetterEnd, Run, ShareChange
from group_coordinator.share_partitions.events import LettersDropped
from group_coordinator.share_partitions.state import LETTER_STATES, RecordState, SharePartition

_PREFIX: Final = "__dlq.errors."
_REJECTED: Final = "Offset rejected by client."
_LIMIT: Final = "Offset delivery count exceeded the threshold."


class DueLetter(NamedTuple):
    """A record whose letter is to be written."""

    offset: int
    deliveries: int
    reason: ArchiveReason


def due_letters(partition: SharePartition, count_max: int) -> list[DueLetter]:
    """Return the first records whose letters are to be written, at most so many."""
    found: list[DueLetter] = []
    if not partition.letters_due:
        return found
    piece = Draft(partition).main
    for run in piece.runs(piece.first_offset, piece.end_offset):
        if run.state in LETTER_STATES:
            for offset in range(run.first_offset, run.end_offset):
                if len(found) == count_max:
                    return found
                found.append(DueLetter(offset, run.deliveries, _reason_of(run.state)))
    return found


def end_letters(before: SharePartition, ends: Iterable[tuple[int, LetterEnd]]) -> ShareChange:
    """Archive records whose letters have come to this end, each by its offset.

    Raises Refused INVALID_RECORD_STATE if one of them waits for no letter any more: then none may be written."""
    draft = Draft(before)
    for offset, end in ends:
        run = _run_at(draft, offset)
        if run is None or run.state not in LETTER_STATES:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, f"the offset {offset} waits for no letter")
        draft.archive(run, _reason_of(run.state), end)
    change = draft.change()
    return replace(change, archived=tuple(_joined(change.archived)))


def _joined(archived: Iterable[Archived]) -> list[Archived]:
    """Return the same offsets in as few ranges as possible, because letters end one by one."""
    found: list[Archived] = []
    for each in archived:
        if found and found[-1].end_offset == each.first_offset and found[-1][2:] == each[2:]:
            found[-1] = found[-1]._replace(end_offset=each.end_offset)
        else:
            found.append(each)
    return found


def dropped_letters(key: ShareKey, before: SharePartition | None) -> tuple[LettersDropped, ...]:
    """Return the event of letters that are not written because the share partition goes; none without such letters."""
    if before is None or not before.letters_due:
        return ()
    return (LettersDropped(key.group_id, key.ordinal, before.letters_due),)


def letter(
    due: DueLetter, *, ref: PartitionRef, group_id: str, now_ms: int, record: PlacedRecord | None, missing: str
) -> PlacedRecord:
    """Return the letter of a record. `missing` is the reason if `record` is None."""
    message = _REJECTED if due.reason is ArchiveReason.REJECTED else _LIMIT
    about = {
        "topic": ref.topic,
        "partition": str(ref.partition),
        "offset": str(due.offset),
        "group": group_id,
        "delivery.count": str(due.deliveries),
        "message": message if record is not None else f"{message} {missing}",
    }
    details = tuple(((_PREFIX + name).encode(), text.encode()) for name, text in about.items())
    if record is None:
        return 0, now_ms, None, None, details
    _place, _timestamp_ms, key, value, headers = record
    return 0, now_ms, key, value, (*headers, *details)


def _run_at(draft: Draft, offset: int) -> Run | None:
    return next(draft.main.runs(offset, offset + 1), None)


def _reason_of(state: RecordState) -> ArchiveReason:
    return ArchiveReason.REJECTED if state is RecordState.ARCHIVING_REJECTED else ArchiveReason.DELIVERY_LIMIT
