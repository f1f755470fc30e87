"""A family that lost rows is noticed when a shard loads, by the last rows alone."""

from __future__ import annotations

import pytest

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec
from partition_log.load_checks import UNKNOWN_KINDS_FROM, what_is_missing
from partition_log.requests import DeleteTopics, TopicName
from partition_log.state import IndexProgress, PartitionConfig, PartitionHead
from tests.harness.memory_store import Damage, MemoryStore
from tests.harness.shelf import crashing
from tests.log.driven_log import CONTEXT, TOPIC, Batch, DrivenLog

CONFIG = PartitionConfig(index_interval_batches=3)
"""Eight batches are two stretches, and two more."""


@pytest.mark.parametrize(
    ("start", "end", "unfinished", "logged_to", "finished_to", "wrong"),
    [
        (0, 0, 0, 0, 0, None),
        (0, 8, 6, 8, 6, None),
        (0, 8, 0, 8, 0, None),
        (8, 8, 6, 8, 6, None),
        (8, 8, 6, 0, 0, None),
        (8, 8, 6, 4, 3, None),
        (7, 8, 6, 8, 0, None),
        (0, 8, 6, 7, 6, "its log ends at 8, and its rows in LOG at 7"),
        (0, 8, 6, 0, 6, "its log ends at 8, and its rows in LOG at 0"),
        (7, 8, 6, 0, 6, "its log ends at 8, and its rows in LOG at 0"),
        (0, 8, 6, 9, 6, "its log ends at 8, and its rows in LOG at 9"),
        (8, 8, 6, 9, 6, "its log ends at 8, and its rows in LOG at 9"),
        (0, 8, 6, 8, 3, "its finished stretches end at 6, and their rows in STRETCHES at 3"),
        (5, 8, 6, 8, 0, "its finished stretches end at 6, and their rows in STRETCHES at 0"),
        (0, 8, 6, 8, 8, "its finished stretches end at 6, and their rows in STRETCHES at 8"),
    ],
)
def test_the_last_rows_fit_the_head_or_lie_before_the_log_start(
    start: int, end: int, unfinished: int, logged_to: int, finished_to: int, wrong: str | None
) -> None:
    head = PartitionHead(start, end, end, index=IndexProgress(first_offset=unfinished))
    assert what_is_missing(head, logged_to=logged_to, finished_to=finished_to) == wrong


def written() -> DrivenLog:
    driven = DrivenLog(config=CONFIG)
    driven.create(partition_count=2)
    for _ in range(8):
        driven.append(Batch())
    return driven.crash()


def without_last(driven: DrivenLog, family: Family) -> DrivenLog:
    """Return the log that a start finds after the loss of the newest row of a family."""
    store = crashing(driven.store)
    key = store.last_key(family, codec.partition_key(driven.ordinal()))
    assert key is not None
    store.write([CommitGroup(store.version() + 1, [(family, key, None)])])
    return DrivenLog(store.crash(kept_groups=1), config=CONFIG)


def test_what_a_crash_leaves_is_served() -> None:
    driven = written().crash()
    assert driven.read_all() == list(range(8))


@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        (Family.LOG, "its log ends at 8, and its rows in LOG at 7"),
        (Family.STRETCHES, "its finished stretches end at 6, and their rows in STRETCHES at 3"),
    ],
)
def test_a_family_that_lost_its_newest_rows_fails_the_shard_and_no_other(family: Family, wrong: str) -> None:
    driven = written()
    shard, ordinal = driven.catalog.log_shard(TOPIC, 0), driven.ordinal()
    table = without_last(driven, family).runtime.table
    assert table.failures[shard] == (
        f"RowsMissing: the partition with ordinal {ordinal}: {wrong}. Rows are missing in a store that was whole: "
        "restore a backup; `txnctl store verify` names the partition and what else is wrong"
    )
    others = {state for key, state in table.states().items() if key != shard and key.coordinator is Coordinator.LOG}
    assert others == {ShardState.ACTIVE}


def test_rows_that_cannot_be_read_are_the_business_of_their_readers() -> None:
    driven = written()
    store = driven.store
    assert isinstance(store, MemoryStore)
    store.damage(Family.LOG, codec.log_key(driven.ordinal(), 7), Damage.BLOCK)
    again = DrivenLog(store.crash(), config=CONFIG)
    assert not again.runtime.table.failures


def with_row(driven: DrivenLog, family: Family, key: bytes) -> DrivenLog:
    """Return the log that a start finds after a newer program has stored a row."""
    store = crashing(driven.store)
    store.write([CommitGroup(store.version() + 1, [(family, key, b"newer")])])
    return DrivenLog(store.crash(kept_groups=1), config=CONFIG)


@pytest.mark.parametrize("family", UNKNOWN_KINDS_FROM)
@pytest.mark.parametrize("last_known", [True, False])
def test_a_kind_of_row_that_only_a_newer_program_knows_fails_the_shard(family: Family, last_known: bool) -> None:
    driven = written()
    kind = UNKNOWN_KINDS_FROM[family] if last_known else 0x7F
    shard, key = driven.catalog.log_shard(TOPIC, 0), codec.partition_key(driven.ordinal()) + bytes([kind, 1, 2])
    table = with_row(driven, family, key).runtime.table
    assert table.failures[shard] == (
        f"UnknownRow: a row in {family.name} of the partition with ordinal {driven.ordinal()} is of type {kind}, which"
        " this program does not know and must not pass over: start the version that wrote it, or a later one"
    )
    assert [key for key, state in table.states().items() if state is not ShardState.ACTIVE] == [shard]


@pytest.mark.parametrize("family", UNKNOWN_KINDS_FROM)
@pytest.mark.parametrize("kind", [0x80, 0xFF])
def test_one_that_can_be_done_without_stays_and_goes_with_its_partition(family: Family, kind: int) -> None:
    driven = written()
    key = codec.partition_key(driven.ordinal()) + bytes([kind, 1, 2])
    again = with_row(driven, family, key)
    assert again.read_all() == list(range(8))
    again.append(Batch())
    assert again.store.get(family, key) == b"newer"
    again.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    again.flush()
    assert again.store.get(family, key) is None
