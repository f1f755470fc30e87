"""A world in the words of the cases: clients that speak to it, error codes as numbers, states by their names.

Every call is one that wants its answer at once (refuse_concurrent), as Kafka's clients do. In split mode a decided
outcome stays in Prepare until the next flush, so a test can look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import common_pb2, transaction_pb2
from coordinator_core.shards import leave_markers_to_the_next_load
from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Operation, ShardRouter, Turn
from coordinator_runtime.participants import MarkerPort, ShareKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import ALLOW_ALL, AllowAll, Authorizer, CallContext, Permission, ResourceType
from coordinator_runtime.store_readers import ReadsAtOnce
from coordinator_server.addresses import NodeAddress
from coordinator_server.build import SERVICES
from coordinator_server.grpc_front.wire.log.servicer import LogServicer
from coordinator_server.grpc_front.wire.transactions.servicer import TransactionServicer
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from partition_log.foreign_markers import ForeignMarkers
from partition_log.positions import PositionService
from partition_log.service import LogService
from partition_log.state import PRODUCER_EXPIRATION_MS
from tests.harness.combinations import wanted_two_phase
from tests.harness.gated import GatedDispatcher
from tests.harness.inside import WorldOptions
from tests.harness.payloads import checks_here
from tests.harness.world import LogEntry, World, partition_name
from txn_coordinator.config import TwoPhase
from txn_coordinator.counters import COUNTERS
from txn_coordinator.hanging import ProducerOwners
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.reading import TransactionReader
from txn_coordinator.service import TransactionService
from txn_coordinator.state import Identity, Transaction
from txn_coordinator.verifier import CoordinatorVerifier

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT

EPOCH_MAX = 4
"""The last epoch of `near_the_end` worlds, in place of 32767."""
EXHAUSTED = EPOCH_MAX - 1
"""The last epoch that a client is ever given, in place of 32766."""

TIMEOUT_MS = 60_000
EIGHT_DAYS_MS = 8 * 24 * 3_600_000
"""Longer than an idle id is remembered."""
NO_PRODUCER = Identity(-1, -1)
NOW = CallContext(refuse_concurrent=True)

SERVED_ELSEWHERE = "elsewhere"
"""An id that `owns_few_shards` does not own."""


@dataclass
class Denies(AllowAll):
    """An authorizer that allows everything but some names."""

    names: set[str]

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return name not in self.names


@dataclass
class Refusing:
    """A marker port with participants that refuse. Defects of theirs too, so it takes any exception."""

    port: MarkerPort
    refused: dict[int | str | ShareKey, Exception] = field(default_factory=dict)
    tried: int = 0
    """Markers that were sent so far."""

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        return self._unless_refused(ordinal, self.port.partition_marker(ordinal, marker))

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        return self.port.partition_seal(ordinal, producer_id, producer_epoch)

    def group_marker(self, group: str, marker: Marker) -> Operation:
        return self._unless_refused(group, self.port.group_marker(group, marker))

    def share_marker(self, share: ShareKey, marker: Marker) -> Operation:
        return self._unless_refused(share, self.port.share_marker(share, marker))

    def _unless_refused(self, participant: int | str | ShareKey, operation: Operation) -> Operation:
        self.tried += 1
        if participant not in self.refused:
            return operation

        def refuse(_shard: object, _turn: Turn) -> NoReturn:
            raise self.refused[participant]

        return Operation(COUNTERS, refuse)


class CaseWorld(World):
    """A server with one topic `t` of four partitions."""

    def __init__(
        self,
        *,
        split: bool | None = None,
        near_the_end: bool = False,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> None:
        options = WorldOptions(
            two_phase=wanted_two_phase() if split is None else TwoPhase.SPLIT if split else TwoPhase.FUSED,
            producer_expiration_ms=producer_expiration_ms,
        )
        super().__init__(replace(options, producer_epoch_max=EPOCH_MAX) if near_the_end else options)
        self._refusing: Refusing | None = None
        self.create_topic("t", 4)

    def client(self, transactional_id: str = "orders", *, version: int = 2) -> Client:
        """An instance that has no identity yet."""
        return Client(self, transactional_id, version)

    def ready(self, transactional_id: str = "orders", *, version: int = 2, epoch: int = 0) -> Client:
        """An instance that is initialised, at this epoch."""
        client = self.client(transactional_id, version=version)
        while client.init().producer_epoch != epoch:
            pass
        return client

    def ongoing(self, transactional_id: str = "orders", *, version: int = 2, epoch: int = 0) -> Client:
        """An instance with a transaction open, and the record `a` in it, in t-0."""
        client = self.ready(transactional_id, version=version, epoch=epoch)
        assert client.add("t-0") is True
        assert client.write("t-0", "a") == 0
        return client

    def told(self, reply: Pending[Any]) -> Any:
        """The answer after one flush, or the number of its error."""
        if not reply.is_settled:
            self.flush()
        assert reply.is_settled, "the call waits, and it should not"
        try:
            return reply.result()
        except CoordinatorError as error:
            return int(error.code)

    def asked(self, call: Callable[[], Pending[Any]]) -> Any:
        """The answer to a call that may be refused on the spot."""
        try:
            return self.told(call())
        except CoordinatorError as error:
            return int(error.code)

    def servicer(self, authorizer: Authorizer | None = None) -> TransactionServicer:
        """The calls of clients as messages. Two-phase commit is switched off."""
        return TransactionServicer(*self._services(authorizer=authorizer), NodeAddress(1, "here", 7070))

    def _services(
        self, *, authorizer: Authorizer | None = None, shard_count: int | None = None
    ) -> tuple[TransactionService, TransactionReader]:
        """Those of the world, but for this."""
        inside, options = self.inside, self.options
        ports = inside.transactions.ports
        if authorizer is not None:
            ports = replace(ports, authorizer=authorizer)
        router = ShardRouter(Coordinator.TRANSACTIONS, shard_count or options.shard_count)
        reader = TransactionReader(
            inside.runtime,
            ReadsAtOnce(self.shelf.store),
            router,
            sender=inside.sender,
            catalog=inside.catalog,
            authorizer=ports.authorizer,
        )
        return TransactionService(inside.runtime, router, ports, limits=options.limits()), reader

    def log_servicer(self, authorizer: Authorizer | None = None) -> LogServicer:
        """The edge of the partitions."""
        inside = self.inside
        authorizer = authorizer if authorizer is not None else ALLOW_ALL
        verifier = CoordinatorVerifier(inside.runtime, inside.transactions.shard_key)
        markers = ForeignMarkers(
            inside.runtime, inside.catalog, guard=ProducerOwners(inside.runtime), authorizer=authorizer
        )
        checks, store = checks_here(self.options.limits()), self.shelf.store
        log = LogService(inside.runtime, store, inside.catalog, verifier=verifier, authorizer=authorizer, checks=checks)
        positions = PositionService(inside.runtime, ReadsAtOnce(store), log, checks.worker)
        return LogServicer(inside.topics, log, positions, markers)

    def while_loading(self, request: Message) -> int:
        """The number of the error that a server answers this request with before it has loaded its state."""
        dispatcher = GatedDispatcher(
            SERVICES, Admission(AdmissionLimits(), lambda: 0), self.clock, message_bytes_max=1 << 20
        )
        method = request.DESCRIPTOR.name.removesuffix("Request")
        (service,) = (each for each in SERVICES if method in each.methods_by_name)
        reply = dispatcher(f"/{service.full_name}/{method}", request.SerializeToString(), NOW)
        response = GetMessageClass(service.methods_by_name[method].output_type).FromString(reply.result())
        return int(response.error_code)  # type: ignore[attr-defined]  # a convention of our .proto files

    def owns_few_shards(self) -> None:
        """From now on there are more shards than this server serves: SERVED_ELSEWHERE is not its own."""
        inside = self.inside
        inside.transactions, inside.reader = self._services(shard_count=64)
        assert inside.transactions.shard_key(SERVED_ELSEWHERE).number >= self.options.shard_count

    def described(self, transactional_id: str = "orders") -> Transaction:
        return self.describe(transactional_id)

    def state(self, transactional_id: str = "orders") -> str:
        """The durable state's name, or the number of the refusal to describe it."""
        try:
            return self.describe(transactional_id).state.api_name
        except CoordinatorError as error:
            return str(int(error.code))

    def names(self, transaction: Transaction) -> list[str]:
        return sorted(self.partition_of(ordinal) for ordinal in transaction.partitions)

    def visible(self, partition: str = "t-0") -> list[str]:
        """Return the values that a committed reader sees."""
        return self.read(partition).values

    def markers(self, partition: str = "t-0") -> list[LogEntry]:
        """All markers of a partition, in order."""
        return [entry for entry in self.read(partition, is_raw=True).entries if entry.marker is not None]

    def answers_markers(self, refusal: Exception | None, *participants: str) -> Refusing:
        """From now on these partitions, and groups (`group:name`), refuse every marker with this, or take them again.
        In split mode only."""
        inside = self.inside
        if self._refusing is None or self._refusing.port is not inside.markers:
            self._refusing = Refusing(inside.markers)
            inside.sender = MarkerSender(inside.runtime, self._refusing, inside.open_transactions)
            leave_markers_to_the_next_load(inside.driver.loader, inside.sender)
        named = {} if refusal is None else {self._participant(name): refusal for name in participants}
        self._refusing.refused = named
        return self._refusing

    def _participant(self, name: str) -> int | str:
        kind, _, group = name.partition(":")
        return group if kind == "group" else self.inside.catalog.resolve(*partition_name(name)).ordinal

    @property
    def version(self) -> int:
        """Grows with everything that is written."""
        self.flush()
        return self.inside.runtime.groups.durable_version


