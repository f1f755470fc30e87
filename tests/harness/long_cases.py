"""Tables of cases of which `make test` runs some and `make test-long` all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def long_but(is_short: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parameter, marked as long where they are not short ones."""
    return [case if is_short(case) else pytest.param(case, marks=pytest.mark.long) for case in cases]


def one_in(stride: int, cases: Iterable[tuple[Any, ...]]) -> list[ParameterSet]:
    """Return the cases of several parameters, of which one in so many is not marked as long."""
    marks = ((), (pytest.mark.long,))
    return [pytest.param(*case, marks=marks[place % stride > 0]) for place, case in enumerate(cases)]
