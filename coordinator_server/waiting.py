"""The server while it waits for the lease of its store. It tells clients which server serves, by the lease, and refuses
everything else with an error after which they go there (decision 63).

It is made of the parts of any server, over a store without rows. Nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, Protocol

from coordinator_runtime.clock import Clock
from coordinator_runtime.engine import OpenStore
from coordinator_runtime.no_store import NoStore
from coordinator_server.addresses import NodeAddress
from coordinator_server.build import METHODS_OF, Outside, build
from coordinator_server.grpc_front.wire.waiting import waiting_servicer
from coordinator_server.metrics.instruments import Readings
from coordinator_server.settings.config import Config
from coordinator_server.tracing import TraceExporter
from coordinator_server.traffic.answer_bytes import AnswerBytes

if TYPE_CHECKING:
    from coordinator_server.kafka_front.kafka_call import ApiEndpoint
    from coordinator_server.kafka_front.listeners import CoreOfConnections


class KnownOwner(Protocol):
    """The lease, as a server that waits knows it."""

    @property
    def store_id(self) -> str | None: ...

    def owner(self) -> NodeAddress | None: ...

    def kafka_owner(self, node: NodeAddress) -> NodeAddress | None: ...

    def other_kafka_nodes(self, node: NodeAddress) -> Sequence[NodeAddress]: ...


class WaitingServer:
    """The parts that fronts need while the server waits. On the loop only."""

    def __init__(self, config: Config, clock: Clock, outside: Outside, node: NodeAddress, lease: KnownOwner) -> None:
        """`node`: this server, as callers of gRPC know it."""
        # Spans of refusals tell nothing, and the exporter is the server's.
        untraced = config.model_copy(update={"tracing": TraceExporter.OFF})
        self._server = build(untraced, OpenStore(NoStore(), _never), clock, _never, outside)
        self._lease = lease
        methods = chain.from_iterable(METHODS_OF.values())
        self._server.dispatcher.serve([waiting_servicer(methods, node, lease.owner)])
        self._server.gatekeeper.open()
        self.handler = self._server.dispatcher
        self.keeper = self._server.keeper

    def readings(self) -> Readings:
        """Return the metrics of a server that waits: which program it is. It has no shards that could be missing."""
        found = self._server.readings()
        return {name: found[name] for name in ("txn_build_info", "txn_config_info")}

    def kafka_endpoints(self) -> Mapping[int, ApiEndpoint]:
        """Return the endpoints of Kafka's protocol."""
        # Late: its codecs take time and memory that other servers save.
        from coordinator_server.kafka_front.front_settings import FrontSettings
        from coordinator_server.kafka_front.waiting import WaitingApis, waiting_endpoints

        settings = FrontSettings(cluster_id=self._lease.store_id or "")
        apis = WaitingApis(self._lease.store_id, self._lease.kafka_owner, self._lease.other_kafka_nodes)
        return waiting_endpoints(self._server.core, settings, apis)

    def kafka_connections(self, answers: AnswerBytes) -> CoreOfConnections:
        """Return the parts that know the connections of Kafka's protocol. None of them has a session here to end."""
        from coordinator_server.kafka_front.listeners import CoreOfConnections

        return CoreOfConnections(answers, lambda _connection: None)


def _never(_argument: object) -> NoReturn:
    raise AssertionError("a server that waits writes nothing")
