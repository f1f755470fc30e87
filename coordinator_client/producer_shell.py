"""The part of a producer that needs no waiting, shared by the blocking and the asyncio one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar, Unpack

from coordinator_client.connection import Connection, client_id_for, connection_to
from coordinator_client.errors import Loss, check_here, rejected
from coordinator_client.methods import Reply
from coordinator_client.patience import CUT_OFF_CLOSE_MS, Patience, timed_out
from coordinator_client.producer_config import ProducerConfig, ProducerOptions
from coordinator_client.producer_core import ProducerCore
from coordinator_client.rows import Headers, Row
from coordinator_client.rules import unconfirmed_abort
from coordinator_client.state import Identity, ProducerStatus
from coordinator_client.times import timestamp_ms as check_timestamp_ms
from coordinator_client.transport import Call
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import check_topic_name

ProducerT = TypeVar("ProducerT", bound="ProducerShell")


class ProducerShell:
    """Base of `Producer` and `AsyncProducer`; not for applications."""

    def __init__(self, endpoint: str | Connection, **options: Unpack[ProducerOptions]) -> None:
        config = ProducerConfig(**options)
        self._connection, self._is_own = connection_to(
            endpoint, client_id=config.client_id, transport=config.transport, wait_ms=config.wait_ms
        )
        self._clock = self._connection.clock
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._has_timeout = not config.two_phase_commit
        client_id = self._connection.client_id or client_id_for("producer", config.transactional_id)
        self._core = ProducerCore(config.core_plan(client_id=client_id), self._connection.random_source)
        self._core.flights.answers = self._connection.answers
        self._calls: dict[int, Call] = {}

    @property
    def identity(self) -> Identity | None:
        """Producer id and epoch of the current or next transaction; None before the first use."""
        return self._core.identity

    @property
    def status(self) -> ProducerStatus:
        """The status, which says what the producer can do next."""
        return self._core.status

    def _check_transactional(self) -> None:
        if not self._core.is_transactional:
            raise rejected(
                ErrorCode.INVALID_REQUEST, "a producer without transactional_id has no transactions; give it one"
            )

    def _check_plain(self) -> None:
        if self._core.is_transactional:
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                "a producer with a transactional_id sends inside a transaction: `with producer.transaction() as txn`",
            )

    def _row(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> Row:
        if type(value) is not bytes and value is not None:
            raise _not_bytes("value", value)
        if key is not None and type(key) is not bytes:
            raise _not_bytes("key", key)
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        else:
            check_timestamp_ms("timestamp_ms", timestamp_ms)
        return key, value, timestamp_ms, _checked_headers(headers) if headers else ()

    def _learn(self, topic: str) -> None:
        """Set the goal to learn the partitions of a topic. Raises: Rejected for what cannot be the name of a topic."""
        check_here(check_topic_name, topic)
        self._core.learn(topic, self._clock.monotonic_ms())

    def _deliver(self, flight: int, attempt: int, answer: Reply | Loss) -> None:
        self._calls.pop(flight, None)
        self._core.on_answer(flight, attempt, answer, self._clock.monotonic_ms())

    def _leaving(self) -> Patience:
        """Return how long the abort in `close` is tried: the server aborts at the timeout anyway, and the next producer
        of this id aborts before it begins."""
        limit_ms = self._delivery_timeout_ms
        return Patience(self._clock.monotonic_ms() + limit_ms, limit_ms, CUT_OFF_CLOSE_MS)

    def _until_ms(self, patience: Patience) -> int:
        """Return when patience ends. Raises: Retriable where it has ended."""
        now_ms = self._clock.monotonic_ms()
        until_ms = patience.until_ms(now_ms, is_cut_off=self._connection.answers.is_lost)
        if now_ms >= until_ms:
            raise unconfirmed_abort(timed_out("the abort", patience.limit_ms), None, has_timeout=self._has_timeout)
        return until_ms

    def _cancel_given_up(self) -> None:
        """Stop waiting for answers that the core has given up."""
        for flight in self._core.flights.take_cancelled():
            call = self._calls.pop(flight, None)
            if call is not None:
                call.cancel()


class TransactionShell(Generic[ProducerT]):
    """Base of `Transaction` and `AsyncTransaction`; not for applications."""

    def __init__(self, producer: ProducerT) -> None:
        self._producer = producer
        self._is_open = False
        self.csn = 0
        """Commit sequence number: orders all outcomes of the server. 0 until the commit is done."""

    def _check_open(self) -> None:
        if not self._is_open:
            raise rejected(ErrorCode.INVALID_TXN_STATE, "the transaction is over; open another one")


class PreparedShell(Generic[ProducerT]):
    """Base of `PreparedTransaction` and `AsyncPreparedTransaction`; not for applications."""

    def __init__(self, producer: ProducerT, identity: Identity) -> None:
        self._producer = producer
        self.identity: Final = identity
        """Names the transaction, however often it is recovered: note it beside the decision, and look it up there."""


def _checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    checked = tuple(headers)
    for name, content in checked:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        if not name.isascii() and not name.isprintable():
            _check_unicode(name)
        if content is not None and type(content) is not bytes:
            raise _not_bytes(f"the content of the header {name!r}", content)
    return checked


def _check_unicode(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise rejected(
            ErrorCode.INVALID_RECORD, f"the name of a header {name!a} is not valid Unicode: half a character"
        ) from None


def _not_bytes(what: str, found: object) -> TypeError:
    return TypeError(f"{what} must be bytes or None, not {type(found).__name__}; encode it first")
