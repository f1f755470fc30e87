"""Problems that pydantic finds, in the words of people who write the files and flags."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from pydantic import ValidationError


def first_problem(error: ValidationError, known: Collection[str]) -> str:
    """The first thing that is wrong with a file: where it stands, and what would be right. `known` are all names that
    may stand in it."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(each) for each in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"{place}: {plain(first['msg'])}"
    name = str(first["loc"][-1])
    return f"{place} is unknown{near_miss(name, known) or '; there are ' + ', '.join(sorted(known))}"


def plain(message: str) -> str:
    """The message without pydantic's words before one of ours."""
    return message.removeprefix("Value error, ")


def near_miss(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, empty if nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""
