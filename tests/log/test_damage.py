"""Damaged bytes are their partition's business: their readers are refused, and all others are served."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import HEADER_BYTES_COUNTED, encode_offsetless, pack_place
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import encode_tail
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec
from partition_log.batches import LogDamaged, batches
from partition_log.requests import CountQuery, CountRecords, CountResult, Fetch, FetchItem
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    code,
    offsets_of,
    read_around,
    transactional,
)

TX = transactional()


def damage_batch(driven: DrivenLog, last_offset: int, damage: Damage, partition: int = 0) -> None:
    damage_row(driven, Family.LOG, codec.log_key(driven.ordinal(partition), last_offset), damage)


def damage_row(driven: DrivenLog, family: Family, key: bytes, damage: Damage) -> None:
    assert isinstance(driven.store, MemoryStore)
    driven.store.damage(family, key, damage)


def all_rows(driven: DrivenLog, family: Family, partition: int = 0) -> list[bytes]:
    ordinal = driven.ordinal(partition)
    return [key for key, _ in driven.store.scan(family, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))]


@pytest.fixture
def five(driven: DrivenLog) -> DrivenLog:
    """Five batches of ten records."""
    for _ in range(5):
        driven.append(Batch(count=10))
    return driven


@pytest.mark.parametrize("damage", [Damage.VALUE, Damage.BLOCK, Damage.LOST])
def test_a_damaged_batch_is_an_error_that_says_where_the_log_goes_on(five: DrivenLog, damage: Damage) -> None:
    damage_batch(five, 29, damage)
    before = five.read()
    assert (before.error, offsets_of(before), before.next_offset) == (None, list(range(20)), 20)
    result = five.read(fetch_offset=20)
    assert (code(result), result.next_offset, result.batches) == (ErrorCode.CORRUPT_MESSAGE, 30, ())
    assert f"{TOPIC}-0 is damaged at offset 20" in str(result.error)
    assert "Go on at 30" in str(result.error)
    assert result.head == five.head(), "the positions say what is in range"
    assert offsets_of(five.read(fetch_offset=30)) == list(range(30, 50))


def test_a_fetch_from_the_middle_of_a_damaged_batch_is_led_behind_it(five: DrivenLog) -> None:
    damage_batch(five, 29, Damage.VALUE)
    result = five.read(fetch_offset=25)
    assert (code(result), result.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 30)
    assert "damaged at offset 25" in str(result.error)


@pytest.mark.parametrize("damaged", [9, 29, 49])
def test_the_healthy_batches_of_a_damaged_block_are_shown(five: DrivenLog, damaged: int) -> None:
    for last_offset in range(9, 50, 10):
        damage_batch(five, last_offset, Damage.BLOCK if last_offset == damaged else Damage.HEALTHY_IN_BLOCK)
    offsets, left_out = read_around(five)
    assert left_out == [(damaged - 9, damaged + 1)]
    assert offsets == [offset for offset in range(50) if not damaged - 9 <= offset <= damaged]


def test_a_block_with_damage_in_no_batch_is_read(five: DrivenLog) -> None:
    for last_offset in range(9, 50, 10):
        damage_batch(five, last_offset, Damage.HEALTHY_IN_BLOCK)
    assert read_around(five) == (list(range(50)), [])


def test_batches_that_nothing_can_be_made_out_of_are_left_out_together(five: DrivenLog) -> None:
    damage_batch(five, 19, Damage.LOST)
    damage_batch(five, 29, Damage.LOST)
    offsets, left_out = read_around(five)
    assert left_out == [(10, 30)]
    assert offsets == [*range(10), *range(30, 50)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1_000])
def test_the_end_of_lost_batches_is_found_however_far_it_is(driven: DrivenLog, count: int) -> None:
    for size in (1, count, 1, 1):
        driven.append(Batch(count=size))
    damage_batch(driven, count, Damage.LOST)
    assert driven.read(fetch_offset=1).next_offset == count + 1


def test_damage_up_to_the_end_leads_to_the_end(five: DrivenLog) -> None:
    damage_batch(five, 49, Damage.LOST)
    assert read_around(five) == (list(range(40)), [(40, 50)])
    five.append(Batch())
    assert offsets_of(five.read(fetch_offset=50)) == [50]


def test_a_row_that_is_missing_from_a_damaged_block_is_noticed(five: DrivenLog) -> None:
    """A key that was damaged sorts elsewhere, so its batch is simply not there."""
    damage_batch(five, 19, Damage.HEALTHY_IN_BLOCK)
    store = five.store
    assert isinstance(store, MemoryStore)
    store._families[Family.LOG].put(codec.log_key(five.ordinal(), 29), None)
    with pytest.raises(LogDamaged) as damaged:
        list(batches(store, five.ordinal(), 10, 50))
    assert (damaged.value.offset, damaged.value.next_offset) == (20, 30)


@pytest.mark.parametrize("base_offset", [0, 15, 40])
def test_a_batch_of_a_damaged_block_that_lies_elsewhere_than_it_says_is_left_out(
    five: DrivenLog, base_offset: int
) -> None:
    """A batch does not vouch for its own offset, which its checksum leaves out: the key must say the same."""
    for last_offset in range(9, 50, 10):
        damage_batch(five, last_offset, Damage.HEALTHY_IN_BLOCK)
    store, key = five.store, codec.log_key(five.ordinal(), 29)
    assert isinstance(store, MemoryStore)
    stored = store._families[Family.LOG].values
    stored[key] = base_offset.to_bytes(8, "big") + stored[key][8:]
    offsets, left_out = read_around(five)
    assert (offsets, left_out) == ([*range(20), *range(30, 50)], [(20, 30)])


def write_fused(driven: DrivenLog, spoiled: int = 0) -> None:
    """A transaction at 50 and 51 whose marker, at 52, is the tail of its row; the last byte of that may be another."""
    header = replace(Batch(TX, 0, count=2).item(PartitionName(TOPIC, b"", 0)).header, base_offset=50)
    rest, payload = encode_offsetless(header, b"records")
    row = pack_place(50, HEADER_BYTES_COUNTED + len(payload), 0) + rest + payload
    row += encode_tail(driven.marker(TX, COMMIT), 50, 1_000)
    row = row[:-1] + bytes([row[-1] ^ spoiled])
    key = codec.log_key(driven.ordinal(), 52)
    driven.store.write([CommitGroup(driven.store.version() + 1, [(Family.LOG, key, row)])])


def test_a_transaction_whose_marker_is_in_its_row_is_shown_beside_damage(five: DrivenLog) -> None:
    write_fused(five)
    damage_batch(five, 49, Damage.HEALTHY_IN_BLOCK)
    damage_batch(five, 52, Damage.HEALTHY_IN_BLOCK)
    found = [(header.base_offset, header.is_control) for header, _ in batches(five.store, five.ordinal(), 40, 53)]
    assert found == [(40, False), (50, False), (52, True)]


def test_the_records_in_front_of_a_damaged_marker_in_their_row_are_shown(five: DrivenLog) -> None:
    write_fused(five, spoiled=1)
    shown = batches(five.store, five.ordinal(), 50, 53)
    assert next(shown)[0].base_offset == 50
    with pytest.raises(LogDamaged, match="its checksum says") as damaged:
        next(shown)
    assert (damaged.value.offset, damaged.value.next_offset) == (52, 53)


def test_other_partitions_of_the_same_fetch_are_served(driven: DrivenLog) -> None:
    driven.create("two", 2)
    for partition in (0, 1):
        driven.append(Batch(), partition=partition, topic="two")
    assert isinstance(driven.store, MemoryStore)
    driven.store.damage(Family.LOG, codec.log_key(driven.ordinal(0, "two"), 0), Damage.VALUE)
    request = Fetch(tuple(FetchItem(PartitionName("two", b"", partition), 0) for partition in (0, 1)))
    damaged, healthy = driven.fetch(request).result()
    assert (code(damaged), damaged.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 1)
    assert (code(healthy), offsets_of(healthy)) == (ErrorCode.NONE, [0])
    assert driven.append(Batch(), partition=0, topic="two").error is None, "it can still be written"


def test_a_waiting_fetch_is_answered_when_it_meets_damage(driven: DrivenLog) -> None:
    driven.append(Batch())
    damage_batch(driven, 0, Damage.VALUE)
    assert code(driven.fetch(wait_ms_max=60_000, bytes_min=1_000_000).result()[0]) is ErrorCode.CORRUPT_MESSAGE
    assert driven.log.fetcher.waiting_fetches == 0


def test_hidden_records_in_front_of_the_damage_are_passed_first(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, count=5))
    driven.end(TX, ABORT)
    driven.append(Batch())
    damage_batch(driven, 6, Damage.VALUE)
    first = driven.read()
    assert (first.error, first.next_offset, first.aborted_records_hidden) == (None, 6, 5)
    assert driven.read(fetch_offset=6).next_offset == 7


@pytest.mark.parametrize("damage", [Damage.VALUE, Damage.BLOCK, Damage.LOST])
def test_a_batch_whose_fate_cannot_be_read_is_not_guessed_at(driven: DrivenLog, damage: Damage) -> None:
    driven.append(Batch(TX, 0, count=5))
    driven.end(TX, ABORT)
    driven.append(Batch())
    (outcome,) = all_rows(driven, Family.ABORTED)
    damage_row(driven, Family.ABORTED, outcome, damage)
    result = driven.read()
    assert (code(result), result.next_offset, result.batches) == (ErrorCode.CORRUPT_MESSAGE, 5, ())
    assert "whether its transaction was aborted cannot be read" in str(result.error)
    assert read_around(driven) == ([6], [(0, 5)])
    assert offsets_of(driven.read(isolation=UNCOMMITTED)) == [0, 1, 2, 3, 4, 6], "who reads all of it needs no outcome"


def test_a_raw_read_without_its_list_of_aborted_transactions_is_an_error(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, count=5))
    driven.end(TX, ABORT)
    (outcome,) = all_rows(driven, Family.ABORTED)
    damage_row(driven, Family.ABORTED, outcome, Damage.BLOCK)
    result = driven.read(is_raw=True, isolation=UNCOMMITTED)
    assert (code(result), result.next_offset, result.batches) == (ErrorCode.CORRUPT_MESSAGE, 5, ())


def test_a_raw_read_that_could_not_look_for_aborted_transactions_is_tried_again(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, count=5))
    driven.end(TX, ABORT)
    (outcome,) = all_rows(driven, Family.ABORTED)
    damage_row(driven, Family.ABORTED, outcome, Damage.UNREADABLE)
    result = driven.read(is_raw=True, isolation=UNCOMMITTED)
    assert (code(result), result.next_offset, result.batches) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0, ())
    assert driven.told == []


def test_what_could_not_be_read_at_this_moment_is_not_called_damaged(five: DrivenLog) -> None:
    damage_batch(five, 9, Damage.UNREADABLE)
    result = five.read()
    assert (code(result), result.next_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert five.told == []


# Positions and counts


@pytest.mark.parametrize("family", [Family.LOG, Family.STRETCHES])
def test_a_search_by_time_that_meets_damage_is_refused_and_others_are_answered(five: DrivenLog, family: Family) -> None:
    for _ in range(2_000):
        five.append(Batch(timestamp_ms=2_000))
    keys = all_rows(five, family)
    for key in keys:
        damage_row(five, family, key, Damage.BLOCK)
    (found,) = five.offsets(1_500)
    assert code(found) is ErrorCode.CORRUPT_MESSAGE
    assert (f"{TOPIC}-0 is damaged" if family is Family.LOG else "the index STRETCHES") in str(found.error)
    assert [result.error for result in five.offsets(-1) + five.offsets(-2)] == [None, None]


def count(driven: DrivenLog, start_offset: int) -> CountResult:
    return driven.ranges.count_records(
        CountRecords([CountQuery(PartitionName(TOPIC, b"", 0), start_offset)]), CONTEXT
    ).result()[0]


@pytest.mark.parametrize("damage", [Damage.BLOCK, Damage.LOST])
def test_a_count_that_meets_damage_is_refused(driven: DrivenLog, damage: Damage) -> None:
    for sequence, outcome in enumerate((COMMIT, ABORT)):
        driven.append(Batch(TX.at(sequence), 0, count=5))
        driven.end(TX.at(sequence), outcome)
    damage_batch(driven, 4, damage)
    assert code(count(driven, 0)) is ErrorCode.CORRUPT_MESSAGE
    assert count(driven, 12).error is None


# Reports


def test_a_damaged_place_is_told_once_however_often_it_is_read(five: DrivenLog) -> None:
    damage_batch(five, 9, Damage.VALUE)
    damage_batch(five, 29, Damage.BLOCK)
    for _ in range(3):
        read_around(five)
        five.offsets(1_000)
    assert [(found.topic, found.partition, found.family) for found in five.told] == [(TOPIC, 0, Family.LOG)] * 2
    assert [(found.offset, found.next_offset) for found in five.told] == [(0, 10), (20, 30)]


def test_a_batch_in_an_encoding_of_a_newer_version_is_no_damage(five: DrivenLog) -> None:
    """Only its readers get an error, with advice; no other is alarmed, and nothing around it is hidden."""
    found: list[object] = []
    five.log.fetcher.damage.on_found = found.append
    key = codec.log_key(five.ordinal(), 29)
    stored = five.store.get(Family.LOG, key)
    assert stored is not None
    covered = stored[21:61] + bytes([9]) + stored[62:]
    newer = stored[:17] + crc32c(covered).to_bytes(4, "big") + covered
    five.store.write([CommitGroup(five.store.version() + 1, [(Family.LOG, key, newer)])])
    assert [*five.read_all(end_offset=20)] == [*range(20)]
    told = five.read(fetch_offset=20)
    assert told.error is not None
    assert (told.error.code, told.next_offset) == (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, 30)
    assert told.error.message == (
        f"{TOPIC}-0 has a batch at offset 20 whose payload encoding 9 is not known to this version of the server: "
        "start the one that wrote it, or a later one, or go on at 30 to do without it"
    )
    assert [*five.read_all(fetch_offset=30)] == [*range(30, 50)]
    assert found == []
