"""Q. Share groups: sessions."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode
from tests.conformance.groups.cases import case
from tests.harness.group_world import group_world
from tests.harness.groups import code
from tests.harness.share_consumers import ACCEPT, share_consumer


@case(303)
def test_a_session_goes_from_epoch_to_epoch() -> None:
    world = group_world(topics={"t": 1})
    a = share_consumer(world, "a", "t")
    acks = {"t-0": [(0, 0, ACCEPT)]}
    a.fetch()
    assert a.epoch == 1
    assert code(a.asks(epoch=3)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.acknowledges(acks, epoch=0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.asks(acks, epoch=0)) is ErrorCode.INVALID_REQUEST
    assert code(a.asks(epoch=-1, partitions=["t-0"])) is ErrorCode.INVALID_REQUEST
    a.member.member_id = "stranger"
    assert code(a.asks(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
