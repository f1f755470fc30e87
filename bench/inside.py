"""A whole server in this process, without a network: calls enter as bytes, where a transport would deliver them.

This module uses only the interface of the product's process: `coordinator_server.process.run`, with a transport that
has no network. So the same code can measure old and new commits, in spite of changes inside them (`use_product`).
Nothing of the product may be imported before the commit is chosen, so the imports at the top are not part of it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from coordinator_runtime.pending import Pending

HERE: Final = Path(__file__).resolve().parent.parent
_PRODUCT: Final = ("coordinator_", "partition_log", "txn_coordinator", "group_coordinator")
"""Prefixes of the server's package names."""

ResultT = TypeVar("ResultT")


def is_product(package: str) -> bool:
    """Return True if a top-level package is part of the server. Code generated from the .proto files does not count."""
    return package.startswith(_PRODUCT) and package != "coordinator_api"


def use_product(directory: Path) -> None:
    """Import the product from the root of this working tree, which may differ from the tree of the benchmarks. Must be
    called before anything of the product is imported."""
    imported = [name for name in sys.modules if name.startswith(_PRODUCT)]
    assert not imported, f"the product is chosen too late: {imported[0]} is imported"
    if not (directory / "coordinator_server").is_dir():
        raise SystemExit(f"{directory} holds no coordinator_server: name the root of a working tree of this project")
    sys.path[:0] = [str(directory), str(directory / "proto")]


class Inside:
    """A server that is called on its own loop."""

    def __init__(self, handler: Callable[[str, bytes, Any], Pending[bytes]]) -> None:
        from coordinator_runtime.ports import CallContext

        self._handler = handler
        self._call = CallContext(client_id="bench", host="127.0.0.1")
        self._session: _Session | None = None

    def call(self, method: str, body: bytes) -> Pending[bytes]:
        """Begin a call, as a transport does."""
        return self._handler(method, body, self._call)

    def message(self, calls: Sequence[tuple[str, bytes]]) -> list[asyncio.Future[bytes]]:
        """Begin the calls of one message of a session."""
        from coordinator_api.v1 import session_pb2

        if self._session is None:
            self._session = _Session(self._handler, self._call)
        first = self._session.number
        request = session_pb2.SessionRequest(
            calls=[
                session_pb2.SessionCall(correlation_id=first + number, method=method, body=body, timeout_ms=30_000)
                for number, (method, body) in enumerate(calls)
            ]
        )
        return self._session.send(request)

    async def ask(self, method: str, body: bytes) -> bytes:
        """Make a call and wait for its reply. With this method, the class is an `Asker` for loads."""
        return await self.call(method, body)


class _Session:
    """A session without a network."""

    def __init__(self, handler: Any, call: Any) -> None:  # noqa: ANN401  of any commit
        from coordinator_runtime.clock import SystemClock

        sessions = _module_of("coordinator_server.grpc_front.session", "coordinator_server.session")

        self._session = sessions.Session(handler, SystemClock(), call, sessions.SessionLimits())
        self._session.on_outgoing = self._on_outgoing
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._is_turn_due = False
        self.number = 1
        """Correlation id of the next call."""

    def send(self, request: Any) -> list[asyncio.Future[bytes]]:  # noqa: ANN401  a SessionRequest
        futures = [asyncio.get_running_loop().create_future() for _ in request.calls]
        self._waiting |= zip(range(self.number, self.number + len(futures)), futures, strict=True)
        self.number += len(futures)
        self._session.receive(request.SerializeToString())
        return futures

    def _on_outgoing(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        from coordinator_api.v1 import session_pb2

        self._is_turn_due = False
        while (body := self._session.take()) is not None:
            for answer in session_pb2.SessionResponse.FromString(body).answers:
                self._waiting.pop(answer.correlation_id).set_result(answer.body)


def run_inside(story: Callable[[Inside], Awaitable[ResultT]], **settings: object) -> ResultT:
    """Start a server on an empty directory, run the story on its loop, drain it and return the story's result.

    Only on the main thread, and once in a process. `settings` are those of the server."""
    process = _module_of("coordinator_server.process")
    # Module that opens the server's transport: `listeners`, or `process` in commits with only one listener.
    opener = _module_of("coordinator_server.listeners", "coordinator_server.process")
    settings_of = _module_of("coordinator_server.settings.config", "coordinator_server.config")
    transport, told = _NoNetwork(), _Told(story)
    vars(opener)["open_transport"] = lambda *_arguments: transport
    with tempfile.TemporaryDirectory(prefix="bench-inside-") as directory:
        config = settings_of.Config.model_validate(
            {"data_dir": Path(directory) / "data", "listen": "127.0.0.1:0", "log_level": "error"} | settings
        )
        status = process.run(config, lambda *_address: told.begin(transport.handler))
    assert status == 0, f"the server ended with {status!r}"
    return told.result()


def _module_of(*names: str) -> ModuleType:
    """Return the first of these modules that the measured commit has. The newest name comes first."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError as missing:
            if not name.startswith(missing.name or name):
                raise
    return import_module(names[-1])


class _Told(Generic[ResultT]):
    """Runs the story once the server takes work."""

    def __init__(self, story: Callable[[Inside], Awaitable[ResultT]]) -> None:
        self._story = story
        self._task: asyncio.Task[ResultT] | None = None

    def begin(self, handler: Callable[[str, bytes, Any], Pending[bytes]]) -> None:
        async def live() -> ResultT:
            try:
                return await self._story(Inside(handler))
            finally:
                signal.raise_signal(signal.SIGTERM)

        self._task = asyncio.get_running_loop().create_task(live())

    def result(self) -> ResultT:
        assert self._task is not None, "the server never took work"
        return self._task.result()


class _NoNetwork:
    """A transport that only this process reaches."""

    name = "none"
    on_failure: Callable[[Exception], None]
    handler: Callable[[str, bytes, Any], Pending[bytes]]

    def bind(self, _host: str, port: int) -> int:
        return port

    async def start(self, handler: Callable[[str, bytes, Any], Pending[bytes]], *_room: object) -> None:
        self.handler = handler

    async def set_ready(self, is_ready: bool) -> None: ...

    async def set_health(self, name: str, *, is_serving: bool) -> None: ...

    async def announce_stop(self) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...
