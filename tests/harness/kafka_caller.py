"""A client of the Kafka front without bytes: it gives generated requests to the handlers, and gets the responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coordinator_core.assembly import Core
from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import handlers
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.kafka_call import IMPLICIT_SINCE
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.world import World

NODE = NodeAddress(1, "kafka.test", 9092)
SETTINGS = FrontSettings(cluster_id="cluster-of-tests")
CALLER = CallContext(client_id="a-kafka-client", host="1.2.3.4", client_txn_version=1, connection="kafka-1")


class KafkaCaller:
    """Calls the handlers of a world. A refusal of the whole call becomes a response, as the gatekeeper wants it."""

    def __init__(
        self,
        world: World,
        context: CallContext = CALLER,
        settings: FrontSettings = SETTINGS,
        *,
        offers_fast_path: bool = False,
    ) -> None:
        """`offers_fast_path`: offer calls to the fast path first, as the gatekeeper does."""
        self._world = world
        self._settings = settings
        self._context = context
        self._offers_fast_path = offers_fast_path
        self._made: tuple[Core, Mapping[ApiKey, ApiHandler]] | None = None
        self.codes: set[int] = set()
        """Error codes of the newest call."""

    @property
    def _handlers(self) -> Mapping[ApiKey, ApiHandler]:
        core = self._world.inside.core
        if self._made is None or self._made[0] is not core:
            self._made = core, dict(handlers(core, self._settings))
        return self._made[1]

    def begin(self, key: ApiKey, version: int, request: Any, **context: Any) -> Pending[Any]:
        """Begin a call. Fields of its context may be replaced."""
        assert APIS[key].has(version), f"{key.name} {version} is not advertised"
        handler, exchange = self._handlers[key], self._exchange(key, version, **context)
        self.codes = exchange.codes
        try:
            pending = self._taken(handler, request, exchange) or handler.serve(request, exchange)
        except CoordinatorError as error:
            pending = failed(error)
        answered = pending.answer_error(lambda error: handler.refused(request, exchange, error))
        return answered.map(lambda response: _encodable(key, version, response))

    def _taken(self, handler: ApiHandler, request: Any, exchange: KafkaExchange) -> Pending[Any] | None:
        """The answer of the fast path, if it takes the call."""
        fast_path = self._world.inside.core.fast_path
        if not self._offers_fast_path or fast_path is None or handler.take is None:
            return None
        response = handler.take(request, exchange)
        if response is None:
            return None
        if exchange.api.key is ApiKey.INIT_PRODUCER_ID:
            # As on the general path, which has a second step: a caller that gives up in between learns of no success.
            return fast_path.end().then(lambda _ended: settled(response))
        return fast_path.end().map(lambda _ended: response)

    def refused(self, key: ApiKey, version: int, request: Any, error: CoordinatorError) -> Any:
        """Return the response to a call that is refused before it begins."""
        return self._handlers[key].refused(request, self._exchange(key, version), error)

    def _exchange(self, key: ApiKey, version: int, **context: Any) -> KafkaExchange:
        api = APIS[key]
        assert api.method is not None, f"the connection answers {key.name} itself"
        txn_version = 2 if version >= IMPLICIT_SINCE.get(key, version + 1) else 1
        fields = {"method": api.method.value, "client_txn_version": txn_version, **context}
        return KafkaExchange(api, version, msgspec.structs.replace(self._context, **fields), NODE)

    def call(self, key: ApiKey, version: int, request: Any, **context: Any) -> Any:
        """Return the response, once everything staged is durable."""
        pending = self.begin(key, version, request, **context)
        self._world.flush()
        if not pending.is_settled:
            self._world.settle()
        assert pending.is_settled, f"{key.name} waits"
        return pending.result()


def _encodable(key: ApiKey, version: int, response: Any) -> Any:
    """Return the response, of which this version can hold every value. A producer may want none."""
    if response is not None:
        API_DEFINITIONS[key].encoder()(response, version)
    return response
