"""Growths: each gives a server the work that it says, from one point to the next."""

from __future__ import annotations

from pathlib import Path

from bench.curves.growths.consumers import Groups, Members
from bench.curves.growths.growth import Growth, Place
from bench.curves.growths.ids import Ids
from bench.curves.growths.partitions import Partitions
from bench.curves.growths.shares import SharedRecords
from bench.curves.growths.stored import StoredBytes
from coordinator_server.metrics.instruments import Readings
from tests.harness.in_process import in_process_server


async def grown(growth: Growth, *amounts: int) -> Readings:
    """The metrics of a server after growth through these amounts."""
    settings = dict(each.split("=") for each in growth.settings)
    async with in_process_server(**settings) as server:
        place = Place(str(server.address), Path())
        for have, to in zip((0, *amounts), amounts, strict=False):
            await growth.grow(place, have, to)
        await growth.close()
        return server.parts.readings()


async def test_ids() -> None:
    readings = await grown(Ids(), 3, 300)
    assert readings["txn_coordinator_transactional_ids"] == {(): 300}


async def test_partitions_each_have_a_committed_record() -> None:
    readings = await grown(Partitions(), 3, 510)
    ends = readings["txn_partition_last_stable_offset"]
    assert (len(ends), {*ends.values()}) == (510, {2}), "a record and its marker"


async def test_stored_bytes_are_mebibytes() -> None:
    readings = await grown(StoredBytes(), 1, 3)
    ends = readings["txn_partition_high_watermark"]
    assert sum(end for end in ends.values() if isinstance(end, int)) == 3 * 1_024


async def test_groups_have_one_member_and_an_offset() -> None:
    readings = await grown(Groups(), 2, 5)
    assert readings["txn_group_groups"]["consumer", "Stable"] == 5
    assert readings["txn_group_member_joins_total"]["consumer",] == 5
    assert readings["txn_group_offsets"] == {(): 5}


async def test_members_are_those_of_one_group() -> None:
    readings = await grown(Members(), 2, 5)
    assert readings["txn_group_groups"]["consumer", "Stable"] == 1
    assert readings["txn_group_member_joins_total"]["consumer",] == 5


async def test_shared_records_are_held() -> None:
    readings = await grown(SharedRecords(partitions=2, held=500), 10, 1_300)
    assert readings["txn_share_acquired_records"] == {(): 1_300}
