"""One server around the core: clock, commit thread, loop, handler of the transports, metrics and log.

`build` makes everything that needs no stored state, so that the server can listen and say that it is loading. `load`
reads the state that all shards share and begins to take work. It then reads the shards, each of which serves as soon as
it is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from coordinator_api.v1 import admin_pb2, group_pb2, log_pb2, share_pb2, transaction_pb2
from coordinator_core.assembly import Core, Dependencies, assemble
from coordinator_core.backups import NO_DIRECTORY
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_groups import CommitThread
from coordinator_runtime.decision import ShardKey, Turn
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.driver import LoopDriver
from coordinator_runtime.engine import OpenStore
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import StoreFailed
from coordinator_runtime.store_readers import ReaderThreads, ReadsAtOnce
from coordinator_runtime.worker import Worker, WorkerProcess
from coordinator_server.addresses import Address, NodeAddress
from coordinator_server.backups import ServerBackups
from coordinator_server.compiled import fastest_examine_batch
from coordinator_server.conversion import RecordsConverter
from coordinator_server.events.observer import EventObserver, GroupObserver, partition_fields
from coordinator_server.events.recent import RecentEvents
from coordinator_server.events.shards import ShardObserver, log_control
from coordinator_server.grpc_front.dispatcher import REQUEST_PARTS_MAX, Dispatcher
from coordinator_server.grpc_front.session import SERVICE as SESSION_SERVICE
from coordinator_server.grpc_front.wire.servicers import fast_methods, servicers
from coordinator_server.metrics.groups import GroupNumbers, measured
from coordinator_server.metrics.history import RateMemory
from coordinator_server.metrics.lag import GroupLags
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.readings import AllReadings, MetricsConfig, ServerNumbers
from coordinator_server.metrics.server import CallNumbers, RuntimeNumbers
from coordinator_server.metrics.topic_sizes import TopicSizes
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.observed import ServerObserved
from coordinator_server.security.audit import AuditLog, write_line
from coordinator_server.settings.config import Config
from coordinator_server.tracing import TracedKeeper, TraceExporter, Traces, open_provider
from coordinator_server.traffic.admission import Admission
from coordinator_server.traffic.answer_bytes import AnswerBytes
from coordinator_server.traffic.fair_messages import FairMessages
from coordinator_server.traffic.fair_reads import FairReads
from coordinator_server.traffic.gatekeeper import Gatekeeper
from coordinator_server.traffic.metering import Keeper, Metering
from coordinator_server.traffic.quotas.holders import TransactionHolders
from coordinator_server.traffic.quotas.opening import NO_QUOTAS, Quotas
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor

SERVICES = (
    transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"],
    log_pb2.DESCRIPTOR.services_by_name["LogService"],
    group_pb2.DESCRIPTOR.services_by_name["GroupService"],
    share_pb2.DESCRIPTOR.services_by_name["ShareService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
)
"""gRPC services of this server. Every method of them has a servicer."""

METHODS_OF = {service.name: [Method(method.name) for method in service.methods] for service in SERVICES}

SERVICE_NAMES = (*(service.full_name for service in SERVICES), SESSION_SERVICE.full_name)

_log = structlog.get_logger("server")


@dataclass(frozen=True, slots=True)
class Server:
    """Parts that the process needs while it runs the server."""

    core: Core
    driver: LoopDriver
    commits: CommitThread
    gatekeeper: Gatekeeper
    keeper: Keeper
    """The gatekeeper as fronts call it. With quotas it is wrapped, so that the rates of principals are enforced."""
    dispatcher: Dispatcher
    """Handler of the gRPC transports."""
    answers: AnswerBytes
    """Bytes of waiting answers, shared with the transport, which knows when an answer was taken."""
    worker: WorkerProcess
    """Runs computations that would block the loop. Closed once no caller waits for a result."""
    payload_worker: WorkerProcess
    """Checks payloads in a separate process."""
    compaction_worker: WorkerProcess
    """Reads payloads for compaction. A process of its own, because a pass needs memory for its keys."""
    readings: AllReadings
    """Metrics for a scrape, available from the start."""
    observer: ShardObserver
    backups: ServerBackups | None
    """Maker of backups; None if no backup directory is set."""
    audit: AuditLog
    history: RateMemory
    store_id: str
    """Identity of the store, which Kafka's clients know as that of the cluster; "" for a store in memory."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Parts of the process that its server uses, and that may have been in use before it."""

    quotas: Quotas = NO_QUOTAS
    origins: Mapping[str, str] = field(default_factory=dict)
    """Origins of the settings, by name."""
    answers: AnswerBytes | None = None
    """Bytes of waiting answers of transports that have begun to serve; None if none has."""


ALONE: Final = Outside()
"""Parts of a server without quotas, whose transports begin with it."""


