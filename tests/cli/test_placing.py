"""Options stand before and behind the command alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer.core

from txnctl.cli import command_tree
from txnctl.commands.placing import Command, place_options

PLACED = ["--wait", "30s", "topic", "list", "--output", "json"]


def placed(line: str) -> list[str]:
    return place_options(command_tree(), line.split())


@pytest.mark.parametrize(
    "line",
    [
        "--wait 30s --json topic list",
        "--json --wait 30s topic list",
        "--wait 30s topic --json list",
        "topic --wait 30s list --json",
        "topic list --json --wait 30s",
        "--output json topic list --wait 30s",
    ],
)
def test_an_option_may_stand_anywhere(line: str) -> None:
    assert placed(line) == PLACED


def test_every_option_of_every_command_may_stand_before_it_and_every_option_of_txnctl_behind() -> None:
    tree = command_tree()
    assert isinstance(tree, typer.core.TyperGroup)
    for path, command in commands(tree):
        for option in options(command):
            # The parser cannot know whether the next word is a value of this one.
            if option[0] != "--prefix" or len(path) > 1:
                expected = [*path, *option]
                for at in range(1 if option[0] == "--prefix" else 0, len(path) + 1):
                    assert place_options(tree, [*path[:at], *option, *path[at:]]) == expected
        for option in options(tree):
            if option[0] not in {name for known in options(command) for name in known}:
                expected = [*option, *path]
                assert all(
                    place_options(tree, [*path[:at], *option, *path[at:]]) == expected for at in range(len(path) + 1)
                )


def test_the_last_of_two_wins() -> None:
    assert placed("-s a:1 topic list -s b:2") == ["topic", "list", "-s", "a:1", "-s", "b:2"]
    assert placed("--wait 1s topic list --wait 2s") == ["--wait", "1s", "--wait", "2s", "topic", "list"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--server=a:1 topic list", "topic list --server=a:1"),
        ("-oyaml topic list", "topic list -oyaml"),
        ("produce orders --key-separator --json", "produce orders --key-separator --json"),
        ("produce -- --json --wait", "produce -- --json --wait"),
        ("topic list --bogus --json", "topic list --bogus --output json"),
        ("--bogus topic list", "--bogus topic list"),
        ("tpic list --json", "tpic list --json"),
        ("--json serve", "serve --json"),
        ("--pattern a.* --version list", "--version list --pattern a.*"),
        ("topic list --server", "topic list --server"),
        ("", ""),
    ],
)
def test_what_cannot_be_placed_stays_for_the_parser(line: str, expected: str) -> None:
    assert placed(line) == expected.split()


def commands(group: typer.core.TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Command]]:
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, (*path, name))
        else:
            assert isinstance(command, typer.core.TyperCommand)
            yield [*path, name], command


def options(command: Command) -> Iterator[list[str]]:
    for parameter in command.params:
        if isinstance(parameter, typer.core.TyperOption):
            for name in parameter.opts:
                yield [name] if parameter.is_flag else [name, "1s"]
