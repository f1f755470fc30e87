"""Options of the source. An unknown option is an error with advice on what to write instead.

Option names are matched without regard to case, as in Spark. `advice` has the names, `bounds` has the options for start
and end of a read.

Source: docs/spark.md; the options of Spark's Kafka source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from pyspark_txnlog.advice import (
    ALIASES,
    DEFAULT_ENDPOINT,
    LIMITS_OF_A_VECTOR,
    STREAM_ONLY,
    TLS_NAMES,
    why_not,
    why_not_here,
)
from pyspark_txnlog.bounds import (
    COMMITTED,
    FROM_EARLIEST,
    TO_LATEST,
    Bound,
    InvalidOption,
    Position,
    parse_assign,
    parse_ending,
    parse_starting,
)

RAISE: Final = "raise"
ON_CORRUPT_BATCH: Final = (RAISE, "skip")
"""Choices for a batch with a wrong checksum, the same as in the SDK. The SDK is not imported here: an executor parses
options before it can report that it lacks the SDK's dependencies."""

FORMAT: Final = "txnlog"
"""Name of the format in Spark."""

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Columns of Spark's Kafka source, in the same order."""

HEADERS_COLUMN: Final = "headers"

RPC_TIMEOUT_MS: Final = 120_000
"""Default of Spark's Kafka source (`kafkaConsumer.pollTimeoutMs`): a server may be away for a minute."""

LEASE_MS: Final = 60_000
LEASE_MS_MAX: Final = 3_600_000

COMMITTED_ONLY: Final = "read_committed"
SNAPSHOT: Final = "snapshot"
ISOLATION_LEVELS: Final = (COMMITTED_ONLY, SNAPSHOT, "read_uncommitted")


class Report(StrEnum):
    """Meaning of a row of the result."""

    RECORDS = "records"
    """One row per record."""

    RANGES = "ranges"
    """One row per range of offsets: the numbers of its visible and hidden records, and why they are hidden."""


class NoMatch(StrEnum):
    """Treatment of a partition without a record of the start time or later."""

    ERROR = "error"
    """The read fails."""

    LATEST = "latest"
    """The read begins at the end of the partition."""


MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """Limits of a micro-batch of a stream; 0 = no limit."""

    offsets_max: int = 0
    """Largest number of offsets, including those of hidden records and markers."""

    offsets_min: int = 0
    """Number of offsets to wait for, but no longer than `delay_ms_max`."""

    delay_ms_max: int = MAX_TRIGGER_DELAY_MS
    """Longest time that `offsets_min` may delay a micro-batch (ms)."""

    bytes_max: int = 0
    """Largest number of stored bytes of visible records. A single larger batch is still read."""

    records_max: int = 0
    """Largest number of visible records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Partitions to read; exactly one of the three fields is set."""

    names: tuple[str, ...] = ()
    """All partitions of these topics."""

    pattern: str = ""
    """All partitions of every topic whose whole name matches this Python regular expression."""

    assigned: Mapping[str, tuple[int, ...]] | None = None
    """These partitions of each topic."""


