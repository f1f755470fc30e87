"""State that the parts of one share consumer share: its settings, and access to the server."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_client.groups.context import LookingContext
from coordinator_client.share.config import ShareConsumerConfig


@dataclass(frozen=True, slots=True)
class ShareContext(LookingContext):
    """Passed to every part of one share consumer, so that none of them needs to know the others."""

    config: ShareConsumerConfig