def build(
    config: Config,
    opened: OpenStore,
    clock: Clock,
    on_failure: Callable[[Exception], None],
    outside: Outside = ALONE,
) -> Server:
    """Build a server that takes calls and answers all of them with "loading". Call it on the loop of the server.
    `on_failure` is called there once, when the store has failed."""

    commits = _commit_thread(opened, clock, lambda: driver)
    runtime = Runtime(
        clock=clock, durable_version=opened.store.version(), hand_over=commits.submit, limits=config.runtime_limits()
    )
    driver = LoopDriver(runtime, on_failure, commits.let_begin)
    quotas, answers = outside.quotas, outside.answers or AnswerBytes(config.answer_limits())
    reads = FairReads(asyncio.get_running_loop().call_soon)
    gatekeeper, numbers = _gatekeeper(config, runtime, answers, reads), _numbers()
    backups, assignors = _backups(config, opened, clock), measured(SERVER_ASSIGNORS, clock, numbers.groups.computed)
    worker, payload_worker = WorkerProcess(), WorkerProcess()
    compaction_worker = WorkerProcess(in_background=True)
    workers = worker, payload_worker, compaction_worker
    reader = None if opened.view is None else ReaderThreads(opened.view, driver.step_from_thread)
    background = reader or ReadsAtOnce(opened.store)
    dependencies = replace(
        _dependencies(config, quotas, assignors, backups, workers),
        reader=reader,
        backup_advice=opened.backup_advice or NO_DIRECTORY,
    )
    core = assemble(runtime, opened.store, config.core_config(), dependencies)
    _connect_reads(core, answers, reads, payload_worker)
    recent, history = RecentEvents(clock), RateMemory(runtime, numbers.counters, numbers.transactions.levels)
    audit = AuditLog(clock, recent.beside(write_line))
    core.admin.observation.observed = ServerObserved(history, recent, config, outside.origins, quotas.budgets)
    readings = AllReadings(
        numbers=numbers,
        config=_metrics_config(config),
        core=core,
        lags=GroupLags(runtime, background, core.catalog, config.lag_config()),
        commits=commits,
        calls_in_flight=gatekeeper.calls_in_flight,
        protocol=SERVICES[0].file.package,
        answers=answers,
        of_backups=dict if backups is None else backups.readings,
        audit=audit,
        topic_sizes=TopicSizes(background),
        quotas=quotas.budgets,
    )
    observer = observe(core, commits, gatekeeper, numbers, audit, recent)
    keeper = _traced(_metered(gatekeeper, quotas, runtime, audit), config.tracing, runtime)
    return Server(
        core=core,
        driver=driver,
        commits=commits,
        gatekeeper=gatekeeper,
        keeper=keeper,
        dispatcher=_dispatcher(config, keeper),
        answers=answers,
        worker=worker,
        payload_worker=payload_worker,
        compaction_worker=compaction_worker,
        readings=readings,
        observer=observer,
        backups=backups,
        audit=audit,
        history=history,
        store_id=opened.store_id,
    )


def _commit_thread(opened: OpenStore, clock: Clock, driver: Callable[[], LoopDriver]) -> CommitThread:
    """Return the thread that writes for a driver, which is made after it."""

    def failed(failure: BaseException) -> None:
        driver().failed_from_thread(failure if isinstance(failure, Exception) else StoreFailed(repr(failure)))

    def durable(version: int) -> None:
        driver().durable_from_thread(version)

    return CommitThread(opened.store, clock, on_durable=durable, on_failure=failed, mark_durable=opened.mark_durable)


def _numbers() -> ServerNumbers:
    return ServerNumbers(TransactionNumbers(), CallNumbers(METHODS_OF), LogNumbers(), GroupNumbers(), RuntimeNumbers())


def _dependencies(
    config: Config,
    quotas: Quotas,
    assignors: Mapping[str, ServerAssignor],
    backups: ServerBackups | None,
    workers: tuple[Worker, Worker, Worker],
) -> Dependencies:
    worker, payload_worker, compaction_worker = workers
    return Dependencies(
        worker=worker,
        payload_worker=payload_worker,
        compaction_worker=compaction_worker,
        assignors=assignors,
        disk=DiskGuard(config.disk_free_min_bytes),
        backups=backups,
        levels=quotas.budgets,
        examine_batch=fastest_examine_batch(),
    )


def _gatekeeper(config: Config, runtime: Runtime, answers: AnswerBytes, reads: FairReads) -> Gatekeeper:
    admission = Admission(config.admission_limits(), lambda: len(runtime.parking))
    messages = FairMessages(runtime.clock, asyncio.get_running_loop().call_soon)
    return Gatekeeper(admission, runtime.clock, answer_limit=answers, reads=reads, messages=messages)


def _dispatcher(config: Config, keeper: Keeper) -> Dispatcher:
    parts_max = max(REQUEST_PARTS_MAX, 3 * config.partitions_per_transaction_max)
    return Dispatcher(SERVICES, keeper, message_bytes_max=config.message_bytes_max, parts_max=parts_max)


