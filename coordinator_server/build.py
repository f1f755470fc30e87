"""The composition root: every part of one server, made and joined here and nowhere else.

`build` makes what needs no stored state, so that the server can listen and say that it loads. `load` brings back what
all shards share, makes the services on it, opens the door, and then brings back the shards, each of which serves as
soon as it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from coordinator_api.v1 import admin_pb2, group_pb2, log_pb2, transaction_pb2
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_thread import CommitThread
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.driver import LoopDriver
from coordinator_runtime.identity import new_uuid
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.loader import ShardLoader
from coordinator_runtime.pending import all_of
from coordinator_runtime.ports import AllowAll, GroupVerifier
from coordinator_runtime.rocks import StoreStatistics
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store, StoreFailed
from coordinator_runtime.worker import WorkerProcess
from coordinator_server.admission import Admission
from coordinator_server.answer_bytes import AnswerBytes
from coordinator_server.config import Address, Config
from coordinator_server.events import EventObserver
from coordinator_server.fair_reads import FairReads
from coordinator_server.group_events import GroupObserver
from coordinator_server.markers import LocalMarkers
from coordinator_server.metrics.calls import CallNumbers
from coordinator_server.metrics.groups import GroupNumbers, measured
from coordinator_server.metrics.lag import GroupLags
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.runtime import RuntimeNumbers
from coordinator_server.metrics.snapshot import LoadedParts, MetricsConfig, ServerNumbers, Snapshots
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.session import SERVICE as SESSION_SERVICE
from coordinator_server.shard_events import ShardObserver
from coordinator_server.transport import Dispatcher
from coordinator_server.wire.admin.servicer import Administration, AdminServicer
from coordinator_server.wire.admin.shard_servicer import ShardServicer
from coordinator_server.wire.groups.servicers import group_servicers
from coordinator_server.wire.log.servicer import LogServicer
from coordinator_server.wire.transactions.servicer import NodeAddress, TransactionServicer
from group_coordinator.assignors import SERVER_ASSIGNORS
from group_coordinator.committed.participant import GroupMarkers, OffsetsOfTopics
from group_coordinator.committed.transacted import TransactedGroups
from group_coordinator.loading import GroupRouter, groups_kind, send_members_away_with_their_shard
from group_coordinator.news import News
from group_coordinator.parts import GroupSurroundings
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.directory import TopicDirectory
from partition_log.catalog.state import CATALOG_KEY
from partition_log.foreign_markers import ForeignMarkers
from partition_log.loading import catalog_kind, partitions_kind
from partition_log.markers import PartitionMarkers
from partition_log.open_transactions import PartitionTransactions
from partition_log.service import LogService
from partition_log.topics import TopicService, TopicUsers
from partition_log.transacted import TransactedBatches
from txn_coordinator.administration import TransactionAdministration
from txn_coordinator.counters import COUNTERS
from txn_coordinator.hanging import HangingTransactions
from txn_coordinator.history import TransactionHistory
from txn_coordinator.loading import (
    TransactionConfig,
    counters_kind,
    leave_markers_to_the_next_load,
    transactions_kind,
)
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.owners import ProducerOwners
from txn_coordinator.service import TransactionService
from txn_coordinator.transact import TransactParts, TransactService
from txn_coordinator.verifier import CoordinatorVerifier

SERVICES = (
    transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"],
    log_pb2.DESCRIPTOR.services_by_name["LogService"],
    group_pb2.DESCRIPTOR.services_by_name["GroupService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
)
"""What this server serves. Every method of them has a servicer."""

SERVICE_NAMES = (*(service.full_name for service in SERVICES), SESSION_SERVICE.full_name)

LOADED_LAST = (Coordinator.LOG, Coordinator.GROUPS, Coordinator.TRANSACTIONS)
"""In this order: what transactions owe, they owe to partitions and groups."""

NO_STATISTICS = partial(StoreStatistics, 0, 0, 0, 0, 0)
"""Of a store that lies in memory."""

_log = structlog.get_logger("server")


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store, and how the commit thread notes that it is durable up to a version."""

    store: Store
    mark_durable: Callable[[int], None]
    statistics: Callable[[], StoreStatistics] = NO_STATISTICS
    """Sizes of the store, for the metrics."""


@dataclass(frozen=True, slots=True)
class Server:
    """The parts that whoever runs the server holds on to."""

    store: Store
    runtime: Runtime
    loader: ShardLoader
    driver: LoopDriver
    commits: CommitThread
    dispatcher: Dispatcher
    answers: AnswerBytes
    """Shared with the transport, which knows when an answer was taken."""
    reads: FairReads
    worker: WorkerProcess
    """For computations that would hold up the loop. Closed when nobody waits for one any more."""
    payload_worker: WorkerProcess
    """The same for payloads, so that neither waits for the other."""
    batch_checks: BatchChecks
    snapshots: Snapshots
    """What a scrape asks for, from the start on."""


