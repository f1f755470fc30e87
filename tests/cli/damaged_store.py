"""A store after a short story, ways to spoil it, and what its white-box checks say of it."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from coordinator_runtime.decision import Coordinator, ShardRouter
from coordinator_runtime.store import CommitGroup, Family
from tests.harness.inside import WorldOptions
from tests.harness.memory_store import MemoryStore
from tests.harness.script import Script
from tests.harness.stored_batches import encode_batch
from tests.harness.world import World
from txn_coordinator.codec import TRANSACTION_TYPE, TransactionCodec
from txn_coordinator.records import TransactionChanged
from txn_coordinator.state import Transaction
from txnctl.stopped import stored
from txnctl.stopped.store_verify import verify_store

LOG, HEAD = Family.LOG, Family.PARTITIONS

STORY = """
topic t 2
init p1 orders
produce p1 t-0 a b
produce p1 t-1 c
end p1 commit
produce p1 t-0 d
end p1 abort
init p2 open
produce p2 t-1 e
settle
"""
"""t-0: a b COMMIT(csn 1, offset 2) d ABORT(csn 2, offset 4). t-1: c COMMIT(offset 1) and e, open, at offset 2."""

ORDERS = ShardRouter(Coordinator.TRANSACTIONS, WorldOptions().shard_count).shard_key("orders").number
"""The coordinator shard of the transactional id."""


def violations(store: stored.StoredRows) -> dict[str, list[str]]:
    return {check.name: check.violations for check in verify_store(store) if check.violation_count}


class Damaged:
    """A store after the story, and ways to spoil it."""

    def __init__(self) -> None:
        world = World(WorldOptions(index_interval_batches=4))
        play(world)
        assert isinstance(world.shelf.store, MemoryStore)
        self.store = world.shelf.store
        assert violations(self.store) == {}

    def put(self, family: Family, key: bytes, value: bytes | None) -> None:
        self.store.write([CommitGroup(self.store.version() + 1, [(family, key, value)])])
        self.store.sync()

    def spoil(self, family: Family, key: bytes, change: Callable[[bytes], bytes | None]) -> None:
        before = self.store.get(family, key)
        assert before is not None, "the story wrote another row"
        self.put(family, key, change(before))

    def transaction(self, transactional_id: str) -> tuple[bytes, Transaction]:
        for row in stored.state_rows(self.store, Coordinator.TRANSACTIONS):
            if row.key == transactional_id.encode() and row.record_type == TRANSACTION_TYPE:
                found = stored.transaction_of(row.record_type, row.key, row.value)
                assert found is not None
                return stored.state_key(row.shard, row.record_type, row.key), found
        raise AssertionError(transactional_id)

    def history_key(self, which: int) -> bytes:
        keys = [key for key, _ in self.store.scan(Family.HISTORY, b"\x03", b"\x04")]
        return keys[which]


def play(world: World) -> None:
    script = Script(world)
    for command in STORY.strip().splitlines():
        script.run(command)


def marker_batch(offset: int, csn: int, outcome: Outcome, *, txn_epoch: int = 0, producer_id: int = 0) -> bytes:
    header = BatchHeader(
        base_offset=offset,
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer_id,
        producer_epoch=txn_epoch,
        encoding=Encoding.CONTROL,
        is_transactional=True,
        is_control=True,
    )
    marker = Marker(
        producer_id=producer_id,
        txn_epoch=txn_epoch,
        next_epoch=txn_epoch + 1,
        coordinator_shard=ORDERS,
        coordinator_epoch=1,
        outcome=outcome,
        csn=csn,
    )
    return encode_batch(header, encode_marker_payload(marker, 0))


def late_batch(offset: int, epoch: int, *, is_transactional: bool = True) -> bytes:
    header = BatchHeader(
        base_offset=offset,
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=0,
        producer_epoch=epoch,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
        is_transactional=is_transactional,
    )
    return encode_batch(header, b"x")


def encoded(transaction: Transaction) -> bytes:
    value = TransactionCodec().encode(TransactionChanged(transaction)).value
    assert value is not None
    return value
