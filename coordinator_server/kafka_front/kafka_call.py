"""A request of Kafka's protocol as the gatekeeper sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import METHODS, MethodRule
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.kafka_front.apis import Api, ApiKey
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.malformed import Malformed
from coordinator_server.kafka_front.writing import Piece
from coordinator_server.traffic.call import EncodedAnswer

TRANSACTIONAL_WAIT_MS_MAX: Final = 5_000
"""Longest wait of a call behind a transaction that is being completed. Clients close a connection that is silent for
30 s, with all requests in flight. After this wait they get CONCURRENT_TRANSACTIONS and try again."""
CAPACITY_PAUSE_MS: Final = 50
"""Pause of a connection whose call was refused for lack of capacity."""
REQUEST_CHARACTERS_MAX: Final = 2_000
"""Length of the text of a request in the audit log; the rest is cut off."""

IMPLICIT_SINCE: Final[Mapping[ApiKey, int]] = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}
"""First versions of clients of transaction version 2 (KIP-890). Every other transactional request is of version 1."""
_WAITING: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
"""APIs whose calls may wait behind a transaction."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One API as this front serves it."""

    api: Api
    rule: MethodRule
    decode: Callable[[memoryview, int], Any]
    encode: Callable[[Any, int], list[Piece]]
    handler: ApiHandler


def endpoint_of(
    api: Api,
    handler: ApiHandler,
    decode: Callable[[memoryview, int], Any],
    encode: Callable[[Any, int], list[Piece]],
) -> ApiEndpoint:
    """Return the endpoint of an API. It counts as the method of the core that serves it."""
    assert api.method is not None, f"the connection answers {api.key.name} itself"
    return ApiEndpoint(api, METHODS[api.method], decode, encode, handler)


@dataclass(slots=True)
class KafkaReply:
    """An encoded response: the body, without the header of the response."""

    body: list[Piece]
    size_bytes: int
    response: Any
    throttle_ms: int = 0
    """Pause (ms) after which the connection is read again."""
    closes: bool = False
    """True if the connection ends instead of an answer: `acks=0` that failed, or a call for another server."""
    is_last: bool = False
    """True if the connection ends after this answer."""

    def __len__(self) -> int:
        return self.size_bytes


class KafkaCall:
    """Implements `coordinator_server.traffic.call.Call`."""

    __slots__ = ("_body", "_clock", "_endpoint", "_request", "answer_bytes_max", "exchange", "rule", "size_bytes")

    refuses_over_rate: Final = False

    def __init__(
        self, endpoint: ApiEndpoint, body: memoryview, exchange: KafkaExchange, clock: Clock, answer_bytes_max: int
    ) -> None:
        self.rule = endpoint.rule
        self.size_bytes = len(body)
        self.answer_bytes_max = answer_bytes_max
        self.exchange = exchange
        self._endpoint = endpoint
        self._clock = clock
        self._body: memoryview | None = body
        """The request as it came; None once it is decoded."""
        self._request: Any = None

    @property
    def context(self) -> CallContext:
        return self.exchange.context

    @property
    def is_understood(self) -> bool:
        return self._body is None

    def trace(self) -> tuple[str, str]:
        # Kafka's protocol has no place for it.
        return "", ""

    def client_id(self) -> str:
        return self.exchange.context.client_id

    def take(self) -> KafkaReply | None:
        take = self._endpoint.handler.take
        if take is None:
            return None
        try:
            self._understand()
        except Malformed:
            # `begin` reports it.
            return None
        response = take(self._request, self.exchange)
        return None if response is None else self._encoded(response)

    def taken_failed(self, reply: KafkaReply, error: Exception) -> Any:  # noqa: ANN401  a response of any API
        if not isinstance(error, CoordinatorError):
            raise error
        return self._endpoint.handler.refused(self._request, self.exchange, error)

    def begin(self) -> Pending[Any]:
        try:
            self._understand()
        except Malformed as error:
            raise self._undecodable(error) from error
        return self._endpoint.handler.serve(self._request, self.exchange)

    def encode(self, value: Any) -> EncodedAnswer[KafkaReply]:  # noqa: ANN401  a response of any API
        return EncodedAnswer(self._encoded(value), self.exchange.codes)

    def refused(self, error: CoordinatorError) -> EncodedAnswer[KafkaReply]:
        try:
            self._understand()
        except Malformed as malformed:
            raise self._undecodable(malformed) from malformed
        answer = self.encode(self._endpoint.handler.refused(self._request, self.exchange, error))
        if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED and answer.reply.response is not None:
            # The version may have no word for it, so the connection waits in place of the client.
            pause_ms = error.throttle_ms if isinstance(error, Refused) else None
            return EncodedAnswer(self.paused(answer.reply, pause_ms or CAPACITY_PAUSE_MS), answer.codes)
        return answer

    def failed(self, failure: Unanswered) -> KafkaReply | None:
        """Return the answer to a call that met a defect or has too large an answer; None if there is none."""
        if self._request is None or failure.status in (CallStatus.INVALID_ARGUMENT, CallStatus.CANCELLED):
            return None
        return self.refused(_Failure(failure.message)).reply

    def paused(self, reply: KafkaReply, throttle_ms: int) -> KafkaReply:
        """Return the reply with the pause in it, if this version has a place for that. The connection pauses in any
        case."""
        response = reply.response
        if hasattr(response, "throttle_time_ms"):
            reply = self._encoded(msgspec.structs.replace(response, throttle_time_ms=throttle_ms))
        reply.throttle_ms = throttle_ms
        return reply

    def codes_in(self, value: Any) -> Collection[int]:  # noqa: ANN401  a response of any API
        return self.exchange.codes

    def shown(self) -> str:
        return repr(self._request)[:REQUEST_CHARACTERS_MAX]

    def _encoded(self, response: Any) -> KafkaReply:  # noqa: ANN401  a response of any API
        if response is None:
            # The client wants no answer (`acks=0`), or gets none. It learns of a failure by the end of the connection.
            return KafkaReply([], 0, None, closes=bool(self.exchange.codes))
        body = self._endpoint.encode(response, self.exchange.version)
        return KafkaReply(body, sum(map(len, body)), response, is_last=self.exchange.is_last)

    def _understand(self) -> None:
        """Decode the request and complete the context. Raises Malformed."""
        if self._body is None:
            return
        exchange = self.exchange
        key, version = exchange.api.key, exchange.version
        request = self._endpoint.decode(self._body, version)
        if key in _WAITING:
            wait_ms = min(TRANSACTIONAL_WAIT_MS_MAX, _timeout_ms(request))
            exchange.context = msgspec.structs.replace(
                exchange.context,
                deadline_ms=self._clock.monotonic_ms() + wait_ms,
                client_txn_version=2 if version >= IMPLICIT_SINCE.get(key, version + 1) else 1,
            )
        self._request, self._body = request, None

    def _undecodable(self, error: Malformed) -> Unanswered:
        api = self.exchange.api
        return Unanswered(
            CallStatus.INVALID_ARGUMENT, f"no request of {api.key.name} version {self.exchange.version}: {error}"
        )


class _Failure(CoordinatorError):
    """A failure without a code of its own: UNKNOWN_SERVER_ERROR."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def _timeout_ms(request: Any) -> int:  # noqa: ANN401  a request of any API
    timeout_ms: int = getattr(request, "timeout_ms", TRANSACTIONAL_WAIT_MS_MAX)
    return max(0, timeout_ms)
