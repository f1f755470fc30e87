"""Results that a core settles later, and a shell waits for."""

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
        """True if `result` has a value to return or an error to raise."""
        return self._value is not _OPEN or self._error is not None

    def succeed(self, value: T) -> None:
        """Settle the result with a value, unless it is settled: its waiter may have given up meanwhile."""
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
