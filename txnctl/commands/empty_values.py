"""Refusal of empty values on the command line, for all commands in one place.

Scripts produce an empty value when a variable is not set. Read as "not given", it would silently widen a command:
`abort --prefix "$UNSET" --older-than 30m` would abort the transactions of all users. Or it would name another place:
`--data-dir ""` is the working directory. No option and no argument has a meaning for an empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import typer.core

from coordinator_server.exits import CommandFailed, ExitStatus

_Parameter: TypeAlias = typer.core.TyperOption | typer.core.TyperArgument
_Consume: TypeAlias = Callable[..., object]


def refuse_empty_values(command: object) -> None:
    """Make the command and all its subcommands raise CommandFailed for an empty option or argument."""
    assert isinstance(command, typer.core.TyperCommand | typer.core.TyperGroup)
    for parameter in command.params:
        assert isinstance(parameter, _Parameter)
        # Check the text before its conversion: an empty path would become the working directory.
        setattr(parameter, "consume_value", _unless_empty(parameter, parameter.consume_value))  # noqa: B010
    if isinstance(command, typer.core.TyperGroup):
        for each in command.commands.values():
            refuse_empty_values(each)


def _unless_empty(parameter: _Parameter, consume: _Consume) -> _Consume:
    def consume_value(context: typer.Context, given: Mapping[str, object]) -> object:
        if not context.resilient_parsing and _is_empty(given.get(parameter.name or "")):
            raise CommandFailed(ExitStatus.USAGE, _refusal(parameter))
        return consume(context, given)

    return consume_value


def _is_empty(value: object) -> bool:
    """True for an empty text, and for several values with an empty text among them."""
    return value == "" or (isinstance(value, list | tuple) and "" in value)


def _refusal(parameter: _Parameter) -> str:
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.metavar or parameter.name
    advice = "give it a value" if parameter.required else "give it a value, or leave it out"
    return f"{name} is empty (a variable that is not set?): {advice}"
