"""Between the messages of AdminService and the values of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.errors import Method
from coordinator_runtime.ports import TopicCatalog
from coordinator_server.wire.edge import set_error
from txn_coordinator.administration import ActResult, ActResults, Selection
from txn_coordinator.hanging import Hanging
from txn_coordinator.state import TransactionState


def selection(message: admin_pb2.TransactionSelector) -> Selection:
    """The selection, unchecked."""
    return Selection(
        transactional_ids=message.transactional_ids,
        prefix=message.transactional_id_prefix,
        older_than_ms=message.older_than_ms if message.HasField("older_than_ms") else None,
    )


def act_results(method: Method, done: ActResults, now_ms: int) -> list[admin_pb2.TransactionActResult]:
    """What was done to each id. Ages are those at the time of the request."""
    return [_act_result(method, result, now_ms) for result in done.results]


def _act_result(method: Method, result: ActResult, now_ms: int) -> admin_pb2.TransactionActResult:
    message = admin_pb2.TransactionActResult(transactional_id=result.transactional_id)
    if result.error is not None:
        set_error(message, method, result.error)
    if result.acted is not None:
        before = result.acted.before
        message.state = before.state.api_name
        message.fenced_producer_id, message.fenced_producer_epoch = result.acted.fenced
        if before.state is TransactionState.ONGOING:
            message.age_ms = max(0, now_ms - before.start_ms)
            message.partitions = len(before.partitions)
    return message


def hanging_transactions(
    found: Iterable[Hanging], catalog: TopicCatalog, now_ms: int
) -> list[admin_pb2.HangingTransaction]:
    """By topic, partition and offset. Those of a topic that is being deleted are left out: they go with it."""
    messages = [message for hanging in found if (message := _hanging(hanging, catalog, now_ms)) is not None]
    return sorted(messages, key=lambda each: (each.topic, each.partition, each.start_offset))


def _hanging(hanging: Hanging, catalog: TopicCatalog, now_ms: int) -> admin_pb2.HangingTransaction | None:
    opened, owner = hanging.opened, hanging.owner
    ref = catalog.by_ordinal(opened.ordinal)
    if ref is None:
        return None
    return admin_pb2.HangingTransaction(
        topic=ref.topic,
        topic_id=ref.topic_id,
        partition=ref.partition,
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        start_offset=opened.first_offset,
        start_ms=opened.started_ms,
        age_ms=max(0, now_ms - opened.started_ms),
        reason=hanging.reason.value,
        transactional_id="" if owner is None else owner.transactional_id,
    )
