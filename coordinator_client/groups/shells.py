"""Common base of the shells of all consumers: how they take steps on the loop of the core, wait, and close.

A shell stores the records that it returns by the expression that returns them, and its next call tells the core. So an
interrupted poll has taken nothing (decision 53).
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from coordinator_client.calls import CUT_OFF_CLOSE_MS, Patience, timed_out
from coordinator_client.errors import Retriable, TransactionError
from coordinator_client.groups.engine import AskedStep, Engine, EngineCore
from coordinator_client.groups.futures import Future
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.loops import AsyncioLoop, background_loop
from coordinator_client.pulse import Pulse
from coordinator_client.settings import duration_ms
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection, client_id_for, connection_to

POLL_TIMEOUT_MS: Final = 1_000
RECORDS: Final = "records"
_LONGEST_LOOK_MS: Final = 60_000


class ShellConfig(Protocol):
    """The settings that a shell uses."""

    @property
    def group_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def wait_ms(self) -> int | None: ...
    @property
    def tls(self) -> Tls | None: ...
    @property
    def default_timeout_ms(self) -> int: ...
    @property
    def close_timeout_ms(self) -> int: ...


class ShellCore(EngineCore, Protocol):
    """The part of a core that a shell uses."""

    is_cut_off: bool
    pulse: Pulse

    def accept(self, handed: Any) -> None: ...  # noqa: ANN401  each core has records of its own
    def end_poll(self, now_ms: int) -> None: ...
    def take_call(self, *, commits_only: bool = False) -> UserCall | None: ...
    def end_call(self, call: UserCall, error: Exception | None, now_ms: int) -> None: ...
    def take_failure(self) -> Exception | None: ...


T = TypeVar("T")
RecordsT = TypeVar("RecordsT")
CoreT = TypeVar("CoreT", bound=ShellCore)


@dataclass(frozen=True, slots=True)
class Begun(Generic[T]):
    """A call of the application that has begun, with its future result and its time limit."""

    future: Future[T]
    what: str
    """Name of the call, for messages."""
    patience: Patience
    with_rebalance: bool = False
    """True if the listener may be called meanwhile."""


class MemberShell(ABC, Generic[CoreT]):
    """The part that does not wait."""

    _core: CoreT
    _engine: Engine[CoreT]
    _settings: ShellConfig

    def _open(self, endpoint: str | Connection, settings: ShellConfig) -> str:
        """Take the connection, or make one; return the name of this client."""
        self._settings = settings
        self._connection, self._is_own = connection_to(
            endpoint, client_id=settings.client_id, wait_ms=settings.wait_ms, tls=settings.tls
        )
        self._handed: dict[str, Any] = {}
        """Records that the application has got since its last call, stored by the expression that returns them. The
        next call tells the core, so an interrupted poll has taken nothing."""
        return self._connection.client_id or client_id_for("consumer", settings.group_id)

    @abstractmethod
    def _begin(self, core: CoreT) -> None:
        """Drive the core."""

    def __repr__(self) -> str:
        group = "" if self._settings.group_id is None else f", group_id={self._settings.group_id!r}"
        state = ", closed" if self.is_closed else ""
        return f"{type(self).__name__}({self._connection.endpoint!r}{group}{state})"

    @property
    def is_closed(self) -> bool:
        """True if `close` was called."""
        return self._core.is_closed

    def _patience(
        self, timeout_ms: int | None, default_ms: int | None = None, *, cut_off_ms: int | None = None
    ) -> Patience:
        """Return the time limit of a call with this `timeout_ms`. Raises: TypeError, Rejected."""
        limit_ms = self._settings.default_timeout_ms if default_ms is None else default_ms
        if timeout_ms is not None:
            limit_ms = duration_ms("timeout_ms", timeout_ms)
        return Patience(self._engine.now_ms + limit_ms, limit_ms, cut_off_ms)

    def _poll_until_ms(self, unnamed: tuple[object, ...], timeout_ms: int) -> int:
        """Return the end of a poll. Raises: TypeError, Rejected."""
        if unnamed:
            raise TypeError("poll takes milliseconds by name: for one second write poll(timeout_ms=1000)")
        return self._engine.now_ms + duration_ms("timeout_ms", timeout_ms)

    def _end_interrupted(self, call: UserCall) -> None:
        """Note the end of an interrupted call; a call whose code was not entered comes again with the next poll."""
        if call.is_begun:
            self._engine.ask(lambda core: core.end_call(call, None, self._engine.now_ms))

    def _end_poll(self) -> None:
        """Note that the application leaves poll without records. Does not wait."""
        if not self._connection.is_of_a_parent and not self.is_closed:
            self._engine.ask(lambda core: core.end_poll(self._engine.now_ms))

    @abstractmethod
    def _begin_leave(self, patience: Patience, *, commits: bool) -> Begun[None]:
        """Begin to leave the group. With `commits` what is done is committed first."""

    def _raise_failure(self) -> None:
        failed = self._core.take_failure()
        if failed is not None:
            raise failed

    def _look_at(self, begun: Begun[Any], core: CoreT) -> tuple[int, UserCall | None, bool]:
        """Return the end of the wait for a call that has begun, a user call to make meanwhile, and True if it has
        ended."""
        heard_ms = core.pulse.heard_ms
        until_ms = begun.patience.until_ms(self._engine.now_ms, is_cut_off=core.is_cut_off, heard_ms=heard_ms)
        return until_ms, core.take_call(commits_only=not begun.with_rebalance), begun.future.is_settled

    @abstractmethod
    def _turn(self, step: Callable[[CoreT], T]) -> T:
        """Run a step on the loop, and return its result. Raises: the exception of the step."""

    def _do(self, step: Callable[[CoreT], T]) -> T:
        """Run a step as `_turn` does, for a call that confirms that the application has got the records."""
        handed = self._handed.get(RECORDS)
        if handed is None:
            return self._turn(step)

        def accept_first(core: CoreT) -> T:
            core.accept(handed)
            return step(core)

        try:
            result = self._turn(accept_first)
        except TransactionError:
            self._handed = {}
            raise
        # Not after an interruption: then the same records are accepted once more, which changes nothing.
        self._handed = {}
        return result

    def _hand_out(self, records: RecordsT) -> RecordsT:
        """Return records to the application, and note that it has them."""
        try:
            return self._handed.setdefault(RECORDS, records)  # type: ignore[no-any-return]  # it was empty
        except BaseException:
            self._handed = {}
            raise

    def _is_worth_leaving(self, patience: Patience) -> bool:
        return not self.is_closed and patience.limit_ms > 0 and not self._connection.is_of_a_parent


class BlockingShell(MemberShell[CoreT]):
    """The part that waits, in the application's thread."""

    def _begin(self, core: CoreT) -> None:
        self._core = core
        self._inbox: SimpleQueue[None] = SimpleQueue()
        self._engine = Engine(core, self._connection, self._connection.open_loop or background_loop, self._wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the consumer. After an exception nothing is committed, because the last polled records may not be
        processed."""
        if error is None:
            self._close_and_raise(None)
            return
        try:
            # A user who presses Ctrl-C does not want to wait for the network.
            self._close(None if isinstance(error, Exception) else 0, commits=False)
        except TransactionError as failed:
            error.add_note(f"closing the consumer failed too: {failed}")

    def _close_and_raise(self, timeout_ms: int | None) -> None:
        self._close(timeout_ms, commits=True)
        self._raise_failure()

    def _close(self, timeout_ms: int | None, *, commits: bool) -> None:
        patience = self._patience(timeout_ms, self._settings.close_timeout_ms, cut_off_ms=CUT_OFF_CLOSE_MS)
        try:
            if self._is_worth_leaving(patience):
                with contextlib.suppress(Retriable):
                    self._finish(self._begin_leave(patience, commits=commits))
        finally:
            self._stop()
            if self._is_own:
                self._connection.close()

    def _finish(self, begun: Begun[T]) -> T:
        """Wait for the result, and make the user calls that fall due meanwhile."""
        while True:
            until_ms, call, is_settled = self._turn(partial(self._look_at, begun))
            if call is not None:
                self._make(call)
            elif is_settled:
                return begun.future.result()
            elif not self._wait(until_ms):
                raise timed_out(begun.what, begun.patience.limit_ms)

    def _make(self, call: UserCall) -> None:
        error: Exception | None = None
        try:
            call.call(call.entered)
        except BaseException as raised:
            if call.is_begun and isinstance(raised, Exception):
                # Raised by the application's code: raise it once the other calls are made.
                error = raised
            else:
                self._end_interrupted(call)
                raise
        self._engine.ask(lambda core: core.end_call(call, error, self._engine.now_ms))

    def _wait(self, until_ms: int) -> bool:
        """Wait for an event; return False once the time is over."""
        left_ms = until_ms - self._engine.now_ms
        if left_ms <= 0:
            return False
        self._connection.clock.take(self._inbox, left_ms)
        return True

    def _wake(self) -> None:
        if self._inbox.empty():
            self._inbox.put(None)

    def _turn(self, step: Callable[[CoreT], T]) -> T:
        asked = self._engine.ask(step)
        self._await(asked)
        return asked.result()

    def _stop(self) -> None:
        """Close the core on its loop, then release the loop."""
        if not self._connection.is_of_a_parent:
            self._await(self._engine.stop())
            self._engine.release()

    def _await(self, asked: AskedStep[T]) -> None:
        while not asked.is_done:
            self._connection.clock.take(asked.inbox, _LONGEST_LOOK_MS)


class AsyncioShell(MemberShell[CoreT]):
    """The part that waits, on the application's asyncio loop."""

    def _begin(self, core: CoreT) -> None:
        self._core = core
        self._news = asyncio.Event()
        self._engine = Engine(core, self._connection, self._connection.open_loop or AsyncioLoop, self._wake)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the consumer. After an exception nothing is committed, because the last polled records may not be
        processed."""
        if error is None:
            await self._close_and_raise(None)
            return
        try:
            # A user who presses Ctrl-C does not want to wait for the network.
            await self._close(None if isinstance(error, Exception) else 0, commits=False)
        except TransactionError as failed:
            error.add_note(f"closing the consumer failed too: {failed}")

    async def _close_and_raise(self, timeout_ms: int | None) -> None:
        await self._close(timeout_ms, commits=True)
        self._raise_failure()

    async def _close(self, timeout_ms: int | None, *, commits: bool) -> None:
        patience = self._patience(timeout_ms, self._settings.close_timeout_ms, cut_off_ms=CUT_OFF_CLOSE_MS)
        try:
            if self._is_worth_leaving(patience):
                with contextlib.suppress(Retriable):
                    await self._finish(self._begin_leave(patience, commits=commits))
        finally:
            self._stop()
            if self._is_own:
                self._connection.close()

    async def _finish(self, begun: Begun[T]) -> T:
        """Wait for the result, and make the user calls that fall due meanwhile."""
        while True:
            until_ms, call, is_settled = self._turn(partial(self._look_at, begun))
            if call is not None:
                await self._make(call)
            elif is_settled:
                return begun.future.result()
            elif not await self._wait(until_ms):
                raise timed_out(begun.what, begun.patience.limit_ms)

    async def _make(self, call: UserCall) -> None:
        error: Exception | None = None
        try:
            answer = call.call(call.entered)
            if answer is not None:
                await answer
        except BaseException as raised:
            if call.is_begun and isinstance(raised, Exception):
                # Raised by the application's code: raise it once the other calls are made.
                error = raised
            else:
                self._end_interrupted(call)
                raise
        self._engine.ask(lambda core: core.end_call(call, error, self._engine.now_ms))

    async def _wait(self, until_ms: int) -> bool:
        """Wait for an event; return False once the time is over."""
        left_ms = until_ms - self._engine.now_ms
        if left_ms <= 0:
            return False
        timer = self._engine.wake_after(left_ms)
        try:
            await self._news.wait()
        finally:
            timer.cancel()
        self._news.clear()
        return True

    def _wake(self) -> None:
        self._news.set()

    def _turn(self, step: Callable[[CoreT], T]) -> T:
        asked = self._engine.ask(step)
        assert asked.is_done, "the consumer lives on the loop of its caller"
        return asked.result()

    def _stop(self) -> None:
        """Close the core, then release the loop."""
        if not self._connection.is_of_a_parent:
            self._engine.stop()
            self._engine.release()
