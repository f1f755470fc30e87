"""Calls of every front: the function that serves one, and the status of one that gets no response message."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext

Serve = Callable[[Any, CallContext], Pending[Any]]
"""A function of a servicer: request and caller, and the response once it is there."""


class CallStatus(Enum):
    """Facts of the transport that are no outcome of the protocol; an adapter has its own word for each."""

    INVALID_ARGUMENT = "invalid_argument"
    UNIMPLEMENTED = "unimplemented"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    INTERNAL = "internal"
    CANCELLED = "cancelled"
    """The caller gave up before."""
    UNAUTHENTICATED = "unauthenticated"
    """The caller is not known here."""


AUTHENTICATION_REQUIRED: Final = "authentication required"
"""The whole answer to an unknown caller."""


class Unanswered(Exception):
    """The call got no response message. `message` is for the caller and tells nothing of our inside."""

    def __init__(self, status: CallStatus, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