@dataclass(slots=True)
class Client:
    """One instance of a producer, with what it believes. Calls return their value or the number of an error."""

    world: CaseWorld
    transactional_id: str
    version: int = 2
    identity: Identity = NO_PRODUCER
    sequences: dict[str, int] = field(default_factory=dict)

    @property
    def context(self) -> CallContext:
        return CallContext(client_txn_version=self.version, refuse_concurrent=True)

    def sends_init(
        self, *, expected: Identity | None = None, timeout_ms: int = TIMEOUT_MS, **more: Any
    ) -> Pending[Any]:
        world = self.world
        recovered = world.recover(self.transactional_id, self.context, timeout_ms=timeout_ms, expected=expected, **more)
        return recovered.map(lambda reply: reply.identity)

    def init(self, *, expected: Identity | None = None, timeout_ms: int = TIMEOUT_MS, **more: Any) -> Any:
        """The identity, which it goes on with."""
        answer = self.world.told(self.sends_init(expected=expected, timeout_ms=timeout_ms, **more))
        return answer if isinstance(answer, int) else self._becomes(answer)

    def keep(self, *, enable_2pc: bool = True, **more: Any) -> Any:
        """The identity of the transaction that was kept, or None if none was open; it goes on with the client's."""
        answer = self.world.told(
            self.world.recover(
                self.transactional_id,
                self.context,
                timeout_ms=TIMEOUT_MS,
                enable_2pc=enable_2pc,
                keep_prepared=True,
                **more,
            )
        )
        if isinstance(answer, int):
            return answer
        self._becomes(answer.identity)
        return answer.ongoing

    def add(self, *partitions: str, shown: Identity | None = None) -> Any:
        """True, or the number of the error."""
        return self.world.told(self.world.add(self.transactional_id, shown or self.identity, partitions, self.context))

    def verify(self, *partitions: str, shown: Identity | None = None) -> Any:
        """The number that each partition is answered, 0 for those in the transaction; one number when the whole call is
        refused before any of them is looked at."""
        identity = shown or self.identity
        request = transaction_pb2.AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            verify_only=True,
            topics=[common_pb2.TopicPartitions(topic="t", partitions=[int(name[2:]) for name in partitions])],
        )
        answer = self.world.asked(lambda: self.world.servicer().AddPartitionsToTxn(request, self.context))
        return answer if isinstance(answer, int) else [result.error_code for result in answer.results]

    def write(
        self,
        partition: str,
        *values: str,
        shown: Identity | None = None,
        sequence: int | None = None,
        plain: bool = False,
    ) -> int:
        """0, or the number of the error."""
        first = self.sequences.get(partition, 0) if sequence is None else sequence
        result = self.world.told(
            self.world.produce(
                None if plain else self.transactional_id,
                shown or self.identity,
                partition,
                values,
                sequence=first,
                context=self.context,
            )
        )
        if isinstance(result, int):
            return result
        if result.error is not None:
            return int(result.error.code)
        self.sequences[partition] = first + len(values)
        return 0

    def offset(self, group: str, offset: int) -> Any:
        return self.world.told(
            self.world.commit_offset(self.transactional_id, self.identity, group, offset, self.context)
        )

    def sends_end(self, outcome: Outcome, shown: Identity | None = None) -> Pending[Any]:
        return self.world.end(self.transactional_id, shown or self.identity, outcome, self.context)

    def end(self, outcome: Outcome, shown: Identity | None = None) -> Any:
        """The identity for the next transaction; version 1 keeps its own."""
        answer = self.world.told(self.sends_end(outcome, shown))
        if isinstance(answer, int):
            return answer
        return self._becomes(answer.next_identity) if self.version == 2 else self.identity

    def commit(self, shown: Identity | None = None) -> Any:
        return self.end(COMMIT, shown)

    def abort(self, shown: Identity | None = None) -> Any:
        return self.end(ABORT, shown)

    def before(self, epochs: int = 1) -> Identity:
        """An identity that it had: so many epochs ago."""
        return Identity(self.identity.producer_id, self.identity.producer_epoch - epochs)

    def _becomes(self, identity: Identity) -> Identity:
        if identity != self.identity:
            self.identity, self.sequences = identity, {}
        return identity
