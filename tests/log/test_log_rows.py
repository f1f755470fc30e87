"""The stored form: every value comes back as it was, keys sort as numbers do, and golden bytes stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_api.storage.v1 import log_pb2
from coordinator_protocol.acls import Acl, PatternType, Permission, PermissionType, ResourceType
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator, Record, ShardKey, Turn
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.ports import EndIdentity
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import CommitGroup, Family
from coordinator_runtime.unknown_rows import UnknownRow
from partition_log import codec, forgotten_rows, index_rows
from partition_log.catalog.codec import ACL_TYPE, TOPIC_TYPE, CatalogCodec
from partition_log.catalog.settings import PayloadValidation
from partition_log.catalog.state import (
    AclCreated,
    AclDeleted,
    AclVersion,
    CatalogRecord,
    NewTopic,
    OrdinalsAllocated,
    Topic,
    TopicDeleted,
    TopicSet,
)
from partition_log.codec import LogRows
from partition_log.epoch_rows import decode_epoch, encode_epoch, epoch_key
from partition_log.records import (
    LogRecord,
    PartitionCreated,
    PartitionDeleted,
    ProducerSealed,
    ProducersForgotten,
    RowsAppended,
)
from partition_log.state import (
    AbortedTransaction,
    CachedBatch,
    ForgottenProducers,
    IndexEntry,
    IndexProgress,
    LastMarker,
    LeaderEpoch,
    Leadership,
    LogTotals,
    OpenTransaction,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)
from tests.harness.staged import counted_bytes
from tests.log.driven_log import TOPIC, Batch, DrivenLog

ordinals = st.integers(0, 2**32 - 2)
offsets = st.integers(0, 2**63 - 1)
sequences = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**15 - 1)
times_ms = st.integers(-1, 2**63 - 1)
csns = st.integers(0, 2**64 - 1)
shards = st.integers(0, 2**16 - 2)
outcomes = st.sampled_from(Outcome)

unmarked = st.builds(
    ProducerEntry,
    epoch=epochs,
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    last_append_ms=offsets,
    batches=st.lists(st.builds(CachedBatch, sequences, sequences, offsets), max_size=5).map(tuple),
    open_transaction=st.none() | st.builds(OpenTransaction, offsets, offsets),
    forgotten_csn=csns,
    coordinator_shard=st.just(-1) | shards,
)
markers = st.builds(LastMarker, epochs, outcomes, csns, st.integers(-1, 2**63 - 1))
entries = unmarked | st.builds(lambda entry, last: replace(entry, last_marker=last, forgotten_csn=0), unmarked, markers)
totals = st.builds(LogTotals, offsets, offsets, offsets, offsets)
heads = st.builds(
    PartitionHead,
    offsets,
    offsets,
    offsets,
    st.integers(0, 2**32 - 1),
    st.integers(-1, 2**63 - 1),
    st.builds(IndexProgress, offsets, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), times_ms),
    st.builds(ForgottenProducers, offsets),
    totals,
    offsets,
    st.builds(Leadership, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.just(())),
)
leader_epochs = st.builds(LeaderEpoch, st.integers(0, 2**31 - 1), offsets, offsets, st.sampled_from(IncarnationCause))
stretches = st.builds(IndexEntry, offsets, offsets, times_ms, times_ms, totals)
aborted = st.builds(AbortedTransaction, offsets, epochs, offsets, offsets, shards, csns)
remembered = st.builds(RememberedEnd, st.builds(EndIdentity, shards, csns, offsets), offsets)
topics = st.builds(
    Topic, st.text(min_size=1), st.binary(min_size=16, max_size=16), st.lists(ordinals).map(tuple), offsets
)
STRETCH = IndexEntry(0, 3, 5, 6, LogTotals(10, 4))
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
acls = st.builds(
    Acl,
    principal=words,
    resource_type=st.sampled_from(ResourceType),
    resource_name=words,
    operation=st.sampled_from(Permission),
    permission_type=st.sampled_from(PermissionType),
    pattern_type=st.sampled_from(PatternType),
    host=words,
)
catalog_records = st.one_of(
    st.builds(TopicSet, topics),
    st.builds(OrdinalsAllocated, st.integers(0, 2**32 - 1)),
    st.builds(AclCreated, acls, offsets),
    st.builds(AclVersion, offsets),
)


@given(entries)
def test_a_producer_comes_back_as_it_was(entry: ProducerEntry) -> None:
    assert codec.decode_producer(codec.encode_producer(entry)) == entry


@given(ordinals, leader_epochs)
def test_a_leader_epoch_comes_back_as_it_was(ordinal: int, epoch: LeaderEpoch) -> None:
    assert decode_epoch(epoch_key(ordinal, epoch.epoch), encode_epoch(epoch)) == epoch


@given(heads)
def test_a_head_comes_back_as_it_was(head: PartitionHead) -> None:
    assert codec.decode_head(codec.encode_head(head)) == head


@given(ordinals, offsets, aborted)
def test_an_aborted_transaction_comes_back_as_it_was(
    ordinal: int, offset: int, transaction: AbortedTransaction
) -> None:
    key = index_rows.aborted_key(ordinal, offset, transaction.producer_id)
    assert index_rows.decode_aborted(key, index_rows.encode_aborted(transaction)) == (offset, transaction)


@given(ordinals, shards, csns)
def test_a_forgotten_csn_comes_back_as_it_was(ordinal: int, coordinator_shard: int, csn: int) -> None:
    key = forgotten_rows.forgotten_key(ordinal, coordinator_shard)
    start, end = forgotten_rows.forgotten_range(ordinal)
    assert codec.head_key(ordinal) < start <= key < end
    assert forgotten_rows.decode_forgotten(key, forgotten_rows.encode_forgotten(csn)) == (coordinator_shard, csn)


@given(ordinals, remembered)
def test_what_is_remembered_of_a_forgotten_producer_comes_back_as_it_was(ordinal: int, end: RememberedEnd) -> None:
    key = forgotten_rows.remembered_key(ordinal, end.identity)
    assert forgotten_rows.remembered_from(ordinal) <= key < forgotten_rows.remembered_end(ordinal)
    assert codec.producer_key(ordinal, 2**64 - 1) < forgotten_rows.remembered_from(ordinal)
    assert forgotten_rows.decode_remembered(key, forgotten_rows.encode_remembered(end)) == end


@given(ordinals, stretches)
def test_a_stretch_comes_back_as_it_was(ordinal: int, stretch: IndexEntry) -> None:
    key = index_rows.stretch_key(ordinal, stretch.last_offset)
    assert index_rows.decode_stretch(key, index_rows.encode_stretch(stretch)) == stretch


@given(catalog_records)
def test_a_catalog_record_comes_back_as_it_was(record: CatalogRecord) -> None:
    encoded = CatalogCodec().encode(record)
    assert encoded.value is not None
    assert CatalogCodec().decode(encoded.record_type, encoded.key, encoded.value) == record


@pytest.mark.parametrize(
    "value",
    [
        PartitionCreated(7),
        PartitionDeleted(7),
        RowsAppended(7, [(3, b"batch")], 5, PartitionHead()),
        RowsAppended(
            7,
            [(2, b"batch"), (3, b"other")],
            10,
            PartitionHead(),
            [(1, ProducerEntry(0))],
            stretches=[STRETCH],
        ),
        RowsAppended(
            7,
            [(3, b"marker")],
            6,
            PartitionHead(),
            [(1, ProducerEntry(1))],
            stretches=[STRETCH],
        ),
        RowsAppended(
            7,
            [(2, b"batch"), (3, b"marker")],
            11,
            PartitionHead(),
            [(1, ProducerEntry(1))],
            AbortedTransaction(1, 0, 0, 3, 5, 1),
        ),
        RowsAppended(
            7,
            [(3, b"marker")],
            6,
            PartitionHead(),
            [(1, ProducerEntry(1))],
            AbortedTransaction(1, 0, 0, 1 << 18, 5, 1),
        ),
        ProducerSealed(7, 1, ProducerEntry(0)),
        ProducersForgotten(7, (1, 2), PartitionHead()),
        ProducersForgotten(7, (1, 2), PartitionHead(), [(3, 4)], [RememberedEnd(EndIdentity(3, 4, 1), 5)]),
    ],
)
def test_who_stages_counts_the_bytes(value: LogRecord) -> None:
    staged = StagedRows()
    LogRows(lambda _key: []).stage(Record(ShardKey(Coordinator.LOG, 0), value), Turn(now_ms=5), staged)
    assert staged.size_bytes == counted_bytes(staged)


def test_a_deleted_topic_forgets_its_key() -> None:
    created = CatalogCodec().encode(TopicSet(Topic("a", b"i" * 16, (1,), 0)))
    deleted = CatalogCodec().encode(TopicDeleted("a"))
    assert (deleted.record_type, deleted.key, deleted.value) == (created.record_type, created.key, None)


@given(acls)
def test_a_deleted_rule_forgets_its_key(acl: Acl) -> None:
    created, deleted = CatalogCodec().encode(AclCreated(acl, 1)), CatalogCodec().encode(AclDeleted(acl))
    assert (deleted.record_type, deleted.key, deleted.value) == (created.record_type, created.key, None)


def test_a_rule_that_only_a_newer_program_understands_is_not_passed_over() -> None:
    key = "\0".join(["topic", "literal", "t", "User:a", "*", "abridge", "deny"]).encode()
    with pytest.raises(UnknownRow, match=r"'abridge' is not a valid Permission.*start the version that wrote it"):
        CatalogCodec().decode(ACL_TYPE, key, b"")


def test_a_catalog_record_of_a_newer_program_is_skipped() -> None:
    assert CatalogCodec().decode(99, b"", b"") is None


def test_a_topic_with_a_setting_of_a_newer_program_is_loaded_and_held_to_the_strictest_we_know() -> None:
    settings = {"validate_payload": "signed", "colour": "1000"}
    stored = log_pb2.TopicValue(topic_id=b"i" * 16, partition_ordinals=[1], settings=settings)
    encoded = stored.SerializeToString(deterministic=True)
    created = CatalogCodec().decode(TOPIC_TYPE, b"a", encoded)
    assert isinstance(created, TopicSet)
    assert created.topic.validate_payload is PayloadValidation.FULL
    assert CatalogCodec().encode(created).value == encoded, "what it does not know is kept"


def test_what_was_set_for_a_topic_is_stored_under_its_names() -> None:
    topic = Topic("a", b"i" * 16, (1,), 0, NewTopic("a", 1, {"validate_payload": "header"}).settings)
    row = CatalogCodec().encode(TopicSet(topic))
    assert dict(log_pb2.TopicValue.FromString(row.value or b"").settings) == {"validate_payload": "header"}
    assert CatalogCodec().decode(row.record_type, row.key, row.value or b"") == TopicSet(topic)
    assert topic.validate_payload is PayloadValidation.HEADER


@given(st.tuples(ordinals, offsets), st.tuples(ordinals, offsets))
def test_keys_sort_as_their_numbers(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (codec.log_key(*one) < codec.log_key(*other)) is (one < other)


def test_golden_bytes() -> None:
    entry = ProducerEntry(
        epoch=3,
        coordinator_epoch=2,
        last_append_ms=1_700_000_000_000,
        batches=(CachedBatch(0, 4, 10),),
        open_transaction=OpenTransaction(10, 9),
        last_marker=LastMarker(2, Outcome.COMMIT, 50, 7),
        coordinator_shard=6,
    )
    assert codec.encode_producer(entry).hex() == (
        "0100030000000200060000018bcfe56800000000000000000a000000000000000900020100000000000000320000000000000007"
        "010000000000000004000000000000000a"
    )  # fmt: skip
    head = PartitionHead(
        1,
        9,
        7,
        2,
        5,
        IndexProgress(4, 600, 3, 1_000),
        ForgottenProducers(6),
        LogTotals(900, 7, 2, 1),
        3,
        Leadership(41, 40, ()),
    )
    assert codec.encode_head(head).hex() == (
        "010000000000000001000000000000000900000000000000070000000200000000000000050000000000000004"
        "000002580000000300000000000003e80000000000000006"
        "000000000000038400000000000000070000000000000002000000000000000100000000000000030000002900000028"
    )  # fmt: skip
    transaction = AbortedTransaction(7, 3, 1, 6, 9, 50)
    assert index_rows.aborted_key(5, 6, 7).hex() == "0000000500000000000000060000000000000007"
    assert index_rows.encode_aborted(transaction).hex() == "0100030009000000000000000100000000000000060000000000000032"
    assert forgotten_rows.forgotten_key(5, 6).hex() == "00000005020006"
    assert forgotten_rows.encode_forgotten(50).hex() == "010000000000000032"
    end = RememberedEnd(EndIdentity(9, 50, 7), 1)
    assert forgotten_rows.remembered_key(5, end.identity).hex() == "0000000501000900000000000000320000000000000007"
    assert forgotten_rows.encode_remembered(end).hex() == "010000000000000001"
    assert epoch_key(5, 41).hex() == "000000050100000029"
    assert (
        encode_epoch(LeaderEpoch(41, 9, 1_000, IncarnationCause.RESTORE)).hex()
        == "01000000000000000900000000000003e802"
    )
    assert codec.log_key(5, 6).hex() == "000000050000000000000006"
    assert index_rows.stretch_key(5, 6).hex() == "000000050000000000000006"
    assert index_rows.encode_stretch(IndexEntry(4, 6, -1, 9, LogTotals(900, 7, 2, 1))).hex() == (
        "010000000000000004ffffffffffffffff0000000000000009"
        "0000000000000384000000000000000700000000000000020000000000000001"
    )  # fmt: skip


def test_an_outcome_that_only_a_newer_program_knows_is_named() -> None:
    entry = ProducerEntry(0, last_marker=LastMarker(0, Outcome.COMMIT, 1, 0))
    committed, aborted = (
        codec.encode_producer(replace(entry, last_marker=LastMarker(0, outcome, 1, 0))) for outcome in Outcome
    )
    (at,) = (at for at, (one, other) in enumerate(zip(committed, aborted, strict=True)) if one != other)
    stored = committed[:at] + b"\x07" + committed[at + 1 :]
    with pytest.raises(UnknownRow, match="outcome of a producer's last marker is 7, which this program does not"):
        codec.decode_producer(stored)


@pytest.mark.parametrize("family", [Family.PARTITIONS, Family.PRODUCERS])
def test_rows_of_a_newer_program_fail_their_shard(family: Family) -> None:
    driven = DrivenLog()
    driven.create()
    driven.append(Batch())
    ordinal = driven.ordinal()
    key = codec.head_key(ordinal) if family is Family.PARTITIONS else codec.producer_key(ordinal, 1)
    driven.store.write([CommitGroup(driven.store.version() + 1, [(family, key, b"\x02" + bytes(80))])])
    driven.store.sync()
    restarted = DrivenLog(driven.store)
    shard = restarted.catalog.place(TOPIC, b"", 0).shard
    assert restarted.runtime.table.state(shard) is ShardState.FAILED
