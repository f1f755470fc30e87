"""Exit statuses of the process, and the error message that a user reads instead of a traceback."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of every command. They are documented, so scripts can rely on them."""

    OK = 0
    PROBLEM = 1
    """The command ran and found a problem, or the server refused it."""
    USAGE = 2
    """A wrong flag, argument or configuration. Nothing was done."""
    STORE_REFUSED = 3
    """The directory cannot be used: in use, another shard count, a newer format, durable data missing, damaged."""
    ADDRESS_REFUSED = 4
    """The server cannot listen on a configured address."""
    UNREACHABLE = 5
    """No server answered at the address in time, or the server could not do it at that moment. Nothing was changed."""
    OUTCOME_UNKNOWN = 6
    """A change was sent and its answer was lost, so it may have been made. Look before you repeat it."""
    FAILED = 70
    """The store failed while the server ran, or a defect ended it. Starting again recovers what was acknowledged."""
    FENCED = 71
    """Another server has taken the store over, with all that was acknowledged, and this one has no lease. Do not start
    it again."""
    LEASE_ENDED = 72
    """The lease of the server ended, or another server has taken the store over before it did. Start it again: it waits
    until it is needed."""


class CommandFailed(Exception):
    """Ends a command with one message for the user: the problem, and the remedy."""

    def __init__(self, status: ExitStatus, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
