"""All settings of a server: one frozen model. `config_sources.py` reads the values."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
)

from coordinator_core.config import CoreConfig
from coordinator_protocol.limits import EPOCH_MAX, MEBI, SHARD_COUNT_MAX, Limits
from coordinator_runtime.history_trim import HISTORY_RETENTION_MS
from coordinator_runtime.rocks import StoreOptions
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_server.addresses import AddressText
from coordinator_server.backups import BackupSettings
from coordinator_server.grpc_front.transports import NO_UNIX_SOCKETS, TransportName
from coordinator_server.idle_sessions import SESSION_IDLE_MS_MAX
from coordinator_server.listeners import Listener, why_unsafe
from coordinator_server.listening import is_unix
from coordinator_server.logs import LogFormat, LogLevel
from coordinator_server.metrics.lag import LagConfig
from coordinator_server.security.tls import ClientAuth
from coordinator_server.settings.access_config import ENVIRONMENT_PREFIX as ENVIRONMENT_PREFIX
from coordinator_server.settings.access_config import KAFKA_PREFIX
from coordinator_server.settings.access_config import METRICS_PREFIX as METRICS_PREFIX
from coordinator_server.settings.groups_config import GroupsConfig
from coordinator_server.settings.setting_types import (
    KeptLimit,
    NotNegative,
    Positive,
    names,
)
from coordinator_server.tracing import TraceExporter, check_installed
from coordinator_server.traffic.admission import AdmissionLimits
from coordinator_server.traffic.answer_bytes import AnswerLimits
from coordinator_server.validation import SettingPath
from partition_log.catalog.settings import FOR_EVER, Retention
from partition_log.state import (
    COMPACTION_BYTES_PER_SECOND,
    COMPACTION_INTERVAL_MS,
    PRODUCER_EXPIRATION_MS,
    REMOVAL_INTERVAL_MS,
    PartitionConfig,
)
from txn_coordinator.config import EXPIRATION_MS, TwoPhase

CONFIG_FILE_VARIABLE: Final = "TXN_CONFIG"
"""Environment variable that names the TOML file if no flag does."""


class Config(GroupsConfig):
    """All settings. Units are in the names: `_ms` milliseconds, `_bytes` bytes."""

    data_dir: SettingPath
    """Directory of the store; created if missing; for one process at a time. A new store is only made in an empty
    directory. Hidden files, TOML files, `lost+found` and files that other settings name may also be there. There is no
    default, so that data is not stored in an unintended place."""

    transport: TransportName = TransportName.AUTO
    """Implementation of gRPC; callers see no difference. `grpc`: grpc.aio, which is always available. `native`: the
    compiled one. It needs less processor time, must be installed (`txn-coordinator[native]`), and serves no Unix
    sockets. `auto`: native if possible."""

    advertised: AddressText | None = None
    """HOST:PORT that FindCoordinator gives to clients, if it differs from `listen`. It does behind a proxy, in a
    container, or with 0.0.0.0, to which other machines cannot connect. The SDK keeps the address that it was given."""

    node_id: Annotated[int, Field(ge=0)] = 1
    """Number of this server in answers of FindCoordinator."""

    shard_count: Annotated[int, Field(ge=1, le=SHARD_COUNT_MAX)] = 64
    """Number of slices of coordinator state and partitions. It is fixed when the directory is created, because the
    place of every key depends on it. Another number is refused at start."""

    two_phase: TwoPhase = TwoPhase.FUSED
    """Two-phase commit in one step or three. `fused`: PREPARE, markers and COMPLETE in one flush if possible. `split`:
    always three steps, each durable before the next; slower, for participants elsewhere and for watching the phases."""

    lane: bool = True
    """Use the fast path ("lane") for common calls. Answers and stored data are the same without it. Turn it off only to
    find out if it causes a defect: without it a transaction costs about twice the processor time."""

    reflection: bool = False
    """Let gRPC tools query the names and messages of the services."""

    accept_data_loss: bool = False
    """Start although the store holds less than was reported durable. The remaining data must be the state of an earlier
    moment, or lack only batches that were in a missing file. The missing data is lost permanently, so look for the
    backup first, and set this for one start only. It does not help if files contradict each other: such a start is
    always refused."""

    transaction_max_timeout_ms: Positive = 900_000
    """Longest transaction timeout that a producer may request. Too small: long jobs are refused. Too large: a dead
    producer holds back every committed reader of its partitions for that long."""

    transactional_id_expiration_ms: Positive = EXPIRATION_MS
    """Time after which an unused transactional id is forgotten. An id whose transaction is open or being completed
    never is. Too small: a producer that pauses gets INVALID_PRODUCER_ID_MAPPING and must initialise again. Too large:
    ids that will not be used again keep their memory."""

    producer_id_expiration_ms: Positive = PRODUCER_EXPIRATION_MS
    """Time without writes after which a partition forgets a producer. One with an open transaction there is never
    forgotten. Must be longer than producers repeat a batch. Too small: a repeated batch is appended twice. An idle
    producer without a transactional id gets UNKNOWN_PRODUCER_ID and needs a new identity. Too large: producers that
    will never write again keep their memory."""

    transaction_two_phase_commit_enable: bool = False
    """Let producers be participants in a two-phase commit that another system coordinates (enable_2pc,
    PrepareTransaction). Their transactions never time out. A forgotten one holds back every committed reader of its
    partitions until that system or an operator ends it."""

    default_retention_ms: KeptLimit = FOR_EVER
    """Retention time of records in topics that have no `retention_ms` of their own; -1 for no limit. It counts from the
    newest timestamp, or from the time of writing if that is earlier or there is no timestamp. Records are removed in
    whole sections of the log (1 MiB or 256 batches). They stay until all transactions that began earlier have ended.
    Too small: readers that pause lose records. Too large, or -1: the disk fills."""

    default_retention_bytes: KeptLimit = FOR_EVER
    """Bytes of its log that each partition keeps in topics that have no `retention_bytes` of their own; -1 for no
    limit. Too small: readers that fall behind lose records. Too large, or -1: the disk fills."""

    default_timestamp_after_max_ms: KeptLimit = FOR_EVER
    """Maximum lead of a record's timestamp over the server's clock (Kafka's `message.timestamp.after.max.ms`); -1 for
    no limit. It applies to topics that have no `timestamp_after_max_ms` of their own. A batch with a later timestamp is
    refused with INVALID_TIMESTAMP. Too small: producers whose clocks are fast are refused. Too large, or -1: searches
    by time end at a record from the future, wherever it is. The retention of records beside it counts from the time of
    writing."""

    retention_check_interval_ms: Positive = REMOVAL_INTERVAL_MS
    """Pause between two searches for records beyond retention. Too small: processor time. Too large: the disk holds
    more than retention allows."""

    compaction_check_interval_ms: Positive = COMPACTION_INTERVAL_MS
    """Pause between two searches for a log to be compacted. Too small: processor time. Too large: old records."""

    compaction_bytes_per_second: NotNegative = COMPACTION_BYTES_PER_SECOND
    """Bytes that compaction reads in a second; 0 for no limit. Too small: logs grow. Too large: commits beside it take
    longer."""

    history_retention_ms: KeptLimit = HISTORY_RETENTION_MS
    """Retention time of the history of transactions and groups; -1 for no limit. The newest step of each shard is
    always kept. Too small: `txnctl describe` and `txnctl log dump --show transactions` show less. Too large: disk."""

    batch_bytes_max: Positive = MEBI
    """Largest record batch. Too small: larger batches are refused; those of the SDK have up to 512 KiB. Too large: one
    batch delays the commits of all clients."""

    message_bytes_max: Positive = 16 * MEBI
    """Largest gRPC request and response. Must be larger than batch_bytes_max; clients must allow as much."""

    partitions_per_transaction_max: Positive = 10_000
    """Maximum number of partitions and groups in one transaction. Too large: its PREPARE record and its markers delay
    all other calls."""

    partitions_per_topic_max: Positive = 10_000
    """Maximum number of partitions of one topic. An idle one costs up to 64 KiB of memory."""

    fused_participants_max: Positive = 500
    """Number of partitions and groups up to which a transaction may end in one flush. Above, it ends in two phases."""

    producer_epoch_max: Annotated[int, Field(ge=2, le=EPOCH_MAX)] = EPOCH_MAX
    """Largest producer epoch. Small values are for tests of the rotation of producer ids."""

    parked_wait_ms_max: Positive = 30_000
    """Longest wait of a call behind a transaction that is being completed (a "parked" call), also if its deadline is
    later."""

    parked_calls_max: Positive = 10_000
    """Maximum number of such parked calls, which wait behind transactions. Beyond, CONCURRENT_TRANSACTIONS is answered
    at once."""

    calls_in_work_max: Positive = 4_096
    """Number of unanswered calls beyond which further ones are refused and must be retried (THROTTLING_QUOTA_EXCEEDED).
    Too small: bursts are refused that would have passed. Too large: when the disk stalls, memory and waiting times
    grow."""

    reserved_calls: Annotated[int, Field(ge=0)] = 1_024
    """Additional calls in work for EndTxn and WriteTxnMarkers alone, because they end the waits of others. The same
    number is reserved for calls of group members that may end the wait of others when no more may wait."""

    long_polls_max: Positive = 10_000
    """Maximum number of Fetch and ShareFetch calls that wait for records."""

    connections_max: Positive = 10_000
    """Maximum number of connections of callers. Further ones are closed at once (with grpc.aio from about 95 % on). All
    listeners share it evenly: with two, 10,000 are 5,000 for each, even if the other one has none. It is lowered to the
    number of open files (`ulimit -n`) that the store leaves. Too small: clients are kept out. Too large: each may hold
    its share of memory."""

    streams_per_connection_max: Annotated[int, Field(ge=100, le=100_000)] = 4_096
    """Maximum number of open calls and sessions of one connection; a client waits before it begins more. Too small:
    long polls of a process delay its other calls. Too large: one connection takes much memory."""

    session_idle_ms_max: Annotated[int, Field(ge=1_000)] = SESSION_IDLE_MS_MAX
    """Time after which an idle session ends: nothing arrives, and nothing waits for an answer. The client opens another
    one with its next request. Too small: clients that rarely send wait for a new session each time. Too large: unused
    sessions take memory, and count towards the quota of their principal."""

    answer_bytes_max: Positive = 256 * MEBI
    """Maximum bytes of answers that wait for callers to take them. If few are left, answers to Fetch are shorter. If
    none are left, reads are refused and must be retried (THROTTLING_QUOTA_EXCEEDED). Too small: many readers of large
    batches wait for each other. Too large: stalled readers cost twice as much memory."""

    answer_bytes_per_connection_max: Positive = 64 * MEBI
    """The same limit for one connection; lower while others hold much. Too small: the readers of one process wait for
    each other. Too large: a few stalled readers leave short answers to all others."""

    group_bytes_max: Positive = MEBI
    """Size at which a commit group is closed early. A commit group is the calls that one write and one sync of the disk
    make durable together. Larger: writing it blocks the server for longer (1 MiB: 2 ms)."""

    undurable_bytes_max: Positive = 64 * MEBI
    """Maximum bytes that wait for the disk. Beyond, new work is refused and must be retried."""

    write_buffer_bytes: Positive = 64 * MEBI
    """Memory of the store for data that is in no sorted file yet. Too small: stalls. Too large: memory, slower
    recovery."""

    block_cache_bytes: Positive = 32 * MEBI
    """Memory of the store for blocks that were read. Too small: old records are decompressed again and again."""

    wal_bytes_max: Positive = 256 * MEBI
    """Size at which the store's write-ahead log is trimmed. Too small: many small files. Too large: slower recovery."""

    large_batch_bytes_min: Positive = MEBI // 32
    """Size from which a batch is stored in a segment file beside the store's tables. Too small: two flushes for every
    commit. Too large: the store copies much, and delays all clients while it does."""

    backup_directory: SettingPath | None = None
    """Directory in which the server makes backups, each in a directory of its own; created if missing. Choose another
    disk than that of `data_dir`, and one directory per server. Not set: `txnctl backup create` works only while the
    server is stopped."""

    backup_interval_ms: NotNegative = 0
    """Interval of scheduled backups, counted from the newest existing one; 0: only on request. A backup costs what was
    written since the one before. Too large: the loss of a disk loses as much data."""

    backups_kept: Positive = 24
    """Number of finished backups of its store that the server keeps after a scheduled one; older ones are removed.
    Larger: more space, mostly for data that was deleted since."""

    metrics_listen: AddressText | None = None
    """HOST:PORT of /metrics for Prometheus, over HTTP on its own thread; port 0 takes a free one. Not set: no metrics.
    They name topics, so protect them like the data."""

    metrics_tls_certificate_file: SettingPath | None = None
    """PEM file with the certificate of `metrics_listen`, which then is HTTPS; as tls_certificate_file."""

    metrics_tls_key_file: SettingPath | None = None
    """PEM file with the key of that certificate."""

    metrics_tls_client_ca_file: SettingPath | None = None
    """PEM file with the CA certificates that sign those of scrapers."""

    metrics_tls_client_auth: ClientAuth = ClientAuth.NONE
    """Policy on the certificates of scrapers; as tls_client_auth."""

    metrics_partitions_max: Annotated[int, Field(ge=0)] = 1_000
    """Number of partitions with gauges of their own. Larger: a scrape takes longer and Prometheus keeps more series.
    txn_partitions_omitted counts the others."""

    metrics_lag_groups: str = ""
    """Groups whose lag is measured: ids separated by commas, or prefixes of ids that end in `*` (`*` alone: all).
    Empty: none. Each has series for each of its topics, and is measured every ten seconds."""

    metrics_lag_topics_max: NotNegative = 1_000
    """Maximum number of pairs of such a group and a topic with series of their own; txn_group_lag_omitted counts the
    others."""

    disk_free_min_bytes: NotNegative = 512 * MEBI
    """Free space of the store's disk below which records are refused with THROTTLING_QUOTA_EXCEEDED, which producers
    retry. So transactions can still end, offsets can be committed, and deletion frees space. It is measured twice a
    second; records are taken again once an eighth more is free. 0: off. Too small: the writes between two measurements,
    or a compaction, fill the disk, which ends the server. Too large: space is left unused."""

    drain_ms_max: Positive = 10_000
    """Longest wait of a shutdown for staged work. After that it ends like a crash, and the next start recovers."""

    log_format: LogFormat = LogFormat.AUTO
    """json, console, or auto: console in a terminal and json elsewhere."""

    tracing: TraceExporter = TraceExporter.OFF
    """Destination of spans of calls whose client traces them: off, otlp (a collector, which OpenTelemetry's environment
    variables name), or console (JSON on stderr). Needs the extra otel."""

    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""

    audit_file: SettingPath | None = None
    """File for the audit log: acts of administrators, refusals and fences, a JSON line each. Not set: the lines are in
    the log of the server."""

    audit_file_max_bytes: int = Field(default=16 * MEBI, ge=MEBI)
    """Size at which the audit file becomes NAME.1 and another begins; ten of them are kept. Too small: a busy day
    pushes the last one out."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_config` reads the sources itself, because it must report the source of each value.
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401  of every setting
        """Refuse true and false for numbers, because Python's bool is an int."""
        assert info.field_name is not None, "a validator of fields"
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is int:
            raise ValueError("must be a number")
        return value

    @model_validator(mode="after")
    def _limits_make_sense_together(self) -> Self:
        self.check_identities()
        for listener in self.all_listeners():
            listener.tls_files()
            listener.check_authentication()
            self.check_safety(listener, "")
            if self.transport is TransportName.NATIVE and is_unix(listener.listen):
                raise ValueError(f"transport = native, listen = {listener.listen}: {NO_UNIX_SOCKETS}")
        self.check_kafka_settings()
        for kafka_listener in self.all_kafka_listeners():
            kafka_listener.tls_files(KAFKA_PREFIX)
            kafka_listener.check_authentication()
            self.check_safety(kafka_listener, KAFKA_PREFIX)
        metrics = self.metrics_listener()
        if metrics is not None:
            metrics.tls_files(METRICS_PREFIX)
            self.check_safety(metrics, METRICS_PREFIX)
        if self.answer_bytes_max < self.message_bytes_max:
            raise ValueError(
                f"answer_bytes_max = {self.answer_bytes_max}: must be at least message_bytes_max"
                f" ({self.message_bytes_max}), or the largest answer is never given"
            )
        if self.tracing is not TraceExporter.OFF:
            check_installed(self.tracing)
        if self.backup_directory is None and self.backup_interval_ms:
            raise ValueError(f"backup_interval_ms = {self.backup_interval_ms}: set backup_directory, too")
        if self.lease and self.store is None:
            raise ValueError("lease = true: only a store in object storage has a lease; set store, too")
        self.limits()
        self.group_config()
        return self

    def insecure_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners that only `insecure` permits, including the one for metrics."""
        metrics = self.metrics_listener()
        found = tuple(each for each in self.listeners_of_all_fronts() if why_unsafe(each) is not None)
        return found if metrics is None or why_unsafe(metrics, is_asking=False) is None else (*found, metrics)

    def metrics_listener(self) -> Listener | None:
        """Return the listener for metrics; None if it is not set."""
        if self.metrics_listen is None:
            return None
        return Listener.model_construct(
            listen=self.metrics_listen,
            tls_certificate_file=self.metrics_tls_certificate_file,
            tls_key_file=self.metrics_tls_key_file,
            tls_client_ca_file=self.metrics_tls_client_ca_file,
            tls_client_auth=self.metrics_tls_client_auth,
        )

    def lag_config(self) -> LagConfig:
        """Return the selection of groups whose lag is measured."""
        return LagConfig(names(self.metrics_lag_groups), self.metrics_lag_topics_max)

    def limits(self) -> Limits:
        """Return the limits of requests, for all parts of the server."""
        return Limits(
            partitions_per_transaction_max=self.partitions_per_transaction_max,
            partitions_per_topic_max=self.partitions_per_topic_max,
            batch_bytes_max=self.batch_bytes_max,
            message_bytes_max=self.message_bytes_max,
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            producer_epoch_max=self.producer_epoch_max,
            fused_participants_max=self.fused_participants_max,
        )

    def core_config(self) -> CoreConfig:
        """Return the configuration of the core."""
        return CoreConfig(
            limits=self.limits(),
            shard_count=self.shard_count,
            two_phase=self.two_phase,
            two_phase_commit_enable=self.transaction_two_phase_commit_enable,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            partitions=PartitionConfig(
                producer_id_expiration_ms=self.producer_id_expiration_ms,
                removal_interval_ms=self.retention_check_interval_ms,
                compaction_interval_ms=self.compaction_check_interval_ms,
                compaction_bytes_per_second=self.compaction_bytes_per_second,
            ),
            default_retention=Retention(self.default_retention_ms, self.default_retention_bytes),
            default_timestamp_after_max_ms=self.default_timestamp_after_max_ms,
            history_retention_ms=self.history_retention_ms,
            groups=self.group_config(),
            group_waits_max=self.group_waits_max,
            lane=self.lane,
            enforces_acls=any(each.methods for each in self.listeners_of_all_fronts()),
            super_users=self.super_user_names(),
        )

    def runtime_limits(self) -> RuntimeLimits:
        """Return the limits of the runtime's queues."""
        return RuntimeLimits(
            group_bytes_max=self.group_bytes_max,
            undurable_bytes_max=self.undurable_bytes_max,
            parked_ms_max=self.parked_wait_ms_max,
            parked_calls_max=self.parked_calls_max,
        )

    def admission_limits(self) -> AdmissionLimits:
        """Return the limits of calls under way."""
        return AdmissionLimits(self.calls_in_work_max, self.reserved_calls, self.long_polls_max, self.group_waits_max)

    @property
    def place(self) -> str:
        """Place of the store: an address, or the data directory."""
        return self.store or str(self.data_dir)

    def backup_settings(self) -> BackupSettings | None:
        """Return the settings of backups; None if no directory is set."""
        if self.backup_directory is None:
            return None
        return BackupSettings(self.backup_directory, self.backup_interval_ms, self.backups_kept)

    def answer_limits(self) -> AnswerLimits:
        """Return the limits of waiting answers."""
        return AnswerLimits(self.answer_bytes_max, self.answer_bytes_per_connection_max)

    def store_options(self) -> StoreOptions:
        """Return the options of the store: memory, size of its log, and size from which batches go to segments."""
        return StoreOptions(
            write_buffer_bytes=self.write_buffer_bytes,
            block_cache_bytes=self.block_cache_bytes,
            wal_bytes_max=self.wal_bytes_max,
            segments=SegmentOptions(value_bytes_min=self.large_batch_bytes_min),
        )
