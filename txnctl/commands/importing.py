"""Common parts of `acl import` and `topic import`: options, actions, the question, and the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from coordinator_server.exits import ExitStatus
from txnctl.commands.options import make_sure
from txnctl.output import Column, OutputFormat, Row, print_list

ImportFile = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file, as export writes it.")]
Prune = Annotated[bool, typer.Option("--prune", help="Also remove what the file does not declare.")]
Check = Annotated[
    bool, typer.Option("--check", help="Show the plan and change nothing; status 1 if there is something to do.")
]


class PlanAction(StrEnum):
    """Change that an import makes to one thing."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


_DONE: Final[Mapping[PlanAction, str]] = {
    PlanAction.ADD: "added",
    PlanAction.CHANGE: "changed",
    PlanAction.REMOVE: "removed",
}
"""Past participles of the actions."""


def result_of(action: PlanAction, *, is_trial: bool) -> str:
    """Return the result of an action that was taken, or would be."""
    return f"would be {_DONE[action]}" if is_trial else _DONE[action]


def make_sure_of_plan(changes: Iterable[str]) -> None:
    """Show the planned changes, and return if the user confirms them. Raises CommandFailed otherwise."""
    make_sure(changes, "Apply this plan?", "nothing was changed; say --yes to apply the plan without being asked")


def print_plan(rows: Sequence[Row], columns: Sequence[Column], output: OutputFormat, *, check: bool) -> None:
    """Print the changes of an import, one a row. With `--check`, exit with status 1 if there is one."""
    print_list(rows, columns, output, empty="nothing to do: the server is as the file declares")
    if check and rows:
        raise typer.Exit(ExitStatus.PROBLEM)
