"""A caller without any permission, on a server with access rules: every API asks only what its method may ask."""

from __future__ import annotations

import random

import msgspec
import pytest

from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import handlers
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.guarded import Guarded
from tests.harness.kafka_caller import CALLER, SETTINGS, KafkaCaller
from tests.harness.kio_messages import encoded, kio_class, random_message
from tests.harness.world import World

SERVED = [key for key, _handler in handlers(World().inside.core, SETTINGS)]
MAY_WAIT = {ApiKey.FETCH}
"""APIs whose answer may wait for others, even to a stranger."""
STRANGER = msgspec.structs.replace(CALLER, principal="User:stranger")


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_a_stranger_is_answered(key: ApiKey) -> None:
    world = World(Guarded())
    caller = KafkaCaller(world, STRANGER)
    api, definition = APIS[key], API_DEFINITIONS[key]
    for version in range(max(api.lowest, definition.version_min), api.highest + 1):
        for seed in range(4):
            message = random_message(kio_class(key, version, is_request=True), random.Random(seed)).kio
            request = definition.decoder()(memoryview(encoded(message)), version)
            reply = caller.begin(key, version, request)
            world.settle()
            assert reply.is_settled or key in MAY_WAIT
            # A question that the row of the method lacks would be a defect.
            assert reply.error is None
