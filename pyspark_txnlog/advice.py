"""Names of all options, and advice for options that do not exist.

The names are those of Spark's Kafka source wherever the meaning is the same. Keys of a Kafka client with the meaning of
an option are read as that option. All other keys are refused, because a setting without effect misleads.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

TLS_NAMES: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile", "tlsServerName", "tokenFile")


class Option(NamedTuple):
    """Default and meaning of an option in the help of the job; docs/spark.md says more."""

    default: str
    """Default value; empty if there is none."""
    meaning: str


DEFAULT_ENDPOINT: Final = "127.0.0.1:7070"
"""Default address of a server, for the source, the sink and the job alike."""

_SHARED: Final = {
    "endpoint": Option(
        DEFAULT_ENDPOINT,
        "HOST:PORT of the server for the driver and every executor; of several with one store, HOST:PORT,HOST:PORT",
    ),
    "tlsCaFile": Option(
        "", "speak TLS with a server whose certificate a CA of this PEM file signed; every executor needs it"
    ),
    "tlsCertificateFile": Option("", "certificate to show to a server that asks, in PEM"),
    "tlsKeyFile": Option("", "key of that certificate, in PEM"),
    "tlsServerName": Option("", "name in the certificate of the server, if that is not the host of the endpoint"),
    "tokenFile": Option("", "file with the token to show to a server that asks"),
    "subscribe": Option("", "topics to read all partitions of, with commas between them"),
    "subscribePattern": Option("", "Python regular expression that the whole name of a topic matches"),
    "assign": Option("", 'partitions to read, as JSON: {"topic":[0,1]}'),
    "startingOffsets": Option(
        "earliest; of a stream latest",
        'earliest, group, of a stream latest, or JSON: {"topic":{"0":23,"1":-2}}; an offset may be '
        '{"offset":23,"leaderEpoch":0}',
    ),
    "startingTimestamp": Option(
        "", "begin at the first record of this time, in milliseconds since 1970; goes before offsets"
    ),
    "startingOffsetsByTimestamp": Option("", 'the same for each partition: {"topic":{"0":1767225600000}}'),
    "startingOffsetsByTimestampStrategy": Option(
        "error", "error or latest, for partitions without a record of that time"
    ),
    "columns": Option("all but headers", "columns, with commas between them; fewer are faster"),
    "includeHeaders": Option("false", "true: the column headers too"),
    "isolationLevel": Option(
        "read_committed",
        "snapshot: each transaction in all partitions or in none; read_uncommitted also shows records of open and of "
        "aborted transactions",
    ),
    "failOnDataLoss": Option("true", "false: read what is left of records that are gone, and warn"),
    "onCorruptBatch": Option("raise", "skip: read what lies behind a batch that cannot be read"),
    "minPartitions": Option(
        "one task per partition, fewer in small micro-batches",
        "split the work by bytes into at least about so many tasks",
    ),
    "maxRecordsPerPartition": Option("no limit", "split the work until no task has more records"),
    "groupId": Option("", "the group of startingOffsets=group, and the one whose progress a stream publishes"),
    "rpcTimeoutMs": Option("120000", "time limit of every request for reaching the server"),
    "topicIds": Option("", 'the UUID that a topic must have: {"topic":"<32 hex digits>"}'),
}

_BATCH: Final = {
    "endingOffsets": Option("latest", 'latest, or JSON: {"topic":{"0":50,"1":-1}}'),
    "endingTimestamp": Option("", "end before the first record of this time; goes before offsets"),
    "endingOffsetsByTimestamp": Option("", "the same for each partition"),
    "pushdown": Option("false", "true: read only what the conditions of the query leave"),
    "snapshotLease": Option("1m", "time that records of a snapshot are held after a task last renewed it, up to 1h"),
    "report": Option("records", "ranges: a row for each range instead, that counts what is shown and what is hidden"),
}
BATCH_ONLY: Final = tuple(_BATCH)
"""Options of a batch read, which has an end."""

_STREAM: Final = {
    "maxOffsetsPerTrigger": Option("no limit", "most offsets of a micro-batch"),
    "minOffsetsPerTrigger": Option("none", "wait for so many offsets"),
    "maxTriggerDelay": Option("15m", "longest wait for minOffsetsPerTrigger"),
    "maxBytesPerTrigger": Option("no limit", "most bytes of visible records in a micro-batch, like 64m"),
    "maxRecordsPerTrigger": Option("no limit", "most visible records of a micro-batch"),
}
STREAM_ONLY: Final = tuple(_STREAM)
"""Options of a stream."""
LIMITS_OF_A_VECTOR: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "maxRecordsPerTrigger")
"""Options that may end a micro-batch at any offset, even inside a transaction."""

OPTIONS: Final = MappingProxyType(_SHARED | _BATCH | _STREAM)

ALIASES: Final = MappingProxyType(
    {
        "kafka.bootstrap.servers": "endpoint",
        "isolation": "isolationLevel",
        "kafka.isolation.level": "isolationLevel",
        "kafka.group.id": "groupId",
        "kafka.default.api.timeout.ms": "rpcTimeoutMs",
        "kafkaConsumer.pollTimeoutMs": "rpcTimeoutMs",
    }
)
"""Other names of options, for queries that were written for the Kafka source."""

_KNOWN: Final = MappingProxyType({name.lower(): name for name in (*OPTIONS, *ALIASES)})

_BINARY: Final = "key and value are always binary; cast them in the query, e.g. value.cast('string')"
_TLS_FILES: Final = "use tlsCaFile, tlsCertificateFile and tlsKeyFile, which name PEM files on every executor"
_NO_SECRETS: Final = "options travel in plain sight; name files, which every executor has (tlsKeyFile for a key)"
_SASL: Final = "a caller without a certificate shows a token: tokenFile names its file on every executor"
_RETRIES: Final = "requests are repeated, with growing pauses, until rpcTimeoutMs is over; set that"
_FETCH_SIZE: Final = "the source chooses the size of its fetches; split the work with minPartitions"

_ADVICE: Final = MappingProxyType(
    {
        "path": "load() takes no path here; name topics with the option subscribe",
        "topic": "it names the topic to write to; to read, use subscribe",
        "topics": "use subscribe, with commas between several topics",
        "kafka.auto.offset.reset": "use startingOffsets, which says where a read begins",
        "kafka.enable.auto.commit": "a read commits nothing by itself; a stream with groupId publishes how far it is",
        "groupidprefix": "no group is made up; groupId names the one whose progress a stream publishes",
        "kafka.interceptor.classes": "nothing stands between the log and the query; transform in the query",
        "kafka.security.protocol": "TLS is on where tlsCaFile names a CA file",
        "kafka.ssl.truststore.location": _TLS_FILES,
        "kafka.ssl.keystore.location": _TLS_FILES,
        "kafka.ssl.key.password": _NO_SECRETS,
        "kafka.ssl.keystore.password": _NO_SECRETS,
        "kafka.ssl.truststore.password": _NO_SECRETS,
        "password": _NO_SECRETS,
        "token": _NO_SECRETS,
        "kafka.sasl.mechanism": _SASL,
        "kafka.sasl.jaas.config": _SASL,
        "kafka.key.deserializer": _BINARY,
        "kafka.value.deserializer": _BINARY,
        "kafka.key.serializer": _BINARY,
        "kafka.value.serializer": _BINARY,
        "kafka.request.timeout.ms": "use rpcTimeoutMs, the time to keep trying to reach the server",
        "kafka.fetch.max.bytes": _FETCH_SIZE,
        "kafka.max.partition.fetch.bytes": _FETCH_SIZE,
        "kafka.max.poll.records": _FETCH_SIZE,
        "fetchoffset.numretries": _RETRIES,
        "fetchoffset.retryintervalms": _RETRIES,
    }
)


def why_not(name: str) -> str | None:
    """Return the reason and the alternative for an unknown option, named in lower case; None for an option that
    exists."""
    if name in _KNOWN:
        return None
    for candidate in (name, f"kafka.{name}"):
        if candidate in _ADVICE:
            return f"the option {name} is not for this source: {_ADVICE[candidate]}"
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.7)
    if near:
        return f"the option {name} does not exist; did you mean {_KNOWN[near[0]]}?"
    if name.startswith("kafka."):
        aliases = ", ".join(ALIASES)
        return (
            f"the option {name} configures a Kafka client, and there is none here; of these only {aliases} are "
            "understood"
        )
    return f"the option {name} does not exist; known are {', '.join(OPTIONS)}"


def why_not_here(names: Mapping[str, str], *, is_stream: bool) -> str | None:
    """Return the problem with an option that is not for streams, or not for batch reads; None if there is none."""
    for name in BATCH_ONLY if is_stream else STREAM_ONLY:
        if name.lower() in names:
            if not is_stream:
                return f"{name} limits a stream and this is a batch read; leave it out, or bound it with endingOffsets"
            if name.startswith("ending"):
                return f"{name} ends a batch read and a stream has no end; leave it out, or use spark.read"
            return f"{name} is for batch reads only; leave it out"
    return None