class TlsNames(NamedTuple):
    """TLS options: names of files on the driver and on every executor, never their contents."""

    ca_file: str
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    token_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Checked options of one read."""

    endpoint: str
    """Address of the server, HOST:PORT."""

    tls_files: TlsNames | None = None
    """TLS files; None = no TLS. Only the names travel to the executors, which have the files."""

    topics: Topics

    columns: tuple[str, ...] = COLUMNS
    """Columns of the result, in this order. Fewer columns give the largest gain in speed: Spark does not report to
    Python sources which columns a query uses."""

    starting: Bound = FROM_EARLIEST
    """Start of the read."""

    ending: Bound = TO_LATEST
    """End of the read, exclusive. Latest is the end at the time of planning: the last stable offset, or the high
    watermark for read_uncommitted. A stream has no end."""

    no_match: NoMatch = NoMatch.ERROR
    """Treatment of a partition without a record of the start time or later."""

    group_id: str = ""
    """Group whose committed offsets are the start, or to which a stream publishes its progress; empty = none."""

    isolation: str = COMMITTED_ONLY
    """Isolation level, which decides the visible records.

    - read_committed: all committed records below the last stable offsets.
    - snapshot: the records of a snapshot, which has each transaction in all partitions or in none.
    - read_uncommitted: all records."""

    lease_ms: int = LEASE_MS
    """Time that the records of a batch read's snapshot are held after the last renewal by one of its tasks (ms)."""

    is_loss_fatal: bool = True
    """True to fail if requested records are gone; False to read the rest, with a warning."""

    on_corrupt_batch: str = RAISE
    """`raise`: fail at a batch that cannot be read. `skip`: continue after it, and count it in `report=ranges`."""

    min_partitions: int = 0
    """Split the ranges, by the bytes of their visible records, into about this many tasks; 0 = one task for each
    partition of a topic."""

    partition_records_max: int = 0
    """Split the ranges until no task has more records than this; 0 = no limit."""

    is_pushed_down: bool = False
    """True to use conditions of a query on topic, partition, offset and timestamp to read less."""

    limits: TriggerLimits = TriggerLimits()
    """Limits of a micro-batch of a stream."""

    rpc_timeout_ms: int = RPC_TIMEOUT_MS
    """Time to keep trying to reach the server (ms). Smaller: a restart of the server fails the query. Larger: a wrong
    endpoint is noticed later."""

    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Required UUID by topic. A topic that was created later under the same name is then an error."""

    report: Report = Report.RECORDS

    @property
    def is_snapshot(self) -> bool:
        """True if the read is of a snapshot."""
        return self.isolation == SNAPSHOT

    @property
    def fetch_isolation(self) -> str:
        """Isolation level of fetches and measurements. A snapshot is a filter over committed records."""
        return COMMITTED_ONLY if self.is_snapshot else self.isolation


def parse_options(given: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """Return the options of a batch read or of a stream. Raises: InvalidOption."""
    options = _by_own_names(given)
    misplaced = why_not_here(options, is_stream=is_stream)
    if misplaced:
        raise InvalidOption(misplaced)
    starting = parse_starting(options, is_stream=is_stream)
    group_id = options.get("groupid", "")
    is_of_group = starting == Position(COMMITTED)
    if is_of_group and not group_id:
        raise InvalidOption("startingOffsets=group begins where a group stands: name it with groupId")
    if group_id and not (is_of_group or is_stream):
        raise InvalidOption("a batch read needs groupId for startingOffsets=group only; set that too, or leave it out")
    return SourceOptions(
        endpoint=parse_endpoint(options),
        tls_files=parse_tls_files(options),
        topics=_topics(options),
        columns=_columns(options),
        starting=starting,
        ending=parse_ending(options),
        no_match=NoMatch(parse_choice(options, "startingOffsetsByTimestampStrategy", tuple(NoMatch))),
        group_id=group_id,
        isolation=parse_choice(options, "isolationLevel", ISOLATION_LEVELS),
        lease_ms=_lease_ms(options),
        is_loss_fatal=_boolean(options, "failOnDataLoss", is_default=True),
        on_corrupt_batch=parse_choice(options, "onCorruptBatch", ON_CORRUPT_BATCH),
        min_partitions=parse_count(options, "minPartitions", default=0),
        partition_records_max=parse_count(options, "maxRecordsPerPartition", default=0, largest=2**63 - 1),
        is_pushed_down=_boolean(options, "pushdown", is_default=False),
        limits=_limits(options),
        rpc_timeout_ms=parse_count(options, "rpcTimeoutMs", default=RPC_TIMEOUT_MS),
        topic_ids=_topic_ids(options),
        report=_report(options),
    )


def parse_either(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a batch read, or of a stream if they can only be a stream's.

    Spark requests the schema before it says which of the two it wants. Raises: InvalidOption."""
    is_stream = any(name.lower() in _by_own_names(given) for name in STREAM_ONLY)
    try:
        return parse_options(given, is_stream=is_stream)
    except InvalidOption as error:
        try:
            return parse_options(given, is_stream=not is_stream)
        except InvalidOption:
            raise error from None


def topic_ids_json(topic_ids: Mapping[str, bytes]) -> str:
    """Return the value of the option topicIds."""
    return json.dumps({topic: topic_id.hex() for topic, topic_id in topic_ids.items()}, separators=(",", ":"))


