"""Problems that pydantic finds, in words for the authors of files and flags."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

_WHOLE_NUMBER: Final = "write a whole number"
_TRUE_OR_FALSE: Final = "write true or false"
_LIST: Final = "write a list, with [ ] around it, or tables with [[ ]] around their name"
_TABLE: Final = "write a table of names and values"
_WORDS: Final[Mapping[str, str]] = {
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": _WHOLE_NUMBER,
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "bool_parsing": _TRUE_OR_FALSE,
    "bool_type": _TRUE_OR_FALSE,
    "string_type": "write text, in quotes",
    "path_type": "write a path, in quotes",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "enum": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "missing": "is not set",
}
"""Our words for those kinds of problems for which pydantic has its own."""


def _given_path(value: object) -> object:
    if value == "":
        raise ValueError("is empty, which would be the working directory: name a path, or leave it out")
    return value


SettingPath = Annotated[Path, BeforeValidator(_given_path)]
"""A path that a setting names."""


def first_problem(error: ValidationError, known: Collection[str]) -> str:
    """Describe the first problem of a file, with its place and the remedy. `known` are all names that may be in the
    file."""
    first = error.errors(include_input=False, include_url=False)[0]
    is_unknown = first["type"] == "extra_forbidden"
    name = str(first["loc"][-1]) if first["loc"] else ""
    # Our models have levels that are not names of the file. They mean nothing to its author.
    shown = [each for each in first["loc"] if isinstance(each, int) or each in known or (is_unknown and each == name)]
    place = ".".join(str(each) for each in shown)
    if not is_unknown:
        return f"{place}: {plain(first)}"
    return f"{place} is unknown{near_miss(name, known) or '; there are ' + ', '.join(sorted(known))}"


def plain(problem: ErrorDetails) -> str:
    """Describe the problem or its remedy, in our words."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return problem["msg"].removeprefix("Value error, ")
    return words.format(**problem.get("ctx", {}))


def near_miss(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name, or an empty text if none is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
