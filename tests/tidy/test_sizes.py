"""Length limits: they ratchet, they are never raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.tree import python_files, shown

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    too_long = {
        shown(path): lines
        for path in python_files()
        if (lines := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert not too_long, f"more than {MODULE_LINES_MAX} lines, split along a seam that has a name: {too_long}"


def test_no_function_is_longer_than_a_screen() -> None:
    too_long = {}
    for path in python_files():
        for function in functions_in(ast.parse(path.read_text(), filename=str(path))):
            if body_lines(function) > FUNCTION_LINES_MAX:
                too_long[f"{shown(path)}:{function.lineno} {function.name}"] = body_lines(function)
    assert not too_long, f"more than {FUNCTION_LINES_MAX} lines of body, docstring left out: {too_long}"


def functions_in(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All of them, those in classes and other functions too. Looks at statements only: expressions hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from functions_in(child)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement to the last; a docstring is not a statement here, it may be as long as it must."""
    first = function.body[1] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body[0]
    assert function.end_lineno is not None
    return function.end_lineno - first.lineno + 1
