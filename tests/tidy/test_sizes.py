"""Length limits: they ratchet, they are never raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.tree import found_by, judges_modules, python_files, shown

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
    too_long = {
        f"{shown(path)}:{line} {name}": lines
        for path, functions in found_by(long_functions).items()
        for line, name, lines in functions
    }
    assert not too_long, f"more than {FUNCTION_LINES_MAX} lines of body, docstring left out: {too_long}"


@judges_modules
def long_functions(module: ast.Module) -> list[tuple[int, str, int]]:
    """Line, name and length of the functions that are too long."""
    functions = [(each.lineno, each.name, body_lines(each)) for each in functions_in(module)]
    return [found for found in functions if found[-1] > FUNCTION_LINES_MAX]


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
