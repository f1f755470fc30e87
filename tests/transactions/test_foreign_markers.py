"""WriteTxnMarkers: what a coordinator elsewhere may write, and what it may not (spec transactions 2.7)."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.marker import Marker
from coordinator_runtime.ports import AllowAll, CallContext, PartitionName, Permission, ResourceType
from partition_log import foreign_markers
from partition_log.foreign_markers import DecidedMarker, WriteTxnMarkers
from tests.harness.world import partition_name
from tests.transactions.administered import ABORT, ADMIN, CLIENT, COMMIT, Administered
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity


class Elsewhere(Administered):
    """A producer of a coordinator elsewhere has a transaction open in t-0: no id here has its producer id. Five
    outcomes were decided, so their csn exist."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        given = self.init_plain(CLIENT)
        self.settle()
        self.identity = given.result()
        identity = self.ready("here")
        for _ in range(5):
            ended = self.end("here", identity, ABORT, CLIENT)
            self.settle()
            identity = ended.result().next_identity
        self.leave_hanging("t-0", self.identity)

    def marker(self, **fields: Any) -> Marker:
        epoch = self.identity.producer_epoch
        values = {
            "producer_id": self.identity.producer_id,
            "txn_epoch": epoch,
            "next_epoch": epoch + 1,
            "coordinator_shard": 0,
            "coordinator_epoch": 4,
            "outcome": COMMIT,
            "csn": 3,
        }
        return Marker(**{**values, **fields})

    def write(self, *requests: tuple[Marker, tuple[str, ...]]) -> list[tuple[int, list[int]]]:
        """The error numbers by producer id."""
        asked = [DecidedMarker(marker, tuple(map(partition_name, names))) for marker, names in requests]
        written = self.foreign_markers.write(WriteTxnMarkers(asked), ADMIN)
        self.settle()
        return [
            (producer_id, [0 if each.error is None else int(each.error.code) for each in results])
            for producer_id, results in written.result()
        ]

    def write_one(self, **fields: Any) -> int:
        ((_producer_id, (code,)),) = self.write((self.marker(**fields), ("t-0",)))
        return code


def test_a_marker_ends_the_transaction_and_moves_the_readers_end() -> None:
    world = Elsewhere()
    assert world.write_one() == 0
    reading = world.read("t-0")
    assert (reading.values, reading.last_stable_offset) == (["lost"], 2)
    assert world.hanging.find().result() == []
    world.crash()
    world.settle()
    world.check_replay()


def test_no_markers_no_results() -> None:
    assert Elsewhere().write() == []


def test_the_table_of_acceptance() -> None:
    world = Elsewhere()
    assert world.write_one(coordinator_epoch=4) == 0
    end = world.read("t-0").high_watermark
    for fields, code in (
        ({}, ErrorCode.NONE),  # repeated: equal csn
        ({"csn": 2}, ErrorCode.NONE),  # stale: smaller csn
        ({"coordinator_epoch": 3}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"outcome": ABORT}, ErrorCode.INVALID_TXN_STATE),  # the other outcome under the same csn
        ({"csn": 4}, ErrorCode.NONE),  # an older epoch whose transaction ended here
    ):
        assert world.write_one(**fields) == code, fields
        assert world.read("t-0").high_watermark == end, fields
    epoch = world.identity.producer_epoch + 1
    assert world.write_one(csn=5, txn_epoch=epoch, next_epoch=epoch + 1) == 0
    assert world.read("t-0").high_watermark == end + 1, "a marker alone fences late batches of its epoch"


def test_several_markers_of_a_producer_merge_and_every_partition_answers_for_itself() -> None:
    world = Elsewhere()
    other = world.init_plain(CLIENT)
    world.settle()
    elsewhere = {"producer_id": other.result().producer_id}
    answered = world.write(
        (world.marker(), ("t-0", "t-9")),
        (world.marker(**elsewhere), ("missing-0",)),
        (world.marker(), ("t-1", "t-0")),
    )
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert answered == [(world.identity.producer_id, [0, unknown, 0, 0]), (elsewhere["producer_id"], [unknown])]


