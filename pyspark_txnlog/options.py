"""The options of the source. Every option that is not understood is an error that says what to do.

The names are those of Spark's Kafka source wherever the meaning is the same. Options are matched without regard to
case, as Spark does. Offsets are `earliest`, `latest`, or Kafka's JSON with one number per topic and partition. In place
of a number there may be `{"offset":23,"leaderEpoch":0}`, with the leader epoch in which the offset was learned: then a
read fails that would go on behind records, or end behind records, that the log has lost since.

Source: spec spark 8; the options startingOffsets, endingOffsets and assign of Spark's Kafka source.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from coordinator_client.settings import ON_CORRUPT_BATCH, RAISE

FORMAT: Final = "txnlog"
"""Name of the format in Spark."""

EARLIEST: Final = -2
LATEST: Final = -1


class Position(NamedTuple):
    """An offset, `EARLIEST` or `LATEST`, and the leader epoch in which it was learned."""

    offset: int
    leader_epoch: int | None = None
    """None: not known, so nobody notices where the log before the offset is another one by now."""


PartitionOffsets: TypeAlias = Mapping[str, Mapping[int, Position]]
"""Topic -> partition -> where a read begins or ends."""

_OFFSET: Final = "offset"
_LEADER_EPOCH: Final = "leaderEpoch"


class InvalidOption(ValueError):
    """An option of the source is wrong, missing, or not understood. The message says what to write."""


def parse_starting(text: str) -> PartitionOffsets | None:
    """Return the first offsets of a batch read, None = everything from the earliest.

    Raises: InvalidOption.
    """
    if text.lower() == "earliest":
        return None
    if text.lower() == "latest":
        raise InvalidOption(
            "startingOffsets=latest would read nothing in a batch; use earliest, or JSON with offsets "
            '(-2 = earliest): {"topic":{"0":23,"1":-2}}'
        )
    return _parse_json("startingOffsets", text, word="earliest", special=EARLIEST)


def parse_ending(text: str) -> PartitionOffsets | None:
    """Return the offsets before which a batch read stops, None = the end as it is when the read is planned.

    Raises: InvalidOption.
    """
    if text.lower() == "latest":
        return None
    if text.lower() == "earliest":
        raise InvalidOption(
            "endingOffsets=earliest would read nothing; use latest, or JSON with offsets "
            '(-1 = latest): {"topic":{"0":50,"1":-1}}'
        )
    return _parse_json("endingOffsets", text, word="latest", special=LATEST)


def parse_assign(text: str) -> Mapping[str, tuple[int, ...]]:
    """Return the partitions to read of each topic. Raises: InvalidOption."""
    example = '{"topic":[0,1]}'
    found = _json_object("assign", text, example)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(number) for number in partitions):
            raise InvalidOption(
                f"assign must list partition numbers for {topic!r}, like {example}; it has {partitions!r}"
            )
        assigned[topic] = tuple(sorted(set(partitions)))
    return assigned


def offsets_json(offsets: PartitionOffsets) -> str:
    """Return the offsets as `parse_starting` and `parse_ending` read them."""
    return json.dumps(
        {
            topic: {
                str(partition): offset if epoch is None else {_OFFSET: offset, _LEADER_EPOCH: epoch}
                for partition, (offset, epoch) in found.items()
            }
            for topic, found in offsets.items()
        },
        separators=(",", ":"),
    )


def _parse_json(option: str, text: str, *, word: str, special: int) -> PartitionOffsets:
    example = f'{{"topic":{{"0":23,"1":{special}}}}}'
    parsed: dict[str, dict[int, Position]] = {}
    for topic, partitions in _json_object(option, text, example, word=word).items():
        if not isinstance(partitions, dict) or not partitions:
            raise InvalidOption(f"{option} must give an offset per partition for {topic!r}, like {example}")
        parsed[topic] = {}
        for key, given in partitions.items():
            if not (key.isascii() and key.isdigit()):
                raise InvalidOption(f"{option} has {key!r} where the number of a partition of {topic!r} belongs")
            position = given if isinstance(given, dict) else {_OFFSET: given}
            offset, epoch = position.get(_OFFSET), position.get(_LEADER_EPOCH)
            if given == special:
                parsed[topic][int(key)] = Position(special)
                continue
            if not _is_count(offset):
                raise InvalidOption(
                    f"{option} has {given!r} for {topic}-{key}; an offset from 0 or {special} ({word}) belongs there, "
                    f'or {{"{_OFFSET}":23,"{_LEADER_EPOCH}":0}}'
                )
            if position.keys() - {_OFFSET, _LEADER_EPOCH} or not (epoch is None or _is_epoch(epoch)):
                raise InvalidOption(
                    f"{option} has {given!r} for {topic}-{key}; {_OFFSET} and {_LEADER_EPOCH}, a number from 0 to "
                    f"{_EPOCH_MAX}, are all that belongs there"
                )
            parsed[topic][int(key)] = Position(offset, epoch)
    return parsed


def _json_object(option: str, text: str, example: str, *, word: str = "") -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f"{option} is neither {word or 'set'} nor JSON ({error}); write JSON like {example}"
        ) from None
    if not isinstance(found, dict) or not found:
        raise InvalidOption(f"{option} must be a JSON object with a topic in it, like {example}; it is {text}")
    return found


def _is_count(number: object) -> TypeGuard[int]:
    # True and False are ints to Python, but not to JSON.
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


_EPOCH_MAX: Final = 2**31 - 1


def _is_epoch(number: object) -> bool:
    return _is_count(number) and number <= _EPOCH_MAX


COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source, in its order."""

