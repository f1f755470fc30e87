"""Choices out of bytes: the same bytes make the same choices, with atheris and without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads choices from the front of the bytes. Where nothing is left, everything is the first, zero or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_spent(self) -> bool:
        return self._at >= len(self._data)

    def rest(self) -> bytes:
        """All that is left."""
        return self.bytes(len(self._data))

    def bytes(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def number(self, below: int) -> int:
        """A number from 0 to `below` - 1."""
        size = (max(below - 1, 1).bit_length() + 7) // 8
        return int.from_bytes(self.bytes(size), "big") % below

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def short(self) -> bytes:
        """Up to 255 bytes."""
        return self.bytes(self.number(256))

    def text(self) -> str:
        """Up to 255 characters, among them some that no encoding of files or terminals likes."""
        return self.short().decode("utf-8", "ignore")

    def changed(self, original: bytes) -> bytes:
        """The original with some of its bytes cut out, replaced or doubled."""
        changed = bytearray(original)
        for _change in range(self.number(4)):
            at = self.number(len(changed) + 1)
            match self.number(4):
                case 0:
                    del changed[at : at + self.number(9)]
                case 1:
                    changed[at : at + 1] = self.bytes(1)
                case 2:
                    changed[at:at] = self.short()
                case _:
                    changed[at:at] = changed[at : at + 16]
        return bytes(changed)
