"""The question before something is deleted for good."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from coordinator_server.exit_status import CommandFailed, ExitStatus
from coordinator_server.output import print_note


def make_sure(what: Iterable[str]) -> None:
    """Show a person what would be deleted, and return if the answer is yes. Raises CommandFailed."""
    for line in what:
        print_note(line)
    try:
        is_sure = typer.confirm("Delete for good?", err=True)
    except typer.Abort:
        is_sure = False
    if not is_sure:
        raise CommandFailed(ExitStatus.USAGE, "nothing was deleted; say --yes to delete without being asked")
