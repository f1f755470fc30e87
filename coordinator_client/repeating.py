"""Advice, by method, on whether a call that changes something can safely be repeated.

It applies to single calls whose answer was lost or whose caller was interrupted. Their outcome cannot be resolved
later, as a producer's commit can (`Producer.resolve_outcome`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coordinator_protocol.methods import Method

HARMLESS: Final = "Do it again: it does no harm twice."

REPEATING: Final[Mapping[Method, str]] = MappingProxyType(
    {
        Method.CREATE_TOPICS: (
            "Do it again: where the topic was created it is refused with TOPIC_ALREADY_EXISTS, and nothing is changed."
        ),
        Method.DELETE_TOPICS: (
            "Do it again, unless the topic may have been created anew meanwhile: the new one would be deleted."
        ),
        Method.CREATE_PARTITIONS: (
            "Do it again: where they were added it is refused with INVALID_PARTITIONS, and nothing is changed."
        ),
        Method.ALTER_TOPIC_CONFIGS: HARMLESS,
        Method.DELETE_RECORDS: HARMLESS,
        Method.DELETE_GROUPS: (
            "Do it again: where the group was deleted it is refused with GROUP_ID_NOT_FOUND, and nothing is changed."
        ),
        Method.ALTER_GROUP_CONFIGS: HARMLESS,
        Method.OFFSET_COMMIT: HARMLESS,
        Method.OFFSET_DELETE: HARMLESS,
        Method.ALTER_SHARE_GROUP_OFFSETS: HARMLESS,
        Method.DELETE_SHARE_GROUP_OFFSETS: HARMLESS,
        Method.CREATE_ACLS: HARMLESS,
        Method.DELETE_ACLS: HARMLESS,
        Method.ABORT_TRANSACTIONS: "Do it again, unless a transaction that began meanwhile must not be aborted.",
        Method.FENCE_PRODUCERS: "Do it again, unless a producer that started meanwhile must not be fenced.",
        Method.ABORT_HANGING_TRANSACTIONS: HARMLESS,
        Method.CREATE_BACKUP: "Do it again: at worst there are two backups.",
        Method.LOAD_SHARD: HARMLESS,
        Method.UNLOAD_SHARD: HARMLESS,
        Method.TAKE_SNAPSHOT: "Do it again: the lease of the first one ends by itself.",
        Method.RENEW_SNAPSHOT: HARMLESS,
        Method.RELEASE_SNAPSHOT: HARMLESS,
        Method.JOIN_BATCH: HARMLESS,
        Method.SEAL_MEMBER: HARMLESS,
        Method.COMMIT_BATCH: HARMLESS,
        Method.ABORT_BATCH: HARMLESS,
        Method.PRODUCE: "Abort the batch of the sink and write it again.",
    }
)
"""Advice by method, one sentence each."""
