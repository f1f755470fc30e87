"""No test sleeps: a sleeping test is slow when it passes and wrong when the machine is busy."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.tree import files_of_tests, found_by, judges_modules, nodes_of, shown

SLEEPERS = {"anyio", "asyncio", "gevent", "time", "trio"}


def test_no_test_sleeps() -> None:
    sleeping = found_by(sleeps)
    found = [f"{shown(path)}:{line}" for path in files_of_tests() for line in sleeping.get(path, ())]
    assert not found, f"advance the clock, flush or settle; a real process is waited for on a condition: {found}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("from time import sleep", [1]),
        ("async def wait():\n    await asyncio.sleep(0.1)", [2]),
        ("async def give_way():\n    await asyncio.sleep(0)", []),
        ("clock.sleep(5)", []),
    ],
)
def test_sleeping_is_recognised(source: str, lines: list[int]) -> None:
    assert sleeps(ast.parse(source)) == lines


@judges_modules
def sleeps(module: ast.Module) -> list[int]:
    """The lines that sleep; giving way to other tasks with `asyncio.sleep(0)` is not sleeping."""
    found = []
    for node in nodes_of(module):
        match node:
            case ast.ImportFrom(module=name, names=names) if name in SLEEPERS:
                found += [node.lineno for alias in names if alias.name == "sleep"]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant(value=0)]):
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="sleep")) if name in SLEEPERS:
                found.append(node.lineno)
    return found
