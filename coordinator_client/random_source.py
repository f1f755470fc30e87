"""Random source port: random numbers and new ids. All other code of the client uses it, so that tests can choose
them."""

from __future__ import annotations

import os
import random
import uuid
from collections import deque
from typing import Final, Protocol


class RandomSource(Protocol):
    """Source of values that must differ from run to run."""

    def request_id(self) -> bytes:
        """Return 16 bytes that were never used before, as the id of one request through all its retries."""

    def fraction(self) -> float:
        """Return a number in [0, 1), for jitter: it spreads actions that many clients would otherwise take at once."""


_ID_BYTES: Final = 16
_IDS_DRAWN: Final = 64

_ids: Final[deque[bytes]] = deque()
"""Ids drawn ahead for the whole process: asking the system for each one took several percent of a transaction's
time."""
# A fork must not repeat its parent's ids.
os.register_at_fork(after_in_child=_ids.clear)

_jitter: Final = random.Random()
"""Apart from the module's generator: an application that has seeded that one gets the same numbers with and without
this library."""
os.register_at_fork(after_in_child=_jitter.seed)


class SystemRandomSource:
    """Randomness of the operating system, for any thread. A fork does not repeat the ids and numbers of its parent."""

    __slots__ = ()

    def request_id(self) -> bytes:
        try:
            return _ids.popleft()
        except IndexError:
            drawn = os.urandom(_ID_BYTES * _IDS_DRAWN)
            _ids.extend([drawn[at : at + _ID_BYTES] for at in range(_ID_BYTES, len(drawn), _ID_BYTES)])
            return drawn[:_ID_BYTES]

    def fraction(self) -> float:
        # Jitter may be guessed.
        return _jitter.random()


def uuid_text(identity: bytes) -> str:
    """Return 16 bytes in the notation of a UUID."""
    return str(uuid.UUID(bytes=identity))