def build(config: Config, opened: OpenStore, clock: Clock, on_failure: Callable[[Exception], None]) -> Server:
    """A server that takes calls and answers them all with "loading". Call it on the loop that the server lives on;
    `on_failure` is called there, once, when the store failed."""
    store = opened.store

    def on_commit_failure(failure: BaseException) -> None:
        driver.failed_from_thread(failure if isinstance(failure, Exception) else StoreFailed(repr(failure)))

    def on_durable(version: int) -> None:
        driver.durable_from_thread(version)

    commits = CommitThread(
        store, clock, on_durable=on_durable, on_failure=on_commit_failure, mark_durable=opened.mark_durable
    )
    runtime = Runtime(
        clock=clock, durable_version=store.version(), hand_over=commits.submit, limits=config.runtime_limits()
    )
    driver = LoopDriver(runtime, on_failure)
    admission = Admission(config.admission_limits(), lambda: runtime.parked_calls)
    answers = AnswerBytes(config.answer_limits())
    reads = FairReads(asyncio.get_running_loop().call_soon)
    dispatcher = Dispatcher(
        SERVICES, admission, clock, message_bytes_max=config.message_bytes_max, room=answers, reads=reads
    )
    numbers = ServerNumbers(TransactionNumbers(), CallNumbers(SERVICES), LogNumbers(), GroupNumbers(), RuntimeNumbers())
    runtime.on_group = numbers.runtime.group_durable
    runtime.on_wait_ended = numbers.runtime.waited
    runtime.on_defect = partial(_on_defect, numbers)
    commits.on_synced = numbers.runtime.synced
    dispatcher.on_answered = numbers.calls.answered
    dispatcher.on_unanswered = numbers.calls.unanswered
    dispatcher.on_defect = numbers.met_defect
    payload_worker = WorkerProcess()
    checks = BatchChecks(payload_worker, config.limits())
    snapshots = Snapshots(
        numbers=numbers,
        config=MetricsConfig(
            node_id=config.node_id,
            mode=config.two_phase.value,
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            partitions_max=config.metrics_partitions_max,
        ),
        runtime=runtime,
        commits=commits,
        calls_in_flight=dispatcher.calls_in_flight,
        protocol=SERVICES[0].file.package,
        answers=answers,
        checks=checks,
    )
    return Server(
        store=store,
        runtime=runtime,
        loader=ShardLoader(runtime, store),
        driver=driver,
        commits=commits,
        dispatcher=dispatcher,
        answers=answers,
        reads=reads,
        worker=WorkerProcess(),
        payload_worker=payload_worker,
        batch_checks=checks,
        snapshots=snapshots,
    )


def _on_defect(numbers: ServerNumbers, defect: Exception) -> None:
    """Of an operation that the server started itself; those of calls are the dispatcher's."""
    _log.error("defect", exc_info=defect)
    numbers.met_defect(defect)


async def load(server: Server, config: Config, address: Address) -> int:
    """Bring the state back and take work. Returns once every shard serves or cannot be read: how many those are, which
    the others do not need. The commit thread must run.

    Raises Refused where what all shards share cannot be read: then nothing is served."""
    runtime, loader, shard_count = server.runtime, server.loader, config.shard_count
    checks, limits, authorizer = server.batch_checks, config.limits(), AllowAll()

    directory, markers, partition_markers = await _add_shards(server, config)
    open_transactions = PartitionTransactions(runtime, directory)
    sender = MarkerSender(runtime, markers, open_transactions)
    transactions = TransactionService(
        runtime, limits=limits, shard_count=shard_count, sender=sender, sequences=partition_markers
    )
    verifier = CoordinatorVerifier(runtime, transactions.shard_key)
    topics = TopicService(
        runtime,
        directory,
        users=TopicUsers(verifier, OffsetsOfTopics(GroupRouter(shard_count))),
        authorizer=authorizer,
        limits=limits,
        new_topic_id=new_uuid,
    )
    log = LogService(runtime, server.store, directory, verifier=verifier, authorizer=authorizer, checks=checks)
    log.fetcher.room = server.answers
    log.fetcher.on_work = server.reads.spent
    transact_parts = TransactParts(
        TransactedBatches(server.store, directory, authorizer, checks, log.fetcher.damage),
        TransactedGroups(GroupRouter(shard_count), directory, authorizer),
    )
    transaction_servicer = TransactionServicer(
        transactions,
        TransactService(runtime, transactions.shard_key, transact_parts, authorizer),
        catalog=directory,
        authorizer=authorizer,
        address=NodeAddress(config.node_id, address.host, address.port),
        history=TransactionHistory(runtime, server.store, transactions.shard_key),
        two_phase_commit=config.transaction_two_phase_commit_enable,
    )
    owners = ProducerOwners(runtime)
    hanging = HangingTransactions(runtime, owners, open_transactions, markers)
    foreign_markers = ForeignMarkers(runtime, directory, guard=owners, authorizer=authorizer)
    administration = Administration(
        transactions=TransactionAdministration(runtime, transactions.shard_key, authorizer),
        hanging=hanging,
        catalog=directory,
        authorizer=authorizer,
        clock=runtime.clock,
    )

    answers, news = LateAnswers(runtime, waiting_max=config.group_waits_max), News(runtime)
    lags = GroupLags(runtime, server.store, directory, config.lag_config())
    loaded = LoadedParts(directory, transactions, sender, hanging, lags, answers, news)
    observer = _observe(server, loaded, log)
    server.dispatcher.open(
        [
            transaction_servicer,
            LogServicer(topics, log, foreign_markers),
            AdminServicer(limits, administration),
            ShardServicer(loader, authorizer),
            *_servicers_of_groups(server, config, loaded, verifier),
        ]
    )
    server.snapshots.loaded = loaded
    return await _load_shards(loader, loaded, observer)


