"""Parts of generated source: lines with their indentation, names of variables, formats of structs, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from scripts.kafka_messages.definitions import FIXED, Field, UnknownDefinition, snake_case

_TAKEN: Final = frozenset(
    (
        "add",
        "at",
        "bytes",
        "count",
        "data",
        "end",
        "item",
        "items",
        "last",
        "len",
        "marker",
        "n",
        "part",
        "parts",
        "range",
        "raw",
        "stop",
        "tag",
        "tags",
        "tuple",
        "value",
        "where",
    )
)
"""Names that generated functions use for themselves."""


class Lines:
    """Source that grows line by line."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indentation = ""
        self.formats: set[str] = set()
        """Formats of the struct module that the source uses."""

    def __call__(self, line: str = "") -> None:
        self._lines.append(f"{self._indentation}{line}" if line else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines that are added inside."""
        self(head)
        outside, self._indentation = self._indentation, f"{self._indentation}    "
        yield
        self._indentation = outside

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def local(field: Field) -> str:
    """Return the variable that holds a field."""
    return f"{field.name}_" if field.name in _TAKEN else field.name


def format_name(kind: str, code: str) -> str:
    """Return the name under which a module keeps a compiled format: `_get_hi` for the kind `get` and `>hi`."""
    return f"_{kind}_{code.replace('?', 't')}"


def size_of(code: str) -> int:
    """Return the size in bytes of a format."""
    sizes = dict(FIXED.values()) | {"B": 1, "x": 1}
    return sum(sizes[each] for each in re.findall("16s|.", code))


def default_name(structure: str) -> str:
    """Return the name under which a module keeps the default of a structure."""
    return f"_{snake_case(structure).upper()}"


def default_of(field: Field) -> str:
    """Return the default of a field as an expression."""
    stated = field.default
    if stated == "null" or (field.type == "records" and stated is None):
        return "None"
    if field.is_array:
        return "()"
    if field.is_struct:
        return default_name(field.type)
    if field.type == "bool":
        return str(str(stated).lower() == "true")
    if field.type == "string":
        return repr(stated or "").replace("'", '"')
    if field.type == "bytes":
        return 'b""'
    if field.type == "uuid":
        return "ZERO_UUID"
    if field.type == "float64":
        return repr(float(stated or 0))
    if field.type in FIXED:
        return str(int(str(stated or 0), 0))
    raise UnknownDefinition(f"{field.name}: no default of {field.type}")
