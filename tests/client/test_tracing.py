"""Traces of transactions: the spans of the SDK, and what travels in request headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from coordinator_client import Abortable, AsyncProducer
from coordinator_client.tracing import stop_tracing, trace_transactions
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.producers import commit, produce_refused, producer_in
from tests.client.world import World

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler


class Traced:
    """A process that traces, and the spans that have ended."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace_transactions(self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def traced() -> Iterator[Traced]:
    yield Traced()
    stop_tracing()


def parents(world: World) -> set[str]:
    """The contexts in the headers of all requests of transactions."""
    methods = (Method.PRODUCE, Method.END_TXN, Method.TRANSACT)
    return {request.header.traceparent for method in methods for request in world.requests(method)}


@pytest.mark.parametrize("transact_bytes", [0, 524_288])
def test_a_transaction_has_a_span_whose_context_its_requests_carry(
    world: World, traced: Traced, transact_bytes: int
) -> None:
    commit(producer_in(world, transact_bytes=transact_bytes), b"a", b"b")
    (span,) = traced.spans
    assert (span.name, span.attributes["txn.outcome"]) == ("transaction p", "commit")
    assert parents(world) == {
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
    }


def test_each_transaction_has_a_span_below_the_current_one(world: World, traced: Traced) -> None:
    producer = producer_in(world)
    with traced.provider.get_tracer("app").start_as_current_span("request") as request:
        commit(producer, b"a")
        producer.begin().abort()
    first, second, _ = traced.spans
    assert first.context.span_id != second.context.span_id
    assert {first.parent.span_id, second.parent.span_id} == {request.get_span_context().span_id}
    assert second.attributes["txn.outcome"] == "abort"


def test_a_failed_commit_is_noted_in_the_span(world: World, traced: Traced) -> None:
    world.answer(Method.PRODUCE, produce_refused(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(Abortable):
        commit(producer_in(world), b"a")
    (span,) = traced.spans
    assert not span.status.is_ok
    assert span.events[0].attributes["exception.type"].endswith("Abortable")


def test_an_asyncio_transaction_is_traced(world: World, traced: Traced) -> None:
    async def use() -> None:
        async with AsyncProducer(world.connection(), transactional_id="p").transaction() as txn:
            await txn.send("t", b"a", partition=0)

    world.run(use())
    assert [span.name for span in traced.spans] == ["transaction p"]
    assert all(parents(world))


def test_nothing_is_sent_for_a_transaction_that_is_not_sampled(world: World) -> None:
    Traced(ALWAYS_OFF)
    producer = producer_in(world)
    commit(producer, b"a")
    stop_tracing()
    commit(producer, b"b")
    assert parents(world) == {""}


def test_the_context_does_not_outlive_tracing(world: World, traced: Traced) -> None:
    producer = producer_in(world)
    commit(producer, b"a")
    stop_tracing()
    commit(producer, b"b")
    contexts = [request.header.traceparent for request in world.requests(Method.END_TXN)]
    assert re.fullmatch("00-.*-0[13]", contexts[0])
    assert contexts[1] == ""
