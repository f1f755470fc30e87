"""Spans of calls that belong to a sampled trace, and of the markers of its transactions.

Clients send the context of their trace in the request header. A call whose context is sampled gets a span. The end of
a transaction gets another one, from its decision to its last durable marker. It is linked to the call that asked for
it, because it may outlive that call. Without the setting `tracing`, fronts call the gatekeeper itself, and nothing
here runs.

Only this module of the server knows OpenTelemetry. It is loaded when tracing is switched on (extra `otel`).

Source: W3C Trace Context, level 1 (traceparent).
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.decision import Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Connection
from coordinator_server.traffic.call import Call, ReplyT
from coordinator_server.traffic.metering import Keeper
from txn_coordinator.records import TransactionRanThrough, TransactionStepped
from txn_coordinator.state import COMPLETE, DECIDED, Transaction

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

ENDING_MAX: Final = 10_000
"""Maximum number of traced transactions that are being ended; the oldest are forgotten beyond."""

_SAMPLED: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
_ENDS: Final = frozenset({Method.END_TXN, Method.TRANSACT})


class TraceExporter(StrEnum):
    """Destination of spans."""

    OFF = "off"
    OTLP = "otlp"
    """Collector, which the environment variables of OpenTelemetry name (OTEL_EXPORTER_OTLP_ENDPOINT)."""
    CONSOLE = "console"
    """Lines of JSON on stderr."""


def check_installed(exporter: TraceExporter) -> None:
    """Check that OpenTelemetry is there. Raises: ValueError if it is not."""
    needed = "opentelemetry.exporter.otlp.proto.http" if exporter is TraceExporter.OTLP else "opentelemetry.sdk"
    try:
        is_there = find_spec(needed) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise ValueError(f"tracing = {exporter}: install the extra otel, as in pip install 'txn-coordinator[otel]'")


def open_provider(exporter: TraceExporter) -> TracerProvider:
    """Return a provider that exports to the destination. It exports the last spans when the process ends."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as Provider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    provider = Provider(resource=Resource.create({"service.name": "txn-coordinator"}))
    if exporter is TraceExporter.CONSOLE:
        console = ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(SimpleSpanProcessor(console))
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Traces:
    """Makes spans. On the loop only."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer("coordinator_server")
        self._ending: OrderedDict[str, SpanContext] = OrderedDict()
        """Span of the call that ends a transaction, by transactional id."""
        self._marking: dict[str, Span] = {}
        """Span of the markers of a transaction that is decided."""

    def call(self, call: Call[Any]) -> Span | None:
        """Begin the span of a call; None if its trace is not sampled."""
        from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

        traceparent, transactional_id = call.trace()
        found = _SAMPLED.fullmatch(traceparent)
        if found is None:
            return None
        trace_id, span_id = int(found[1], 16), int(found[2], 16)
        remote = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        if not remote.is_valid:
            return None
        span = self._tracer.start_span(
            f"coordinator {call.rule.method}",
            context=set_span_in_context(NonRecordingSpan(remote)),
            kind=SpanKind.SERVER,
            attributes={"rpc.method": str(call.rule.method), "txn.transactional_id": transactional_id},
        )
        if transactional_id and call.rule.method in _ENDS:
            self._ending[transactional_id] = span.get_span_context()
            if len(self._ending) > ENDING_MAX:
                self._ending.popitem(last=False)
        return span

    def on_event(self, event: object, _turn: Turn) -> None:
        """Begin and end the spans of markers."""
        if isinstance(event, TransactionRanThrough):
            self._decided(event.transaction)
            self._completed(event.transaction)
        elif isinstance(event, TransactionStepped) and event.before is not None:
            after = event.after
            if after.state in DECIDED or (after.state in COMPLETE and event.before.state not in DECIDED):
                self._decided(after)
            if after.state in COMPLETE:
                self._completed(after)

    def _decided(self, transaction: Transaction) -> None:
        from opentelemetry.trace import Link, NonRecordingSpan, set_span_in_context

        asked = self._ending.pop(transaction.transactional_id, None)
        if asked is not None:
            self._marking[transaction.transactional_id] = self._tracer.start_span(
                "coordinator markers",
                context=set_span_in_context(NonRecordingSpan(asked)),
                links=[Link(asked)],
                attributes={"txn.transactional_id": transaction.transactional_id},
            )

    def _completed(self, transaction: Transaction) -> None:
        span = self._marking.pop(transaction.transactional_id, None)
        if span is not None:
            span.set_attributes({"txn.state": transaction.state.api_name, "txn.csn": transaction.csn})
            span.end()


class TracedKeeper:
    """Implements `Keeper`: begins a span with each call of a sampled trace. On the loop only."""

    def __init__(self, keeper: Keeper, traces: Traces) -> None:
        self._keeper = keeper
        self._traces = traces

    def begin(self, call: Call[ReplyT]) -> Pending[ReplyT]:
        """See `Gatekeeper.begin`."""
        span = self._traces.call(call)
        return _followed(self._keeper.begin(call), span)

    def begin_all(self, calls: Sequence[Call[ReplyT]]) -> Sequence[Pending[ReplyT]]:
        """See `Gatekeeper.begin_all`."""
        spans = [self._traces.call(call) for call in calls]
        return [*map(_followed, self._keeper.begin_all(calls), spans)]

    def refuse(self, call: Call[ReplyT], refusal: Refused) -> Pending[ReplyT]:
        """See `Gatekeeper.refuse`."""
        return self._keeper.refuse(call, refusal)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """See `Gatekeeper.is_behind`."""
        return self._keeper.is_behind(connection, then)

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """See `Gatekeeper.answer_unanswered`."""
        self._keeper.answer_unanswered(error)


def _followed(reply: Pending[ReplyT], span: Span | None) -> Pending[ReplyT]:
    """End the span with the reply."""
    if span is not None:
        reply.on_settled(lambda settled: _end(span, settled.error))
    return reply


def _end(span: Span, error: Exception | None) -> None:
    if error is not None:
        span.record_exception(error)
    span.end()
