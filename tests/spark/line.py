"""A line between Spark and its server on which a test loses, refuses or holds up single calls.

A gRPC server of its own, which knows no message: it hands each unary call on, as bytes. There is no Session on it, so
every request of the SDK is a call by its name.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import grpc

from tests.harness.patience import DEADLINE_SECONDS

_HELD_AT_ONCE: Final = 32
_ANY_SIZE: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Forward = Callable[[], bytes]
Rule = Callable[[Forward], bytes]
"""Fate of a call: asks the server, or not, and returns the answer, or raises Cut."""


class Cut(Exception):
    """The caller gets this status in place of an answer."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(f"cut by the test: {status.name}")
        self.status: Final = status


LOST: Final = grpc.StatusCode.UNAVAILABLE
"""The caller cannot know what happened, and asks again."""
GIVEN_UP: Final = grpc.StatusCode.PERMISSION_DENIED
"""The caller gives up at once, as one that dies here does: what it asks for is not asked again."""


def never_asked(_forward: Forward) -> bytes:
    """The server does not hear of the call, and the caller goes no further."""
    raise Cut(GIVEN_UP)


def never_answered(forward: Forward) -> bytes:
    """The server carries the call out, and the caller goes no further."""
    forward()
    raise Cut(GIVEN_UP)


def lost(forward: Forward) -> bytes:
    """The server carries the call out, and its answer is lost."""
    forward()
    raise Cut(LOST)


class Hold:
    """A rule under which calls wait, before the server has heard of them or with its answer under way."""

    def __init__(self, *, is_carried_out: bool = False) -> None:
        self.held: Final = threading.Semaphore(0)
        """Released for each call that waits: acquire it to wait for one."""
        self.answers: list[bytes] = []
        """Answers of the server to calls that were let go."""
        self._is_carried_out = is_carried_out
        self._is_let_go = threading.Event()
        self._is_answered = threading.Semaphore(0)

    def __call__(self, forward: Forward) -> bytes:
        answer = forward() if self._is_carried_out else None
        self.held.release()
        self._is_let_go.wait()
        answer = forward() if answer is None else answer
        self.answers.append(answer)
        self._is_answered.release()
        return answer

    def let_go(self) -> None:
        self._is_let_go.set()

    def next_answer(self) -> bytes:
        """Wait until one call more has its answer, though its caller may be gone."""
        self._is_answered.acquire()
        return self.answers[-1]


@dataclass(slots=True)
class _Fault:
    rule: Rule
    left: int


class Line(grpc.GenericRpcHandler):
    """Open while it is a context manager; what a test holds up is let through at its end."""

    def __init__(self, server_address: str) -> None:
        self.port = 0
        self.calls: Counter[str] = Counter()
        """Number of calls that came, by method."""
        self._server_address = server_address
        self._faults: dict[str, _Fault] = {}
        self._holds: list[Hold] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._channel = grpc.insecure_channel(self._server_address, _ANY_SIZE)
        self._server = grpc.server(ThreadPoolExecutor(_HELD_AT_ONCE), handlers=[self], options=_ANY_SIZE)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hold in self._holds:
            hold.let_go()
        self._server.stop(None).wait()
        self._channel.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def treat(self, method: str, rule: Rule, *, times: int = 1_000_000) -> None:
        """Let this become of the next calls of a method."""
        with self._lock:
            self._faults[method] = _Fault(rule, times)
        if isinstance(rule, Hold):
            self._holds.append(rule)

    def mend(self) -> None:
        """From now on every call goes through, and calls are counted anew."""
        with self._lock:
            self._faults.clear()
            self.calls.clear()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        path = handler_call_details.method
        if path.endswith("/Session"):
            return None

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            def forward() -> bytes:
                asked: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path)
                return asked(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)

            try:
                return self._rule_for(path.rpartition("/")[2])(forward)
            except Cut as cut:
                context.abort(cut.status, str(cut))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")

        return grpc.unary_unary_rpc_method_handler(answer)

    def _rule_for(self, method: str) -> Rule:
        with self._lock:
            self.calls[method] += 1
            fault = self._faults.get(method)
            if fault is None or not fault.left:
                return lambda forward: forward()
            fault.left -= 1
            return fault.rule
