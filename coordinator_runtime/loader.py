"""Loads shards from the store, and unloads them, one by one while the others serve.

A shard is rebuilt from its stored newest records alone (promise 2). A bounded number of records is read at a time, so
that the loop serves the others in between. Where reads may wait, a thread reads all of them first. Shards that send
markers then get a new coordinator epoch, and serve once that is durable. So an obsolete process with an older epoch is
refused (design 9). State becomes visible only when it is complete. Last, the shard decides on what it owes: timers of
open transactions, outcomes that a crash left half done.

A shard that is unloaded takes no further operation from that moment. What it has staged becomes durable and is
answered; only then is it gone and can be read back. A start of the server is a load like any other.

Source: spec transactions 7, spec log-and-runtime 4.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Operation, Record, Shard, ShardEpoch, ShardKey, Turn
from coordinator_runtime.incarnation import first_epoch
from coordinator_runtime.pending import Pending, all_of, failed
from coordinator_runtime.rows import LoadValues, Rows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import Store, StoreFailed, StoreReads
from coordinator_runtime.store_readers import StoreReader
from coordinator_runtime.unknown_rows import UnknownRow

RECORDS_PER_STEP: Final = 100
"""Number of records read at a time: a millisecond or two of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKind:
    """Description of a coordinator's shards."""

    coordinator: Coordinator
    shard_count: int
    rows: Rows
    make: Callable[[ShardKey], Shard]
    """Makes an empty shard."""
    before_serving: Callable[[Any, Turn], Iterable[Record]] = lambda _shard, _turn: ()
    """Returns the records that a loaded shard must have durable before it serves; mostly none."""
    has_epoch: bool = False
    """True if the shards send markers, and so carry a coordinator epoch: `replay` takes a ShardEpoch."""
    is_essential: bool = False
    """True if all other shards refer to the shard itself: it is loaded first and never unloaded."""

    def all_shards(self) -> list[ShardKey]:
        """Return the addresses of all shards, in order of their number."""
        return [ShardKey(self.coordinator, number) for number in range(self.shard_count)]


@dataclass(frozen=True, slots=True)
class ShardLoaded:
    """Change: a shard serves from now on."""

    key: ShardKey
    shard: Shard
    record_count: int
    elapsed_us: int
    """Time since the load was requested, including the wait for earlier loads."""


@dataclass(frozen=True, slots=True)
class ShardLoadFailed:
    """Change: a shard cannot be read back, and does not serve."""

    key: ShardKey
    error: Exception
    reason: str
    """Text of the error."""


@dataclass(frozen=True, slots=True)
class ShardStopped:
    """Change: a shard takes no more operations. What it has staged may not be durable yet."""

    key: ShardKey
    shard: Shard


@dataclass(frozen=True, slots=True)
class ShardUnloaded:
    """Change: a shard is gone. Everything that it did is durable, answered and reported."""

    key: ShardKey
    shard: Shard


@dataclass(frozen=True, slots=True)
class ShardStanding:
    """State of a shard, for an administrator."""

    key: ShardKey
    state: ShardState
    coordinator_epoch: int | None
    """Coordinator epoch; None if the shard does not serve or sends no markers."""
    reason: str | None = None
    """Reason of a failure; None for a shard that has not failed."""


ShardChange = ShardLoaded | ShardLoadFailed | ShardStopped | ShardUnloaded


class _Load:
    """A load in progress."""

    __slots__ = ("began_us", "coordinator_epoch", "key", "read", "record_count", "reply", "shard", "values")

    def __init__(self, key: ShardKey, shard: Shard, began_us: int) -> None:
        self.key = key
        self.shard = shard
        self.began_us = began_us
        self.read: Pending[list[Any]] | None = None
        """Values that a thread has read or reads; None before it is asked."""
        self.values: Iterator[Any] = iter(())
        self.coordinator_epoch = 0
        self.record_count = 0
        self.reply: Pending[None] = Pending()


