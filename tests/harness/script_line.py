"""Lines of the test language (`script`), taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FLAGS: Final = frozenset({"hold", "lost", "now", "v1", "2pc", "keep", "plain", "uncommitted", "raw"})


@dataclass(frozen=True, slots=True)
class Line:
    """One command, taken apart."""

    verb: str
    words: tuple[str, ...]
    options: dict[str, str]
    flags: frozenset[str]


def parse(text: str) -> Line:
    """Return the verb, words, options and flags of a line."""
    verb, *rest = text.split()
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    words = [word for word in rest if "=" not in word]
    return Line(verb, tuple(word for word in words if word not in _FLAGS), options, frozenset(words) & _FLAGS)