def _by_own_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their own names in lower case, with aliases replaced."""
    options: dict[str, str] = {}
    came_as: dict[str, str] = {}
    aliases = {alias.lower(): name.lower() for alias, name in ALIASES.items()}
    for name, value in given.items():
        problem = why_not(name.lower())
        if problem:
            raise InvalidOption(problem)
        own = aliases.get(name.lower(), name.lower())
        if options.setdefault(own, value) != value:
            raise InvalidOption(f"{came_as[own]} says {options[own]!r} and {name} says {value!r}; set one of them")
        came_as.setdefault(own, name)
    return options


def parse_endpoint(options: Mapping[str, str]) -> str:
    """Return HOST:PORT, or several separated by commas. Raises InvalidOption, as do all parsers below."""
    endpoint = options.get("endpoint", DEFAULT_ENDPOINT)
    if not endpoint:
        raise InvalidOption(f"the option endpoint is empty: set it to HOST:PORT, or omit it for {DEFAULT_ENDPOINT}")
    if not all(each.strip() for each in endpoint.split(",")):
        raise InvalidOption(
            f"endpoint is {endpoint!r} and must be HOST:PORT, or HOST:PORT,HOST:PORT for several servers"
        )
    return endpoint


def parse_tls_files(options: Mapping[str, str]) -> TlsNames | None:
    """Return the names of the TLS files; None = no TLS."""
    given = {name: options.get(name.lower()) or None for name in TLS_NAMES}
    ca_file, certificate_file, key_file, server_name, token_file = given.values()
    if ca_file is None:
        if any(given.values()):
            raise InvalidOption(f"{next(filter(given.get, given))} is set and tlsCaFile is not, which switches TLS on")
        return None
    if (certificate_file is None) != (key_file is None):
        raise InvalidOption("tlsCertificateFile and tlsKeyFile go together: a certificate needs its key")
    return TlsNames(
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=key_file,
        server_name=server_name,
        token_file=token_file,
    )


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


def parse_choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option with fixed choices; the first choice is the default."""
    text = options.get(name.lower(), choices[0]).lower()
    if text not in choices:
        raise InvalidOption(f"{name} is {options[name.lower()]!r} and must be {' or '.join(choices)}")
    return text


def parse_count(options: Mapping[str, str], name: str, *, default: int, largest: int = 2**31 - 1) -> int:
    """Return a whole number from 1."""
    text = options.get(name.lower())
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= largest):
        raise InvalidOption(f"{name} is {text!r} and must be a whole number from 1 to {largest}")
    return int(text)


def _limits(options: Mapping[str, str]) -> TriggerLimits:
    offsets_max, offsets_min, delay_ms, bytes_max, records_max = STREAM_ONLY
    found = TriggerLimits(
        offsets_max=parse_count(options, offsets_max, default=0, largest=2**63 - 1),
        offsets_min=parse_count(options, offsets_min, default=0, largest=2**63 - 1),
        delay_ms_max=_with_unit(options, delay_ms, _DURATIONS_MS, "15m") or MAX_TRIGGER_DELAY_MS,
        bytes_max=_with_unit(options, bytes_max, _SIZES, "64m"),
        records_max=parse_count(options, records_max, default=0, largest=2**63 - 1),
    )
    if found.offsets_max and found.offsets_min > found.offsets_max:
        raise InvalidOption(
            f"{offsets_min} is {found.offsets_min} and {offsets_max} {found.offsets_max}: no micro-batch can have both"
        )
    if found.delay_ms_max != MAX_TRIGGER_DELAY_MS and not found.offsets_min:
        raise InvalidOption(f"{delay_ms} says how long {offsets_min} may hold records back; set that too")
    return found


_DURATIONS_MS: Final = MappingProxyType(
    {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
)
_SIZES: Final = MappingProxyType({"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40})


def _with_unit(options: Mapping[str, str], name: str, units: Mapping[str, int], example: str) -> int:
    """Return a number with an optional unit in Spark's notation; 0 if the option is not set."""
    text = options.get(name.lower())
    if text is None:
        return 0
    found = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*)\s*", text.lower())
    number = int(found[1]) * units.get(found[2], 0) if found else 0
    if not 0 < number < 2**63:
        raise InvalidOption(
            f"{name} is {text!r} and must be a number from 1, with one of the units {', '.join(units)[2:]} behind it "
            f"or none, like {example}"
        )
    return number


def _lease_ms(options: Mapping[str, str]) -> int:
    lease_ms = _with_unit(options, "snapshotLease", _DURATIONS_MS, "5m")
    is_snapshot = options.get("isolationlevel", "").lower() == SNAPSHOT
    if lease_ms > LEASE_MS_MAX:
        raise InvalidOption("snapshotLease is at most 1h: it is renewed while tasks read")
    if lease_ms and not is_snapshot:
        raise InvalidOption("snapshotLease says how long a snapshot is held; set isolationLevel to snapshot, too")
    if is_snapshot and any(name.lower() in options for name in LIMITS_OF_A_VECTOR):
        raise InvalidOption(
            f"a micro-batch of snapshots has whole transactions, so {', '.join(LIMITS_OF_A_VECTOR)} cannot limit it: "
            "leave them out, or set isolationLevel to read_committed"
        )
    return lease_ms or LEASE_MS


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


def _report(options: Mapping[str, str]) -> Report:
    text = options.get("report", Report.RECORDS)
    if text not in set(Report):
        raise InvalidOption(f"report is {text!r} and must be {' or '.join(Report)}")
    report = Report(text)
    if report is Report.RANGES and ("columns" in options or "includeheaders" in options):
        raise InvalidOption("report=ranges has columns of its own; leave columns and includeHeaders out")
    return report
