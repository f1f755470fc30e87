"""A reply that comes later, without an event loop.

The rules of the runtime must run in a test without a loop or a clock. On the server, one operation should not cost a
coroutine. So a service returns a `Pending`, which has plain callbacks and can be awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused, UnknownOutcome

T = TypeVar("T")
U = TypeVar("U")


class Pending(Struct, Generic[T], eq=False):
    """One reply, settled once, with a value or with an exception.

    Later attempts to settle it are ignored. A caller may have given up before the answer came, and other calls in the
    batch must not suffer from that."""

    # All of these are set only here, except for `on_cancel`.
    is_settled: bool = False
    is_cancelled: bool = False
    """True once the caller has given up."""
    on_cancel: Callable[[], None] | None = None
    """Callback for a caller that gives up; set by the code that makes the reply.

    Only work that has not been staged can be dropped. The callback that drops it must settle the reply (`give_up`), or
    the call would count as in flight for ever. The callback is removed when the reply is settled: it often refers back
    to the reply, and would keep the answer until the garbage collector runs."""
    _value: T | None = None
    error: Exception | None = None
    """Error in place of a value; None if there is none, or until the reply is settled."""
    # Nearly every reply has just one callback: a tuple that grows costs less than a list.
    _callbacks: tuple[Callable[[Pending[T]], None], ...] = ()

    def succeed(self, value: T) -> None:
        if not self.is_settled:
            self._value = value
            self.is_settled = True
            for callback in self._callbacks:
                callback(self)
            self._callbacks, self.on_cancel = (), None

    def fail(self, error: Exception) -> None:
        if not self.is_settled:
            if isinstance(error, CoordinatorError):
                error.drop_frames()
            self.error = error
            self.is_settled = True
            for callback in self._callbacks:
                callback(self)
            self._callbacks, self.on_cancel = (), None

    def settle_as(self, other: Pending[T]) -> None:
        """Settle this reply with the value or error of another one."""
        if other.error is not None:
            self.fail(other.error)
        else:
            self.succeed(other.result())

    def give_up(self) -> None:
        """Settle the reply as timed out because the caller cancelled. Its work was not done.

        No caller reads it, but the call must stop counting as in flight."""
        self.fail(Refused(ErrorCode.REQUEST_TIMED_OUT, "the caller gave up waiting"))

    def result(self) -> T:
        """Return the value, or raise the error. The reply must be settled.

        Code that would catch the error reads `error` instead. A raised error refers to the frame that catches it, and
        so to this reply, which then stays until the garbage collector runs."""
        assert self.is_settled, "asked for a reply that is not there yet"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # settled without error: the value was set

    def on_settled(self, callback: Callable[[Pending[T]], None]) -> None:
        """Call back once; at once if the reply is settled already."""
        if self.is_settled:
            callback(self)
        else:
            self._callbacks += (callback,)

    def cancel(self) -> None:
        """Give up on behalf of the caller. Staged work goes on; work that waits in a queue is dropped."""
        if not self.is_settled and not self.is_cancelled:
            self.is_cancelled = True
            if self.on_cancel is not None:
                self.on_cancel()

    def drop(self, error: Exception) -> None:
        """Settle the reply with this error, and drop the work as if the caller had given up."""
        on_cancel = self.on_cancel
        self.fail(error)
        if not self.is_cancelled:
            self.is_cancelled = True
            if on_cancel is not None:
                on_cancel()

    def map(self, function: Callable[[T], U], recover: Callable[[Exception], U] | None = None) -> Pending[U]:
        """Return a reply with the value transformed.

        Errors pass through, or `recover` turns them into a value; it raises again those that it cannot answer."""
        following: Pending[U] = Pending(on_cancel=self.cancel)

        def go_on(first: Pending[T]) -> None:
            try:
                if first.error is None:
                    value = function(first._value)  # type: ignore[arg-type]  # settled without error: it was set
                elif recover is None:
                    following.fail(first.error)
                    return
                else:
                    value = recover(first.error)
            except Exception as error:  # noqa: BLE001  the error is the reply, and is raised where it is awaited
                following.fail(error)
            else:
                following.succeed(value)

        self.on_settled(go_on)
        return following

    def then(self, function: Callable[[T], Pending[U]], *, outlives_caller: bool = False) -> Pending[U]:
        """Continue with another pending reply. An exception of the function becomes the reply's error.

        If the caller has given up by then, the function is not called, so that no further step begins.
        `outlives_caller`: it is called even then, because it only completes the answer of what was done."""
        following: Pending[U] = Pending(on_cancel=self.cancel)

        def go_on(first: Pending[T]) -> None:
            if following.is_cancelled and not outlives_caller and first.error is None:
                following.fail(UnknownOutcome("the caller gave up after the first of several steps; ask again"))
                return
            try:
                second = function(first.result())
            except Exception as error:  # noqa: BLE001  as in `map`
                following.fail(error)
                return
            following.on_cancel = second.cancel
            second.on_settled(following.settle_as)

        self.on_settled(go_on)
        return following

    def recover(self, function: Callable[[Exception], T]) -> Pending[T]:
        """Turn an error into a value. The function raises again an error that it cannot answer."""
        return self.map(_unchanged, function)

    def answer_error(self, function: Callable[[CoordinatorError], T]) -> Pending[T]:
        """Turn an error that callers may see into a value. A defect stays the error of the reply."""

        def answer(error: Exception) -> T:
            if not isinstance(error, CoordinatorError):
                raise error
            return function(error)

        return self.map(_unchanged, answer)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_settled:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.on_settled(lambda _self: None if waiter.done() else waiter.set_result(None))
            try:
                yield from waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()


def _unchanged(value: T) -> T:
    return value


def settled(value: T) -> Pending[T]:
    """Return a reply that is settled with this value."""
    pending: Pending[T] = Pending()
    pending.succeed(value)
    return pending


def failed(error: Exception) -> Pending[Any]:
    """Return a reply that is settled with this error."""
    pending: Pending[Any] = Pending()
    pending.fail(error)
    return pending


def all_of(parts: Sequence[Pending[T]]) -> Pending[list[T]]:
    """Return a reply with all values in order, settled once every part is; or with the first error in order."""
    together: Pending[list[T]] = Pending()
    waiting = len(parts)

    def one_settled(_part: Pending[T]) -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            finish()

    def finish() -> None:
        try:
            values = [part.result() for part in parts]
        except Exception as error:  # noqa: BLE001  the first error is the reply
            together.fail(error)
        else:
            together.succeed(values)

    def cancel() -> None:
        for part in parts:
            part.cancel()

    together.on_cancel = cancel
    if not parts:
        finish()
    for part in parts:
        part.on_settled(one_settled)
    return together