class ShardLoader:
    """Loads and unloads the shards of one runtime, one at a time in the order of the requests. A thread reads the next
    one meanwhile."""

    def __init__(self, runtime: Runtime, store: Store, reader: StoreReader | None = None) -> None:
        """`reader` reads shards on threads; None = they are read on the loop, some records at a time."""
        self._runtime = runtime
        self._store = store
        self._reader = reader
        self._kinds: dict[Coordinator, ShardKind] = {}
        self._loads: dict[ShardKey, _Load] = {}
        self._waiting: deque[_Load] = deque()
        self._reading: _Load | None = None
        self._listeners: list[Callable[[ShardChange], None]] = []
        self._is_stopped = False
        self._epochs: dict[ShardKey, int] = {}
        """Coordinator epochs of shards that serve."""

    def add(self, kind: ShardKind) -> None:
        """Declare the shards of a kind, none of them loaded."""
        self._kinds[kind.coordinator] = kind
        self._runtime.add_rows(kind.coordinator, kind.rows)
        self._runtime.table.declare(kind.all_shards())

    def listen(self, listener: Callable[[ShardChange], None]) -> None:
        """Call the listener with every change of a shard."""
        self._listeners.append(listener)

    def standings(self) -> list[ShardStanding]:
        """Return the state of every shard, by coordinator and number."""
        return [self.standing(key) for key in sorted(self._runtime.table.states())]

    def standing(self, key: ShardKey) -> ShardStanding:
        """Return the state of one shard, which must exist."""
        table = self._runtime.table
        return ShardStanding(key, table.states()[key], self._epochs.get(key), table.failures.get(key))

    @property
    def is_reading(self) -> bool:
        """True while a shard is being read."""
        return self._reading is not None

    # Loading

    def load(self, key: ShardKey) -> Pending[None]:
        """Read a shard from the store and let it serve; the reply comes when it does.

        A shard that serves is read again, and does not serve meanwhile.

        Errors: Refused. INVALID_REQUEST: there is no such shard. CORRUPT_MESSAGE: it cannot be read, and stays failed
        until an operator loads it again. NOT_COORDINATOR: it was unloaded meanwhile. COORDINATOR_NOT_AVAILABLE: the
        server is stopping."""
        if self._is_stopped:
            return failed(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is stopping; try again shortly"))
        state = self._runtime.table.state(key)
        if state is None or (state is ShardState.ACTIVE and self._kinds[key.coordinator].is_essential):
            return failed(_no_such_shard(key, state))
        if key in self._loads:
            return self._loads[key].reply
        if state is ShardState.ACTIVE:
            self._stop_serving(key, ShardState.LOADING)
        else:
            self._runtime.table.mark(key, ShardState.LOADING)
        load = _Load(key, self._kinds[key.coordinator].make(key), self._runtime.clock.monotonic_us())
        self._loads[key] = load
        # The rows that the shard staged before must be in the store when it is read.
        self._runtime.when_durable(key, partial(self._enqueue, load))
        return load.reply

    def load_all(self, coordinator: Coordinator) -> Pending[int]:
        """Load every shard of a coordinator. The reply comes when each load is over: the number of shards that
        failed."""
        loads = [
            self.load(key).map(lambda _loaded: False).recover(lambda _error: True)
            for key in self._kinds[coordinator].all_shards()
        ]
        return all_of(loads).map(sum)

    def stop(self) -> None:
        """Read no further, because the server stops."""
        self._is_stopped = True
        self._waiting.clear()
        self._reading = None
        self._loads.clear()

    def _enqueue(self, load: _Load) -> None:
        if self._is_current(load):
            self._waiting.append(load)
            self._read_next()

    def _read_next(self) -> None:
        if self._reading is None and self._waiting:
            load = self._reading = self._waiting.popleft()
            if self._reader is None:
                load.values = self._values(load)(self._store)
                self._runtime.arm("load", 0, self._read_step)
            else:
                self._begun(load, self._reader).on_settled(partial(self._on_read, load, self._reader))

    def _values(self, load: _Load) -> LoadValues:
        return self._kinds[load.key.coordinator].rows.load(load.key)

    def _begun(self, load: _Load, reader: StoreReader) -> Pending[list[Any]]:
        """Return what a thread reads of a shard. It begins now, unless it was begun ahead."""
        if load.read is None:
            load.read = reader.read(partial(_all_values, self._values(load)))
        return load.read

    def _on_read(self, load: _Load, reader: StoreReader, read: Pending[list[Any]]) -> None:
        """Go on with a shard that a thread has read. What it met is met again where the values are taken. The thread
        reads the next shard meanwhile."""
        if load is self._reading:
            if self._waiting:
                self._begun(self._waiting[0], reader)
            load.values = _values_of(read)
            self._runtime.arm("load", 0, self._read_step)

    def _read_step(self) -> None:
        load = self._reading
        if load is None:
            return
        if self._is_current(load):
            try:
                is_complete = self._read_some(load)
            except StoreFailed:
                # Not a failure of this shard: nothing can be read or written any more, and the process must end.
                raise
            except Exception as error:  # noqa: BLE001  a damaged row, or a bug of ours: the shard fails, the others serve
                self._fail(load, error)
            else:
                if not is_complete:
                    self._runtime.arm("load", 0, self._read_step)
                    return
                self._open(load)
        # Dropping the reference ends the scan of the store.
        load.values, load.read = iter(()), None
        self._reading = None
        self._read_next()

    def _read_some(self, load: _Load) -> bool:
        count = 0
        with self._runtime.journal.loading():
            for value in islice(load.values, RECORDS_PER_STEP):
                if isinstance(value, ShardEpoch):
                    load.coordinator_epoch = value.coordinator_epoch
                load.shard.replay(value)
                count += 1
        load.record_count += count
        return count < RECORDS_PER_STEP

    def _open(self, load: _Load) -> None:
        kind = self._kinds[load.key.coordinator]
        owed = list(kind.before_serving(load.shard, Turn(now_ms=self._runtime.clock.wall_ms())))
        coordinator_epoch = None
        if kind.has_epoch:
            # In a later incarnation of the store, it is above every epoch that a lost one can have reached.
            coordinator_epoch = first_epoch(load.coordinator_epoch, self._store.incarnation)
            owed.append(Record(load.key, ShardEpoch(coordinator_epoch), cause="open"))
        if not owed:
            self._serve(load)
            return

        def on_durable(opened: Pending[None]) -> None:
            if self._is_current(load):
                try:
                    opened.result()
                except Exception as error:  # noqa: BLE001  the store failed: the process ends, and the next start loads
                    self._fail(load, error)
                else:
                    if coordinator_epoch is not None:
                        self._epochs[load.key] = coordinator_epoch
                    self._serve(load)

        self._runtime.write_before_serving(load.shard, owed).on_settled(on_durable)

    def _serve(self, load: _Load) -> None:
        key, shard = load.key, load.shard
        self._runtime.add_shard(key, shard)
        elapsed_us = self._runtime.clock.monotonic_us() - load.began_us
        self._tell(ShardLoaded(key, shard, load.record_count, elapsed_us))

        def on_owed(owed: Pending[None]) -> None:
            if not self._is_current(load):
                return
            try:
                owed.result()
            except Exception as error:  # noqa: BLE001  a shard without its timers and owed work must not serve
                self._stop_serving(key, ShardState.UNLOADED)
                self._fail(load, error)
            else:
                del self._loads[key]
                load.reply.succeed(None)

        what_is_owed = Operation(key, lambda loaded, turn: loaded.on_loaded(turn))
        self._runtime.write(what_is_owed, is_urgent=True).on_settled(on_owed)

    def _fail(self, load: _Load, error: Exception) -> None:
        del self._loads[load.key]
        reason = f"{type(error).__name__}: {error}"
        self._runtime.table.fail(load.key, reason)
        self._tell(ShardLoadFailed(load.key, error, reason))
        advice = (
            "the program that can read it loads it as it starts"
            if isinstance(error, UnknownRow)
            else "look at it with `txnctl store verify`, then load it again"
        )
        refusal = Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"{_name(load.key)} cannot be read from the store ({reason}) and does not serve; {advice}",
        )
        load.reply.fail(refusal)

    def _is_current(self, load: _Load) -> bool:
        """Return False once the shard was unloaded, or its load was started again."""
        return self._loads.get(load.key) is load

    # Unloading

    def unload(self, key: ShardKey) -> Pending[None]:
        """Stop serving a shard; a load of it in progress is given up. The reply comes when everything that it staged is
        durable.

        Errors: Refused INVALID_REQUEST: there is no such shard, or all other shards need it."""
        state = self._runtime.table.state(key)
        if state is None or self._kinds[key.coordinator].is_essential:
            return failed(_no_such_shard(key, state))
        if state is ShardState.ACTIVE:
            self._stop_serving(key, ShardState.UNLOADING)
        elif state is not ShardState.UNLOADING:
            self._runtime.table.mark(key, ShardState.UNLOADING)
        load = self._loads.pop(key, None)
        if load is not None:
            load.reply.fail(Refused(ErrorCode.NOT_COORDINATOR, f"{_name(key)} was unloaded while it was being loaded"))
        reply: Pending[None] = Pending()
        self._runtime.when_durable(key, partial(self._on_left, key, reply))
        return reply

    def _on_left(self, key: ShardKey, reply: Pending[None]) -> None:
        if self._runtime.table.state(key) is ShardState.UNLOADING:
            self._runtime.table.mark(key, ShardState.UNLOADED)
        reply.succeed(None)

    def _stop_serving(self, key: ShardKey, state: ShardState) -> None:
        shard = self._runtime.shard(key)
        self._epochs.pop(key, None)
        self._runtime.remove_shard(key, state)
        self._tell(ShardStopped(key, shard))
        self._runtime.when_durable(key, lambda: self._tell(ShardUnloaded(key, shard)))

    def _tell(self, change: ShardChange) -> None:
        for listener in self._listeners:
            listener(change)


def _name(key: ShardKey) -> str:
    return f"{key.coordinator.name.lower()} shard {key.number}"


def _no_such_shard(key: ShardKey, state: ShardState | None) -> Refused:
    if state is None:
        return Refused(ErrorCode.INVALID_REQUEST, f"there is no {_name(key)}")
    return Refused(ErrorCode.INVALID_REQUEST, f"every other shard needs {_name(key)}: it leaves only with the server")


def _all_values(values: LoadValues, rows: StoreReads) -> list[Any]:
    return list(values(rows))


def _values_of(read: Pending[list[Any]]) -> Iterator[Any]:
    """Yield what was read. Raises the error of the read when the first value is asked for."""
    yield from read.result()
