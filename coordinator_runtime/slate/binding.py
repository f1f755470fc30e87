"""SlateDB's Python binding as plain calls: the only module that imports it, with the repairs that it needs.

The binding is generated, and all its calls are coroutines that complete on an event loop. The store port is called from
the commit thread and from readers, which have none. So each call here blocks its thread until the native side is done.
The interpreter is released meanwhile.

Three repairs replace generated code of exactly this release. `tests/slate/test_binding.py` has a test for each, which
fails once the repair is no longer needed:

- `_call_plainly` waits on a lock, where the generated function needs an event loop.
- `_write_at_once` copies an argument by one move of memory, where the generated function takes a loop over its bytes.
- `WriteBatch` adds a row by four native calls without layers, where the generated class takes six, and six times the
  time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any, Final, TypeAlias, TypeVar

import slatedb.uniffi as uniffi
from slatedb.uniffi._slatedb_uniffi import slatedb as generated

T = TypeVar("T")

Handle: TypeAlias = Any
"""A value of the binding, which has no types."""

RELEASE: Final = "0.17.0"
"""The one release that the repairs fit."""

PATIENCE_SECONDS: Final = 120.0
"""Longest time that one call may take. SlateDB repeats failed requests, and a server that is cut off must end."""

SlateError: Final = uniffi.Error
Closed = uniffi.Error.Closed
Data = uniffi.Error.Data
FENCED: Final = uniffi.CloseReason.FENCED
Db = uniffi.Db
DbBuilder = uniffi.DbBuilder
DbReader = uniffi.DbReader
DbReaderBuilder = uniffi.DbReaderBuilder
DbSnapshot = uniffi.DbSnapshot
DbIterator = uniffi.DbIterator
ObjectStore = uniffi.ObjectStore
ObjectStoreBuilder = uniffi.ObjectStoreBuilder
MetricsRecorder = uniffi.DefaultMetricsRecorder
Settings = uniffi.Settings

WAL: Final = uniffi.FlushOptions(flush_type=uniffi.FlushType.WAL)
MEMTABLE: Final = uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE)
WRITE: Final = uniffi.WriteOptions()
_MEMORY: Final = uniffi.DurabilityLevel.MEMORY
READ: Final = uniffi.ReadOptions(durability_filter=_MEMORY, dirty=False, cache_blocks=True)
FORWARDS, BACKWARDS = (
    uniffi.ScanOptions(
        durability_filter=_MEMORY,
        dirty=False,
        read_ahead_bytes=1,
        cache_blocks=True,
        max_fetch_tasks=1,
        order=order,
    )
    for order in (uniffi.IterationOrder.ASCENDING, uniffi.IterationOrder.DESCENDING)
)
FOLLOW_LATEST: Final = uniffi.ReaderMode.FOLLOW_LATEST()


class TooSlow(Exception):
    """A call was not done in time. Whether it will take effect is unknown."""


def range_of(start: bytes, end: bytes) -> Handle:
    """Return the half-open range of keys."""
    return uniffi.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)


def result_of(call: Coroutine[Any, Any, T]) -> T:
    """Run a call of the binding to its end on this thread. Raises the errors of the call, TooSlow."""
    try:
        call.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("a call of the binding waits for an event loop")


class _Waiter:
    """One poll of a native call. It plays the event loop and the future of the generated callback."""

    __slots__ = ("code", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.code: int | None = None

    def call_soon_threadsafe(self, _set_result: Callable[..., None], _future: object, code: int) -> None:
        """Take the answer, on a thread of the native side."""
        self.code = code
        self.lock.release()


async def _call_plainly(
    rust_future: Handle,
    ffi_poll: Handle,
    ffi_complete: Handle,
    ffi_free: Handle,
    lift: Callable[[Any], Any],
    errors: Handle,
) -> Handle:
    """Take the place of the generated `_uniffi_rust_call_async`: never suspends."""
    try:
        while True:
            waiter = _Waiter()
            handle = generated._UniffiContinuationHandleMap.insert((waiter, None))
            ffi_poll(rust_future, generated._uniffi_continuation_callback, handle)
            if not waiter.lock.acquire(timeout=PATIENCE_SECONDS):
                raise TooSlow(f"the object store did not answer within {PATIENCE_SECONDS:.0f} s")
            if waiter.code == generated._UNIFFI_RUST_FUTURE_POLL_READY:
                return lift(generated._uniffi_rust_call_with_error(errors, ffi_complete, rust_future))
    finally:
        ffi_free(rust_future)


class _ForeignBytes(ctypes.Structure):
    _fields_ = (("len", ctypes.c_int32), ("data", ctypes.c_char_p))


def _native(name: str, result: Handle, *arguments: Handle) -> Handle:
    """Return a native function, with arguments of plain C types. The last one is the address of a call status."""
    function: Handle = generated._UniffiLib[name]
    function.restype, function.argtypes = result, (*arguments, ctypes.c_void_p)
    return function


_BUFFER: Final = generated._UniffiRustBuffer
_BATCH: Final = ctypes.c_uint64
_buffer_of: Final = _native("ffi_slatedb_uniffi_rustbuffer_from_bytes", _BUFFER, _ForeignBytes)
_cloned: Final = _native("uniffi_slatedb_uniffi_fn_clone_writebatch", _BATCH, _BATCH)
_put: Final = _native("uniffi_slatedb_uniffi_fn_method_writebatch_put", None, _BATCH, _BUFFER, _BUFFER)
_delete: Final = _native("uniffi_slatedb_uniffi_fn_method_writebatch_delete", None, _BATCH, _BUFFER)


class WriteBatch(uniffi.WriteBatch):  # type: ignore[misc]  # the binding has no types
    """Rows to write at once. For one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._status = generated._UniffiRustCallStatus.default()
        self._status_address = ctypes.addressof(self._status)

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row. Raises SlateError."""
        status = self._status_address
        _put(_cloned(self._handle, status), _lowered(key, status), _lowered(value, status), status)
        self._check()

    def delete(self, key: bytes) -> None:
        """Add the removal of a row. Raises SlateError."""
        status = self._status_address
        _delete(_cloned(self._handle, status), _lowered(key, status), status)
        self._check()

    def _check(self) -> None:
        # Calls that succeed leave the status as it was.
        if self._status.code:
            failed, self._status = self._status, generated._UniffiRustCallStatus.default()
            self._status_address = ctypes.addressof(self._status)
            generated._uniffi_check_call_status(generated._UniffiFfiConverterTypeError, failed)


def _lowered(value: bytes, status: int) -> Handle:
    sized = len(value).to_bytes(4, "big") + value
    return _buffer_of(_ForeignBytes(len(sized), sized), status)


def _write_at_once(builder: Handle, value: bytes) -> None:
    """Take the place of the generated `_UniffiRustBufferBuilder.write`."""
    size = len(value)
    with builder._reserve(size):
        start = ctypes.addressof(builder.rbuf.data.contents) + builder.rbuf.len
        ctypes.memmove(start, bytes(value), size)


def repair() -> None:
    """Change the generated code, once per process. Raises ImportError for another release."""
    found = version("slatedb")
    if found != RELEASE:
        raise ImportError(f"slatedb {found} is installed, and this program needs exactly {RELEASE}")
    vars(generated)["_uniffi_rust_call_async"] = _call_plainly
    generated._UniffiRustBufferBuilder.write = _write_at_once


repair()
