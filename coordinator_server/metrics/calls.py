"""Numbers of calls, counted as they end. On the loop thread only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import Message

from coordinator_protocol.errors import ErrorCode, Method
from coordinator_server.metrics.instruments import SECONDS, US, Distribution, Readings, Sample, counts
from coordinator_server.transport import CallStatus

_REJECTIONS: Final = {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "overload",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "stopping",
}


class _MethodNumbers:
    """The counts and durations of one method."""

    __slots__ = ("answered", "errors", "item_fields", "seconds", "service", "unanswered")

    def __init__(self, service: str, item_fields: tuple[str, ...]) -> None:
        self.service = service
        self.item_fields = item_fields
        self.answered = 0
        self.unanswered: defaultdict[str, int] = counts()
        """Calls without an answer, by gRPC's name of the status."""
        self.errors: defaultdict[int, int] = counts()
        """Error codes answered, each at most once per call."""
        self.seconds = Distribution(SECONDS, US)


class CallNumbers:
    """What callers asked since the process started, and what they were told."""

    def __init__(self, services: Collection[ServiceDescriptor]) -> None:
        self._methods = {
            Method(method.name): _MethodNumbers(service.name, _item_fields(method.output_type))
            for service in services
            for method in service.methods
        }

    def answered(self, method: Method, elapsed_us: int, response: Message) -> None:
        """A call has its response."""
        numbers = self._methods[method]
        numbers.answered += 1
        numbers.seconds.observe(elapsed_us)
        if code := response.error_code:  # type: ignore[attr-defined]  # every response has one
            numbers.errors[code] += 1
        for field in numbers.item_fields:
            for item in getattr(response, field):
                if item.error_code:
                    _count_items(numbers, response, field)
                    break

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None:
        """A call ended without a response."""
        numbers = self._methods[method]
        numbers.unanswered[status.name] += 1
        numbers.seconds.observe(elapsed_us)

    def readings(self, in_flight: Mapping[Method, int]) -> Readings:
        """Everything that is counted here, and how many calls are under way at this moment."""
        methods = self._methods.items()
        return {
            "txn_rpc_requests_total": {
                (numbers.service, str(method), status): number
                for method, numbers in methods
                for status, number in {"OK": numbers.answered, **numbers.unanswered}.items()
            },
            "txn_rpc_errors_total": {
                (str(method), error_name(code)): number
                for method, numbers in methods
                for code, number in numbers.errors.items()
            },
            "txn_rpc_seconds": {(str(method),): numbers.seconds.copy() for method, numbers in methods},
            "txn_rpc_in_flight": {(str(method),): in_flight.get(method, 0) for method in self._methods},
            "txn_rpc_rejected_total": {
                (reason,): sum(numbers.errors.get(code, 0) for numbers in self._methods.values())
                for code, reason in _REJECTIONS.items()
            },
        }

    def refused_inits(self) -> int:
        """Calls of InitProducerId that gave no identity."""
        return sum(self._methods[Method.INIT_PRODUCER_ID].errors.values())

    def fenced(self) -> dict[tuple[str, ...], Sample]:
        """Calls of producers whose epoch is over, by who kept them out: the coordinator, or a partition."""
        return {
            ("epoch",): sum(numbers.errors.get(ErrorCode.PRODUCER_FENCED, 0) for numbers in self._methods.values()),
            ("zombie_produce",): self._methods[Method.PRODUCE].errors.get(ErrorCode.INVALID_PRODUCER_EPOCH, 0),
        }


def _count_items(numbers: _MethodNumbers, response: Message, field: str) -> None:
    """Items of one call that share an error count once, as the call does."""
    for code in {item.error_code for item in getattr(response, field)} - {0}:
        numbers.errors[code] += 1


def _item_fields(response: Descriptor) -> tuple[str, ...]:
    """Repeated fields of a response whose items carry an error code of their own."""
    return tuple(
        field.name
        for field in response.fields
        if field.message_type is not None and "error_code" in field.message_type.fields_by_name
    )


def error_name(code: int) -> str:
    """Kafka's name of a code; the number for one that has none here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
