"""What an operator can set: one frozen model. `config_sources.py` says where the values come from."""

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
from coordinator_server.settings.access_config import AccessConfig
from coordinator_server.settings.setting_types import (
    AssignorNames,
    KeptLimit,
    NotNegative,
    Positive,
    assignor_names,
    names,
)
from coordinator_server.traffic.admission import AdmissionLimits
from coordinator_server.traffic.answer_bytes import AnswerLimits
from coordinator_server.validation import SettingPath
from group_coordinator.config import GROUP_SIZE_MAX, GroupConfig, MigrationPolicy
from partition_log.catalog.settings import FOR_EVER, Retention
from partition_log.state import PRODUCER_EXPIRATION_MS, REMOVAL_INTERVAL_MS, PartitionConfig
from txn_coordinator.config import EXPIRATION_MS, TwoPhase

METRICS_PREFIX: Final = "metrics_"
"""How the settings of the listener for metrics begin."""
CONFIG_FILE_VARIABLE: Final = "TXN_CONFIG"
"""Environment variable that names the TOML file where no flag does."""


class Config(AccessConfig):
    """Everything that can be set. Units are in the names: `_ms` milliseconds, `_bytes` bytes."""

    data_dir: SettingPath
    """Directory of the store; made if missing; one process at a time. A store is made in an empty one only, or beside
    hidden files, TOML files, `lost+found` and what other settings name. No default: data must not land just
    anywhere."""

    transport: TransportName = TransportName.AUTO
    """What serves gRPC; callers see no difference. grpc: grpc.aio, which is always there. native: the compiled one,
    which needs less processor time, must be installed (`txn-coordinator[native]`), and serves no Unix sockets. auto:
    native where that is possible."""

    advertised: AddressText | None = None
    """HOST:PORT that FindCoordinator tells clients, where it differs from `listen`: behind a proxy, in a container, or
    with 0.0.0.0, to which nobody elsewhere can connect. The SDK stays with the address that it was given."""

    node_id: Annotated[int, Field(ge=0)] = 1
    """Number of this server in answers of FindCoordinator."""

    shard_count: Annotated[int, Field(ge=1, le=SHARD_COUNT_MAX)] = 64
    """Slices of coordinator state and partitions. Fixed when the directory is made: every key's place depends on it, so
    another number is refused at start."""

    two_phase: TwoPhase = TwoPhase.FUSED
    """fused: PREPARE, markers and COMPLETE in one flush where that is possible. split: always three steps, each durable
    before the next; slower, for participants elsewhere and for watching the phases."""

    lane: bool = True
    """Whether calls of the common shape take a quicker way through the server. Answers and what is stored are the same
    either way: turn it off only to find out whether a defect lies in it. Off, a transaction costs about twice the
    processor time."""

    reflection: bool = False
    """Whether gRPC tools may ask for the names and messages of the services."""

    accept_data_loss: bool = False
    """Start although the store holds less than was reported durable, where what is left is the state of an earlier
    moment, or lacks only batches that lay in a missing file. What is missing is lost for good; set it once, after the
    backup was looked for. It does not help where files contradict each other: such a start is always refused."""

    transaction_max_timeout_ms: Positive = 900_000
    """Longest transaction timeout a producer may ask for. Too small: long jobs are refused. Too large: a dead producer
    holds back every committed reader of its partitions for that long."""

    transactional_id_expiration_ms: Positive = EXPIRATION_MS
    """How long a transactional id may be unused before it is forgotten; what is open or being completed never is. Too
    small: a producer that pauses gets INVALID_PRODUCER_ID_MAPPING and must initialise again. Too large: ids that nobody
    will use again keep their memory."""

    producer_id_expiration_ms: Positive = PRODUCER_EXPIRATION_MS
    """How long a producer may write nothing to a partition before the partition forgets it; one with an open
    transaction there never is. Must be longer than producers repeat a batch. Too small: a repeated batch is appended
    twice, and an idle producer without a transactional id gets UNKNOWN_PRODUCER_ID and needs a new identity. Too large:
    producers that will never write again keep their memory."""

    default_retention_ms: KeptLimit = FOR_EVER
    """How long records are kept in topics that have no `retention_ms` of their own; -1 for ever. It counts from the
    newest timestamp, or from when the records were written where that is earlier or they have none. Records go by whole
    stretches of the log (1 MiB or 256 batches), never before all transactions that began earlier have ended. Too small:
    readers that pause lose records. Too large, or -1: the disk fills."""

    default_retention_bytes: KeptLimit = FOR_EVER
    """How many bytes of its log each partition keeps in topics that have no `retention_bytes` of their own; -1 for no
    limit. Too small: readers that fall behind lose records. Too large, or -1: the disk fills."""

    default_timestamp_after_max_ms: KeptLimit = FOR_EVER
    """How far ahead of the server's clock the timestamp of a record may lie in topics that have no
    `timestamp_after_max_ms` of their own (Kafka's `message.timestamp.after.max.ms`); -1 for any distance. A batch whose
    newest timestamp lies further ahead is refused with INVALID_TIMESTAMP. Too small: producers whose clocks go ahead
    are refused. Too large, or -1: searches by time end at a record from the future, wherever it lies, and how long
    records beside it are kept goes by when they were written."""

    retention_check_interval_ms: Positive = REMOVAL_INTERVAL_MS
    """Pause between two looks for records that are not kept any more. Too small: processor time. Too large: the disk
    holds more than was allowed for."""

    history_retention_ms: KeptLimit = HISTORY_RETENTION_MS
    """How long the history of transactions and groups is kept; -1 for ever. The newest step of each shard always is.
    Too small: `txnctl describe` and `txnctl log dump --show transactions` tell less. Too large: disk."""

    transaction_two_phase_commit_enable: bool = False
    """Whether producers may take part in somebody else's two-phase commit (enable_2pc, PrepareTransaction). Their
    transactions never time out: one that is forgotten holds back every committed reader of its partitions until
    somebody ends it."""

    group_session_timeout_ms_min: Positive = 6_000
    """Shortest session timeout that a member of a classic group may ask for. Too small: a pause of the client or of the
    network costs a rebalance."""

    group_session_timeout_ms_max: Positive = 1_800_000
    """Longest one. Too large: the partitions of a member that died stand still for that long."""

    group_initial_rebalance_delay_ms: NotNegative = 100
    """How long an empty classic group waits for more members before its first rebalance. Kafka: 3,000. Too small: an
    application that starts many members at once rebalances once for each. Too large: it waits at every start."""

    group_size_max: Positive = GROUP_SIZE_MAX
    """Most members of a classic group. Too large: a rebalance of so many holds up everybody."""

    group_consumer_size_max: Positive = GROUP_SIZE_MAX
    """Most members of a consumer group."""

    group_consumer_session_timeout_ms: Positive = 45_000
    """Silence after which a member of a consumer group is removed. Too small: pauses cost memberships. Too large: the
    partitions of a member that died stand still for that long."""

    group_consumer_session_timeout_ms_min: Positive = 45_000
    """Shortest one that a group's own settings may ask for."""

    group_consumer_session_timeout_ms_max: Positive = 60_000
    """Longest one that a group's own settings may ask for."""

    group_consumer_heartbeat_interval_ms: Positive = 5_000
    """Pause between the heartbeats of a member of a consumer group; below the session timeout. Too small: heartbeats
    are most of the load. Too large: who does not wait on the server for news hears late of what it must do."""

    group_consumer_heartbeat_interval_ms_min: Positive = 5_000
    """Shortest one that a group's own settings may ask for."""

    group_consumer_heartbeat_interval_ms_max: Positive = 15_000
    """Longest one that a group's own settings may ask for."""

    group_consumer_assignors: AssignorNames = "uniform,range"
    """Assignors of consumer groups, with commas between; the first is used where the members prefer none."""

    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """Which groups with members may change their protocol: bidirectional, upgrade (classic to consumer), downgrade or
    disabled. Groups without members always may."""

    group_consumer_assignment_interval_ms: NotNegative = 50
    """Shortest time between two targets of one consumer group. Kafka: 1,000. Too small: every member that joins costs a
    computation. Too large: members wait for their partitions."""

    group_consumer_regex_refresh_interval_ms: Positive = 600_000
    """How often the patterns that members subscribe to are matched again, besides after every change of topics or of
    the rules of access."""

    group_waits_max: Positive = 100_000
    """Calls of members that may wait for each other at the same time; and as many again, for news. Each costs memory,
    and no work. Too small: rebalances with more members than that take their whole timeout, and lose those who found no
    room."""

    offsets_retention_ms: Positive = 7 * 24 * 3_600_000
    """How long the offset of a topic that the group does not read any more is kept. Too small: an application that was
    stopped for longer starts at the beginning, or at the end. Too large: offsets nobody needs keep their memory."""

    offsets_retention_check_interval_ms: Positive = 600_000
    """How often a shard looks for offsets that expired, and for groups with neither members nor offsets."""

    offset_metadata_length_max: Positive = 4_096
    """Characters of free text beside a committed offset."""

    batch_bytes_max: Positive = MEBI
    """Largest record batch. Too small: larger batches are refused, and the SDK's have up to 512 KiB. Too large:
    one batch holds up everybody's commit."""

    message_bytes_max: Positive = 16 * MEBI
    """Largest gRPC request and response. Must be larger than batch_bytes_max; clients must allow as much."""

    partitions_per_transaction_max: Positive = 10_000
    """Partitions and groups in one transaction. Too large: its PREPARE record and its markers hold up everybody."""

    partitions_per_topic_max: Positive = 10_000
    """Partitions of one topic. An idle one costs up to 64 KiB of memory."""

    fused_participants_max: Positive = 500
    """Partitions and groups up to which a transaction may end in one flush; above, it ends in two phases."""

    producer_epoch_max: Annotated[int, Field(ge=2, le=EPOCH_MAX)] = EPOCH_MAX
    """Largest producer epoch. Small ones are for tests that want to see producer ids rotate."""

    parked_wait_ms_max: Positive = 30_000
    """Longest wait of a call without a deadline behind a transaction that is being completed."""

    parked_calls_max: Positive = 10_000
    """Calls that may wait so; beyond, CONCURRENT_TRANSACTIONS is answered at once."""

    calls_in_work_max: Positive = 4_096
    """Calls without an answer beyond which others are told to come again (THROTTLING_QUOTA_EXCEEDED). Too small: bursts
    are refused that would have passed. Too large: when the disk stalls, memory and waiting grow."""

    reserved_calls: Annotated[int, Field(ge=0)] = 1_024
    """More calls in work that only EndTxn may use: it frees what others wait for. And as many calls of members of
    groups that may end the wait of others, where no more may wait."""

    long_polls_max: Positive = 10_000
    """Fetch calls that may wait for records at the same time."""

    connections_max: Positive = 10_000
    """Connections of callers; more are closed as soon as they come (with grpc.aio from about 95 % on). At most what the
    limit of open files (`ulimit -n`) leaves beside the store. Too small: clients are kept out. Too large: each may hold
    its share of memory."""

    streams_per_connection_max: Annotated[int, Field(ge=100, le=100_000)] = 4_096
    """Calls and sessions of one connection that have not ended; a client waits before it begins more. Too small: long
    polls of a process hold up its other calls. Too large: one connection takes much memory."""

    session_idle_ms_max: Annotated[int, Field(ge=1_000)] = SESSION_IDLE_MS_MAX
    """How long a session may be open on which nothing comes and nothing waits for an answer; the client opens another
    one with its next request. Too small: clients that send seldom wait for a new session each time. Too large: sessions
    that nobody uses take memory, and count among those that a principal may have."""

    answer_bytes_max: Positive = 256 * MEBI
    """Bytes of answers that wait for callers to take them; where few are left, answers to Fetch are shorter, and
    beyond, reads are told to come again (THROTTLING_QUOTA_EXCEEDED). Too small: many readers of large batches wait for
    each other. Too large: readers that stand still cost twice as much memory."""

    answer_bytes_per_connection_max: Positive = 64 * MEBI
    """The same for one connection; less while others hold much. Too small: the readers of one process wait for each
    other. Too large: few readers that stand still leave short answers to all others."""

    group_bytes_max: Positive = MEBI
    """Size at which a commit group is closed early. Larger: writing it holds the server for longer (1 MiB: 2 ms)."""

    undurable_bytes_max: Positive = 64 * MEBI
    """Bytes that may wait for the disk; beyond, new work is told to come again."""

    write_buffer_bytes: Positive = 64 * MEBI
    """Memory of the store for what is in no sorted file yet. Too small: stalls. Too large: memory, slower recovery."""

    block_cache_bytes: Positive = 32 * MEBI
    """Memory of the store for blocks that were read. Too small: old records are decompressed again and again."""

    wal_bytes_max: Positive = 256 * MEBI
    """Size at which the store's write-ahead log is trimmed. Too small: many small files. Too large: slower recovery."""

    large_batch_bytes_min: Positive = MEBI // 32
    """Size from which a batch lies in a segment file beside the store's tables. Too small: two flushes for every
    commit. Too large: the store copies much, and holds up everybody while it does."""

    backup_directory: SettingPath | None = None
    """Where the server makes backups, in directories of their own; made if missing. Choose another disk than that of
    `data_dir`, and one server for each. Not set: `txnctl backup create` works only while the server is stopped."""

    backup_interval_ms: NotNegative = 0
    """How often the server makes a backup by itself, counted from the newest one there is; 0: only when asked. A backup
    costs what was written since the one before. Too large: a lost disk takes as much with it."""

    backups_kept: Positive = 24
    """How many finished backups of its store the server leaves after it made one by itself; older ones are removed.
    Larger: more room, mostly for what was deleted since."""

    metrics_listen: AddressText | None = None
    """HOST:PORT where Prometheus finds /metrics, over HTTP on a thread of its own; port 0 takes a free one. Not set: no
    metrics. They name topics, so treat them as you treat the data."""

    metrics_tls_certificate_file: SettingPath | None = None
    """PEM file with the certificate of `metrics_listen`, which then is HTTPS; as tls_certificate_file."""

    metrics_tls_key_file: SettingPath | None = None
    """PEM file with the key of that certificate."""

    metrics_tls_client_ca_file: SettingPath | None = None
    """PEM file with the CA certificates that sign those of scrapers."""

    metrics_tls_client_auth: ClientAuth = ClientAuth.NONE
    """Whether scrapers show a certificate; as tls_client_auth."""

    metrics_partitions_max: Annotated[int, Field(ge=0)] = 1_000
    """Partitions with gauges of their own. Larger: a scrape takes longer and Prometheus keeps more series; beyond,
    txn_partitions_omitted counts."""

    metrics_lag_groups: str = ""
    """Groups whose lag is measured: ids, comma-separated, or beginnings of ids that end in `*` (`*` alone: all). Empty:
    none. Each has series for each of its topics, and is looked at every ten seconds."""

    metrics_lag_topics_max: NotNegative = 1_000
    """Most pairs of such a group and a topic with series of their own; beyond, txn_group_lag_omitted counts."""

    disk_free_min_bytes: NotNegative = 512 * MEBI
    """Free space of the store's disk below which no records are taken (THROTTLING_QUOTA_EXCEEDED, which producers
    repeat), so that transactions still end, offsets are committed, and what is deleted makes room; looked at twice a
    second, and records are taken again once there is an eighth more. 0: off. Too small: what is written between two
    looks, or a compaction, fills the disk, which ends the server. Too large: space is left unused."""

    drain_ms_max: Positive = 10_000
    """Longest that a shutdown waits for what was staged; then it ends as a crash would, and the next start recovers."""

    log_format: LogFormat = LogFormat.AUTO
    """json, console, or auto: console in a terminal and json elsewhere."""

    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""

    audit_file: SettingPath | None = None
    """File for the audit log: acts of administrators, refusals and fences, a JSON line each. Unset: they stand among
    the lines of the log."""

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
        # `load_config` reads the sources itself, because it must say which one a value came from.
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401  of every setting
        """In Python true is a number, 1."""
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
        metrics = self.metrics_listener()
        if metrics is not None:
            metrics.tls_files(METRICS_PREFIX)
            self.check_safety(metrics, METRICS_PREFIX)
        if self.answer_bytes_max < self.message_bytes_max:
            raise ValueError(
                f"answer_bytes_max = {self.answer_bytes_max}: must be at least message_bytes_max"
                f" ({self.message_bytes_max}), or the largest answer is never given"
            )
        if self.backup_directory is None and self.backup_interval_ms:
            raise ValueError(f"backup_interval_ms = {self.backup_interval_ms}: set backup_directory, too")
        self.limits()
        self.group_config()
        return self

    def insecure_listeners(self) -> tuple[Listener, ...]:
        """Those that only `insecure` allows, the one for metrics included."""
        metrics = self.metrics_listener()
        found = tuple(each for each in self.all_listeners() if why_unsafe(each) is not None)
        return found if metrics is None or why_unsafe(metrics, is_asking=False) is None else (*found, metrics)

    def metrics_listener(self) -> Listener | None:
        """Where the metrics are, if anywhere."""
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
        """Which groups have their lag measured."""
        return LagConfig(names(self.metrics_lag_groups), self.metrics_lag_topics_max)

    def limits(self) -> Limits:
        """The bounds of requests, as all parts of the server are given them."""
        return Limits(
            partitions_per_transaction_max=self.partitions_per_transaction_max,
            partitions_per_topic_max=self.partitions_per_topic_max,
            batch_bytes_max=self.batch_bytes_max,
            message_bytes_max=self.message_bytes_max,
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            producer_epoch_max=self.producer_epoch_max,
            fused_participants_max=self.fused_participants_max,
        )

    def group_config(self) -> GroupConfig:
        """How groups are coordinated."""
        return GroupConfig(
            session_timeout_ms_min=self.group_session_timeout_ms_min,
            session_timeout_ms_max=self.group_session_timeout_ms_max,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            size_max=self.group_size_max,
            consumer_size_max=self.group_consumer_size_max,
            consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            consumer_session_timeout_ms_min=self.group_consumer_session_timeout_ms_min,
            consumer_session_timeout_ms_max=self.group_consumer_session_timeout_ms_max,
            consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            consumer_heartbeat_interval_ms_min=self.group_consumer_heartbeat_interval_ms_min,
            consumer_heartbeat_interval_ms_max=self.group_consumer_heartbeat_interval_ms_max,
            consumer_assignors=assignor_names(self.group_consumer_assignors),
            consumer_migration_policy=self.group_consumer_migration_policy,
            consumer_assignment_interval_ms=self.group_consumer_assignment_interval_ms,
            consumer_regex_refresh_interval_ms=self.group_consumer_regex_refresh_interval_ms,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            offset_metadata_length_max=self.offset_metadata_length_max,
        )

    def core_config(self) -> CoreConfig:
        """How everything inside is configured."""
        return CoreConfig(
            limits=self.limits(),
            shard_count=self.shard_count,
            two_phase=self.two_phase,
            two_phase_commit_enable=self.transaction_two_phase_commit_enable,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            partitions=PartitionConfig(
                producer_id_expiration_ms=self.producer_id_expiration_ms,
                removal_interval_ms=self.retention_check_interval_ms,
            ),
            default_retention=Retention(self.default_retention_ms, self.default_retention_bytes),
            default_timestamp_after_max_ms=self.default_timestamp_after_max_ms,
            history_retention_ms=self.history_retention_ms,
            groups=self.group_config(),
            group_waits_max=self.group_waits_max,
            lane=self.lane,
            enforces_acls=any(each.methods for each in self.all_listeners()),
            super_users=self.super_user_names(),
        )

    def runtime_limits(self) -> RuntimeLimits:
        """The bounds of the runtime's queues."""
        return RuntimeLimits(
            group_bytes_max=self.group_bytes_max,
            undurable_bytes_max=self.undurable_bytes_max,
            parked_ms_max=self.parked_wait_ms_max,
            parked_calls_max=self.parked_calls_max,
        )

    def admission_limits(self) -> AdmissionLimits:
        """The bounds of calls under way."""
        return AdmissionLimits(self.calls_in_work_max, self.reserved_calls, self.long_polls_max, self.group_waits_max)

    def backup_settings(self) -> BackupSettings | None:
        """Where, how often and how many backups; None: nowhere."""
        if self.backup_directory is None:
            return None
        return BackupSettings(self.backup_directory, self.backup_interval_ms, self.backups_kept)

    def answer_limits(self) -> AnswerLimits:
        """The bounds of answers that wait for callers."""
        return AnswerLimits(self.answer_bytes_max, self.answer_bytes_per_connection_max)

    def store_options(self) -> StoreOptions:
        """Memory and log size of the store."""
        return StoreOptions(
            write_buffer_bytes=self.write_buffer_bytes,
            block_cache_bytes=self.block_cache_bytes,
            wal_bytes_max=self.wal_bytes_max,
            segments=SegmentOptions(value_bytes_min=self.large_batch_bytes_min),
        )
