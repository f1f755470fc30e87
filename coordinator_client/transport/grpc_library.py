"""The only import of gRPC in the client, with its fork handlers switched off, and the translation of its call statuses.

gRPC does not survive a fork. Its own fork handlers do nothing while any of its threads is busy, and the thread that
waits for a session always is. The work that they leave half done sometimes crashes the child, even one that never uses
gRPC. So they are switched off, which must happen before gRPC is loaded. A child that tries to use gRPC gets an explicit
error instead.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from typing import Final
from weakref import WeakSet

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc as grpc
from grpc import aio as aio

from coordinator_client.errors import Loss, misconfigured
from coordinator_client.process import THIS_PROCESS
from coordinator_protocol.errors import ErrorCode

_NEVER_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")
"""Prefixes of gRPC's reason for a call that found no connection. If a version of gRPC words it differently, the call
counts as one that may have been carried out, which is the safe mistake."""


_OF_GRPC: Final = "grpc."
_TOLERANT: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
"""Loops that drop late events."""


def drop_late_events(loop: asyncio.AbstractEventLoop) -> None:
    """Let grpc.aio pass events to this loop even after it is closed; they are then dropped.

    All loops of a process share one completion queue of grpc.aio. A cancelled call ends for its task at once. The event
    that completes it comes a little later, and no task can wait for it. If `asyncio.run` has closed the loop by then,
    the next loop takes that event from the queue and cannot pass it on. It prints a traceback, and its own events wait.
    Callbacks that are not grpc.aio's are refused as before.
    """
    if loop in _TOLERANT:
        return
    pass_on = loop.call_soon_threadsafe

    def pass_in_time(
        callback: Callable[..., object], *arguments: object, context: Context | None = None
    ) -> asyncio.Handle | None:
        if loop.is_closed() and (getattr(callback, "__module__", None) or "").startswith(_OF_GRPC):
            return None
        return pass_on(callback, *arguments, context=context)

    loop.call_soon_threadsafe = pass_in_time  # type: ignore[assignment]
    _TOLERANT.add(loop)


def loss_of(status: grpc.StatusCode, details: str | None) -> Loss:
    """Return the loss for a gRPC call that ended without an answer."""
    reason = details or ""
    is_without_effect = status is grpc.StatusCode.UNAVAILABLE and reason.startswith(_NEVER_SENT)
    return Loss(status.name, reason, is_without_effect=is_without_effect)


def note_use() -> None:
    """Note that this process uses gRPC; call it before any channel is opened. Raises: Misconfigured in a fork of a
    process that had used it."""
    here = THIS_PROCESS.process_id
    first = THIS_PROCESS.grpc_used_by = THIS_PROCESS.grpc_used_by or here
    if first != here:
        raise misconfigured(
            ErrorCode.INVALID_CONFIG,
            f"process {here} was forked from {first} after that had used gRPC, which does not work in a fork: start "
            "processes with 'spawn', or before the first producer, consumer or reader is used",
        )
