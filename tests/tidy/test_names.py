"""A class name means one thing in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.tidy.tree import project, python_files, shown

SAME_ON_BOTH_SIDES = {"AbortedTransaction", "Clock", "Identity", "SystemClock", "Transaction"}
"""Names with one meaning that client and server each have a class for: they meet on the wire only. It only shrinks."""


def test_a_class_name_is_used_once() -> None:
    packages = project()["tool"]["importlinter"]["root_packages"]
    places: dict[str, list[str]] = defaultdict(list)
    for path in python_files():
        if shown(path).split("/")[0] in packages:
            for node in _parsed(path).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(shown(path))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert several.keys() == SAME_ON_BOTH_SIDES, several


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))
