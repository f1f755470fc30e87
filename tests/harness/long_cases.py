"""Tables of cases of which `make test` runs some and `make test-long` all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from tests.harness.of_commit import first_seed

T = TypeVar("T")


def long_but(is_short: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parameter, marked as long where they are not short ones."""
    return [case if is_short(case) else pytest.param(case, marks=pytest.mark.long) for case in cases]


def one_in(stride: int, cases: Iterable[tuple[Any, ...]]) -> list[ParameterSet]:
    """Return the cases of several parameters, of which one in so many is not marked as long."""
    marks = ((), (pytest.mark.long,))
    return [pytest.param(*case, marks=marks[place % stride > 0]) for place, case in enumerate(cases)]


some_or_all = pytest.mark.parametrize(
    "stride", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
)
"""Lets a test that walks through many steps take a quarter of them in `make test`, and all in `make test-long`."""


def by_stride(config: pytest.Config, steps: Sequence[T], stride: int) -> Sequence[T]:
    """Return one in so many steps, another one for each commit."""
    return steps[first_seed(config.getoption("--commit")) % stride :: stride]
