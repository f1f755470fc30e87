"""Settings of producers, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from coordinator_client.calls import Deadlines
from coordinator_client.encodings import ENCODING_NAMES
from coordinator_client.errors import (
    TransactionError,
    check_here,
    misconfigured,
    wrong_setting,
)
from coordinator_client.producer.batching import BatchFormat
from coordinator_client.producer.sending import CorePlan
from coordinator_client.settings import check_durations
from coordinator_client.tls import Tls
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.transport.transport import MESSAGE_BYTES_MAX, SESSION, check_transport
from coordinator_protocol.batch import Encoding
from coordinator_protocol.compression import COMPRESSION_NAMES
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import KIBI, MEBI
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_transactional_id

BATCH_BYTES_MIN = 4 * KIBI
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX - 64 * KIBI
"""Largest batch that fits into a message together with its names. The server has its own limit, which it names when it
refuses a batch."""
TRANSACT_BYTES_MAX = 768 * KIBI
"""Maximum bytes of batches in one Transact; with this limit the whole request fits into a session message."""


class ProducerOptions(TypedDict, total=False):
    """The keyword arguments of `Producer`; `ProducerConfig` documents each."""

    transactional_id: str | None
    transaction_timeout_ms: int
    two_phase_commit: bool
    delivery_timeout_ms: int
    encoding: str
    compression: str
    batch_bytes: int
    buffer_bytes: int
    transact_bytes: int
    metadata_max_age_ms: int
    client_id: str
    transport: str
    wait_ms: int | None
    tls: Tls | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer. Raises at construction: Rejected or Misconfigured, naming the setting."""

    transactional_id: str | None = None
    """Name of the producer across restarts. The next producer that uses this id fences the previous one, so use one id
    per running instance: two at once fence each other repeatedly. Default: none, which makes a plain idempotent
    producer."""

    transaction_timeout_ms: int = 60_000
    """Time at which the server aborts a transaction (ms), counted from the first batch or offset of it that reached the
    server. Until then an open transaction of a dead producer holds back all committed readers of its partitions, unless
    a producer with the same id starts. Default 60,000. The maximum is the
    server's `transaction_max_timeout_ms`, by default 900,000: above it `Producer.init`, or the first transaction,
    raises Misconfigured with both numbers. Smaller: slow work is lost. Larger: a dead producer holds readers back for
    longer."""

    two_phase_commit: bool = False
    """True if an outside party, such as a database, decides the transactions. They never time out, so use
    `Transaction.prepare`, and `Producer.recover` at every start. The server must allow it
    (transaction_two_phase_commit_enable). Default: off."""

    delivery_timeout_ms: int = 120_000
    """Total time for one request (ms), through lost answers and restarts of the server. Default 120,000. Smaller: more
    unknown outcomes. Larger: failures are reported later."""

    encoding: str = "records"
    """Encoding of batches. `records` (default): protobuf, which every generated stub can read. `arrow`: columns, which
    Spark reads without touching a row; needs pyarrow."""

    compression: str = "none"
    """Compression of each batch: `none` (default), `gzip`, `snappy`, `lz4` or `zstd`. It costs processor time here and
    in the server, which decompresses each batch to check that it can be read. It saves bytes in the network and in the
    store."""

    batch_bytes: int = 512 * KIBI
    """Size at which a batch is sent (bytes). Default 524,288. Smaller: more requests. Larger: more memory per
    partition, more MB per second. The maximum is the server's `batch_bytes_max`, by default 1 MiB. Larger batches, and
    larger single records, are refused as Rejected with both numbers."""

    buffer_bytes: int = 32 * MEBI
    """Number of unanswered bytes at which `send` waits. Default 32 MiB. From the first full batch on, the process keeps
    up to 64 MiB of memory that batches used. That holds with glibc only, and not if the environment has
    MALLOC_TRIM_THRESHOLD_ or one of its relatives."""

    transact_bytes: int = 512 * KIBI
    """Size up to which a transaction waits for its commit and is sent in one request, with one flush (bytes). A larger
    one is sent as batches fill. Default 524,288, at most 786,432. Larger: other producers of the process wait longer
    for its turn. 0: every transaction is sent in parts."""

    metadata_max_age_ms: int = 30_000
    """Maximum age of the partition counts used to spread records (ms). Default 30,000; Kafka's 300,000. Smaller: more
    requests. Larger: new partitions of a topic get records later. A partition named by a record and unknown here is
    looked up at once."""

    client_id: str = ""
    """Name of the program in the server's history. Default: that of the connection, else `producer-` and the
    transactional id, as in Kafka's clients."""

    transport: str = SESSION
    """Transport of the requests. `session` (default): over the one stream of this process; `grpc_session`: the same,
    but never by the compiled transport; `unary`: one call per request. Used only if the producer makes its own
    connection (see `Connection`)."""

    wait_ms: int | None = GIVE_UP_MS
    """Time for which a producer that was never connected tries to reach the server before it raises Unreachable (ms).
    Default 1,500. None: as long as each call may take. Used only if the producer makes its own connection (see
    `Connection`)."""

    tls: Tls | None = None
    """TLS settings: how to verify the server and which credentials to present, as in `Tls(ca_file="ca.pem")`. Default:
    no TLS. See `Connection`."""

    def __post_init__(self) -> None:
        if self.transactional_id is not None:
            check_here(check_transactional_id, self.transactional_id, Method.INIT_PRODUCER_ID)
        check_durations(self, _refused, may_be_zero=("wait_ms",))
        if self.encoding not in ENCODING_NAMES:
            raise wrong_setting("encoding", self.encoding, f"must be one of {', '.join(ENCODING_NAMES)}")
        if self.compression not in COMPRESSION_NAMES:
            raise misconfigured(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression is {self.compression!r} and must be one of {', '.join(COMPRESSION_NAMES)}",
            )
        if not BATCH_BYTES_MIN <= self.batch_bytes <= BATCH_BYTES_MAX:
            between = f"must be between {BATCH_BYTES_MIN} and {BATCH_BYTES_MAX}"
            raise wrong_setting("batch_bytes", self.batch_bytes, between)
        if self.buffer_bytes < self.batch_bytes:
            raise wrong_setting("buffer_bytes", self.buffer_bytes, f"must be at least batch_bytes, {self.batch_bytes}")
        if not 0 <= self.transact_bytes <= TRANSACT_BYTES_MAX:
            raise wrong_setting("transact_bytes", self.transact_bytes, f"must be between 0 and {TRANSACT_BYTES_MAX}")
        check_transport(self.transport)
        if ENCODING_NAMES[self.encoding] is Encoding.ARROW_V1:
            # Fail here, where the setting is given, and not when the first batch is full.
            import coordinator_client.arrow_encoding as _needed  # noqa: F401

    def core_plan(self, *, client_id: str) -> CorePlan:
        """Return the settings in the form that the core takes. `client_id` is the default for an unset one."""
        return CorePlan(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            two_phase_commit=self.two_phase_commit,
            client_id=self.client_id or client_id,
            batch_format=BatchFormat(
                encoding=ENCODING_NAMES[self.encoding],
                compression=COMPRESSION_NAMES[self.compression],
                batch_bytes=self.batch_bytes,
                record_bytes_max=BATCH_BYTES_MAX,
                is_transactional=self.transactional_id is not None,
            ),
            deadlines=Deadlines(total_ms=self.delivery_timeout_ms),
            buffer_bytes_max=self.buffer_bytes,
            transact_bytes=self.transact_bytes,
            metadata_max_age_ms=self.metadata_max_age_ms,
        )


def _refused(name: str, found: object, rule: str) -> TransactionError:
    if name == "transaction_timeout_ms":
        return misconfigured(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{name} is {found} and {rule}")
    return wrong_setting(name, found, rule)
