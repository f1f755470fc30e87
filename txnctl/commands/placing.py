"""Options before and behind the command alike: `txnctl --json topic list` is `txnctl topic list --json`.

The parser takes the options of `txnctl` itself before the command, and those of a command behind its name. So the
words of a command line are put into that order before they are parsed. A word that no command knows
stays where it is, and the parser reports it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import typer.core

from txnctl.commands.watching import WATCH, WATCH_SECONDS, is_interval

Command: TypeAlias = typer.core.TyperCommand | typer.core.TyperGroup

JSON: Final = "--json"
"""Short for `--output json`, on every command with that option."""
_OUTPUT: Final = "--output"
_HELP: Final = {"-h": 0, "--help": 0}


@dataclass(slots=True)
class _Sorted:
    """The words of a command line by their places. Each option comes with its values."""

    front: list[list[str]]
    """Options of `txnctl` itself."""
    path: list[list[str]]
    """Names of groups and of the command."""
    behind: list[list[str]]
    """Options and arguments of the command."""


def place_options(tree: object, words: Sequence[str]) -> list[str]:
    """Return the words in the order that the parser of the tree expects. Of an option that is given twice, the one
    further behind stays behind, and so wins."""
    assert isinstance(tree, typer.core.TyperGroup)
    found, command = _sort(tree, deque(words))
    if _OUTPUT in _options(command):
        found.behind = [[_OUTPUT, "json"] if taken == [JSON] else taken for taken in found.behind]
    return [word for part in (found.front, found.path, found.behind) for taken in part for word in taken]


def _sort(tree: typer.core.TyperGroup, left: deque[str]) -> tuple[_Sorted, Command]:
    found = _Sorted([], [], [])
    command: Command = tree
    while left:
        word = left.popleft()
        is_group = isinstance(command, typer.core.TyperGroup)
        if word == "--":
            (found.path if is_group else found.behind).append([word, *left])
            break
        if word.startswith("-") and word != "-":
            _place_option(found, tree, command, word, left)
        elif isinstance(command, typer.core.TyperGroup):
            found.path.append([word])
            named = command.commands.get(word)
            if named is None:
                # A name of no command: what stands behind it cannot be placed.
                found.path.append([*left])
                break
            assert isinstance(named, Command)
            command = named
        else:
            found.behind.append([word])
    return found, command


def _place_option(found: _Sorted, tree: Command, command: Command, word: str, left: deque[str]) -> None:
    """Add an option with its values, which are taken from the words `left` behind it."""
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    own, of_tree, below = _options(command), _options(tree), _options_below(command)
    count = {**below, **of_tree, **own}.get(name, 0)
    # A value that is attached to the option is all that it has.
    if word == WATCH and not (left and is_interval(left[0])):
        left.appendleft(WATCH_SECONDS)
    taken = [word, *(left.popleft() for _ in range(min(count, len(left)) if word == name else 0))]
    is_of_tree = name in of_tree and (command is tree or name not in own)
    is_of_group = isinstance(command, typer.core.TyperGroup) and (name in own or name not in below)
    (found.front if is_of_tree else found.path if is_of_group else found.behind).append(taken)


@cache
def _options(command: Command) -> Mapping[str, int]:
    """Return the number of values of each option of the command itself."""
    counts = dict(_HELP)
    for parameter in command.params:
        if isinstance(parameter, typer.core.TyperOption):
            takes_none = parameter.is_flag or parameter.count
            counts |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), 0 if takes_none else parameter.nargs)
    if _OUTPUT in counts:
        counts.setdefault(JSON, 0)
    return counts


@cache
def _options_below(command: Command) -> Mapping[str, int]:
    """Return the options of all commands below a group. Some have values in one command, and none in another. They are
    left out, because the next word may or may not be their value."""
    if not isinstance(command, typer.core.TyperGroup):
        return {}
    counts: dict[str, int] = {}
    unclear = set()
    for each in command.commands.values():
        assert isinstance(each, Command)
        for name, count in {**_options_below(each), **_options(each)}.items():
            if counts.setdefault(name, count) != count:
                unclear.add(name)
    return {name: count for name, count in counts.items() if name not in unclear}
