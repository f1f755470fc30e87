"""The life of one server process: open, load, serve, drain or fail, end.

Fail-stop: once the store could not write or sync, the content of the disk is unknown. Waiting callers are informed, and
the process ends at once without touching the store again. The next start recovers what was acknowledged (design 5).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog
import uvloop

from coordinator_protocol.allocation import keep_freed_memory
from coordinator_protocol.errors import UnknownOutcome
from coordinator_runtime.clock import Clock, SystemClock
from coordinator_runtime.engine import OpenStore
from coordinator_runtime.slate.lease import LeaseEnded
from coordinator_runtime.store import StoreFailed, StoreFenced, StoreRefused
from coordinator_runtime.store_statistics import StoreStatistics
from coordinator_server.addresses import Address, NodeAddress, parse_address
from coordinator_server.build import SERVICE_NAMES, Outside, Server, build, load
from coordinator_server.connection_numbers import CertificateNumbers, ConnectionNumbers
from coordinator_server.engines import StoreOpener, engine_of, handle_plan
from coordinator_server.exits import CommandFailed, ExitStatus
from coordinator_server.grpc_front.handler import Switch
from coordinator_server.grpc_front.transport_choice import TransportMissing
from coordinator_server.grpc_front.transports import TransportOptions
from coordinator_server.host.disk_watch import DiskWatch
from coordinator_server.host.memory import MemoryKeeper, loading_for_good
from coordinator_server.host.service_manager import ServiceManager
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.listeners import Identities, Listeners, OpenListener, protection_of, why_unsafe
from coordinator_server.listening import AddressRefused
from coordinator_server.logs import audit_file, configure_logs
from coordinator_server.metrics.collector import ReadingsCollector, registry_of
from coordinator_server.metrics.endpoint import MetricsEndpoint, listen_for_scrapes
from coordinator_server.metrics.instruments import Readings
from coordinator_server.metrics.server import LoopLag
from coordinator_server.security.authentication import IdentityRefused
from coordinator_server.security.reloading_credentials import CredentialsWatch, ReloadingCredentials
from coordinator_server.security.tls import TlsRefused
from coordinator_server.settings.config import METRICS_PREFIX, Config
from coordinator_server.settings.config_sources import LoadedConfig
from coordinator_server.shard_health import ShardHealth
from coordinator_server.store_lease import StoreLease
from coordinator_server.traffic.answer_bytes import AnswerBytes
from coordinator_server.traffic.quotas.opening import NO_QUOTAS
from coordinator_server.traffic.quotas.quota_file import QuotasRefused
from coordinator_server.waiting import WaitingServer

if TYPE_CHECKING:
    from coordinator_server.kafka_front.listeners import KafkaListeners

ANSWERS_LEAVE_MS: Final = 500
"""Time limit for the last answers to leave the process when it ends."""

_ADVICE: Final = "nothing acknowledged is lost; check the disk (space, errors), then start again to recover"
_ADVICE_OF_FENCED: Final = (
    "another server has taken the store over, with everything that was acknowledged: leave this one stopped, or stop"
    " the other one first"
)

_ADVICE_OF_ENDED_LEASE: Final = (
    "nothing acknowledged is lost; look whether the object store was slow or away, and start this server again: it"
    " waits until it is needed"
)
_ENDS_AT_ONCE: Final = (ExitStatus.FAILED, ExitStatus.FENCED, ExitStatus.LEASE_ENDED)

_log = structlog.get_logger("server")


class Announce(Protocol):
    """Called once the server takes work, with its listeners; the one of the setting `listen` is first. `kafka` has the
    addresses that speak Kafka's protocol."""

    def __call__(self, listeners: Sequence[OpenListener], kafka: Sequence[Address]) -> None: ...


def run(
    config: Config,
    announce: Announce,
    opener: StoreOpener | None = None,
    *,
    origins: Mapping[str, str] = MappingProxyType({}),
) -> ExitStatus:
    """Serve until a signal or a failure ends it. Returns OK after a clean shutdown, and after a failure FAILED, FENCED
    or LEASE_ENDED. `opener`: that of a test; None for the engine of the configuration. `origins` are those of the
    settings, by name.

    Raises CommandFailed if the server cannot start. After a failure the caller must use `end_process`.
    """
    if not __debug__:
        raise CommandFailed(
            ExitStatus.USAGE,
            "the server does not run with python -O: its assertions keep a defect from becoming wrong data",
        )
    configure_logs(config.log_format, config.log_level)
    keep_freed_memory()
    with ExitStack() as until_the_end:
        if config.audit_file is not None:
            until_the_end.enter_context(_audit_file(config.audit_file, config.audit_file_max_bytes))
        runner = until_the_end.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        opener = opener or engine_of(config).open_store
        return runner.run(_live(LoadedConfig(config, origins), announce, opener))


