"""The only import of gRPC in the client, with its fork handlers switched off, and the translation of its call statuses.

gRPC does not survive a fork. Its own fork handlers do nothing while any of its threads is busy, and the thread that
waits for a session always is. The work that they leave half done sometimes crashes the child, even one that never uses
gRPC. So they are switched off, which must happen before gRPC is loaded. A child that tries to use gRPC gets an explicit
error instead.
"""

from __future__ import annotations

import os
from typing import Final

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc as grpc
from grpc import aio as aio

from coordinator_client.errors import Loss, misconfigured
from coordinator_client.process import THIS_PROCESS
from coordinator_protocol.errors import ErrorCode

_NEVER_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")
"""Prefixes of gRPC's reason for a call that found no connection. If a version of gRPC words it differently, the call
counts as one that may have been carried out, which is the safe mistake."""


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