async def _load_shards(loader: ShardLoader, loaded: LoadedParts, observer: ShardObserver) -> int:
    """Read the shards back, then begin what goes on in the background. How many could not be read."""
    failed = await all_of([loader.load_all(coordinator) for coordinator in LOADED_LAST])
    observer.is_start_over = True
    loaded.hanging.audit()
    loaded.lags.start()
    return sum(failed)


async def _add_shards(server: Server, config: Config) -> tuple[TopicDirectory, LocalMarkers, PartitionMarkers]:
    """Load what all shards share, and say what shards there are. Gives the names of partitions, and how a transaction
    reaches all that takes part in it, and partitions alone."""
    runtime, loader, shard_count = server.runtime, server.loader, config.shard_count
    loader.add(catalog_kind(runtime, shard_count=shard_count))
    loader.add(counters_kind(runtime))
    await all_of([loader.load(CATALOG_KEY), loader.load(COUNTERS)])
    directory = TopicDirectory(runtime)
    partition_markers = PartitionMarkers(directory)
    markers = LocalMarkers(partition_markers, GroupMarkers(GroupRouter(shard_count)))
    loader.add(partitions_kind(runtime, directory, shard_count=shard_count, config=config.partition_config()))
    loader.add(
        groups_kind(
            runtime,
            topics=directory,
            config=config.group_config(),
            shard_count=shard_count,
            assignors=measured(SERVER_ASSIGNORS, runtime.clock, server.snapshots.numbers.groups.computed),
        )
    )
    loader.add(transactions_kind(runtime, markers=markers, config=_transaction_config(config)))
    return directory, markers, partition_markers


def _servicers_of_groups(server: Server, config: Config, loaded: LoadedParts, verifier: GroupVerifier) -> list[object]:
    """What serves GroupService, and sends members away when their shard leaves."""
    runtime, router = server.runtime, GroupRouter(config.shard_count)
    send_members_away_with_their_shard(server.loader, router, loaded.answers, loaded.news)
    surroundings = GroupSurroundings(
        runtime=runtime,
        router=router,
        config=config.group_config(),
        authorizer=AllowAll(),
        catalog=loaded.directory,
        topics=loaded.directory,
        verifier=verifier,
        answers=loaded.answers,
        news=loaded.news,
        worker=server.worker,
    )
    return group_servicers(surroundings)


def _transaction_config(config: Config) -> TransactionConfig:
    return TransactionConfig(
        limits=config.limits(),
        two_phase=config.two_phase,
        shard_count=config.shard_count,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
    )


def _let_go(loader: ShardLoader, shard: ShardKey, coordinator_epoch: int) -> None:
    """Serve a shard no longer, unless it was loaded again under a later coordinator epoch."""
    if loader.standing(shard).coordinator_epoch == coordinator_epoch:
        loader.unload(shard)


def _observe(server: Server, loaded: LoadedParts, log: LogService) -> ShardObserver:
    """Count and log what happens from now on."""
    runtime, numbers = server.runtime, server.snapshots.numbers
    shard_observer = ShardObserver(numbers)
    server.loader.listen(shard_observer)
    leave_markers_to_the_next_load(server.loader, loaded.sender)
    groups = GroupObserver(numbers.groups)
    observer = EventObserver(numbers.transactions, numbers.log, groups, clock=runtime.clock, catalog=loaded.directory)
    runtime.on_event = observer
    loaded.hanging.on_found = observer.hanging_found

    def on_fenced(shard: ShardKey, coordinator_epoch: int) -> None:
        observer.coordinator_fenced(shard, coordinator_epoch)
        # A zombie serves nobody. Later, because this is told in the middle of a step of the runtime.
        runtime.arm(("fenced", shard), 0, partial(_let_go, server.loader, shard, coordinator_epoch))

    loaded.sender.on_fenced = on_fenced
    log.fetcher.on_read = numbers.log.read
    log.fetcher.damage.on_found = observer.damage_found
    return shard_observer