@contextmanager
def _audit_file(path: Path, bytes_max: int) -> Iterator[None]:
    """Open the audit file for the duration of the block. Raises CommandFailed."""
    with ExitStack() as until_the_end:
        try:
            until_the_end.enter_context(audit_file(path, bytes_max=bytes_max))
        except OSError as error:
            raise CommandFailed(
                ExitStatus.USAGE,
                f"the audit file {path} cannot be written: {error.strerror}; set audit_file to another",
            ) from error
        yield


def end_process(status: ExitStatus) -> NoReturn:
    """End the process. After a failure no destructor runs, so that nothing touches the store again."""
    sys.stdout.flush()
    sys.stderr.flush()
    if status in _ENDS_AT_ONCE:
        os._exit(status)
    sys.exit(status)


async def _live(loaded: LoadedConfig, announce: Announce, opener: StoreOpener) -> ExitStatus:
    # The process belongs to the loop that runs here.
    return await _Process(loaded, announce, SystemClock()).live(opener)


def _open(opener: StoreOpener, config: Config) -> OpenStore:
    """Open the store. Raises CommandFailed."""
    try:
        return opener(config)
    except StoreRefused as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end the server. A closed terminal (SIGHUP) is one of them, unless `nohup` ignores it."""
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT] + ([] if is_kept else [signal.SIGHUP])


def _status_after(failure: Exception) -> ExitStatus:
    match failure:
        case StoreFenced():
            return ExitStatus.FENCED
        case LeaseEnded():
            return ExitStatus.LEASE_ENDED
    return ExitStatus.FAILED


def _advice_after(failure: Exception) -> str:
    match failure:
        case StoreFenced():
            return _ADVICE_OF_FENCED
        case LeaseEnded():
            return _ADVICE_OF_ENDED_LEASE
    return _ADVICE


class _Process:
    """One server from open to end."""

    def __init__(self, loaded: LoadedConfig, announce: Announce, clock: Clock) -> None:
        self._config = config = loaded.config
        self._origins = loaded.origins
        self._announce = announce
        self._clock = clock
        self._failure: asyncio.Future[Exception] = asyncio.Future()
        self._signal: asyncio.Future[signal.Signals] = asyncio.Future()
        self._handles = handle_plan(config)
        self._listeners = Listeners()
        self._kafka: KafkaListeners | None = None
        self._metrics: MetricsEndpoint | None = None
        self._metrics_credentials: ReloadingCredentials | None = None
        self._lease: StoreLease | None = None
        self._manager = ServiceManager.of(os.environ, os.getpid())
        self._quotas = NO_QUOTAS
        self._answers = AnswerBytes(config.answer_limits())
        self._front: Switch | None = None
        """Handler of the transports that serve already; None if they begin with the server."""
        self._watches: list[CredentialsWatch | DiskWatch] = []
        """Watches to stop before the loop ends its pool of threads."""

    async def live(self, opener: StoreOpener) -> ExitStatus:
        """Serve until a signal or a failure."""
        try:
            return await self._serve(opener)
        finally:
            for watch in self._watches:
                watch.stop()

    async def _serve(self, opener: StoreOpener) -> ExitStatus:
        # The addresses first: a server that cannot have them makes no directory.
        listeners = self._listeners
        async with AsyncExitStack() as undo:
            undo.push_async_callback(listeners.give_back)
            self._open_listeners()
            self._metrics = self._listen_for_scrapes()
            if self._metrics is not None:
                undo.callback(self._metrics.close)
            if self._config.lease and not await self._wait_for_lease(undo):
                return ExitStatus.OK
            self._manager.busy(f"opening the store in {self._config.place}")
            opened = _open(opener, self._config)
            undo.pop_all()
        self._manager.busy("loading the state")
        server = build(self._config, opened, self._clock, self._fail, self._outside())
        if self._metrics is not None:
            self._publish(self._metrics, server.readings, opened.statistics)
            LoopLag(self._clock, server.readings.numbers.runtime.loop_lag).start()
            _log.info("serving_metrics", listen=str(self._metrics_address(self._metrics)), path="/metrics")
        if self._lease is not None:
            server.gatekeeper.is_owner = self._lease.is_valid
        self._heed_signals()
        if self._front is None:
            await listeners.start(server.dispatcher, self._answers)
        else:
            self._front.handler = server.dispatcher
        self._watch_credentials()
        if opened.free_bytes is not None:
            self._begin(DiskWatch(server.core.checks.disk, opened.free_bytes))
        try:
            is_ready = await self._unless(self._get_ready(server), self._failure, self._signal)
        except BaseException:
            await listeners.stop(0)
            raise
        if is_ready:
            MemoryKeeper(self._clock).start()
            ends: set[asyncio.Future[Any]] = {self._failure, self._signal}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._signal.done() and not self._failure.done():
            await self._drain(server, self._signal.result())
        if self._failure.done():
            await self._give_up(server, self._failure.result())
            return _status_after(self._failure.result())
        return ExitStatus.OK

    def _heed_signals(self) -> None:
        for number in _ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    async def _wait_for_lease(self, undo: AsyncExitStack) -> bool:
        """Wait until this server holds the lease of its store. Returns False if a signal came first. Raises
        CommandFailed."""
        self._heed_signals()
        kafka = () if self._kafka is None else tuple(str(each.advertised) for each in self._kafka.opened)
        self._lease = lease = StoreLease(self._config, str(self._advertised()), kafka, self._clock, self._fail)
        undo.push_async_callback(lease.hand_over)
        await self._serve_waiting(lease)
        undo.push_async_callback(self._listeners.announce_stop)
        self._manager.ready(f"waiting for the lease of {self._config.place}")
        is_held = await self._unless(lease.held(), self._failure, self._signal)
        if self._failure.done():
            failure = self._failure.result()
            raise CommandFailed(_status_after(failure), str(failure))
        return is_held

    async def _serve_waiting(self, lease: StoreLease) -> None:
        """Tell clients which server serves."""
        address = self._advertised()
        node = NodeAddress(self._config.node_id, address.host, address.port)
        waiting = WaitingServer(self._config, self._clock, self._outside(), node, lease)
        if self._metrics is not None:
            self._publish(self._metrics, waiting.readings, StoreStatistics)
        self._front = Switch(waiting.handler)
        await self._listeners.start(self._front, self._answers)
        if self._kafka is not None:
            await self._kafka.serve(waiting.kafka_endpoints(), waiting.keeper, waiting.kafka_connections(self._answers))

    def _outside(self) -> Outside:
        return Outside(self._quotas, self._origins, self._answers)

    def _open_listeners(self) -> None:
        """Take the addresses to serve on. Raises CommandFailed."""
        wanted, name = self._config.all_listeners(), self._config.transport
        try:
            self._quotas = self._config.quotas(self._clock)
            options = TransportOptions(
                self._config.message_bytes_max,
                has_reflection=self._config.reflection,
                connections_max=self._handles.connections_max,
                streams_max=self._config.streams_per_connection_max,
                levels=self._quotas.budgets,
                idle=IdleSessions(self._clock, self._config.session_idle_ms_max),
            )
            identities = Identities.read(
                self._config.tokens_file, self._config.jwt_rules(), self._config.name_rule(), self._clock
            )
            self._listeners.open(wanted, name, SERVICE_NAMES, self._clock, options, identities)
            self._kafka = self._open_kafka(options, identities)
            if self._kafka is not None:
                self._listeners.join(self._kafka)
        except (TransportMissing, TlsRefused, IdentityRefused, QuotasRefused) as refusal:
            raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal
        except AddressRefused as refusal:
            raise CommandFailed(ExitStatus.ADDRESS_REFUSED, str(refusal)) from refusal
        self._listeners.on_failure(self._fail)

    def _open_kafka(self, options: TransportOptions, identities: Identities) -> KafkaListeners | None:
        """Take the addresses for Kafka's protocol, if there are any. Raises AddressRefused, TlsRefused."""
        wanted = self._config.all_kafka_listeners()
        if not wanted:
            return None
        # Late: its codecs take time and memory that other servers save.
        from coordinator_server.kafka_front.listeners import KafkaListeners, KafkaOptions

        kafka = KafkaListeners(
            self._clock,
            KafkaOptions(
                self._config.node_id,
                options.message_bytes_max,
                self._config.kafka_connections_max,
                # Half of them, so that callers of gRPC have the rest.
                begun_bytes_max=self._config.undurable_bytes_max // (2 * len(wanted)),
                begun_calls_max=max(1, self._config.calls_in_work_max // (2 * len(wanted))),
                levels=options.levels,
                idle=options.idle,
            ),
        )
        kafka.open(wanted, identities)
        return kafka

    async def _serve_kafka(self, kafka: KafkaListeners, server: Server) -> None:
        from coordinator_server.kafka_front.endpoints import endpoints_of
        from coordinator_server.kafka_front.front_settings import FrontSettings, alone
        from coordinator_server.kafka_front.listeners import CoreOfConnections

        settings = FrontSettings(
            cluster_id=server.store_id,
            auto_create_topics=self._config.kafka_auto_create_topics,
            auto_create_partitions=self._config.kafka_auto_create_partitions,
            others=alone if self._lease is None else self._lease.other_kafka_nodes,
        )
        endpoints = endpoints_of(server.core, settings)
        core = CoreOfConnections(server.answers, server.core.groups.share_records.connection_lost)
        if self._front is None:
            await kafka.serve(endpoints, server.keeper, core)
        else:
            kafka.go_on_with(endpoints, server.keeper, core)
        for each in kafka.opened:
            _log.info(
                "serving_kafka",
                listen=str(each.address),
                advertised=str(each.advertised),
                protection=protection_of(each.credentials),
            )

    def _watch_credentials(self) -> None:
        """Reload certificates, tokens and quotas when they change."""
        others = [each for each in (self._metrics_credentials, self._quotas.reloading) if each is not None]
        self._begin(CredentialsWatch([*self._listeners.credentials, *others, *self._listeners.identities.reloading]))

    def _begin(self, watch: CredentialsWatch | DiskWatch) -> None:
        watch.start()
        self._watches.append(watch)

    def _advertised(self) -> Address:
        advertised = self._config.advertised
        return self._listeners.first.address if advertised is None else parse_address(advertised)

    async def _get_ready(self, server: Server) -> None:
        began_ms = self._clock.monotonic_ms()
        server.commits.start()
        try:
            with loading_for_good():
                others = list if self._lease is None else self._lease.other_nodes
                failed_shards = await load(server, self._config, self._advertised(), others)
        except Exception as error:
            _log.error("load_failed", old_state="loading", new_state="failed", exc_info=error)
            raise CommandFailed(
                ExitStatus.STORE_REFUSED,
                f"the state in {self._config.place} cannot be loaded ({error}); nothing was"
                " served. `txnctl store verify` looks closer; restore a backup if the disk is damaged",
            ) from error
        _log.info(
            "loaded",
            elapsed_ms=self._clock.monotonic_ms() - began_ms,
            transactional_ids=server.readings.numbers.transactions.known_ids,
            failed_shards=failed_shards,
            old_state="loading",
            new_state="active",
        )
        await ShardHealth(server.core.loader, self._listeners).tell()
        if self._kafka is not None:
            await self._serve_kafka(self._kafka, server)
        await self._listeners.set_ready(True)
        for each in self._listeners.opened:
            _log.info(
                "serving",
                listen=str(each.address),
                transport=each.transport.name,
                protection=each.protection,
                data_dir=self._config.place,
                connections_max=self._handles.connections_max,
                two_phase=self._config.two_phase,
            )
        for insecure in self._config.insecure_listeners():
            _log.warning(
                "insecure_listener",
                listen=insecure.listen,
                problem=why_unsafe(insecure),
                advice="let trusted networks in only",
            )
        self._announce(self._listeners.opened, [] if self._kafka is None else self._kafka.addresses)
        tell = self._manager.ready if self._lease is None else self._manager.busy
        tell(f"serving gRPC on {self._listeners.first.address}")

    def _listen_for_scrapes(self) -> MetricsEndpoint | None:
        """Take the address for metrics, if the configuration names one. Raises CommandFailed."""
        listener = self._config.metrics_listener()
        if listener is None:
            return None
        wanted = listener.address
        try:
            self._metrics_credentials = listener.credentials(self._clock, METRICS_PREFIX)
            return listen_for_scrapes(wanted.host, wanted.port, self._metrics_credentials)
        except TlsRefused as refusal:
            raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal
        except OSError as error:
            raise CommandFailed(
                ExitStatus.ADDRESS_REFUSED, f"cannot listen for metrics on {wanted}: {error.strerror}; choose another"
            ) from error

    def _publish(
        self, metrics: MetricsEndpoint, readings: Callable[[], Readings], statistics: Callable[[], StoreStatistics]
    ) -> None:
        """Answer scrapes from now on, including the time while the state is loaded."""
        collector = ReadingsCollector(asyncio.get_running_loop(), readings, statistics, self._connection_numbers)
        metrics.publish(registry_of(collector))

    def _metrics_address(self, metrics: MetricsEndpoint) -> Address:
        return Address(parse_address(self._config.metrics_listen or "").host, metrics.port)

    def _connection_numbers(self) -> ConnectionNumbers:
        """Return the metrics of connections. On the thread of a scrape."""
        by_address = self._listeners.credentials_by_address()
        if self._metrics is not None:
            by_address[str(self._metrics_address(self._metrics))] = self._metrics_credentials
        certificates = {
            listen: CertificateNumbers(each.current.ends_ms, each.refusal is not None)
            for listen, each in by_address.items()
            if each is not None
        }
        insecure = len(self._config.insecure_listeners())
        return replace(self._listeners.numbers(), certificates=certificates, insecure_listeners=insecure)

    async def _drain(self, server: Server, reason: signal.Signals) -> None:
        """Take nothing new, make durable and answer what was staged, close. Stops in between if the store fails."""
        _log.info("drain", signal=reason.name, unanswered_calls=server.gatekeeper.unanswered_calls)
        self._manager.stopping(f"draining after {reason.name}")
        server.core.loader.stop()
        if server.backups is not None:
            server.backups.stop()
        await self._listeners.announce_stop()
        server.gatekeeper.close()
        try:
            async with asyncio.timeout(self._config.drain_ms_max / 1000):
                if not await self._unless(self._answer_all(server), self._failure):
                    return
                if server.backups is not None:
                    await server.backups.stopped()
        except TimeoutError:
            self._fail(TimeoutError(f"the disk needed longer than {self._config.drain_ms_max} ms to finish"))
            return
        await self._listeners.stop(ANSWERS_LEAVE_MS)
        if self._metrics is not None:
            # In a thread, because a scrape under way waits for this loop.
            await asyncio.to_thread(self._metrics.close)  # noqa: TID251  no state of ours is touched there
        server.worker.close()
        server.payload_worker.close()
        server.compaction_worker.close()
        server.commits.close()
        try:
            server.core.store.close()
        except StoreFailed as failure:
            self._fail(failure)
            return
        if self._lease is not None:
            await self._lease.hand_over()
        _log.info("stopped")

    async def _answer_all(self, server: Server) -> None:
        await server.driver.drain()
        # In the same step of the loop: calls staged after the drain would be answered as not done.
        server.keeper.answer_unanswered()

    async def _give_up(self, server: Server, failure: Exception) -> None:
        """Fail-stop: answer the waiting callers that their outcome is unknown, and let these answers leave."""
        _log.error(
            "fail_stop",
            failure=str(failure),
            old_state="active",
            new_state="failed",
            advice=_advice_after(failure),
            exc_info=None if isinstance(failure, (StoreFailed, TimeoutError)) else failure,
        )
        self._manager.stopping(f"failed: {failure}")
        await self._listeners.announce_stop()
        server.gatekeeper.close()
        server.keeper.answer_unanswered(UnknownOutcome(f"the server stopped: {failure}; ask again when it is back"))
        await self._listeners.stop(ANSWERS_LEAVE_MS)
        server.worker.close()
        server.payload_worker.close()
        server.compaction_worker.close()

    async def _unless(self, work: Coroutine[None, None, None], *reasons: asyncio.Future[Any]) -> bool:
        """Run the work. Cancel it and return False if one of the reasons comes first."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait({task, *reasons}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if task.cancelled() or not task.done():
            return False
        task.result()
        return True

    def _fail(self, failure: Exception) -> None:
        if isinstance(failure, StoreFenced) and self._lease is not None:
            # The other server took the lease, which this one did not notice yet, or it has none. To start again is
            # right in both cases: this one waits, or fences a server that may not write.
            failure = LeaseEnded(f"the lease of the store is over ({failure})")
        if not self._failure.done():
            self._failure.set_result(failure)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signal.done():
            # A second signal means: stop now. It is a crash like any other, and the next start recovers.
            os._exit(128 + number)
        self._signal.set_result(number)
