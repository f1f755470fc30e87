"""docs/reference/metrics.md names every line that the server logs, with its level, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.docs.fences import ROOT
from tests.tidy.tree import text_files

LEVELS = ("debug", "info", "warning", "error")
TWO_LEVELS = {"rebalance_completed": {"info", "warning"}}
"""A slow rebalance has the same name, and another level."""


@cache
def told() -> dict[str, str]:
    """Level of each event that the page tells of."""
    _, _, lines = (ROOT / "docs" / "reference" / "metrics.md").read_text().partition("## Log lines")
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", lines, re.MULTILINE))


@cache
def nodes() -> list[ast.AST]:
    """The syntax of the server, piece by piece."""
    server = [path for path in text_files() if path.is_relative_to(ROOT / "coordinator_server")]
    return [node for path in server if path.suffix == ".py" for node in ast.walk(ast.parse(path.read_text()))]


def logged() -> Iterator[tuple[str, str]]:
    """Event and level of every call of a logger whose event stands in the call."""
    for node in nodes():
        match node:
            case ast.Call(ast.Attribute(ast.Name(logger), level), [event, *_]) if logger.endswith("_log"):
                if level in LEVELS:
                    yield from ((name, level) for name in names(event))


def names(event: ast.expr) -> Iterator[str]:
    """Yield the names that a logger is given: a name, or one of two; none if only a run knows it."""
    match event:
        case ast.Constant(str(name)):
            yield name
        case ast.IfExp(_, body, orelse):
            yield from (*names(body), *names(orelse))


def test_every_line_is_told_with_its_level() -> None:
    found = set(logged())
    assert len(found) > 50, "the pattern does not find them any more"
    assert sorted(line for line in found if line[1] not in TWO_LEVELS.get(line[0], {told().get(line[0])})) == []


def test_every_line_that_is_told_is_in_the_code() -> None:
    code = {node.value for node in nodes() if isinstance(node, ast.Constant)}
    assert sorted(set(told()) - code) == []
