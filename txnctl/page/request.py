"""Requests as views take them, and answers as views give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlencode

from txnctl.page.source import ServerSource


class NotThere(Exception):
    """The page does not exist, or its parameters make no sense. The message says why."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request: the server's answers in the name of its user, and its parameters."""

    source: ServerSource
    parameters: Mapping[str, str]

    def text(self, name: str, length_max: int = 2_000) -> str:
        """Return a parameter without spaces around it; empty if it was not given."""
        return self.parameters.get(name, "").strip()[:length_max]

    def named(self, name: str) -> str:
        """Return a parameter that must be given, as it is. Raises NotThere."""
        value = self.parameters.get(name, "")
        if not value:
            raise NotThere(f"the address of this page needs {name}=")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        """Return a number from 0 to `most`, or the default. Raises NotThere for other text."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or int(text[:20]) > most:
            raise NotThere(f"{name} must be a number from 0 to {most:,}")
        return int(text)

    def optional_number(self, name: str) -> int | None:
        """Return a number, or None if it was not given. Raises NotThere."""
        return self.number(name, 0, 2**63 - 1) if self.text(name) else None


@dataclass(frozen=True, slots=True)
class PageView:
    """The answer of a view: a template and its values."""

    template: str
    title: str
    section: str
    """Section of the navigation."""
    values: Mapping[str, object] = field(default_factory=dict)
    refreshes: bool = True
    """True for a page that shows something else a moment later."""


View: TypeAlias = Callable[[PageRequest], Awaitable[PageView]]


@dataclass(frozen=True, slots=True)
class Portion:
    """A portion of a long list, with the addresses of its neighbours."""

    first: int
    last: int
    total: int
    before: str
    after: str


def portion(path: str, parameters: Mapping[str, str], *, page: int, length: int, total: int) -> Portion:
    """Return the portion with the number `page`, counted from 0."""

    def address(number: int) -> str:
        others = {name: value for name, value in parameters.items() if name != "page" and value}
        return f"{path}?{urlencode({**others, 'page': number})}"

    first = min(page * length, total)
    last = min(first + length, total)
    return Portion(
        first=first + 1 if total else 0,
        last=last,
        total=total,
        before=address(page - 1) if page else "",
        after=address(page + 1) if last < total else "",
    )
