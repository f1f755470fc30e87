"""The registered parts of the group coordinator. Who adds a kind of group writes its folder and adds its line here.

The order is that of what they do after a load.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coordinator_runtime.rows import TableCodec
from group_coordinator.administration.part import ADMINISTRATION
from group_coordinator.classic.part import CLASSIC
from group_coordinator.committed.part import COMMITTED
from group_coordinator.consumer.part import CONSUMER
from group_coordinator.part import GroupPart

PARTS: Final[tuple[GroupPart, ...]] = (CLASSIC, CONSUMER, COMMITTED, ADMINISTRATION)


def codec_of(parts: Iterable[GroupPart]) -> TableCodec:
    """Bytes of the records of all these parts."""
    return TableCodec((part.encoders, part.decoders) for part in parts)
