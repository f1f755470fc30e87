"""The limits: the design's numbers, and no nonsense in their place."""

from __future__ import annotations

import pytest

from coordinator_protocol.limits import Limits


def test_the_defaults_are_the_designs() -> None:
    limits = Limits()
    assert limits.transactional_id_bytes_max == 1000
    assert limits.partitions_per_transaction_max == 10_000
    assert limits.batch_bytes_max == 2**20
    assert limits.message_bytes_max == 2**24
    assert limits.transaction_max_timeout_ms == 900_000
    assert limits.fused_participants_max == 500


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"producer_epoch_max": 1}, "producer_epoch_max is 1"),
        ({"producer_epoch_max": 32768}, "producer_epoch_max is 32768"),
        ({"partitions_per_transaction_max": 0}, "partitions_per_transaction_max is 0"),
        ({"batch_bytes_max": 16 * 2**20}, "batch_bytes_max"),
    ],
)
def test_a_limit_that_makes_no_sense_is_named(change: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Limits(**change)
