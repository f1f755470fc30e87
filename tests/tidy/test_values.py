"""Values are frozen, because old ones are kept, shared and compared; what changes is no value, and says so.

Source: docs/decisions/0001-replies-journal-and-structs.md."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.tree import found_by, judges_modules, nodes_of, shown


def test_every_struct_is_frozen() -> None:
    found = [f"{shown(path)}: {name}" for path, names in found_by(changeable_structs).items() for name in names]
    assert not found, (
        f"say `frozen=True` in the class itself, a base class does not say it to mypy; or `eq=False` if it is no value "
        f"but a thing that changes: {found}"
    )


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class A(Struct): ...", ["A"]),
        ("class A(Struct, kw_only=True): ...", ["A"]),
        ("class A(msgspec.Struct, frozen=False): ...", ["A"]),
        ("class A(Struct, eq=True): ...", ["A"]),
        ("class A(Struct, frozen=True): ...", []),
        ("class A(Struct, eq=False): ...", []),
        ("class A(Struct, Generic[T], frozen=True): ...", []),
        ("class A: ...", []),
    ],
)
def test_a_struct_that_can_be_changed_is_recognised(source: str, names: list[str]) -> None:
    assert changeable_structs(ast.parse(source)) == names


@judges_modules
def changeable_structs(module: ast.Module) -> list[str]:
    """The names of the structs that do not say that they are frozen, nor that they are compared by identity."""
    classes = [node for node in nodes_of(module) if isinstance(node, ast.ClassDef)]
    return [
        each.name for each in classes if is_struct(each) and not (says(each, "frozen", True) or says(each, "eq", False))
    ]


def is_struct(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base) in ("Struct", "msgspec.Struct") for base in node.bases)


def says(node: ast.ClassDef, setting: str, value: bool) -> bool:
    return any(keyword.arg == setting and ast.unparse(keyword.value) == str(value) for keyword in node.keywords)
