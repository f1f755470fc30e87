"""A batch that cannot be read, at the commands: `consume` tells or skips, `log dump` marks it and goes on."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_client import Producer
from coordinator_protocol.batch import BatchHeader, Encoding
from partition_log.state import ForgottenProducers
from tests.cli.terminal import Terminal
from tests.harness.kafka_batches import BASE_MS, ROW, kafka_payload
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess
from tests.harness.stored_batches import encode_batch
from txnctl.stopped.partition_audit import PartitionAudit, audit_log
from txnctl.stopped.stored import StoredBatch


@pytest.mark.slow
def test_who_reads_a_batch_of_garbage(txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        monkeypatch.setenv("TXNCTL_SERVER", server.address)
        txnctl("topic", "create", "t", "--validate-payload", "header").well()
        (described,) = txnctl("topic", "describe", "t", "-o", "json").well().document
        assert described["validate_payload"] == "header"
        txnctl("topic", "create", "t", "--if-not-exists", "--validate-payload", "header").well()
        _produce(server, b"a")
        _produce_garbage(server)
        _produce(server, b"b")

        stopped = txnctl("consume", "t", "-o", "json")
        assert stopped.status != 0
        assert "t-0 at offset 1: its payload is no Records message" in stopped.stderr
        skipped = txnctl("consume", "t", "-o", "json", "--on-corrupt-batch", "skip")
        assert [row["value"] for row in skipped.well().objects] == ["a", "b"]
        assert "skipped: 1 batches that cannot be read, 2 offsets" in skipped.stderr
        running = txnctl("log", "dump", "t", "--show", "records", "-o", "json").well().objects
    stored = txnctl("log", "dump", "t", "--show", "records", "-o", "json", "--data-dir", str(data)).well().objects
    for dumped in (running, stored):
        first, corrupt, last = dumped
        assert (first["value"], last["value"]) == ("a", "b")
        assert (corrupt["offset"], corrupt["next_offset"]) == (1, 3)
        assert "no Records message" in corrupt["corrupt"]
    marked = txnctl("log", "dump", "t", "--show", "records", "--data-dir", str(data)).well().stdout
    assert "t-0@1 " in marked
    assert "!!! cannot be read, goes on at 3: " in marked
    # A partition that takes any payload has nothing that could be called damage.
    txnctl("store", "verify", str(data)).well()


def test_a_payload_that_should_have_been_refused_is_damage_of_its_batch() -> None:
    header = BatchHeader(0, 1, 5, 5, Encoding.RECORDS_V1)
    good = log_pb2.Records(records=[log_pb2.Record()]).SerializeToString()
    batches = [StoredBatch(0, encode_batch(header, payload), header) for payload in (b"garbage", good)]
    for batch, complaints in zip(batches, (1, 0), strict=True):
        assert len(audit_of(batch).damaged) == complaints
        assert audit_of(batch, opens_payloads=False).damaged == []
    assert "at offset 0: no reader can read the batch: its payload is no Records" in audit_of(batches[0]).damaged[0]


def test_kafkas_records_are_looked_into_as_others_are() -> None:
    whole = kafka_payload([ROW] * 3)
    header = BatchHeader(0, 3, BASE_MS, BASE_MS, Encoding.KAFKA_V2)
    good, garbage = (StoredBatch(2, encode_batch(header, payload), header) for payload in (whole, whole[:-1]))
    assert audit_of(good).damaged == []
    assert "no reader can read the batch: its payload has no records of Kafka's" in audit_of(garbage).damaged[0]
    flipped = StoredBatch(2, good.encoded[:-1] + b"\xff", header)
    assert "the checksum says" in audit_of(flipped, opens_payloads=False).damaged[0]


def audit_of(batch: StoredBatch, *, opens_payloads: bool = True) -> PartitionAudit:
    return audit_log(lambda _offset: [batch], ForgottenProducers(), opens_payloads=opens_payloads)


def _produce(server: ServerProcess, value: bytes) -> None:
    with Producer(server.address) as producer:
        producer.send("t", value)


def _produce_garbage(server: ServerProcess) -> None:
    batch = log_pb2.RecordBatch(record_count=2, encoding=log_pb2.ENCODING_RECORDS_V1, payload=b"garbage")
    request = log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic="t", batch=batch)])
    with grpc.insecure_channel(server.address) as channel:
        reply = log_pb2_grpc.LogServiceStub(channel).Produce(request, timeout=DEADLINE_SECONDS)
    assert reply.results[0].error_code == 0
