"""The one door of the client to chance: everybody else takes ids and jitter from this port."""

from __future__ import annotations

import os
import random
import uuid
from typing import Protocol


class Chance(Protocol):
    """What must differ from run to run."""

    def request_id(self) -> bytes:
        """16 bytes nobody used before: the name of one request over all its retries."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1), to spread what many clients would otherwise do at once."""
        ...


class SystemChance:
    """Chance as the machine has it. Draws from the system each time, so a fork does not repeat its parent's numbers."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def request_id(self) -> bytes:
        return os.urandom(16)

    def fraction(self) -> float:
        return self._random.random()


def uuid_text(identity: bytes) -> str:
    """Return 16 bytes as a UUID is written."""
    return str(uuid.UUID(bytes=identity))
