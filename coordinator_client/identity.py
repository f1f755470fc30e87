"""The one door of the client to chance: everybody else takes ids and jitter from this port."""

from __future__ import annotations

import os
import random
import uuid
from collections import deque
from typing import Final, Protocol


class Chance(Protocol):
    """What must differ from run to run."""

    def request_id(self) -> bytes:
        """16 bytes nobody used before: the name of one request over all its retries."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), to spread what many clients would otherwise do at once."""
        ...


_ID_BYTES: Final = 16
_IDS_DRAWN: Final = 64

_ids: Final[deque[bytes]] = deque()
"""Drawn ahead for the whole process: to ask the system for each one took several percent of a transaction's time."""
# A fork must not repeat its parent's ids.
os.register_at_fork(after_in_child=_ids.clear)


class SystemChance:
    """Chance as the machine has it; a fork does not repeat its parent's. From any thread."""

    __slots__ = ()

    def request_id(self) -> bytes:
        try:
            return _ids.popleft()
        except IndexError:
            drawn = os.urandom(_ID_BYTES * _IDS_DRAWN)
            _ids.extend([drawn[at : at + _ID_BYTES] for at in range(_ID_BYTES, len(drawn), _ID_BYTES)])
            return drawn[:_ID_BYTES]

    def fraction(self) -> float:
        # Nobody must be unable to guess it, and the module seeds itself anew in a fork.
        return random.random()


def uuid_text(identity: bytes) -> str:
    """Return 16 bytes as a UUID is written."""
    return str(uuid.UUID(bytes=identity))
