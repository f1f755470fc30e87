"""Measures the cost of payload validation: the same batches to a topic with it and one without.

One server runs in this process on RocksDB, on the disk of temporary files, and is called as a transport calls it. The
two topics differ in `validate_payload` alone and take turns, so that other work of the machine affects both. The
figures are the processor time of all threads of the server, but not of the process that checks large payloads. Each is
the lowest of several rounds.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter_ns, process_time_ns
from typing import Final, TypeVar

import structlog
import uvloop
from google.protobuf.message import Message

from coordinator_api.v1 import log_pb2, transaction_pb2
from coordinator_protocol.batch import Compression
from coordinator_protocol.compression import pack
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import Address
from coordinator_server.build import Server, build, load
from coordinator_server.engines import open_rocks_store
from coordinator_server.settings.config import Config

ResponseT = TypeVar("ResponseT", bound=Message)

TOPICS: Final = ("header", "full")
"""Topics, named after their setting of `validate_payload`."""
ROUNDS: Final = 5
CALL: Final = CallContext(client_id="bench")


@dataclass(frozen=True, slots=True)
class Load:
    """Batches to send repeatedly."""

    name: str
    batches: int
    records: int
    record_bytes: int
    compression: Compression
    calls: int
    """Number of calls in one round."""
    is_transact: bool = False


LOADS: Final = (
    Load("Transact, 3 batches of a record of 100 bytes", 3, 1, 100, Compression.NONE, 100, is_transact=True),
    Load("Transact, 3 batches of a record of 1 KiB", 3, 1, 1_024, Compression.NONE, 100, is_transact=True),
    Load("Produce, 1,000 records of 100 bytes", 1, 1_000, 100, Compression.NONE, 20),
    Load("Produce, 9,000 records of 100 bytes", 1, 9_000, 100, Compression.NONE, 20),
    Load("Produce, 500 records of 100 bytes, zstd", 1, 500, 100, Compression.ZSTD, 20),
    Load("Produce, 9,000 records of 100 bytes, zstd (checked elsewhere)", 1, 9_000, 100, Compression.ZSTD, 20),
    Load("Produce, 9,000 records of 100 bytes, gzip (checked elsewhere)", 1, 9_000, 100, Compression.GZIP, 20),
)


def main() -> None:
    """Print a line for each load."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    uvloop.run(_main())


async def _main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-payloads-") as directory:
        config = Config.model_validate({"data_dir": Path(directory)})
        opened = open_rocks_store(config)
        server = build(config, opened, SystemClock(), _fail)
        server.commits.start()
        await load(server, config, Address("localhost", 0))
        topics = [log_pb2.NewTopic(name=name, partition_count=3, config={"validate_payload": name}) for name in TOPICS]
        await _call(server, log_pb2.CreateTopicsRequest(topics=topics), log_pb2.CreateTopicsResponse)
        print("| load | header: processor us, elapsed us | full: processor us, elapsed us | processor time |")
        print("| --- | --- | --- | --- |")
        for each in LOADS:
            print(await _line(server, each), flush=True)
        server.payload_worker.close()
        server.worker.close()
        await server.driver.drain()
        server.commits.close()
        opened.store.close()


async def _line(server: Server, asked: Load) -> str:
    send = _transact if asked.is_transact else _produce
    for topic in TOPICS:
        await send(server, asked, topic, 1)
    found: dict[str, list[tuple[float, float]]] = {topic: [] for topic in TOPICS}
    for _ in range(ROUNDS):
        for topic in TOPICS:
            processor_ns, elapsed_ns = process_time_ns(), perf_counter_ns()
            await send(server, asked, topic, asked.calls)
            spent_ns, took_ns = process_time_ns() - processor_ns, perf_counter_ns() - elapsed_ns
            found[topic].append((spent_ns / asked.calls / 1_000, took_ns / asked.calls / 1_000))
    header, full = (tuple(map(min, zip(*found[topic], strict=True))) for topic in TOPICS)
    cells = [f"{processor_us:,.0f}, {elapsed_us:,.0f}" for processor_us, elapsed_us in (header, full)]
    return f"| {asked.name} | {' | '.join(cells)} | x {full[0] / header[0]:.2f} |"


async def _transact(server: Server, asked: Load, topic: str, calls: int) -> None:
    """Send whole transactions of one id, one after the other."""
    name = f"{asked.name} {topic}"
    init = transaction_pb2.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    identity = await _call(server, init, transaction_pb2.InitProducerIdResponse)
    request = transaction_pb2.TransactRequest(transactional_id=name, committed=True)
    for partition in range(asked.batches):
        request.batches.add(topic=topic, partition=partition, batch=_batch(asked))
    request.producer_id, request.producer_epoch = identity.producer_id, identity.producer_epoch
    for number in range(calls):
        request.header.request_id = number.to_bytes(16, "big")
        answer = await _call(server, request, transaction_pb2.TransactResponse)
        request.producer_id, request.producer_epoch = answer.producer_id, answer.producer_epoch


async def _produce(server: Server, asked: Load, topic: str, calls: int) -> None:
    """Send batches without a producer id, one after the other."""
    item = log_pb2.PartitionBatch(topic=topic, partition=0, batch=_batch(asked))
    body = log_pb2.ProduceRequest(batches=[item]).SerializeToString()
    for _ in range(calls):
        answer = log_pb2.ProduceResponse.FromString(await server.dispatcher("Produce", body, CALL))
        assert not answer.results[0].error_code, answer


def _batch(asked: Load) -> log_pb2.RecordBatch:
    # Payload that compresses like text: half of each value is the same in all records.
    half = asked.record_bytes // 2
    rng = Random(5)
    records = [
        log_pb2.Record(value=b"v" * half + rng.randbytes(asked.record_bytes - half)) for _ in range(asked.records)
    ]
    payload = pack(log_pb2.Records(records=records).SerializeToString(), asked.compression)
    return log_pb2.RecordBatch(
        record_count=asked.records,
        base_sequence=0 if asked.is_transact else None,
        encoding=log_pb2.ENCODING_RECORDS_V1,
        compression=log_pb2.Compression.ValueType(asked.compression),
        payload=payload,
    )


async def _call(server: Server, request: Message, response: type[ResponseT]) -> ResponseT:
    method = type(request).__name__.removesuffix("Request")
    answer = response.FromString(await server.dispatcher(method, request.SerializeToString(), CALL))
    error: int = getattr(answer, "error_code", 0)
    assert not error, answer
    return answer


def _fail(failure: Exception) -> None:
    raise failure
