"""Exit statuses of the process, and the error that a user reads instead of a traceback."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of every command; documented, so that scripts can rely on them."""

    OK = 0
    PROBLEM = 1
    """The command ran, and what it looked at is not as it should be; or it was refused by the server."""
    USAGE = 2
    """A wrong flag, argument or configuration. Nothing was done."""
    STORE_REFUSED = 3
    """The directory cannot be used: in use, another shard count, a newer format, durable data missing, damaged."""
    ADDRESS_REFUSED = 4
    """The server cannot listen where it was told to."""
    UNREACHABLE = 5
    """No server answered at the address within the time given, or it could not do it now. Nothing was changed."""
    OUTCOME_UNKNOWN = 6
    """A change was sent and its answer was lost: it may have been made. Look before you repeat it."""
    FAILED = 70
    """The store failed while the server ran, or a defect ended it. Starting again recovers what was acknowledged."""


class CommandFailed(Exception):
    """Ends a command with one message for the user: what is wrong, and what to do."""

    def __init__(self, status: ExitStatus, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