def _metered(gatekeeper: Gatekeeper, quotas: Quotas, runtime: Runtime, audit: AuditLog) -> Keeper:
    """Return the gatekeeper for the fronts. With quotas, count from now on the amounts that principals hold."""
    if quotas.budgets is None:
        return gatekeeper
    quotas.budgets.on_refused = audit.over_quota
    holders, observe_event = TransactionHolders(quotas.budgets), runtime.on_event

    def on_event(event: object, turn: Turn) -> None:
        observe_event(event, turn)
        holders(event, turn)

    runtime.on_event = on_event

    def later(delay_ms: int, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1_000, act)

    return Metering(gatekeeper, quotas.budgets, runtime.clock, later)


def _traced(keeper: Keeper, exporter: TraceExporter, runtime: Runtime) -> Keeper:
    """Return the keeper for the fronts, with spans of calls around it if the server traces."""
    if exporter is TraceExporter.OFF:
        return keeper
    traces, observe_event = Traces(open_provider(exporter)), runtime.on_event

    def on_event(event: object, turn: Turn) -> None:
        observe_event(event, turn)
        traces.on_event(event, turn)

    runtime.on_event = on_event
    return TracedKeeper(keeper, traces)


def _metrics_config(config: Config) -> MetricsConfig:
    return MetricsConfig(
        node_id=config.node_id,
        mode=config.two_phase.value,
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        partitions_max=config.metrics_partitions_max,
    )


def _backups(config: Config, opened: OpenStore, clock: Clock) -> ServerBackups | None:
    settings = config.backup_settings()
    if settings is None or opened.make_backup is None:
        return None
    return ServerBackups(opened.make_backup, opened.store_id, settings, clock)


def observe(
    core: Core,
    commits: CommitThread,
    gatekeeper: Gatekeeper,
    numbers: ServerNumbers,
    audit: AuditLog,
    recent: RecentEvents,
) -> ShardObserver:
    """Count and log all events from now on."""
    runtime, fetcher = core.runtime, core.log.records.fetcher
    runtime.on_group = numbers.runtime.group_durable
    runtime.parking.on_wait_ended = numbers.runtime.waited
    runtime.on_defect = partial(_on_defect, numbers)
    commits.on_synced = numbers.runtime.synced
    numbers.calls.on_defect = numbers.met_defect
    gatekeeper.observer, gatekeeper.auditor = numbers.calls, audit
    shard_observer = ShardObserver(numbers)
    core.admin.shards.on_asked = log_control
    groups = GroupObserver(numbers.groups, partial(partition_fields, core.catalog), recent.add)
    observer = EventObserver(
        numbers.transactions,
        numbers.log,
        groups,
        clock=runtime.clock,
        catalog=core.catalog,
        audit=audit,
    )
    observer.remember = recent.add
    runtime.on_event = observer
    core.admin.hanging.on_found = observer.hanging_found

    def on_fenced(shard: ShardKey, coordinator_epoch: int) -> None:
        observer.coordinator_fenced(shard, coordinator_epoch)
        core.retire(shard, coordinator_epoch)

    core.sender.on_fenced = on_fenced
    core.access.on_denied = audit.refused
    fetcher.on_read = numbers.log.read
    core.log.removal.on_removed = numbers.log.removed
    fetcher.damage.on_found = observer.damage_found
    return shard_observer


def _connect_reads(core: Core, answers: AnswerBytes, reads: FairReads, payload_worker: WorkerProcess) -> None:
    """Give the reads of the log their limits, and a worker for conversions."""
    fetcher = core.log.records.fetcher
    fetcher.answer_limit = answers
    fetcher.converter = RecordsConverter(payload_worker)
    fetcher.on_work = core.log.positions.searches.on_work = reads.spent


def _on_defect(numbers: ServerNumbers, defect: Exception) -> None:
    """Log and count a defect in an operation of the server itself. Defects in calls are the gatekeeper's."""
    _log.error("defect", exc_info=defect)
    numbers.met_defect(defect)


async def load(
    server: Server, config: Config, address: Address, others: Callable[[], Sequence[NodeAddress]] = list
) -> int:
    """Read the state back and take work. Returns the number of failed shards, once each shard serves or has failed. The
    others serve without them. The commit thread must run. `others` returns the servers that wait for the store.

    Raises Refused if the state that all shards share cannot be read; then nothing is served.
    """
    core, readings = server.core, server.readings
    await core.load_shared()
    # Not earlier: if a shared shard cannot be read, the code that starts the server reports it.
    core.loader.listen(server.observer)
    node = NodeAddress(config.node_id, address.host, address.port)
    fast = fast_methods(core)
    server.dispatcher.serve(servicers(core, node, others), fast)
    server.gatekeeper.open({each.method: each for each in fast})
    readings.is_loaded = True
    server.observer.shards_to_load = sum(each.state is not ShardState.ACTIVE for each in core.loader.standings())
    failed = await core.load_shards()
    server.observer.is_start_over = True
    core.admin.hanging.audit()
    readings.lags.start()
    server.history.start()
    if server.backups is not None:
        server.backups.start()
    return failed
