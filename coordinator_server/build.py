"""The composition root: every part of one server, made and joined here and nowhere else.

`build` makes what needs no stored state, so that the server can listen and say that it loads. `load` brings the state
back, makes the services on it, and opens the door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from coordinator_api.v1 import admin_pb2, log_pb2, transaction_pb2
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_thread import CommitThread
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.driver import LoopDriver
from coordinator_runtime.identity import new_uuid
from coordinator_runtime.loader import settle_debts
from coordinator_runtime.ports import AllowAll
from coordinator_runtime.rocks import StoreStatistics
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store, StoreFailed
from coordinator_server.admin_servicer import Administration, AdminServicer
from coordinator_server.admission import Admission
from coordinator_server.config import Address, Config
from coordinator_server.events import EventObserver
from coordinator_server.markers import LocalMarkers, NoGroups
from coordinator_server.metrics.calls import CallNumbers
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.runtime import RuntimeNumbers
from coordinator_server.metrics.snapshot import LoadedParts, MetricsConfig, ServerNumbers, Snapshots
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.transport import Dispatcher
from partition_log.catalog.directory import TopicDirectory
from partition_log.foreign_markers import ForeignMarkers
from partition_log.loading import load_partition_log
from partition_log.markers import PartitionMarkers
from partition_log.open_transactions import PartitionTransactions
from partition_log.service import LogService
from partition_log.servicer import LogServicer
from partition_log.topics import TopicService
from txn_coordinator.administration import TransactionAdministration
from txn_coordinator.hanging import HangingTransactions
from txn_coordinator.history import TransactionHistory
from txn_coordinator.loading import TransactionConfig, load_stepwise, transaction_shards
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.owners import ProducerOwners
from txn_coordinator.service import TransactionService
from txn_coordinator.servicer import NodeAddress, TransactionServicer
from txn_coordinator.verifier import CoordinatorVerifier

SERVICES = (
    transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"],
    log_pb2.DESCRIPTOR.services_by_name["LogService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
)
"""What this server serves. Every method of them has a servicer."""

SERVICE_NAMES = tuple(service.full_name for service in SERVICES)

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
    driver: LoopDriver
    commits: CommitThread
    dispatcher: Dispatcher
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
    dispatcher = Dispatcher(SERVICES, admission, clock, message_bytes_max=config.message_bytes_max)
    numbers = ServerNumbers(TransactionNumbers(), CallNumbers(SERVICES), LogNumbers(), RuntimeNumbers())
    runtime.on_group = numbers.runtime.group_durable
    runtime.on_wait_ended = numbers.runtime.waited
    runtime.on_defect = partial(_on_defect, numbers)
    commits.on_synced = numbers.runtime.synced
    dispatcher.on_answered = numbers.calls.answered
    dispatcher.on_unanswered = numbers.calls.unanswered
    dispatcher.on_defect = numbers.met_defect
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
    )
    return Server(store, runtime, driver, commits, dispatcher, snapshots)


def _on_defect(numbers: ServerNumbers, defect: Exception) -> None:
    """Of an operation that the server started itself; those of calls are the dispatcher's."""
    _log.error("defect", exc_info=defect)
    numbers.met_defect(defect)


async def load(server: Server, config: Config, address: Address) -> None:
    """Bring the state back and take work; returns once all of that is durable. The commit thread must run.

    Raises whatever a damaged record raises: a server that cannot read its state does not serve."""
    runtime, store, shard_count = server.runtime, server.store, config.shard_count
    limits, authorizer = config.limits(), AllowAll()

    directory, partition_markers, markers = await _load_state(server, config)
    open_transactions = PartitionTransactions(runtime, directory)
    sender = MarkerSender(runtime, markers, open_transactions)
    transactions = TransactionService(
        runtime, limits=limits, shard_count=shard_count, sender=sender, sequences=partition_markers
    )
    verifier = CoordinatorVerifier(runtime, transactions.shard_key)
    topics = TopicService(
        runtime, directory, verifier=verifier, authorizer=authorizer, limits=limits, new_topic_id=new_uuid
    )
    log = LogService(runtime, store, directory, verifier=verifier, authorizer=authorizer, limits=limits)
    transaction_servicer = TransactionServicer(
        transactions,
        catalog=directory,
        authorizer=authorizer,
        address=NodeAddress(config.node_id, address.host, address.port),
        history=TransactionHistory(runtime, store, transactions.shard_key),
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

    loaded = LoadedParts(directory, sender, hanging)
    _observe(server, loaded, log)

    settle_debts(runtime, transaction_shards(shard_count))
    # A coordinator epoch is durable before the first request, so that no older process can pass for this one.
    await server.driver.drain()
    hanging.audit()
    server.dispatcher.open(
        [transaction_servicer, LogServicer(topics, log, foreign_markers), AdminServicer(limits, administration)]
    )
    server.snapshots.loaded = loaded


async def _load_state(server: Server, config: Config) -> tuple[TopicDirectory, PartitionMarkers, LocalMarkers]:
    """Every shard as it was stored, and how the coordinators reach the partitions."""
    runtime, store, clock = server.runtime, server.store, server.runtime.clock
    began_ms = clock.monotonic_ms()
    directory = load_partition_log(runtime, store, shard_count=config.shard_count)
    log_loaded_ms = clock.monotonic_ms()
    partition_markers = PartitionMarkers(directory)
    markers = LocalMarkers(partition_markers, NoGroups())
    transactions_config = TransactionConfig(
        limits=config.limits(),
        two_phase=config.two_phase,
        shard_count=config.shard_count,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
    )
    for _shard in load_stepwise(runtime, store, markers=markers, config=transactions_config):
        await asyncio.sleep(0)  # noqa: TID251  gives way to health checks and signals, waits for nothing
    server.snapshots.numbers.runtime.load_ms = {
        "log": log_loaded_ms - began_ms,
        "transactions": clock.monotonic_ms() - log_loaded_ms,
    }
    return directory, partition_markers, markers


def _observe(server: Server, loaded: LoadedParts, log: LogService) -> None:
    """Count and log what happens from now on."""
    runtime, numbers = server.runtime, server.snapshots.numbers
    for shard in runtime.shards(Coordinator.TRANSACTIONS):
        numbers.transactions.load(shard.durable_transactions())
    observer = EventObserver(numbers.transactions, numbers.log, runtime.clock, loaded.directory)
    runtime.on_event = observer
    loaded.hanging.on_found = observer.hanging_found
    loaded.sender.on_fenced = observer.coordinator_fenced
    log.fetcher.on_read = numbers.log.read
