"""Markers of an unknown coordinator."""

from __future__ import annotations

from coordinator_protocol.marker import Marker
from tests.conformance.transactions.case_world import ABORT, CaseWorld


def marker(
    epoch: int, *, producer_id: int = 77, coordinator_shard: int = 0, coordinator_epoch: int = 2, csn: int = 1
) -> Marker:
    """The order to abort `(producer_id, epoch)`, of an unknown coordinator."""
    return Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch + 1,
        coordinator_shard=coordinator_shard,
        coordinator_epoch=coordinator_epoch,
        outcome=ABORT,
        csn=csn,
    )


def send(world: CaseWorld, order: Marker) -> int:
    """0, or the number of the refusal."""
    answer = world.told(world.send_marker("t-0", order))
    return answer if isinstance(answer, int) else 0
