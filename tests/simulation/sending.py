"""Operations of clients as calls of a server, by both protocols."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.harness.world import World
from tests.simulation.history import Op
from tests.simulation.kafka_clients import KafkaClients
from tests.simulation.translation import contents_of
from txn_coordinator.state import Identity

_TIMEOUTS_MS: Final = (500, 2_000, 20_000)


def send(world: World, kafka: KafkaClients, rng: Random, op: Op) -> Pending[Any]:
    """Return the reply to an operation of a client, sent with a deadline or without, as chance has it."""
    context = CallContext(
        client_id=op.instance,
        request_id=op.request_id,
        client_txn_version=op.version,
        refuse_concurrent=rng.random() < 0.15,
        deadline_ms=world.clock.monotonic_ms() + 300 if rng.random() < 0.2 else None,
    )
    if op.is_by_kafka:
        return kafka.call(op, timeout_ms=rng.choice(_TIMEOUTS_MS))
    if op.kind == "init":
        expected = None if op.expected is None else Identity(*op.expected)
        timeout_ms = rng.choice(_TIMEOUTS_MS)
        if op.keeps:
            return world.recover(op.transactional_id, context, enable_2pc=True, keep_prepared=True)
        return world.init(op.transactional_id, context, timeout_ms=timeout_ms, expected=expected)
    assert op.identity is not None
    identity = Identity(*op.identity)
    match op.kind:
        case "add":
            return world.add(op.transactional_id, identity, [op.partition], context)
        case "transact":
            return world.transact(op.transactional_id, identity, contents_of(op), Outcome[op.outcome.upper()], context)
        case "prepare":
            return world.prepare(op.transactional_id, identity, context).map(lambda _token: True)
        case "offset":
            return world.commit_offset(op.transactional_id, identity, op.group, op.offset, context)
        case "produce" | "plain":
            transactional_id = op.transactional_id if op.kind == "produce" else None
            return world.produce(
                transactional_id, identity, op.partition, op.values, sequence=op.sequence, context=context
            )
        case _:
            return world.end(
                op.transactional_id,
                identity,
                Outcome[op.outcome.upper()],
                context,
                last_sequences=op.last_sequences,
            )
