"""Producer ids: the number alone tells whether the id belongs to a transactional id.

InitProducerId gives ids below `PLAIN_PRODUCER_IDS_FROM` to transactional ids, and the others to *plain* producers,
which have none; no id ever changes sides. So a partition appends what plain producers send without asking anybody. What
is sent outside transactions under any other id can be refused, even where the transactional id that had it has gone on
with a newer one, has expired, or is in a shard that nobody serves at the moment.

Source: ours (docs/decisions/0016-a-producer-id-says-whose-it-is.md).
"""

from __future__ import annotations

from typing import Final

PLAIN_PRODUCER_IDS_FROM: Final = 10**15
"""Far beyond what transactional ids use up, and below 2^53, so that every language's numbers can hold them."""

PRODUCER_ID_MAX: Final = 2**63 - 1


def is_plain(producer_id: int) -> bool:
    """Say whether a producer id belongs to the range of producers without a transactional id; it may never have been
    given."""
    return producer_id >= PLAIN_PRODUCER_IDS_FROM
