"""Sinks of a real server: the SDK's client, `txnctl sink`, and a server that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import coordinator_client as sdk
from coordinator_client.arrow_encoding import SCHEMA
from coordinator_client.producer.sink import CommittedBatch, SinkClient, SinkMember
from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

TIMEOUT_MS = 60_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        yield running


def records(*values: str) -> pa.RecordBatch:
    rows = [{"key": None, "value": value.encode(), "timestamp_ms": 7, "headers": None} for value in values]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def written(sink: SinkClient, batch_id: int, *values: str) -> SinkMember:
    member = sink.join(batch_id, attempt="a", transaction_timeout_ms=TIMEOUT_MS)
    assert isinstance(member, SinkMember)
    for partition in (0, 1):
        member.send_arrow([("t", partition, records(*values))])
    member.seal()
    return member


def seen(address: str) -> list[bytes | None]:
    return sorted((record.value for record in sdk.read("t", address)), key=lambda value: value or b"")


@pytest.mark.long
def test_several_batches_of_one_partition_are_sent_in_their_order(server: ServerProcess) -> None:
    with sdk.Connection(server.address) as connection:
        with sdk.Admin(connection) as admin:
            admin.create_topic("t", 2)
        sink = SinkClient(connection, "spark/q", run_id="run 1")
        member = sink.join(0, attempt="a", transaction_timeout_ms=TIMEOUT_MS)
        assert isinstance(member, SinkMember)
        member.send_arrow([("t", 0, records("a", "b")), ("t", 1, records("x")), ("t", 0, records("c"))])
        member.send_arrow([("t", 0, records("d"))])
        member.seal()
        sink.commit(0, [member.identity])
        of_first = [record.value for record in sdk.read("t", connection) if record.partition == 0]
        assert of_first == [b"a", b"b", b"c", b"d"]


def test_a_batch_survives_a_kill_and_is_committed_once(server: ServerProcess, txnctl: Terminal) -> None:
    with sdk.Connection(server.address) as connection:
        with sdk.Admin(connection) as admin:
            admin.create_topic("t", 2)
        sink = SinkClient(connection, "spark/q", run_id="run 1")
        first, second, loser = (written(sink, 0, value) for value in ("a", "b", "lost"))
        assert seen(server.address) == []
        server.kill()
        server.start()
        csn = sink.commit(0, [first.identity, second.identity])
        assert sink.commit(0, [first.identity, second.identity]) == csn
        assert sink.join(0, attempt="again", transaction_timeout_ms=TIMEOUT_MS) == CommittedBatch(by_this_run=True)
        with pytest.raises(sdk.Fenced):
            loser.seal()
        assert sink.abort(0) == 0
        written(sink, 1, "open")
    assert seen(server.address) == [b"a", b"a", b"b", b"b"]
    listed = txnctl("sink", "list", "--server", server.address, "-o", "json").well()
    (row,) = json.loads(listed.stdout)
    assert (row["sink"], row["last_batch_id"], row["sealed_count"]) == ("spark/q", 0, 1)
    assert "sealed" in txnctl("sink", "describe", "spark/q", "--server", server.address).well().stdout
    dry = txnctl("sink", "abort", "spark/q", "--dry-run", "--server", server.address).well()
    assert "1 members would be given up" in dry.stderr
    assert "1 members are given up" in txnctl("sink", "abort", "spark/q", "--server", server.address).well().stderr
    txnctl("sink", "describe", "nobody", "--server", server.address).refused(1, "not known", "txnctl sink list")
    assert "no member is undecided" in txnctl("sink", "abort", "spark/q", "--server", server.address).well().stderr
    for misspelt in (["nobody"], ["nobody", "--dry-run"]):
        txnctl("sink", "abort", *misspelt, "--server", server.address).refused(1, "not known", "txnctl sink list")
