"""Options of the sink, and the choice of the sink and batch that a task writes. Pure: Spark's properties come in as
values.

An unknown option is an error with advice on what to write instead. Names are those of Spark's Kafka sink where the
meaning is the same. Source: docs/spark.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from pyspark_txnlog.advice import DEFAULT_ENDPOINT, TLS_NAMES
from pyspark_txnlog.bounds import InvalidOption
from pyspark_txnlog.options import (
    RPC_TIMEOUT_MS,
    TlsNames,
    parse_choice,
    parse_count,
    parse_endpoint,
    parse_tls_files,
)

PREFIX: Final = "spark"
TRANSACTION_TIMEOUT_MS: Final = 900_000

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Name of the property with the run of a query. Spark sets these three properties in the tasks of a stream. The names
are no API; a test checks every Spark for them."""

SINK_OPTIONS: Final = MappingProxyType(
    {
        "endpoint": DEFAULT_ENDPOINT,
        **dict.fromkeys(TLS_NAMES, ""),
        "topic": "the column topic",
        "delivery": "exactly-once",
        "sinkName": "",
        "transactionalIdPrefix": PREFIX,
        "transactionTimeoutMs": str(TRANSACTION_TIMEOUT_MS),
        "txnAppId": "",
        "txnVersion": "",
        "rpcTimeoutMs": str(RPC_TIMEOUT_MS),
    }
)
"""Options and their defaults; docs/spark.md explains them."""

