"""The standby: the server that waits for the lease, as the owner knows it.

It writes the object `owner/standby` once in each time to live. The owner reads it after each renewal, and tells clients
of Kafka's protocol of both servers. So a client that knows only the owner finds the other after a takeover. Of several
that wait, the one that wrote last is known.

While none waits, the owner names the former one. librdkafka hangs if Metadata lacks the server that it remembers as
coordinator.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from coordinator_runtime.slate.lease import LeaseState, Node

STANDBY_NAME: Final = "owner/standby"

_SILENT_TTLS: Final = 3
"""Number of times to live without a change after which a standby counts as gone."""


class Standby(Struct, frozen=True):
    """Content of the object."""

    node: Node
    counter: int
    """Rises with each write, so that its changes show."""


class SeenStandby(Struct, frozen=True):
    """The object as it was last read."""

    standby: Standby
    since_ms: int
    """Moment of the first look that showed this content, by the monotonic clock of the owner."""


def seen_again(before: SeenStandby | None, content: bytes | None, now_ms: int) -> SeenStandby | None:
    """Return what is known after another look. Content that cannot be read counts as none."""
    try:
        found = None if content is None else msgspec.json.decode(content, type=Standby)
    except msgspec.DecodeError:
        return None
    if found is None or (before is not None and before.standby == found):
        return before
    return SeenStandby(found, now_ms)


def other_server(seen: SeenStandby | None, lease: LeaseState, now_ms: int) -> Node | None:
    """Return the server that waits, or the former owner if there is none or it was silent for too long; None if neither
    is known."""
    if seen is None or now_ms >= seen.since_ms + _SILENT_TTLS * lease.ttl_ms:
        return lease.former
    node = seen.standby.node
    # A server that has just become the owner finds the object that it wrote itself.
    return lease.former if node.node_id == lease.me.node_id else node