def test_numbers_from_the_future_are_refused_and_poison_nothing() -> None:
    world = Elsewhere()
    assert world.write_one(csn=6) == ErrorCode.INVALID_REQUEST
    assert world.write_one(coordinator_shard=world.options.shard_count) == ErrorCode.INVALID_REQUEST
    assert world.write_one(producer_id=world.identity.producer_id + 100) == ErrorCode.INVALID_REQUEST
    assert world.read("t-0").last_stable_offset == 0
    assert world.write_one() == 0


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_what_this_server_has_not_decided_no_other_decides(two_phase: TwoPhase) -> None:
    world = Elsewhere(two_phase=two_phase)
    identity = world.opened("mine", "t-1")
    forged = {"producer_id": identity.producer_id, "txn_epoch": identity.producer_epoch, "next_epoch": 1, "csn": 5}
    for outcome in (COMMIT, ABORT):
        ((_id, (code,)),) = world.write((world.marker(**forged, outcome=outcome), ("t-1",)))
        assert code == ErrorCode.INVALID_TXN_STATE
    idle = world.ready("idle")
    ((_id, (code,)),) = world.write((world.marker(producer_id=idle.producer_id, txn_epoch=7, next_epoch=8), ("t-1",)))
    assert code == ErrorCode.INVALID_TXN_STATE, "it would fence a producer that nothing was decided about"
    assert world.read("t-1").last_stable_offset == 0
    ended = world.end("mine", identity, COMMIT, CLIENT)
    world.settle()
    assert ended.result().csn == 6
    assert world.read("t-1").values == ["x"]


def test_the_very_marker_that_was_decided_here_is_welcome() -> None:
    world = Elsewhere(two_phase=TwoPhase.SPLIT)
    identity = world.opened("mine", "t-1")
    world.end("mine", identity, COMMIT, CLIENT)
    epoch = identity.producer_epoch
    shard = world.inside.transactions.shard_key("mine").number
    decided = {"producer_id": identity.producer_id, "txn_epoch": epoch, "next_epoch": epoch + 1, "csn": 6}
    other = (shard + 1) % world.options.shard_count
    for coordinator_shard, expected in ((other, ErrorCode.INVALID_TXN_STATE), (shard, ErrorCode.NONE)):
        marker = world.marker(**decided, coordinator_shard=coordinator_shard, coordinator_epoch=1)
        ((_id, (code,)),) = world.write((marker, ("t-1",)))
        assert code == expected
    world.settle()
    assert world.describe("mine").identity == Identity(identity.producer_id, epoch + 1)
    assert world.read("t-1").values == ["x"]


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": -1},
        {"txn_epoch": -1},
        {"next_epoch": EPOCH_MAX + 1},
        {"txn_epoch": 9, "next_epoch": 8},
        {"coordinator_epoch": -1},
        {"csn": 0},
    ],
)
def test_what_can_never_be_a_marker_refuses_the_whole_request(fields: dict[str, int]) -> None:
    world = Elsewhere()
    with pytest.raises(Refused) as refusal:
        world.write((world.marker(), ("t-0",)), (world.marker(**fields), ("t-1",)))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert world.read("t-0").last_stable_offset == 0


def test_too_many_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Elsewhere()
    monkeypatch.setattr(foreign_markers, "WRITES_MAX", 3)
    with pytest.raises(Refused, match="writes 4 markers and at most 3"):
        world.write((world.marker(), ("t-0", "t-1")), (world.marker(), ("t-0", "t-1")))


class NoPeers(AllowAll):
    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission not in (Permission.CLUSTER_ACTION, Permission.ALTER)


def test_only_peers_and_administrators_may() -> None:
    world = Elsewhere(authorizer=NoPeers())
    request = DecidedMarker(world.marker(), (PartitionName("t", b"", 0),))
    for requests in ([], [request]):
        with pytest.raises(Refused) as refusal:
            world.foreign_markers.write(WriteTxnMarkers(requests), ADMIN)
        assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_that_the_topic_is_gone_is_told_once_it_is_durable() -> None:
    world = Elsewhere()
    world.delete_topic("t")
    request = DecidedMarker(world.marker(), (PartitionName("t", b"", 0),))
    written = world.foreign_markers.write(WriteTxnMarkers([request]), ADMIN)
    assert not written.is_settled
    world.settle()
    ((_producer_id, (result,)),) = written.result()
    assert result.error is not None
    assert result.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
