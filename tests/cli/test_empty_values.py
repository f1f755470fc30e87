"""An empty value, as of an unset variable of a script, is refused by every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core

from tests.cli.terminal import Terminal
from txnctl.cli import command_tree


def taking_values(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every option and argument of every command, with an empty value. The value of --watch may be left out, so a word
    that is no interval belongs to the command."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield (*words, "")
        elif not parameter.is_flag and "completion" not in parameter.name and parameter.name != "watch_ms":
            yield (*words, parameter.opts[0], "")
    if isinstance(command, typer.core.TyperGroup):
        for name, each in command.commands.items():
            yield from taking_values(each, (*words, name))


EVERY_ONE = list(taking_values(command_tree()))


def test_every_command_is_among_them() -> None:
    assert ("serve", "--data-dir", "") in EVERY_ONE
    assert ("probe", "--transactional-id", "") in EVERY_ONE
    assert ("group", "delete", "") in EVERY_ONE
    assert ("--token-file", "") in EVERY_ONE


def test_an_empty_value_is_refused_before_anything_is_done(
    txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in EVERY_ONE:
        ended = txnctl(*words)
        ended.refused(2, " is empty (a variable that is not set?): give it a value")
        if words[-2:-1] and words[-2].startswith("-"):
            assert ended.stderr.startswith(f"txnctl: {words[-2]} is empty"), ended
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["probe", "--transactional-id", ""], "--transactional-id is empty"),
        (["probe", "--transactional-id="], "--transactional-id is empty"),
        (["abort", "--older-than", "30m", "--prefix", ""], "--prefix is empty"),
        (["group", "delete", "g", ""], "GROUP is empty"),
        (["consume", "t", "-o", ""], "--output is empty"),
        (["--tls-ca-file", "", "topic", "list"], "--tls-ca-file is empty"),
    ],
)
def test_it_is_named_as_the_help_names_it(txnctl: Terminal, words: list[str], said: str) -> None:
    txnctl(*words).refused(2, said)
