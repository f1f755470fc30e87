"""A result that comes later: the core returns it, and each shell waits for it in its own way. It belongs to no loop."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

_OPEN: Final = object()


class Future(Generic[T]):
    """A result that is open, or was settled once with a value or an error."""

    __slots__ = ("_error", "_value")

    def __init__(self) -> None:
        self._value: T | object = _OPEN
        self._error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """Whether `result` has something to return or raise."""
        return self._value is not _OPEN or self._error is not None

    def succeed(self, value: T) -> None:
        """Settle the result with a value, unless it is settled: whoever waited may have given up meanwhile."""
        if not self.is_settled:
            self._value = value

    def fail(self, error: Exception) -> None:
        """Settle the result with an error, unless it is settled."""
        if not self.is_settled:
            self._error = error

    def result(self) -> T:
        """Return the value. Raises: the error that the result was settled with."""
        assert self.is_settled, "only a settled future has a result"
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it is not the sentinel any more
