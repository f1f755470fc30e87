"""Numbers of producers: their ids, and the sequences of their records.

The number of a producer id alone tells whether it belongs to a transactional id. InitProducerId gives ids below
`PLAIN_PRODUCER_IDS_FROM` to transactional ids, and the others to *plain* producers, which have none. No id ever changes
sides. So a partition appends batches of plain producers without asking another shard. Batches outside transactions with
any other id can be refused. That holds even if the transactional id that had it has a newer one, has expired, or is in
a shard that does not serve.

Sequences run from 0 to 2^31 - 1 and then start again at 0.

Source: ours (docs/decisions/0007-producer-ids-and-csns.md); for sequences Kafka's
`DefaultRecordBatch.incrementSequence` and `decrementSequence`, spec log-and-runtime 1.3.
"""

from __future__ import annotations

from typing import Final

PLAIN_PRODUCER_IDS_FROM: Final = 10**15
"""First id of plain producers. Far beyond the ids that transactional ids use up, and below 2^53, so that the numbers of
every language can hold them."""

PRODUCER_ID_MAX: Final = 2**63 - 1

SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1


def is_plain(producer_id: int) -> bool:
    """Return True if a producer id is in the range of producers without a transactional id; it may never have been
    assigned."""
    return producer_id >= PLAIN_PRODUCER_IDS_FROM


def subtract_sequence(sequence: int, delta: int) -> int:
    """Return the sequence `delta` records before `sequence`, wrapping to `SEQUENCE_MAX` before 0."""
    return (sequence - delta) & SEQUENCE_MAX


def next_sequence(last: int) -> int:
    """Return the sequence that must follow `last`: 0 after `NO_SEQUENCE`, nothing appended yet."""
    return (last + 1) & SEQUENCE_MAX
