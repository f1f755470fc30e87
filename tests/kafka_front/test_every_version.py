"""Every API in every version: whatever a client asks, it gets an answer that its version can carry.

The bytes of requests and the reading of answers are kio's.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import failed
from coordinator_runtime.ports import CallContext
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import codec_of, handlers
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.kafka_caller import NODE, SETTINGS
from tests.harness.kio_messages import encoded, kio_class, random_message
from tests.harness.world import World

SERVED = sorted(dict(handlers(World().inside.core, SETTINGS)))
BY_API = pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
LOADING = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard is being loaded")


def versions(key: ApiKey) -> range:
    """Return the versions that are advertised and served."""
    api, definition = APIS[key], API_DEFINITIONS[key]
    return range(max(api.lowest, definition.version_min), min(api.highest, definition.version_max) + 1)


def exchange_of(key: ApiKey, version: int) -> KafkaExchange:
    api = APIS[key]
    assert api.method is not None
    context = CallContext(client_id="a-client", host="1.2.3.4", method=api.method.value, connection="kafka-1")
    return KafkaExchange(api, version, context, NODE)


def answered(world: World, handler: ApiHandler, key: ApiKey, version: int, request: Any) -> Any:
    """Return the response, or that to a call which is given up because it waits."""
    exchange = exchange_of(key, version)
    try:
        pending = handler.serve(request, exchange)
    except CoordinatorError as error:
        pending = failed(error)
    answer = pending.answer_error(lambda error: handler.refused(request, exchange, error))
    world.settle()
    if not answer.is_settled:
        answer.cancel()
        return handler.refused(request, exchange, LOADING)
    return answer.result()


def read(key: ApiKey, version: int, response: Any) -> Any:
    """Return the response as kio reads it from our bytes."""
    _decode, encode = codec_of(APIS[key])
    body = b"".join(encode(response, version))
    message, read_bytes = entity_reader(kio_class(key, version, is_request=False))(body, 0)
    assert read_bytes == len(body), "bytes are left over"
    return message


@BY_API
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_asked_has_an_answer_that_its_version_can_carry(key: ApiKey, seed: int) -> None:
    world = World()
    handler, (decode, _encode) = dict(handlers(world.inside.core, SETTINGS))[key], codec_of(APIS[key])
    for version in versions(key):
        asked = random_message(kio_class(key, version, is_request=True), random.Random(seed)).kio
        request = decode(memoryview(encoded(asked)), version)
        response = answered(world, handler, key, version, request)
        if response is not None:
            read(key, version, response)
        refused = handler.refused(request, exchange_of(key, version), LOADING)
        if refused is not None:
            read(key, version, refused)
