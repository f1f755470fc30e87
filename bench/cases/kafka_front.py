"""Kafka's own clients on our server and on Kafka: the same programs with the same settings.

Ours flushes every commit. Stock Kafka flushes nothing, and a flushed broker stands beside it where records are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from bench.arena import WITH_FRONT, Arena
from bench.case import Case, Contender, Row
from bench.contenders import JAVA, RAW, kafka, kafka_alone, own
from bench.filled import FullTopic
from bench.kafka.settings import PROFILES
from bench.kafka_clients import KAFKA_CLIENTS, LIBRDKAFKA, Times
from bench.profile import sampled
from bench.results import (
    BYTES,
    MEGABYTES_PER_SECOND,
    MICROSECONDS,
    PERCENT,
    RECORDS_PER_SECOND,
    TRANSACTIONS_PER_SECOND,
    Run,
)
from bench.server import OwnServer
from coordinator_protocol.limits import KIBI

if TYPE_CHECKING:
    from bench.kafka.kafka_server import KafkaServer
    from bench.kafka.settings import Profile

GRPC: Final = "gRPC"
CODEC: Final = "share of the codec"
IDLE: Final = "memory of an idle connection"
POLLS: Final = "empty long polls"
BULK: Final = "bulk, batches of 64 KiB"
BULK_TRANSACTIONS: Final = "bulk, transactions of 1,000 x 1 KiB"

_VALUE_BYTES: Final = 100
_PRODUCERS: Final = ((JAVA, 1), (JAVA, 16), (JAVA, 64), (LIBRDKAFKA, 1), (LIBRDKAFKA, 16))
_PROFILED_PRODUCERS: Final = 16
_CODEC_MODULES: Final = tuple(
    f"coordinator_server.kafka_front.{name}" for name in ("messages", "reading", "writing", "headers", "framing")
)
_BULK_VALUE_BYTES: Final = KIBI
_BULK_SETTINGS: Final = f"batch.size={64 * KIBI}"
_RECORDS_PER_TRANSACTION: Final = 1_000
_EMPTY_TOPIC: Final = "empty"
_POLL_WARM_UP_S: Final = 3
"""Time until all connections are open."""
_TOPIC_NUMBERS: Final = count()


def rows(arena: Arena) -> list[Row]:
    """Return transactions by client and number of producers, then reading, bulk writing, and the front's own costs."""
    return [
        *(_transactions_row(arena, client, producers) for client, producers in _PRODUCERS),
        *(_consume_row(arena, client) for client in KAFKA_CLIENTS),
        _bulk_row(arena, BULK, partial(_bulk, arena)),
        _bulk_row(arena, BULK_TRANSACTIONS, partial(_bulk_transactions, arena)),
        _codec_row(arena),
        _polls_row(arena),
        _idle_row(arena),
    ]


def _both(arena: Arena, client: str, measure: Callable[[KafkaServer], Run], *, flushed: bool) -> list[Contender]:
    """Return our server and Kafka in the first profile of the run, or flushed as well."""
    profiles = list(arena.profiles[:1])
    if flushed and profiles and not arena.scale.is_quick:
        profiles.append(PROFILES["flushed"])
    return [own(client, lambda: measure(arena.front())), *kafka(arena, client, measure, profiles)]


def _transactions_row(arena: Arena, client: str, producers: int) -> Row:
    scale = arena.scale
    times = Times(warm_up_s=scale.java_warm_up_s, measured_s=scale.measured_s)

    def measure(server: KafkaServer) -> Run:
        return KAFKA_CLIENTS[client].transactions(server, producers, _VALUE_BYTES, times)

    label = f"{client}, 3 x {_VALUE_BYTES} B, {producers} producer{'s' * (producers > 1)}"
    return Row(label, TRANSACTIONS_PER_SECOND, _both(arena, client, measure, flushed=True))


def _consume_row(arena: Arena, client: str) -> Row:
    topic = FullTopic("kafka-1k", "", _BULK_VALUE_BYTES, arena.scale.records_1k, _RECORDS_PER_TRANSACTION)
    consume = KAFKA_CLIENTS[client].consume

    def measure(server: KafkaServer) -> Run:
        arena.once(server.bootstrap, topic.name, lambda: _fill(server, topic))
        return consume(server, topic.name, topic.value_bytes)

    def measure_converted() -> Run:
        written = FullTopic("sdk-1k", "", topic.value_bytes, topic.records, topic.records_per_transaction)
        front = arena.front()
        arena.once(front.bootstrap, written.name, lambda: _fill_by_sdk(arena, written))
        return consume(front, written.name, written.value_bytes)

    ours, *theirs = _both(arena, client, measure, flushed=False)
    contenders = [ours, own(converted(client), measure_converted), *theirs]
    return Row(f"{client} reads records of 1 KiB", RECORDS_PER_SECOND, contenders)


