"""Leader epochs that do not go with what is stored, as `store verify` names them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.store import Family
from partition_log import codec
from partition_log.epoch_rows import encode_epoch, epoch_key
from partition_log.state import LeaderEpoch, Leadership
from tests.cli.damaged_store import Damaged, violations
from txnctl.stopped import stored


@pytest.fixture
def damaged() -> Damaged:
    return Damaged()


def test_a_batch_of_another_leader_epoch_is_named(damaged: Damaged) -> None:
    last_offset = next(batch.key_offset for batch in stored.batches(damaged.store, 0))
    damaged.spoil(
        Family.LOG, codec.log_key(0, last_offset), lambda batch: batch[:12] + (5).to_bytes(4, "big") + batch[16:]
    )
    (found,) = violations(damaged.store)["positions"]
    assert "t-0: the batches at offsets 0 to " in found
    assert "have leader epoch 5, stored are 0 from offset 0 on" in found


def test_an_epoch_that_begins_where_batches_of_another_lie_is_named(damaged: Damaged) -> None:
    damaged.put(Family.PARTITIONS, epoch_key(0, 7), encode_epoch(LeaderEpoch(7, 1, 0, IncarnationCause.RESTORE)))
    present = Leadership(7, 7, ())
    damaged.spoil(
        Family.PARTITIONS,
        codec.head_key(0),
        lambda head: codec.encode_head(replace(codec.decode_head(head), leadership=present)),
    )
    (found,) = violations(damaged.store)["positions"]
    assert "have leader epoch 0, stored are 0 from offset 0 on, 7 from offset 1 on" in found


def test_a_lost_epoch_is_named(damaged: Damaged) -> None:
    damaged.put(Family.PARTITIONS, epoch_key(0, 0), None)
    (found,) = violations(damaged.store)["batches"]
    assert "partition 0 is in leader epoch 0, and its newest stored one is None" in found