HEADERS_COLUMN: Final = "headers"

RPC_TIMEOUT_MS: Final = 60_000


class Report(StrEnum):
    """What a row of the result stands for."""

    RECORDS = "records"
    """One row per record."""

    RANGES = "ranges"
    """One row per range of offsets: how many of its records can be seen and how many are hidden, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The partitions to read; exactly one of the three is set."""

    names: tuple[str, ...] = ()
    """All partitions of these topics."""

    pattern: str = ""
    """All partitions of every topic whose whole name matches this Python regular expression."""

    assigned: Mapping[str, tuple[int, ...]] | None = None
    """These partitions of each topic."""


class TlsNames(NamedTuple):
    """The options of TLS: names of files on the driver and on every executor, never what is in them."""

    ca_file: str
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    token_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one read, checked."""

    endpoint: str
    """HOST:PORT of the server."""

    tls_files: TlsNames | None = None
    """How to speak TLS with it; None = no TLS. Names only: they travel to every executor, which has the files."""

    topics: Topics

    columns: tuple[str, ...] = COLUMNS
    """The columns of the result, in this order. Fewer columns are the largest gain in speed there is: Spark's Python
    sources cannot be told which columns a query uses."""

    starting: PartitionOffsets | None = None
    """First offset of each partition; None = the earliest."""

    ending: PartitionOffsets | None = None
    """The offset of each partition before which to stop; None = the end when the read is planned: the last stable
    offset, or the high watermark for read_uncommitted."""

    isolation: str = "read_committed"

    is_loss_fatal: bool = True
    """Fail when records that were asked for are gone. False: read what is left, and warn."""

    on_corrupt_batch: str = RAISE
    """`raise`: fail at a batch that cannot be read. `skip`: read what lies behind it, and count it in
    `report=ranges`."""

    min_partitions: int = 0
    """Split the ranges until there are about this many; 0 = one task for each partition of a topic."""

    rpc_timeout_ms: int = RPC_TIMEOUT_MS
    """How long to try to reach the server. Smaller: a restart of the server fails the query. Larger: a wrong endpoint
    is noticed later."""

    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """The UUID that a topic must have: a topic of the same name that was created later is then an error."""

    report: Report = Report.RECORDS


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch read. Raises: InvalidOption."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _KNOWN:
            raise InvalidOption(_why_not(name))
    isolation = _either(options, "isolationLevel", "kafka.isolation.level") or "read_committed"
    if isolation not in {"read_committed", "read_uncommitted"}:
        raise InvalidOption(f"isolationLevel is {isolation!r} and must be read_committed or read_uncommitted")
    endpoint = _either(options, "endpoint", "kafka.bootstrap.servers")
    if not endpoint:
        raise InvalidOption("no server is named: set the option endpoint to HOST:PORT")
    if "," in endpoint:
        raise InvalidOption(f"endpoint is {endpoint!r} and must name one server, HOST:PORT")
    return ReadOptions(
        endpoint=endpoint,
        tls_files=_tls_files(options),
        topics=_topics(options),
        columns=_columns(options),
        starting=parse_starting(options.get("startingoffsets", "earliest")),
        ending=parse_ending(options.get("endingoffsets", "latest")),
        isolation=isolation,
        is_loss_fatal=_boolean(options, "failOnDataLoss", is_default=True),
        on_corrupt_batch=_on_corrupt_batch(options),
        min_partitions=_count(options, "minPartitions", default=0),
        rpc_timeout_ms=_count(options, "rpcTimeoutMs", default=RPC_TIMEOUT_MS),
        topic_ids=_topic_ids(options),
        report=_report(options),
    )


def topic_ids_json(topic_ids: Mapping[str, bytes]) -> str:
    """Return the value of the option topicIds."""
    return json.dumps({topic: topic_id.hex() for topic, topic_id in topic_ids.items()}, separators=(",", ":"))


_TLS_NAMES: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile", "tlsServerName", "tokenFile")
_NAMES: Final = (
    "endpoint",
    *_TLS_NAMES,
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "columns",
    "includeHeaders",
    "isolationLevel",
    "kafka.isolation.level",
    "failOnDataLoss",
    "onCorruptBatch",
    "minPartitions",
    "rpcTimeoutMs",
    "topicIds",
    "report",
)
_KNOWN: Final = MappingProxyType({name.lower(): name for name in _NAMES})

_BY_TIME: Final = "reading by time is not offered; name offsets with startingOffsets and endingOffsets"
_BINARY: Final = "key and value are always binary; cast them in the query, e.g. value.cast('string')"
_NO_GROUP: Final = "a batch read joins no consumer group and commits no offsets; leave it out"
_STREAMING: Final = "it limits a stream and this is a batch read; leave it out, or bound the read with endingOffsets"
_TLS_FILES: Final = "use tlsCaFile, tlsCertificateFile and tlsKeyFile, which name PEM files on every executor"
_NO_SECRETS: Final = "options travel in plain sight; name files, which every executor has (tlsKeyFile for a key)"
_TIMEOUT: Final = "use rpcTimeoutMs, the time to keep trying to reach the server"

_ADVICE: Final = MappingProxyType(
    {
        "path": "load() takes no path here; name topics with the option subscribe",
        "topic": "it names the topic to write to; to read, use subscribe",
        "topics": "use subscribe, with commas between several topics",
        "kafka.auto.offset.reset": "use startingOffsets, which says where a read begins",
        "kafka.enable.auto.commit": _NO_GROUP,
        "kafka.group.id": _NO_GROUP,
        "groupidprefix": _NO_GROUP,
        "kafka.interceptor.classes": "nothing stands between the log and the query; transform in the query",
        "kafka.security.protocol": "TLS is on where tlsCaFile names a CA file",
        "kafka.ssl.truststore.location": _TLS_FILES,
        "kafka.ssl.keystore.location": _TLS_FILES,
        "kafka.ssl.key.password": _NO_SECRETS,
        "kafka.ssl.keystore.password": _NO_SECRETS,
        "kafka.ssl.truststore.password": _NO_SECRETS,
        "password": _NO_SECRETS,
        "token": _NO_SECRETS,
        "kafka.key.deserializer": _BINARY,
        "kafka.value.deserializer": _BINARY,
        "kafka.key.serializer": _BINARY,
        "kafka.value.serializer": _BINARY,
        "startingtimestamp": _BY_TIME,
        "endingtimestamp": _BY_TIME,
        "startingoffsetsbytimestamp": _BY_TIME,
        "endingoffsetsbytimestamp": _BY_TIME,
        "startingoffsetsbytimestampstrategy": _BY_TIME,
        "maxoffsetspertrigger": _STREAMING,
        "minoffsetspertrigger": _STREAMING,
        "maxtriggerdelay": _STREAMING,
        "maxrecordsperpartition": "use minPartitions to split the work into more tasks",
        "kafkaconsumer.polltimeoutms": _TIMEOUT,
        "fetchoffset.numretries": _TIMEOUT,
        "fetchoffset.retryintervalms": _TIMEOUT,
        "pushdown": "filters are not pushed down; narrow the read with assign, startingOffsets and endingOffsets",
    }
)


def _why_not(name: str) -> str:
    for candidate in (name, f"kafka.{name}"):
        if candidate in _ADVICE:
            return f"the option {name} is not for this source: {_ADVICE[candidate]}"
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.7)
    if near:
        return f"the option {name} does not exist; did you mean {_KNOWN[near[0]]}?"
    if name.startswith("kafka."):
        return (
            f"the option {name} configures a Kafka client, and there is none here; "
            "of these only kafka.bootstrap.servers and kafka.isolation.level are understood"
        )
    return f"the option {name} does not exist; known are {', '.join(_NAMES)}"


def _either(options: Mapping[str, str], name: str, alias: str) -> str:
    own, other = options.get(name.lower(), ""), options.get(alias, "")
    if own and other and own != other:
        raise InvalidOption(f"{name} says {own!r} and {alias} says {other!r}; set one of them")
    return own or other


def _tls_files(options: Mapping[str, str]) -> TlsNames | None:
    given = {name: options.get(name.lower()) or None for name in _TLS_NAMES}
    ca_file, certificate_file, key_file, server_name, token_file = given.values()
    if ca_file is None:
        if any(given.values()):
            raise InvalidOption(f"{next(filter(given.get, given))} is set and tlsCaFile is not, which switches TLS on")
        return None
    if (certificate_file is None) != (key_file is None):
        raise InvalidOption("tlsCertificateFile and tlsKeyFile go together: a certificate needs its key")
    return TlsNames(ca_file, certificate_file, key_file, server_name, token_file)


def _topics(options: Mapping[str, str]) -> Topics:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(ways) != 1:
        found = " and ".join(ways) or "none"
        raise InvalidOption(f"exactly one of subscribe, subscribePattern and assign says what to read; {found} is set")
    text = options[ways[0].lower()]
    match ways[0]:
        case "subscribe":
            names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
            if not all(names):
                raise InvalidOption(f"subscribe is {text!r} and must be topic names with commas between them")
            return Topics(names=names)
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidOption(f"subscribePattern is no Python regular expression: {text!r} ({error})") from None
            if not text:
                raise InvalidOption("subscribePattern is empty and would match nothing; '.*' matches every topic")
            return Topics(pattern=text)
        case _:
            return Topics(assigned=parse_assign(text))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = _boolean(options, "includeHeaders", is_default=False)
    if "columns" not in options:
        return (*COLUMNS, HEADERS_COLUMN) if has_headers else COLUMNS
    known = {name.lower(): name for name in (*COLUMNS, HEADERS_COLUMN)}
    chosen: list[str] = []
    for wanted in options["columns"].split(","):
        name = known.get(wanted.strip().lower())
        if name is None:
            raise InvalidOption(f"columns has {wanted.strip()!r}; there are {', '.join(known.values())}")
        if name in chosen:
            raise InvalidOption(f"columns has {name} twice; name each column once")
        chosen.append(name)
    if has_headers and HEADERS_COLUMN not in chosen:
        raise InvalidOption("includeHeaders is set and columns leaves headers out; add headers to columns")
    return tuple(chosen)


def _boolean(options: Mapping[str, str], name: str, *, is_default: bool) -> bool:
    text = options.get(name.lower(), str(is_default)).lower()
    if text not in {"true", "false"}:
        raise InvalidOption(f"{name} is {text!r} and must be true or false")
    return text == "true"


def _count(options: Mapping[str, str], name: str, *, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise InvalidOption(f"{name} is {text!r} and must be a whole number from 1 to {2**31 - 1}")
    return int(text)


def _topic_ids(options: Mapping[str, str]) -> Mapping[str, bytes]:
    text = options.get("topicids", "{}")
    try:
        ids = {topic: bytes.fromhex(topic_id.replace("-", "")) for topic, topic_id in json.loads(text).items()}
    except (ValueError, AttributeError):
        ids = {"": b""}
    if not all(len(topic_id) == 16 for topic_id in ids.values()):
        raise InvalidOption(
            f'topicIds must be JSON with the UUID of each topic, like {{"topic":"<32 hex digits>"}}: {text}'
        )
    return ids


def _on_corrupt_batch(options: Mapping[str, str]) -> str:
    text = options.get("oncorruptbatch", RAISE).lower()
    if text not in ON_CORRUPT_BATCH:
        raise InvalidOption(f"onCorruptBatch is {text!r} and must be {' or '.join(ON_CORRUPT_BATCH)}")
    return text


def _report(options: Mapping[str, str]) -> Report:
    text = options.get("report", Report.RECORDS)
    if text not in set(Report):
        raise InvalidOption(f"report is {text!r} and must be {' or '.join(Report)}")
    report = Report(text)
    if report is Report.RANGES and ("columns" in options or "includeheaders" in options):
        raise InvalidOption("report=ranges has columns of its own; leave columns and includeHeaders out")
    return report
