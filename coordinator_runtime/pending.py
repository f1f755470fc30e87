"""A reply that comes later, without an event loop.

The rules of the runtime must run in a test that has no loop and no clock, and on the server where one operation should
not cost a coroutine. So a service returns a `Pending`: plain callbacks when it is settled, and awaitable where a
coroutine wants it.
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
    """One reply, settled once: with a value or with an exception. Later attempts to settle it are ignored, because a
    caller may have given up before the answer came, and its neighbours in the batch must not suffer for that."""

    # All of these are set here alone, but for `on_cancel`.
    is_settled: bool = False
    is_cancelled: bool = False
    """True once the caller said that it does not want the answer any more."""
    on_cancel: Callable[[], None] | None = None
    """What to do when the caller gives up: only work that has not been staged can be dropped, and whoever drops it
    settles the reply (`give_up`), or the call would count as under way for ever. Whoever makes the reply sets it. It
    goes when the reply is settled: it often leads back to it, and would keep the answer until the collector comes."""
    _value: T | None = None
    error: Exception | None = None
    """Why there is no value; None until it is settled."""
    # Nearly every reply has just one: a tuple that grows costs less than a list.
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
        """Settle it with what another one was settled with."""
        if other.error is not None:
            self.fail(other.error)
        else:
            self.succeed(other.result())

    def give_up(self) -> None:
        """The caller has left, and what it asked for is not done. The reply is settled all the same: nobody hears it,
        and the call counts as under way until it is."""
        self.fail(Refused(ErrorCode.REQUEST_TIMED_OUT, "the caller gave up waiting"))

    def result(self) -> T:
        """The value; raises the error. Must be settled. Who would catch that looks at `error` instead: what is raised
        leads to the frame that catches it, and so to this reply, which then stays until the collector comes by."""
        assert self.is_settled, "asked for a reply that is not there yet"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # settled without error: the value was set

    def on_settled(self, callback: Callable[[Pending[T]], None]) -> None:
        """Call back once, at once if the reply is there already."""
        if self.is_settled:
            callback(self)
        else:
            self._callbacks += (callback,)

    def cancel(self) -> None:
        """The caller gives up. What was staged goes on; what waits in a queue is dropped."""
        if not self.is_settled and not self.is_cancelled:
            self.is_cancelled = True
            if self.on_cancel is not None:
                self.on_cancel()

    def drop(self, error: Exception) -> None:
        """Settle it with this error, and drop the work as if the caller had given up."""
        on_cancel = self.on_cancel
        self.fail(error)
        if not self.is_cancelled:
            self.is_cancelled = True
            if on_cancel is not None:
                on_cancel()

    def map(self, function: Callable[[T], U], recover: Callable[[Exception], U] | None = None) -> Pending[U]:
        """This reply with its value transformed. Errors pass through, or `recover` turns them into a value, and raises
        again what it cannot answer."""
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
            except Exception as error:  # noqa: BLE001  the error is the reply; whoever awaits it sees it
                following.fail(error)
            else:
                following.succeed(value)

        self.on_settled(go_on)
        return following

    def then(self, function: Callable[[T], Pending[U]]) -> Pending[U]:
        """Go on with another pending reply. An exception of the function becomes the reply's error.

        When the caller has given up by then, the function is not called: nothing new is started for nobody."""
        following: Pending[U] = Pending(on_cancel=self.cancel)

        def go_on(first: Pending[T]) -> None:
            if following.is_cancelled and first.error is None:
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
        """Turn an error into a value; the function raises again what it cannot answer."""
        return self.map(_unchanged, function)

    def answer_error(self, function: Callable[[CoordinatorError], T]) -> Pending[T]:
        """Turn an error that callers are told of into a value. A defect stays the error of the reply."""

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
    """A reply that is there already."""
    pending: Pending[T] = Pending()
    pending.succeed(value)
    return pending


def failed(error: Exception) -> Pending[Any]:
    """A refusal that is there already."""
    pending: Pending[Any] = Pending()
    pending.fail(error)
    return pending


def all_of(parts: Sequence[Pending[T]]) -> Pending[list[T]]:
    """All replies in order, once every one is there; the first error in order, if there is one."""
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
