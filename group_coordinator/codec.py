"""Record types of the group coordinator. The bytes of its records are in the codecs of its parts.

Record types are numbers in stored keys: never change one, and never reuse one.
"""

from __future__ import annotations

from typing import Final

CLASSIC_GROUP: Final = 1
CONSUMER_GROUP_EPOCH: Final = 2
CONSUMER_MEMBER: Final = 3
CONSUMER_REGEX: Final = 4
CONSUMER_TARGET_EPOCH: Final = 5
CONSUMER_TARGET_MEMBER: Final = 6
CONSUMER_CURRENT_ASSIGNMENT: Final = 7
GROUP_CONFIG: Final = 8
OFFSET: Final = 9
PENDING_OFFSET: Final = 10
SHARE_GROUP_EPOCH: Final = 12
SHARE_MEMBER: Final = 13
SHARE_TARGET_EPOCH: Final = 14
SHARE_TARGET_MEMBER: Final = 15
SHARE_CURRENT_ASSIGNMENT: Final = 16
SHARE_PARTITIONS: Final = 17
STREAMS_GROUP_EPOCH: Final = 18
STREAMS_TOPOLOGY: Final = 19
STREAMS_MEMBER: Final = 20
STREAMS_TARGET_EPOCH: Final = 21
STREAMS_TARGET_MEMBER: Final = 22
STREAMS_CURRENT_ASSIGNMENT: Final = 23
GROUP_ADMINISTERED: Final = 11
"""Type of rows that exist only in the history, without a value: the caller who deleted the group or offsets of it."""
