"""Warnings about producers that their application dropped with records not sent, or with an open transaction.

A finalizer would run Python code wherever the garbage collector does, also inside unrelated code. So each producer is
known here by a weak reference without a callback, and looks find those that are gone. A look follows the creation of
another producer, each second of the loop that carries the requests, and the end of the interpreter.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from coordinator_client.loops import LOOK_MS, LOOKS, AsyncioLoop
from coordinator_client.producer.core import ProducerCore
from coordinator_client.producer.state import OPEN, ProducerStatus

_LOG: Final = logging.getLogger("coordinator_client.dropped")

_LOOKED_AT_MAX: Final = 16
"""Producers that the creation of another one looks at, so that creating many takes linear time."""


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedProducer:
    handle: weakref.ref[object]
    core: ProducerCore
    name: str

    def loss(self) -> str | None:
        """Return what would be lost without a `close`; None if nothing."""
        if self.core.status is ProducerStatus.CLOSED:
            return None
        unsent = self.core.sender.waiting.unsent_count
        if unsent:
            return "1 record not sent" if unsent == 1 else f"{unsent} records not sent"
        return "an open transaction" if self.core.status in OPEN else None


class DroppedProducers:
    """The producers of this process, until a look finds that they are gone."""

    def __init__(self) -> None:
        self._watched: dict[int, _WatchedProducer] = {}
        self._loops: weakref.WeakSet[object] = weakref.WeakSet()
        """Loops of the application on which a look is due."""

    def watch(self, handle: object, core: ProducerCore, name: str) -> None:
        """Know a new producer, and look at some of the others."""
        self._look_at([*islice(self._watched, _LOOKED_AT_MAX)])
        self._watched[id(core)] = _WatchedProducer(weakref.ref(handle), core, name)

    def look(self) -> None:
        """Warn of the producers that are gone, once each."""
        self._look_at([*self._watched])

    def look_on(self, loop: AsyncioLoop) -> None:
        """Look each second on a loop of the application, as long as there are producers."""
        if loop.asyncio_loop not in self._loops:
            self._loops.add(loop.asyncio_loop)
            loop.call_after(LOOK_MS, partial(self._look_again_on, loop))

    def _look_again_on(self, loop: AsyncioLoop) -> None:
        self._loops.discard(loop.asyncio_loop)
        self.look()
        if self._watched:
            self.look_on(loop)

    def look_at_exit(self) -> None:
        """Warn of all producers that are not closed, because the interpreter ends."""
        for watched in self._taken([*self._watched]):
            _warn(watched, "was not closed at the end of the program")

    def begin_in_child(self) -> None:
        """Forget the producers that the parent process has used: what they have not sent is not lost by a fork."""
        self._watched = {key: watched for key, watched in self._watched.items() if watched.loss() is None}

    def _look_at(self, keys: Iterable[int]) -> None:
        gone = []
        for key in keys:
            watched = self._watched.get(key)
            if watched is None:
                continue
            if watched.handle() is None:
                gone.append(key)
            elif self._watched.pop(key, None) is not None:
                # Behind the others, so that the next creation looks at those.
                self._watched[key] = watched
        for watched in self._taken(gone):
            _warn(watched, "was dropped")

    def _taken(self, keys: Iterable[int]) -> list[_WatchedProducer]:
        """Remove producers, and return those that another thread has not removed at the same time."""
        taken = (self._watched.pop(key, None) for key in keys)
        return [watched for watched in taken if watched is not None]


def _warn(watched: _WatchedProducer, event: str) -> None:
    loss = watched.loss()
    if loss is None:
        return
    text = f"{watched.name} {event} with {loss}: close it, or use it in a `with` statement"
    _LOG.warning("%s", text)
    try:
        warnings.warn(text, ResourceWarning, stacklevel=2)
    except ResourceWarning:
        # A filter makes it an error, but this caller did not drop the producer. The log has the warning.
        return


DROPPED: Final = DroppedProducers()
"""The producers of this process."""

LOOKS.append(DROPPED.look)
atexit.register(DROPPED.look_at_exit)
os.register_at_fork(after_in_child=DROPPED.begin_in_child)
