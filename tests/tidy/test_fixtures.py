"""No fixture keeps something running beside the tests of other folders: threads of a client draw numbers and leave
garbage while those tests look at both."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.tree import files_of_tests, found_by, judges_modules, nodes_of, shown

OTHER_PROCESSES = "tests/spark/conftest.py"
"""Its server and its JVM are processes of their own, shared by the one worker that runs these tests."""


def test_what_runs_for_the_whole_session_runs_in_other_processes() -> None:
    running = found_by(running_to_the_end)
    found = [
        f"{shown(path)}:{line}"
        for path in files_of_tests()
        for line in running.get(path, ())
        if shown(path) != OTHER_PROCESSES
    ]
    assert not found, f'scope="package" ends it with the tests of its folder: {found}'


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('@pytest.fixture(scope="session")\ndef server():\n    with served() as address:\n        yield address', [2]),
        ('@pytest.fixture(scope="session")\ndef wheel():\n    return built()', []),
        ('@pytest.fixture(scope="package")\ndef server():\n    yield address', []),
        ("@pytest.fixture\nasync def server():\n    yield address", []),
    ],
)
def test_a_fixture_that_runs_to_the_end_is_recognised(source: str, lines: list[int]) -> None:
    assert running_to_the_end(ast.parse(source)) == lines


@judges_modules
def running_to_the_end(module: ast.Module) -> list[int]:
    """The lines of fixtures that hold something open until the last test of the process."""
    return [
        node.lineno
        for node in nodes_of(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(_is_of_session(decorator) for decorator in node.decorator_list)
        and any(isinstance(part, ast.Yield) for part in ast.walk(node))
    ]


def _is_of_session(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and any(
        keyword.arg == "scope" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "session"
        for keyword in decorator.keywords
    )
