"""Two coordinator shards, each with csns and epochs of its own, write markers into one partition: repeated, late and in
any order, they change nothing, and every marker that is owed ends its transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator_protocol.batch import BatchHeader, Encoding, encode_offsetless
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardKey, Turn
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import CommitGroup
from coordinator_runtime.timeline import Journal
from partition_log import forgotten_rows
from partition_log.codec import LogRows
from partition_log.partition_state import Append
from partition_log.records import PartitionCreated
from partition_log.rules import appending
from partition_log.shard import LogShard
from partition_log.state import ForgottenProducers, PartitionConfig
from tests.harness.memory_store import MemoryStore

KEY = ShardKey(Coordinator.LOG, 0)
ORDINAL = 5
EXPIRATION_MS = 10
SHARD_OF = {1: 0, 2: 0, 3: 9, 4: 9}
"""The coordinator shard of each producer id."""
FIRST_CSN = {0: 1, 9: 1_000}
COORDINATOR_EPOCH = {0: 8, 9: 2}

producer_ids = st.sampled_from(sorted(SHARD_OF))


class Domains(RuleBasedStateMachine):
    """The coordinators are right: what they decide, they send until it is there, and then as often as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.store = MemoryStore()
        self.shard = self.new_shard()
        self.perform(Decision(records=(Record(KEY, PartitionCreated(ORDINAL)),)))
        self.next_csn = dict(FIRST_CSN)
        self.epochs = dict.fromkeys(SHARD_OF, 0)
        self.open: set[int] = set()
        self.owed: dict[int, Marker] = {}
        self.sent: list[Marker] = []

    def new_shard(self) -> LogShard:
        return LogShard(KEY, Journal(), PartitionConfig(producer_id_expiration_ms=EXPIRATION_MS))

    def perform(self, decision: Decision) -> None:
        staged = StagedRows(added=[], newest={}, encoded_later={}, deleted_ranges=[])
        for record in decision.records:
            self.shard.replay(record.value)  # type: ignore[arg-type]  # records of this shard
            LogRows(lambda _key: [ORDINAL]).stage(record, self.turn, staged)
        self.store.write([CommitGroup(self.store.version() + 1, staged.mutations(), staged.deleted_ranges)])

    @property
    def turn(self) -> Turn:
        return Turn(now_ms=self.now_ms)

    @rule(producer_id=producer_ids)
    def append(self, producer_id: int) -> None:
        if producer_id in self.owed:
            return
        partition = self.shard._partitions.get(ORDINAL)
        assert partition is not None
        entry, epoch = partition.producers.get(producer_id), self.epochs[producer_id]
        header = BatchHeader(
            base_offset=0,
            record_count=1,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0 if entry is None or entry.epoch < epoch else entry.last_sequence + 1,
            encoding=Encoding.RECORDS_V1,
            is_transactional=True,
        )
        coordinator = ShardKey(Coordinator.TRANSACTIONS, SHARD_OF[producer_id])
        append = Append(
            ORDINAL,
            header,
            encode_offsetless(header, b"payload"),
            lambda: Operation(coordinator, lambda _shard, _turn: Decision()),
        )
        self.perform(self.shard.decide_append(self.turn, append=append))
        self.open.add(producer_id)

    @rule(
        producer_id=producer_ids,
        outcome=st.sampled_from(Outcome),
        bumps=st.booleans(),
        step=st.sampled_from((1, 2, 1_200)),
    )
    def decide(self, producer_id: int, outcome: Outcome, step: int, *, bumps: bool) -> None:
        if producer_id not in self.open or producer_id in self.owed:
            return
        shard, epoch = SHARD_OF[producer_id], self.epochs[producer_id]
        self.next_csn[shard] += step
        self.owed[producer_id] = Marker(
            producer_id=producer_id,
            txn_epoch=epoch,
            next_epoch=epoch + bumps,
            coordinator_shard=shard,
            coordinator_epoch=COORDINATOR_EPOCH[shard],
            outcome=outcome,
            csn=self.next_csn[shard],
        )

    @rule(producer_id=producer_ids)
    def deliver(self, producer_id: int) -> None:
        marker = self.owed.pop(producer_id, None)
        if marker is None:
            return
        decision = self.shard.decide_marker(self.turn, ordinal=ORDINAL, marker=marker)
        assert decision.records, f"{marker} is owed and was taken for an old one"
        self.perform(decision)
        self.open.remove(producer_id)
        self.epochs[producer_id] = marker.next_epoch
        self.sent.append(marker)

    @rule(producer_id=producer_ids, bumps=st.booleans())
    def run_through(self, producer_id: int, *, bumps: bool) -> None:
        self.append(producer_id)
        self.decide(producer_id, Outcome.COMMIT, 1, bumps=bumps)
        self.deliver(producer_id)

    @rule(data=st.data())
    def repeat_one(self, data: st.DataObject) -> None:
        if self.sent:
            self.repeat(data.draw(st.sampled_from(self.sent)))

    def repeat(self, *markers: Marker) -> None:
        for marker in markers:
            assert self.shard.decide_marker(self.turn, ordinal=ORDINAL, marker=marker) == Decision(), (
                f"{marker} was written before"
            )

    @rule()
    def forget(self) -> None:
        self.now_ms += 2 * EXPIRATION_MS
        self.perform(self.shard.decide_expire(self.turn))

    @rule()
    def reload(self) -> None:
        self.shard = self.new_shard()
        for record in LogRows(lambda _key: [ORDINAL]).load(KEY)(self.store):
            self.shard.replay(record)

    @invariant()
    def open_is_what_has_no_marker(self) -> None:
        assert {each.producer_id for each in self.shard.open_transactions(ORDINAL)} == self.open


Domains.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDomains = Domains.TestCase


# Bugs that the machine must find


def over_all_shards(forgotten: ForgottenProducers, _coordinator_shard: int) -> int:
    return max((csn for _shard, csn in forgotten.csns), default=0)


def of_no_shard(_forgotten: ForgottenProducers, _coordinator_shard: int) -> int:
    return 0


def under_another_shard(key: bytes, value: bytes) -> tuple[int, int]:
    return 5, DECODE_FORGOTTEN(key, value)[1]


def without_its_shard(*args: Any, coordinator_shard: int, **fields: Any) -> Any:
    return ENTRY_AFTER_APPEND(*args, coordinator_shard=-1, **fields)


DECODE_FORGOTTEN, ENTRY_AFTER_APPEND = forgotten_rows.decode_forgotten, appending.entry_after_append


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (ForgottenProducers, "csn_of", over_all_shards),
        (ForgottenProducers, "csn_of", of_no_shard),
        (forgotten_rows, "decode_forgotten", under_another_shard),
        (appending, "entry_after_append", without_its_shard),
    ],
)
def test_a_csn_that_is_compared_with_those_of_another_shard_is_found_out(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, bug: Callable[..., Any]
) -> None:
    story(Domains())
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        story(Domains())


def story(domains: Domains) -> None:
    """The shard with the large csns is forgotten first; then that with the small ones, whose producer keeps its
    epoch."""
    domains.run_through(3, bumps=True)
    domains.forget()
    domains.run_through(1, bumps=False)
    domains.forget()
    domains.repeat(*domains.sent)
    domains.reload()
    domains.repeat(*domains.sent)
    domains.append(1)
    domains.repeat(*domains.sent)
    domains.reload()
    domains.repeat(*domains.sent)
    domains.open_is_what_has_no_marker()
