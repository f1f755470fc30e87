"""The largest request of each API.

Records may be as large as a message of gRPC. Requests about groups carry the assignments of all members, or one
position for each partition. All others are small, so a client cannot make the server hold much for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from coordinator_protocol.limits import MEBI
from coordinator_server.kafka_front.apis import ApiKey

UNAUTHENTICATED_BYTES_MAX: Final = 1 << 17
"""Largest request before authentication: a JSON Web Token with room to spare."""
REQUEST_BYTES_MAX: Final = MEBI
"""Largest request of most APIs. A Fetch that names 30,000 partitions is smaller."""
GROUP_BYTES_MAX: Final = 4 * MEBI
"""Largest request about a group. A leader sends the assignments of a thousand members in one."""
_OF_GROUPS: Final = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)


class FrameLimits(Struct, frozen=True):
    """Largest frames of a connection, in bytes without their size."""

    bytes_max: int
    """Largest frame of any API."""
    common_bytes_max: int
    """Largest frame of an API without a limit of its own."""
    own_bytes_max: Mapping[int, int] = {}
    """Limits by API key."""

    def of_api(self, api_key: int) -> int:
        """Return the limit of one API."""
        return self.own_bytes_max.get(api_key, self.common_bytes_max)


BEFORE_AUTHENTICATION: Final = FrameLimits(UNAUTHENTICATED_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX)


def frame_limits(message_bytes_max: int) -> FrameLimits:
    """Return the limits after authentication, for a server whose largest message has so many bytes."""
    own: dict[int, int] = dict.fromkeys(_OF_GROUPS, min(GROUP_BYTES_MAX, message_bytes_max))
    own[ApiKey.PRODUCE] = message_bytes_max
    return FrameLimits(message_bytes_max, min(REQUEST_BYTES_MAX, message_bytes_max), own)