SINK_ALIASES: Final = MappingProxyType(
    {
        "kafka.bootstrap.servers": "endpoint",
        "kafka.transaction.timeout.ms": "transactionTimeoutMs",
        "kafka.delivery.timeout.ms": "rpcTimeoutMs",
    }
)
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of streams that Spark passes on to every sink."""
_KNOWN: Final = MappingProxyType(
    {name.lower(): name for name in SINK_OPTIONS} | {name.lower(): name for name in SINK_ALIASES}
)
_ADVICE: Final = MappingProxyType(
    {
        "kafka.acks": "a record that is acknowledged is durable, always; leave it out",
        "kafka.enable.idempotence": "no record is appended twice, always; leave it out",
        "kafka.transactional.id": "each attempt of a task has a transactional id of its own; transactionalIdPrefix is"
        " what the names of sinks begin with, for permissions",
        "includeheaders": "headers are written where there is a column headers",
        "subscribe": "it names topics to read; to write, use topic, or a column topic",
        "path": "save() and start() take no path here; use topic, or a column topic",
        "kafka.security.protocol": "TLS is on where tlsCaFile names a CA file",
        "kafka.sasl.jaas.config": "a caller without a certificate shows a token: tokenFile names its file",
    }
)


class Delivery(StrEnum):
    """Delivery guarantee of a write."""

    EXACTLY_ONCE = "exactly-once"
    """A batch becomes visible completely and once, or not at all."""

    AT_LEAST_ONCE = "at-least-once"
    """Records are visible as they are written. Records of repeated tasks are there more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Checked options of one write."""

    endpoint: str
    """Address of the server, HOST:PORT."""
    tls_files: TlsNames | None = None
    topic: str = ""
    """Topic of all records; empty to use the column `topic`."""
    sink_name: str = ""
    """Name that distinguishes the sinks of one query."""
    prefix: str = PREFIX
    """Prefix of the names of sinks."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    """Idle time after which a sink's undecided members are given up (ms). Smaller: a slow task costs its batch. Larger:
    a dead query blocks readers for longer."""
    app_id: str = ""
    """Identity of a batch write, together with `version`: a repetition of it writes nothing."""
    version: int = 0
    delivery: Delivery = Delivery.EXACTLY_ONCE
    rpc_timeout_ms: int = RPC_TIMEOUT_MS
    """Time to keep trying to reach the server (ms)."""


class Batch(NamedTuple):
    """A batch of a sink, and the run that writes it."""

    sink: str
    run_id: str
    batch_id: int


def parse_write_options(given: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    """Return the options of a batch write or of a stream. Raises: InvalidOption."""
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in _SPARKS:
            options[_own_name(name.lower())] = value
    app_id, version = options.get("txnappid", ""), options.get("txnversion")
    if bool(app_id) != (version is not None):
        raise InvalidOption(
            "txnAppId and txnVersion go together: an application, and a number that grows with each write"
        )
    if is_stream and app_id:
        raise InvalidOption(
            "txnAppId and txnVersion are for writes of a batch: the micro-batches of a stream have numbers of their own"
        )
    if version is not None and not (version.isascii() and version.isdigit() and int(version) < 2**63):
        raise InvalidOption(f"txnVersion is {version!r} and must be a whole number from 0")
    return WriteOptions(
        endpoint=parse_endpoint(options),
        tls_files=parse_tls_files(options),
        topic=options.get("topic", ""),
        sink_name=_name_part(options, "sinkName"),
        prefix=_name_part(options, "transactionalIdPrefix") or PREFIX,
        transaction_timeout_ms=parse_count(options, "transactionTimeoutMs", default=TRANSACTION_TIMEOUT_MS),
        app_id=app_id,
        version=int(version or 0),
        delivery=Delivery(parse_choice(options, "delivery", tuple(Delivery))),
        rpc_timeout_ms=parse_count(options, "rpcTimeoutMs", default=RPC_TIMEOUT_MS),
    )


def _own_name(name: str) -> str:
    known = _KNOWN.get(name)
    if known is not None:
        return SINK_ALIASES.get(known, known).lower()
    for candidate in (name, f"kafka.{name}"):
        if candidate in _ADVICE:
            raise InvalidOption(f"the option {name} is not for this sink: {_ADVICE[candidate]}")
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.7)
    advice = f"did you mean {_KNOWN[near[0]]}?" if near else f"known are {', '.join(SINK_OPTIONS)}"
    raise InvalidOption(f"the option {name} does not exist for the sink; {advice}")


def _name_part(options: Mapping[str, str], name: str) -> str:
    text = options.get(name.lower(), "")
    if len(text.encode()) > 200 or not text.isprintable():
        raise InvalidOption(f"{name} is {text!r} and must be at most 200 bytes that can be printed")
    return text


def batch_of(options: WriteOptions, properties: Mapping[str, str | None], own_id: str, *, is_stream: bool) -> Batch:
    """Return the batch that a task writes.

    `properties` are those that Spark sets in the task (`QUERY_ID` and the others). `own_id` is an id of this write,
    the same in all of its tasks. `is_stream` is True for the sink of a stream, and False for a batch write.

    The name of a sink must identify permanently what its batches belong to. That is the id of the query, from its
    checkpoint: with a new checkpoint Spark counts batches from 0 again, and they are different batches.

    Raises: InvalidOption; LookupError if Spark does not set the properties.
    """
    query_id, batch_id, run_id = (properties.get(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    named = f"/{options.sink_name}" if options.sink_name else ""
    if options.app_id:
        return Batch(f"{options.prefix}/app/{options.app_id}{named}", own_id, options.version)
    if query_id is None and not is_stream:
        return Batch(f"{options.prefix}/batch/{own_id}{named}", own_id, 0)
    if query_id is None or batch_id is None or run_id is None:
        raise LookupError(
            f"Spark does not tell this task which batch of which query it writes ({QUERY_ID}, {BATCH_ID}, {RUN_ID}), so"
            " exactly-once is not possible with this version of Spark; use one that is supported, or"
            " delivery=at-least-once"
        )
    if not is_stream and not named:
        raise InvalidOption(
            "within foreachBatch, set sinkName, another one for each write: under each name a micro-batch is committed"
            " once, so that a second write under the same name would be taken for a repetition"
        )
    return Batch(f"{options.prefix}/{query_id}{named}", run_id, int(batch_id))
