"""Whose a producer id is can be read off the number.

InitProducerId gives ids below `PLAIN_PRODUCER_IDS_FROM` to transactional ids, and the others to *plain* producers,
which have none; no id ever changes sides. So a partition appends what plain producers send without asking anybody. What
is sent outside transactions under another id can be refused, also where the transactional id that had it has gone on
with a newer one, has expired, or is in a shard that nobody serves at the moment.

Source: ours (docs/decisions/0016-a-producer-id-says-whose-it-is.md).
"""

from __future__ import annotations

from typing import Final

PLAIN_PRODUCER_IDS_FROM: Final = 10**15
"""Far beyond what transactional ids use up, and below 2^53, so that every language's numbers can hold them."""

PRODUCER_ID_MAX: Final = 2**63 - 1


def is_plain(producer_id: int) -> bool:
    """True for a producer id that was given to a producer without a transactional id, if it was given at all."""
    return producer_id >= PLAIN_PRODUCER_IDS_FROM
