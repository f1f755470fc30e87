"""A topic that its server has compacted: what was written, and the records that must be left, at their old offsets.

Its one partition has holes at the start, in the middle and at the end of a batch. It has a batch that is gone as a
whole, so that only its marker is left, and an end without a record.
"""

from __future__ import annotations

from typing import Final

from coordinator_client import Admin, Producer, read
from tests.harness.patience import looks

EAGER: Final = {"cleanup_policy": "compact", "max_compaction_lag_ms": "1", "min_dirty_ratio": "0"}
"""Settings of a topic that is compacted as soon as it can be."""

SOON: Final = {"TXN_COMPACTION_CHECK_INTERVAL_MS": "50"}
"""Environment of a server that looks for such topics often."""

_TRANSACTIONS: Final = (
    # Offsets 0 to 5, and a marker. Later transactions replace the first, a middle and the last record.
    ("abcdef", True),
    # 7 to 9: all are replaced.
    ("xyz", True),
    # 11 and 12: aborted.
    ("qr", False),
    # 14 to 20.
    ("acfxyzg", True),
    # 22.
    ("h", True),
    # 24: aborted, so that the log ends at 26 without a record to read.
    ("u", False),
)

LEFT: Final = {1: b"b", 3: b"d", 4: b"e"} | dict(enumerate((b"a", b"c", b"f", b"x", b"y", b"z", b"g"), 14)) | {22: b"h"}
"""Key of each record that is left, by offset. Its value is the key and the number of its transaction."""

END: Final = 26
"""End of the log."""


class _Aborted(Exception):
    """Leaves a transaction so that it is aborted."""


def make_compacted(address: str, topic: str) -> None:
    """Create the topic, write it, and wait until only `LEFT` is left."""
    with Admin(address) as admin:
        admin.create_topic(topic, config=EAGER)
    with Producer(address, transactional_id=f"writer of {topic}") as producer:
        for number, (keys, is_committed) in enumerate(_TRANSACTIONS):
            try:
                with producer.transaction() as transaction:
                    for key in keys:
                        transaction.send(topic, f"{key}{number}".encode(), key=key.encode(), partition=0)
                    if not is_committed:
                        transaction.flush()
                        raise _Aborted
            except _Aborted:
                continue
    for _ in looks(f"the compaction of {topic}"):
        if [record.offset for record in read(topic, address, raw=True) if record.marker is None] == list(LEFT):
            return


def left_from(start: int, end: int = END) -> list[int]:
    """Return the offsets of the records that are left in a range."""
    return [offset for offset in LEFT if start <= offset < end]
