"""Bugs of the fast path on purpose: functions that stand in for those of the product. One that takes the place of a
function gets the original first, then the arguments. Which takes whose place is in `mutants`."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_core.fast_path import SilentAuthorizer
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.decision import Decision, Turn
from coordinator_runtime.pending import settled
from coordinator_runtime.ports import ALLOW_ALL
from coordinator_runtime.runtime import Runtime
from coordinator_server.grpc_front.dispatcher import Dispatcher
from group_coordinator.committed import decisions
from group_coordinator.committed.service import Placing
from partition_log.batch_checks import BatchChecks
from partition_log.partition_state import PartitionDraft
from txn_coordinator.records import CsnGiven, ProducerIdGiven
from txn_coordinator.state import TransactionState


def look_at_no_epoch(transact: Any, path: Any, name: str, _identity: Any, *args: Any) -> Any:
    shard = path._served.get(path._parts.transaction_router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    return None if live is None else transact(path, name, live.client_identity, *args)


def look_at_no_sequence(transact: Any, path: Any, name: str, identity: Any, batches: Any, *args: Any) -> Any:
    from_zero = [(where, replace(header, base_sequence=0), *rest) for where, header, *rest in batches]
    return transact(path, name, identity, from_zero, *args)


def look_at_no_checksum(transact: Any, path: Any, name: str, identity: Any, batches: Any, *args: Any) -> Any:
    return transact(path, name, identity, [(*batch[:3], None) for batch in batches], *args)


def take_a_number_all_the_same(transact: Any, path: Any, *args: Any) -> Any:
    result = transact(path, *args)
    if result is None and path._names:
        path._csn += 1
    return result


def take_those_before_back(transact: Any, path: Any, *args: Any) -> Any:
    result = transact(path, *args)
    if result is None:
        path.take_back()
    return result


def forget_the_request_id(transact: Any, path: Any, *args: Any) -> Any:
    *others, context = args
    return transact(path, *others, replace(context, request_id=context.request_id and b"x" * 16))


def take_all_for_one_caller(check: Any, path: Any, *args: Any) -> Any:
    *others, context = args
    return check(path, *others, path._context or context)


def look_for_no_other_name(target: Any, path: Any, *args: Any) -> Any:
    known, path._target_of = path._target_of, {}
    try:
        return target(path, *args)
    finally:
        path._target_of = {**known, **path._target_of}


def in_the_draft(**bugs: Any) -> Any:
    """The bugs, by the method each of them takes the place of, are in the drafts of the fast path alone: those of the
    general path are of the same class, and stay as they are."""

    def method(name: str, bug: Any) -> Any:
        original = getattr(PartitionDraft, name)
        return lambda draft, *args: bug(original, draft, *args)

    methods = {name: method(name, bug) for name, bug in bugs.items()}
    drafts = type("DraftWithBugs", (PartitionDraft,), {"__slots__": (), **methods})

    def target(original: Any, path: Any, placed: Any) -> Any:
        found = original(path, placed)
        found[1].__class__ = drafts
        return found

    return target


def keep_the_stable_offset(record: Any, draft: PartitionDraft) -> Any:
    ended, grew = record(draft)
    return replace(ended, head=replace(ended.head, last_stable_offset=draft.head.last_stable_offset)), grew


def answer_before_durable(end: Any, path: Any) -> Any:
    end(path)
    return settled(None)


def overtake(message: Any, dispatcher: Dispatcher, calls: Any) -> Any:
    """Transacts go before everything else in their message."""
    order = sorted(range(len(calls)), key=lambda number: (not calls[number][0].endswith("Transact"), number))
    replies = message(dispatcher, [calls[number] for number in order])
    return [replies[order.index(number)] for number in range(len(calls))]


def overtake_what_is_parked(check: Any, path: Any, *args: Any) -> Any:
    queues, parking = path._parts.runtime.parking.queues, path._parts.runtime.parking
    parking.queues = {}
    try:
        return check(path, *args)
    finally:
        parking.queues = queues


def lose_the_offsets(_settle: Any, *_args: Any) -> None:
    return None


def tell_nothing(write_decided: Any, runtime: Runtime, records: Any, _events: Any, *rest: Any) -> Any:
    return write_decided(runtime, records, [], *rest)


def give_numbers_again(write_decided: Any, runtime: Runtime, records: Any, *rest: Any) -> Any:
    kept = [record for record in records if not isinstance(record.value, CsnGiven)]
    return write_decided(runtime, kept, *rest)


def allow_all(_require: Any, *_args: Any) -> None:
    return None


def ask_nothing_of(*resources: ResourceType) -> Any:
    def ask(require: Any, authorizer: Any, context: Any, permission: Any, resource: Any, name: str) -> None:
        if resource not in resources:
            require(authorizer, context, permission, resource, name)

    return ask


def ask_not_to(permission: Permission) -> Any:
    def ask(require: Any, authorizer: Any, context: Any, asked: Any, *of: Any) -> None:
        if asked is not permission:
            require(authorizer, context, asked, *of)

    return ask


def ask_for_no_group(settle: Any, path: Any, *args: Any) -> Any:
    groups = path._parts.groups
    authorizer, groups._authorizer = groups._authorizer, ALLOW_ALL
    try:
        return settle(path, *args)
    finally:
        groups._authorizer = authorizer


def ask_for_no_topic_of_offsets(settle: Any, path: Any, *args: Any) -> Any:
    groups = path._parts.groups
    placing, groups._placing = groups._placing, Placing(path._parts.catalog, ALLOW_ALL)
    try:
        return settle(path, *args)
    finally:
        groups._placing = placing


def remember_who_may(require: Any, authorizer: Any, context: Any, *question: Any) -> None:
    known = authorizer.__dict__.setdefault("known", set())
    if (context.principal, *question) not in known:
        require(authorizer, context, *question)
        known.add((context.principal, *question))


def remember_what_may_be_done(require: Any, authorizer: Any, context: Any, *question: Any) -> None:
    known = authorizer.__dict__.setdefault("known", set())
    if question not in known:
        require(authorizer, context, *question)
        known.add(question)


def ask_to_read(require: Any, authorizer: Any, context: Any, _permission: Any, *of: Any) -> None:
    require(authorizer, context, Permission.READ, *of)


def tell_of_refusals(_on_refused: Any, silent: SilentAuthorizer, *refusal: Any) -> None:
    silent.is_allowed.__self__.on_refused(*refusal)  # type: ignore[attr-defined]


def let_anybody_commit(settle: Any, path: Any, *args: Any) -> Any:
    check, decisions._check_commit = decisions._check_commit, lambda *_args, **_kwargs: None
    try:
        return settle(path, *args)
    finally:
        decisions._check_commit = check


def look_at_no_disk(begin: Any, path: Any, context: Any) -> Any:
    disk = path._parts.checks.disk
    refusal, disk.refusal = disk.refusal, None
    try:
        return begin(path, context)
    finally:
        disk.refusal = refusal


def live_in_the_past(begin: Any, path: Any, context: Any) -> Any:
    begun = begin(path, context)
    path._turn = replace(path._turn, now_ms=path._turn.now_ms - 1)
    return begun


def mix_up_offsets(transact: Any, path: Any, *args: Any) -> Any:
    taken = transact(path, *args)
    return taken and (taken[0], taken[1][::-1])


def forget_who_asks(write_decided: Any, runtime: Runtime, records: Any, events: Any, turn: Any, effects: Any) -> Any:
    return write_decided(runtime, records, events, Turn(turn.now_ms), effects)


def give_one_number_to_all(transact: Any, path: Any, *args: Any) -> Any:
    taken = transact(path, *args)
    if taken is not None and len(path._names) > 1:
        path._csn -= 1
    return taken


def use_epochs_up(commit: Any, *args: Any, limits: Any, **kwargs: Any) -> Any:
    return commit(*args, limits=dataclasses.replace(limits, producer_epoch_max=EPOCH_MAX), **kwargs)


def open_what_is_open(init_at_once: Any, shard: Any, request: Any, *args: Any) -> Any:
    """Any id is taken for an idle one."""
    acting, transactions = shard.acting, shard._transactions
    current = acting(request.transactional_id)
    idle = current and replace(current, state=TransactionState.EMPTY)
    shard.acting = lambda _name: idle
    shard._transactions = SimpleNamespace(get=shard.acting)
    try:
        return init_at_once(shard, request, *args)
    finally:
        shard.acting, shard._transactions = acting, transactions


def change_the_request(**changes: Any) -> Any:
    def init(init_at_once: Any, shard: Any, request: Any, *args: Any) -> Any:
        return init_at_once(shard, replace(request, **changes), *args)

    return init


def give_the_same_producer_id(allocate: Any, path: Any) -> Any:
    producer_id = allocate(path)
    path._producer_ids = iter(range(producer_id, producer_id + 9))
    return producer_id


def count_one_producer_id(write_decided: Any, runtime: Runtime, records: Any, *rest: Any) -> Any:
    for record in records:
        if isinstance(record.value, ProducerIdGiven):
            records[records.index(record)] = replace(record, value=ProducerIdGiven(record.value.producer_id))
    return write_decided(runtime, records, *rest)


def forget_what_producer_ids_were_given(write_decided: Any, runtime: Runtime, records: Any, *rest: Any) -> Any:
    kept = [record for record in records if not isinstance(record.value, ProducerIdGiven)]
    return write_decided(runtime, kept, *rest)


def overlook(*fields: str) -> Any:
    def take(original: Any, front: Any, request: Any, context: Any) -> Any:
        for field in fields:
            request.ClearField(field)
        return original(front, request, context)

    return take


def bring_no_name(_check: Any, *_args: Any) -> None:
    return None


def arm_no_timer(write_decided: Any, runtime: Runtime, records: Any, events: Any, turn: Any, _effects: Any) -> Any:
    return write_decided(runtime, records, events, turn)


def skip_admission(admits: Any, draft: PartitionDraft, batch: Any) -> Any:
    """The transaction coordinator does not hear of a partition."""
    return admits(draft, batch) is not None or None


def append_what_is_there(admits: Any, draft: PartitionDraft, batch: Any) -> bool:
    return bool(admits(draft, batch))


def open_nothing(append: Any, draft: PartitionDraft, *batch: Any) -> Any:
    offset = append(draft, *batch)
    draft._opened.clear()
    return offset


def belong_to_another_shard(append: Any, draft: PartitionDraft, batch: Any, offsetless: Any, shard: int) -> Any:
    return append(draft, batch, offsetless, shard + 1)


def append_as_any_producer(produce: Any, path: Any, name: str, batches: Any, context: Any) -> Any:
    shard = path._served.get(path._parts.transaction_router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    if live is not None:
        producer_id, epoch = live.client_identity
        own = {"producer_id": producer_id, "producer_epoch": epoch, "is_transactional": True}
        batches = [(where, replace(header, **own), *rest) for where, header, *rest in batches]
    return produce(path, name, batches, context)


def as_of_version(version: int) -> Any:
    """Calls are taken for those of a client of this version."""

    def take(original: Any, path: Any, *args: Any) -> Any:
        *others, context = args
        return original(path, *others, replace(context, client_txn_version=version))

    return take


def every_partition_is_there(_verify: Any, _current: Any, _identity: Any, partitions: Any) -> Any:
    return partitions


def mix_up_results(produce: Any, path: Any, *args: Any) -> Any:
    results = produce(path, *args)
    return results and results[::-1]


def answer_although_it_is_lost(_refused: Any, _front: Any, _request: Any, answer: bytes, _error: Exception) -> Any:
    return log_pb2.ProduceResponse.FromString(answer)


def look_for_no_other_commit(settle: Any, path: Any, *args: Any) -> Any:
    path._settled_groups = set()
    return settle(path, *args)


def leave_offsets_pending(_settle: Any, *_args: Any) -> Any:
    return Decision(), 0


def begin_nowhere(end: Any, draft: PartitionDraft, marker: Any) -> None:
    """The marker does not say where the transaction began."""
    partition, producers = draft._partition, draft._partition.producers
    draft._partition = SimpleNamespace(producers=SimpleNamespace(get=lambda _id: None))  # type: ignore[assignment]
    try:
        end(draft, marker)
    finally:
        draft._partition = partition
        entry = producers.get(marker.producer_id)
        if entry is not None and entry.open_transaction is not None:
            draft._closed.add(entry.open_transaction.first_offset)


def end_the_first_one_alone(end: Any, draft: PartitionDraft, *args: Any) -> None:
    if not draft._marker_count:
        end(draft, *args)


def commit_for_anybody(commit: Any, path: Any, name: str, _identity: Any, *args: Any) -> Any:
    shard = path._served.get(path._parts.transaction_router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    return None if live is None else commit(path, name, live.client_identity, *args)


def commit_whatever_is_asked(take: Any, front: Any, request: Any, context: Any) -> Any:
    request.committed = True
    return take(front, request, context)


def show_the_last_one_to_none(record: Any, draft: PartitionDraft) -> Any:
    """Show to a reader that waits for an older transaction all that is behind it."""
    ended, grew = record(draft)
    head = ended.head
    if draft._closed:
        head = replace(head, last_stable_offset=head.log_end_offset)
    return replace(ended, head=head), grew


def there_is_always_room(_room_bytes: Any, _runtime: Runtime) -> int:
    return 1 << 40


def every_payload_is_good(take: Any, checks: BatchChecks, *args: Any, **kwargs: Any) -> Any:
    return take(checks, *args, **{**kwargs, "validates_payload": False})


def take_any_timestamp(target: Any, path: Any, placed: Any) -> Any:
    return target(path, replace(placed, timestamp_after_max_ms=-1))


def take_any_size(target: Any, path: Any, placed: Any) -> Any:
    return target(path, replace(placed, batch_bytes_max=2**31))
