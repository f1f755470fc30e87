"""A bug on purpose, and how it is put into the product and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

Change = tuple[Any, str, Callable[..., Any]]
"""(owner, attribute, function that takes its place). The function gets the original first, then the arguments."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug, how to put it in, and what kind of run shows it soon."""

    name: str
    what: str
    changes: tuple[Change, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[tuple[Any, str, Any], ...] = ()
    """Further (owner, attribute, value)."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The product has the bug until the end of the block."""
        with ExitStack() as undo:
            for owner, attribute, change in self.changes:
                _put(undo, owner, attribute, _bound(change, owner.__dict__[attribute]))
            for owner, attribute, value in self.values:
                _put(undo, owner, attribute, value)
            yield


def _put(undo: ExitStack, owner: Any, attribute: str, value: Any) -> None:
    undo.callback(setattr, owner, attribute, owner.__dict__[attribute])
    setattr(owner, attribute, value)


def _bound(change: Callable[..., Any], original: Any) -> Callable[..., Any]:
    def mutated(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    return mutated