def converted(client: str) -> str:
    """Return the name of the contender that reads what our SDK wrote."""
    return f"{client}, written by the SDK"


def _fill(server: KafkaServer, topic: FullTopic) -> Run:
    return server.load(
        "fill",
        topic=topic.name,
        records=topic.records,
        bytes=topic.value_bytes,
        records_per_transaction=topic.records_per_transaction,
    )


def _fill_by_sdk(arena: Arena, topic: FullTopic) -> Run:
    return arena.load(
        "fill",
        arena.own_with_front(),
        topic=topic.name,
        records=topic.records,
        value_bytes=topic.value_bytes,
        records_per_transaction=topic.records_per_transaction,
        encoding="records",
    )


def _bulk_row(arena: Arena, label: str, measure: Callable[[KafkaServer, str], Run]) -> Row:
    def measure_on_new_topic(server: KafkaServer) -> Run:
        topic = f"bulk-{next(_TOPIC_NUMBERS)}"
        run = measure(server, topic)
        server.delete_topic(topic)
        return run.scaled(_BULK_VALUE_BYTES / 1e6)

    return Row(label, MEGABYTES_PER_SECOND, _both(arena, JAVA, measure_on_new_topic, flushed=True))


def _bulk(arena: Arena, server: KafkaServer, topic: str) -> Run:
    server.create_topic(topic)
    return server.load(
        "produce",
        bytes=_BULK_VALUE_BYTES,
        topic=topic,
        client=_BULK_SETTINGS,
        warm_up=arena.scale.java_warm_up_s,
        measured=arena.scale.measured_s,
    )


def _bulk_transactions(arena: Arena, server: KafkaServer, topic: str) -> Run:
    return server.load(
        "fill",
        bytes=_BULK_VALUE_BYTES,
        topic=topic,
        client=_BULK_SETTINGS,
        records=arena.scale.records_1k // 4,
        records_per_transaction=_RECORDS_PER_TRANSACTION,
    )


def _codec_row(arena: Arena) -> Row:
    """Return a row of our side alone."""

    def load(server: OwnServer) -> Run:
        from bench.kafka.kafka_server import Front

        times = Times(warm_up_s=0, measured_s=arena.scale.java_warm_up_s + 2 * arena.scale.measured_s)
        front = Front(arena.toolchain(), server)
        return KAFKA_CLIENTS[JAVA].transactions(front, _PROFILED_PRODUCERS, _VALUE_BYTES, times)

    def measure() -> Run:
        found, run = sampled(arena.scratch("profile"), load, WITH_FRONT)
        return Run(figure=100 * found.share_of(_CODEC_MODULES), operations=run.operations, elapsed_s=run.elapsed_s)

    label = f"{CODEC} in the server's time, {_PROFILED_PRODUCERS} producers"
    return Row(label, PERCENT, [own(JAVA, measure)])


def _polls_row(arena: Arena) -> Row:
    scale, connections = arena.scale, arena.scale.connections

    def poll(server: KafkaServer, driver: str, address: str) -> Run:
        arena.once(server.bootstrap, _EMPTY_TOPIC, lambda: server.create_topic(_EMPTY_TOPIC))
        times = {"warm_up_s": _POLL_WARM_UP_S, "measured_s": 2 * scale.measured_s}
        settings = {"driver": driver, "connections": connections, "topic": _EMPTY_TOPIC, **times}
        return server.load_in_python("long_polls", settings | {"bootstrap": address})

    def measure_kafka(server: KafkaServer) -> Run:
        return poll(server, "kafka", server.bootstrap)

    def measure_grpc() -> Run:
        return poll(arena.front(), GRPC, arena.own_with_front().endpoint)

    ours, *theirs = _both(arena, RAW, measure_kafka, flushed=False)
    return Row(f"{POLLS}, {connections:,} connections", MICROSECONDS, [ours, own(GRPC, measure_grpc), *theirs])


def _idle_row(arena: Arena) -> Row:
    def measure(server: KafkaServer) -> Run:
        return server.load_in_python("idle_connections", {"connections": arena.scale.connections})

    def measure_own() -> Run:
        from bench.kafka.kafka_server import Front

        server = arena.new_own("idle", WITH_FRONT)
        server.start()
        try:
            return measure(Front(arena.toolchain(), server))
        finally:
            server.stop()

    def measure_kafka(profile: Profile) -> Run:
        broker = arena.new_broker(profile)
        broker.start()
        try:
            return measure(broker)
        finally:
            broker.kill()

    ours: Sequence[Contender] = [own(RAW, measure_own)]
    return Row(IDLE, BYTES, [*ours, *kafka_alone(arena, RAW, measure_kafka)])


CASE: Final = Case("kafka_front", "Kafka's own clients on our server and on Kafka", rows)
