"""Calls of every front: the function that serves a call, and the status of a call without a response message."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext

Serve = Callable[[Any, CallContext], Pending[Any]]
"""A function of a servicer: takes request and caller, and returns the pending response."""


class CallStatus(Enum):
    """Transport-level status of a call, apart from the outcomes of the protocol. Each adapter maps it to its own
    terms."""

    INVALID_ARGUMENT = "invalid_argument"
    UNIMPLEMENTED = "unimplemented"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    INTERNAL = "internal"
    CANCELLED = "cancelled"
    """The caller cancelled the call before it was answered."""
    UNAUTHENTICATED = "unauthenticated"
    """The caller could not be authenticated."""


AUTHENTICATION_REQUIRED: Final = "authentication required"
"""Complete error message to an unauthenticated caller."""


class Unanswered(Exception):
    """The call gets no response message. `message` is for the caller and reveals nothing of the inside."""

    def __init__(self, status: CallStatus, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
