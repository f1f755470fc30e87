"""State that the parts of one member of a streams group share: its settings, and access to the server."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_client.groups.context import MemberContext
from coordinator_client.streams.config import StreamsClientConfig


@dataclass(frozen=True, slots=True)
class StreamsContext(MemberContext):
    """Passed to every part of one member, so that none of them needs to know the others."""

    config: StreamsClientConfig
