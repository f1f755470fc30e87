"""Spans of a server that traces: calls of sampled traces, and the markers of their transactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_client import Admin, Producer
from coordinator_client.tracing import stop_tracing, trace_transactions
from coordinator_server.tracing import TraceExporter, check_installed
from tests.harness.server_process import ServerProcess

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def spans_of(server: ServerProcess) -> list[dict[str, Any]]:
    """The spans on stderr, once the server has ended."""
    return [json.loads(line) for line in server.output.splitlines() if line.startswith('{"name"')]


@pytest.mark.slow
@pytest.mark.parametrize("two_phase", ["fused", "split"])
def test_a_trace_leads_from_the_client_to_the_markers(tmp_path: Path, two_phase: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options = ["--set", "tracing=console", "--two-phase", two_phase]
    with ServerProcess(tmp_path / "data", *options) as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", 1)
        with Producer(server.address, transactional_id="p") as producer:
            producer.init()
            with producer.transaction() as txn:
                txn.send("t", b"untraced")
            trace_transactions(provider)
            try:
                with producer.transaction() as txn:
                    txn.send("t", b"small")
                with producer.transaction() as txn:
                    txn.send("t", b"in parts")
                    txn.flush()
            finally:
                stop_tracing()
        server.terminate()
    small, parts = exporter.get_finished_spans()
    found = spans_of(server)
    for client, names in ((small, {"Transact"}), (parts, {"Produce", "EndTxn"})):
        trace_id, span_id = f"0x{client.context.trace_id:032x}", f"0x{client.context.span_id:016x}"
        mine = {
            span["name"].removeprefix("coordinator "): span for span in found if span["context"]["trace_id"] == trace_id
        }
        assert mine.keys() == {*names, "markers"}
        assert {mine[name]["parent_id"] for name in names} == {span_id}
        markers = mine["markers"]
        assert markers["attributes"]["txn.state"] == "CompleteCommit"
        assert [link["context"]["span_id"] for link in markers["links"]] == [markers["parent_id"]]
    assert len({span["context"]["trace_id"] for span in found}) == 2, "nothing of the transaction that is not traced"


def test_a_destination_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_server.tracing.find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"tracing = otlp: install the extra otel"):
        check_installed(TraceExporter.OTLP)
