"""A second front, as small as one can be: requests and replies are lines of text, and there is no protobuf.

It shows that the gatekeeper knows no wire, and it serves tests that need calls of no front in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import METHODS, Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.traffic.call import EncodedAnswer

UseCase = Callable[[str, CallContext], Pending[Any]]


class WrittenCall:
    """Implements `coordinator_server.traffic.call.Call` for a line of text.

    `serve` is the use case. `take` is offered the line on the fast path: its reply, or None."""

    answer_bytes_max = 1 << 20

    def __init__(
        self,
        method: Method,
        line: bytes,
        context: CallContext,
        serve: UseCase | None = None,
        *,
        take: Callable[[str], bytes | None] | None = None,
        refuses_over_rate: bool = False,
    ) -> None:
        self.rule = METHODS[method]
        self.size_bytes = len(line)
        self.context = context
        self.is_understood = False
        self.refuses_over_rate = refuses_over_rate
        self.decoded = 0
        """Number of times that the line was decoded."""
        self._line, self._serve, self._take = line, serve, take
        self._text: str | None = None

    def trace(self) -> tuple[str, str]:
        return "", ""

    def client_id(self) -> str:
        return self.context.client_id

    def take(self) -> bytes | None:
        assert self._take is not None, "offered to a fast path that it does not have"
        return self._take(self._decode())

    def taken_failed(self, reply: bytes, error: Exception) -> Any:
        raise error

    def begin(self) -> Pending[Any]:
        assert self._serve is not None, "begun without a use case"
        return self._serve(self._decode(), self.context)

    def encode(self, value: Any) -> EncodedAnswer[bytes]:
        return EncodedAnswer(str(value).encode())

    def refused(self, error: CoordinatorError) -> EncodedAnswer[bytes]:
        return EncodedAnswer(f"refused {error.code.name}: {error.message}".encode(), [int(error.code)])

    def paused(self, reply: bytes, throttle_ms: int) -> bytes:
        return reply + f" (pause {throttle_ms} ms)".encode()

    def codes_in(self, value: Any) -> Collection[int]:
        return ()

    def shown(self) -> str:
        return self._decode()

    def _decode(self) -> str:
        if self._text is None:
            self.decoded += 1
            self._text = self._line.decode()
            self.is_understood = True
        return self._text
