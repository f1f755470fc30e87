"""Options that several commands share, so that each has one name and one help text. Also has the confirmation before a
permanent deletion, which `--yes` skips."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.output import OutputFormat, print_note

SERVER_VARIABLE: Final = "TXNCTL_SERVER"
DEFAULT_SERVER: Final = "127.0.0.1:7070"


class ServerTls(NamedTuple):
    """Values of the options `--tls-...` and `--token-file`."""

    ca_file: str | None = None
    """PEM file with trusted CA certificates; None = no TLS."""
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    token_file: str | None = None


NO_TLS: Final = ServerTls()
SERVER_TLS: Final[ContextVar[ServerTls]] = ContextVar("SERVER_TLS", default=NO_TLS)
SERVER_WAIT: Final[ContextVar[float]] = ContextVar("SERVER_WAIT", default=0)
"""Value of `--wait` (seconds); 0 = not given."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_ms(text: str | int) -> int:
    """Return a time span such as 500ms, 30s, 5m, 2h or 7d in milliseconds. An integer is a default and is returned
    unchanged."""
    if isinstance(text, int):
        return text
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time span: write 500ms, 30s, 5m, 2h or 7d")
    return round(float(found[1]) * _UNITS_MS[found[2]])


def utc_moment(text: str) -> datetime:
    """Return a time such as 2026-11-21T08:30, which is UTC unless it has a time zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_moment_ms(text: str | int) -> int:
    """Return a time such as 2026-11-21T08:30 in Unix milliseconds. An integer is a default and is returned unchanged.
    Raises BadParameter."""
    if isinstance(text, int):
        return text
    try:
        return round(utc_moment(text).timestamp() * 1000)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: write one such as 2026-11-21T08:30 (UTC unless it says otherwise)"
        ) from None


class PartitionPlace(NamedTuple):
    """Topic and number of a partition, as typed on the command line."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_partition(text: str | PartitionPlace) -> PartitionPlace:
    """Parse TOPIC-PARTITION, where the topic itself may contain dashes. A default is parsed already and returned
    unchanged."""
    if isinstance(text, PartitionPlace):
        return text
    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(f"{text!r} is no partition: write TOPIC-NUMBER, as in orders-0")
    return PartitionPlace(topic, int(number))


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="table for people, json or yaml for programs.")]
Server = Annotated[
    str,
    typer.Option(
        "--server", "-s", metavar="HOST:PORT", envvar=SERVER_VARIABLE, help="Address of the server; or unix:PATH."
    ),
]
Patience = Annotated[
    int,
    typer.Option(
        "--timeout",
        metavar="SPAN",
        parser=parse_duration_ms,
        show_default=False,
        help="Time to wait for a reply. [default: 10s]",
    ),
]
DEFAULT_PATIENCE_MS: Final = 10_000
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show what would be done; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the group.")]


def make_sure(
    what: Iterable[str],
    question: str = "Delete for good?",
    refusal: str = "nothing was deleted; say --yes to delete without being asked",
) -> None:
    """Show the planned deletions, or another plan, and return if the user confirms it. Raises CommandFailed
    otherwise."""
    for line in what:
        print_note(line)
    try:
        is_sure = typer.confirm(question, err=True)
    except typer.Abort:
        is_sure = False
    if not is_sure:
        raise CommandFailed(ExitStatus.USAGE, refusal)
