"""Traces of transactions with OpenTelemetry, off unless the application switches them on.

```python
from coordinator_client.tracing import trace_transactions

trace_transactions()    # with the tracer provider of the application
```

Each transaction then has a span, from its beginning to its end, below the span that was current when it began. Its
requests carry the context of that span, so a server that traces records their calls below it, and the markers of the
transaction. The sampler of the application decides: nothing is sent for a transaction that is not sampled.

Only this module of the client knows OpenTelemetry (extra `otel`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coordinator_client.errors import misconfigured
from coordinator_client.values import Identity
from coordinator_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider


class TransactionTrace:
    """The span of one transaction."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        """Context for request headers, as in W3C Trace Context."""

    @contextmanager
    def ending(self, outcome: str) -> Iterator[None]:
        """End the span with the block, which ends the transaction. Its exception is noted."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("txn.outcome", outcome)
        try:
            yield
        except BaseException as error:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            self._span.end()


class Tracing:
    """State of tracing in this process."""

    def __init__(self) -> None:
        self._tracer: Tracer | None = None

    @property
    def is_on(self) -> bool:
        """True if transactions are traced."""
        return self._tracer is not None

    def switch(self, tracer: Tracer | None) -> None:
        """Trace with this tracer from now on; None = not at all."""
        self._tracer = tracer

    def begin(self, transactional_id: str, identity: Identity | None) -> TransactionTrace | None:
        """Begin the span of a transaction; None if it is not sampled."""
        from opentelemetry.trace import SpanKind

        if self._tracer is None:
            return None
        span = self._tracer.start_span(
            f"transaction {transactional_id}",
            kind=SpanKind.CLIENT,
            attributes={"txn.transactional_id": transactional_id},
        )
        if not span.get_span_context().trace_flags.sampled:
            return None
        if identity is not None:
            span.set_attributes(
                {"txn.producer_id": identity.producer_id, "txn.producer_epoch": identity.producer_epoch}
            )
        return TransactionTrace(span)


TRACING: Final = Tracing()


def trace_transactions(provider: TracerProvider | None = None) -> None:
    """Trace the transactions of this process from now on, with this provider or that of the application.

    Raises: Misconfigured if OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as missing:
        raise misconfigured(
            ErrorCode.INVALID_CONFIG, "tracing needs the extra otel: pip install 'txn-coordinator[otel]'"
        ) from missing
    TRACING.switch(trace.get_tracer("coordinator_client", tracer_provider=provider))


def stop_tracing() -> None:
    """Trace no transaction that begins from now on."""
    TRACING.switch(None)
