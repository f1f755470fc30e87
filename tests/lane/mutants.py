"""Bugs of the lane on purpose. Each must make it differ from the general path, and the twins must notice.

They are written as those of the simulation are (`tests/simulation/mutants.py`), and one that is noticed by nothing is a
torn net. A function gets the original first, then the arguments.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_core import lane as lane_module
from coordinator_core.lane import Lane, SilentAuthorizer
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.decision import Decision, Turn
from coordinator_runtime.pending import settled
from coordinator_runtime.ports import ALLOW_ALL
from coordinator_runtime.runtime import Runtime
from coordinator_server.transport import Dispatcher
from coordinator_server.wire.log.servicer import ProduceFront
from coordinator_server.wire.transactions.servicer import EndFront, InitFront
from group_coordinator.committed import decisions
from group_coordinator.committed.service import Placing
from partition_log.batch_checks import BatchChecks
from partition_log.partition_state import Growth
from tests.simulation.mutant import Mutant
from txn_coordinator.records import CsnGiven, ProducerIdGiven
from txn_coordinator.rules import initialising, transacting
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import TransactionState


def look_at_no_epoch(transact: Any, lane: Any, name: str, _identity: Any, *args: Any) -> Any:
    shard = lane._served.get(lane._parts.router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    return None if live is None else transact(lane, name, live.client_identity, *args)


def look_at_no_sequence(transact: Any, lane: Any, name: str, identity: Any, batches: Any, *args: Any) -> Any:
    from_zero = [(where, replace(header, base_sequence=0), *rest) for where, header, *rest in batches]
    return transact(lane, name, identity, from_zero, *args)


def look_at_no_checksum(transact: Any, lane: Any, name: str, identity: Any, batches: Any, *args: Any) -> Any:
    return transact(lane, name, identity, [(*batch[:3], None) for batch in batches], *args)


def take_a_number_all_the_same(transact: Any, lane: Any, *args: Any) -> Any:
    result = transact(lane, *args)
    if result is None and lane._names:
        lane._csn += 1
    return result


def take_those_before_back(transact: Any, lane: Any, *args: Any) -> Any:
    result = transact(lane, *args)
    if result is None:
        lane.take_back()
    return result


def forget_the_request_id(transact: Any, lane: Any, *args: Any) -> Any:
    *others, context = args
    return transact(lane, *others, replace(context, request_id=context.request_id and b"x" * 16))


def take_all_for_one_caller(check: Any, lane: Any, *args: Any) -> Any:
    *others, context = args
    return check(lane, *others, lane._context or context)


def look_for_no_other_name(growth: Any, lane: Any, *args: Any) -> Any:
    known, lane._growth_of = lane._growth_of, {}
    try:
        return growth(lane, *args)
    finally:
        lane._growth_of = {**known, **lane._growth_of}


def keep_the_stable_offset(record: Any, growth: Growth, now_ms: int) -> Any:
    ended, grew = record(growth, now_ms)
    return replace(ended, head=replace(ended.head, last_stable_offset=growth._head.last_stable_offset)), grew


def answer_before_durable(end: Any, lane: Any) -> Any:
    end(lane)
    return settled(None)


def overtake(message: Any, dispatcher: Dispatcher, calls: Any) -> Any:
    """Transacts go before everything else in their message."""
    order = sorted(range(len(calls)), key=lambda number: (not calls[number][0].endswith("Transact"), number))
    replies = message(dispatcher, [calls[number] for number in order])
    return [replies[order.index(number)] for number in range(len(calls))]


def overtake_what_is_parked(check: Any, lane: Any, *args: Any) -> Any:
    queues, parking = lane._parts.runtime.parking.queues, lane._parts.runtime.parking
    parking.queues = {}
    try:
        return check(lane, *args)
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


def ask_for_no_group(settle: Any, lane: Any, *args: Any) -> Any:
    groups = lane._parts.groups
    authorizer, groups._authorizer = groups._authorizer, ALLOW_ALL
    try:
        return settle(lane, *args)
    finally:
        groups._authorizer = authorizer


def ask_for_no_topic_of_offsets(settle: Any, lane: Any, *args: Any) -> Any:
    groups = lane._parts.groups
    placing, groups._placing = groups._placing, Placing(lane._parts.catalog, ALLOW_ALL)
    try:
        return settle(lane, *args)
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


def let_anybody_commit(settle: Any, lane: Any, *args: Any) -> Any:
    check, decisions._check_commit = decisions._check_commit, lambda *_args, **_kwargs: None
    try:
        return settle(lane, *args)
    finally:
        decisions._check_commit = check


def look_at_no_disk(begin: Any, lane: Any, context: Any) -> Any:
    disk = lane._parts.checks.disk
    refusal, disk.refusal = disk.refusal, None
    try:
        return begin(lane, context)
    finally:
        disk.refusal = refusal


def live_in_the_past(begin: Any, lane: Any, context: Any) -> Any:
    begun = begin(lane, context)
    lane._turn = replace(lane._turn, now_ms=lane._turn.now_ms - 1)
    return begun


def mix_up_offsets(transact: Any, lane: Any, *args: Any) -> Any:
    taken = transact(lane, *args)
    return taken and (taken[0], taken[1][::-1])


def forget_who_asks(write_decided: Any, runtime: Runtime, records: Any, events: Any, turn: Any, effects: Any) -> Any:
    return write_decided(runtime, records, events, Turn(turn.now_ms), effects)


def give_one_number_to_all(transact: Any, lane: Any, *args: Any) -> Any:
    taken = transact(lane, *args)
    if taken is not None and len(lane._names) > 1:
        lane._csn -= 1
    return taken


def use_epochs_up(run_through: Any, *args: Any, limits: Any, **kwargs: Any) -> Any:
    return run_through(*args, limits=dataclasses.replace(limits, producer_epoch_max=EPOCH_MAX), **kwargs)


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


def give_the_same_producer_id(allocate: Any, lane: Any) -> Any:
    producer_id = allocate(lane)
    lane._producer_ids = iter(range(producer_id, producer_id + 9))
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


def ask_nobody(admits: Any, growth: Growth, batch: Any) -> Any:
    """The transaction coordinator does not hear of a partition."""
    return admits(growth, batch) is not None or None


def append_what_is_there(admits: Any, growth: Growth, batch: Any) -> bool:
    return bool(admits(growth, batch))


def open_nothing(append: Any, growth: Growth, *batch: Any) -> Any:
    offset = append(growth, *batch)
    growth._opened_count = 0
    return offset


def belong_to_another_shard(append: Any, growth: Growth, batch: Any, offsetless: Any, shard: int, now_ms: int) -> Any:
    return append(growth, batch, offsetless, shard + 1, now_ms)


def append_as_any_producer(produce: Any, lane: Any, name: str, batches: Any, context: Any) -> Any:
    shard = lane._served.get(lane._parts.router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    if live is not None:
        producer_id, epoch = live.client_identity
        own = {"producer_id": producer_id, "producer_epoch": epoch, "is_transactional": True}
        batches = [(where, replace(header, **own), *rest) for where, header, *rest in batches]
    return produce(lane, name, batches, context)


def overlook_the_version(produce: Any, lane: Any, name: str, batches: Any, context: Any) -> Any:
    return produce(lane, name, batches, replace(context, client_txn_version=2))


def mix_up_results(produce: Any, lane: Any, *args: Any) -> Any:
    results = produce(lane, *args)
    return results and results[::-1]


def answer_although_it_is_lost(_refused: Any, _front: Any, _request: Any, answer: bytes, _error: Exception) -> Any:
    return log_pb2.ProduceResponse.FromString(answer)


def look_for_no_other_commit(settle: Any, lane: Any, *args: Any) -> Any:
    lane._settled_groups = set()
    return settle(lane, *args)


def leave_offsets_pending(_settle: Any, *_args: Any) -> Any:
    return Decision(), 0


def begin_nowhere(end: Any, growth: Growth, marker: Any, now_ms: int) -> None:
    """The marker does not say where the transaction began."""
    partition, producers = growth._partition, growth._partition.producers
    growth._partition = SimpleNamespace(producers=SimpleNamespace(get=lambda _id: None))  # type: ignore[assignment]
    try:
        end(growth, marker, now_ms)
    finally:
        growth._partition = partition
        entry = producers.get(marker.producer_id)
        if entry is not None and entry.open_transaction is not None:
            growth._closed.add(entry.open_transaction.first_offset)


def end_the_first_one_alone(end: Any, growth: Growth, *args: Any) -> None:
    if not growth._marker_count:
        end(growth, *args)


def commit_for_anybody(commit: Any, lane: Any, name: str, _identity: Any, *args: Any) -> Any:
    shard = lane._served.get(lane._parts.router.shard_key(name))
    live = None if shard is None else shard.acting(name)
    return None if live is None else commit(lane, name, live.client_identity, *args)


def commit_whatever_is_asked(take: Any, front: Any, request: Any, context: Any) -> Any:
    request.committed = True
    return take(front, request, context)


def show_the_last_one_to_none(record: Any, growth: Growth, now_ms: int) -> Any:
    """Who waits for an older transaction is shown all that is behind it."""
    ended, grew = record(growth, now_ms)
    head = ended.head
    if growth._closed:
        head = replace(head, last_stable_offset=head.log_end_offset)
    return replace(ended, head=head), grew


def there_is_always_room(_room_bytes: Any, _runtime: Runtime) -> int:
    return 1 << 40


def every_payload_is_good(take: Any, checks: BatchChecks, *args: Any, **kwargs: Any) -> Any:
    return take(checks, *args, **{**kwargs, "validates_payload": False})


MUTANTS = (
    Mutant("look_at_no_epoch", "whoever names an id is its owner", ((Lane, "transact", look_at_no_epoch),)),
    Mutant(
        "look_at_no_sequence", "a batch that does not follow is appended", ((Lane, "transact", look_at_no_sequence),)
    ),
    Mutant("look_at_no_checksum", "a damaged batch is appended", ((Lane, "transact", look_at_no_checksum),)),
    Mutant(
        "every_payload_is_good",
        "what no reader can decode is appended",
        ((BatchChecks, "take", every_payload_is_good),),
    ),
    Mutant(
        "take_a_number_all_the_same",
        "a call that is left for the general path has taken a commit sequence number",
        ((Lane, "transact", take_a_number_all_the_same),),
    ),
    Mutant(
        "take_those_before_back",
        "a call that is left takes those before it in the message with it",
        ((Lane, "transact", take_those_before_back),),
    ),
    Mutant("forget_the_request_id", "a repetition is not known for one", ((Lane, "transact", forget_the_request_id),)),
    Mutant(
        "take_all_for_one_caller",
        "what one caller did is told of another",
        ((Lane, "_check_common", take_all_for_one_caller),),
    ),
    Mutant(
        "look_for_no_other_name",
        "a partition that is called by its name and by its id is taken for two",
        ((Lane, "_growth", look_for_no_other_name),),
    ),
    Mutant(
        "keep_the_stable_offset",
        "committed readers never see what the lane wrote",
        ((Growth, "record", keep_the_stable_offset),),
    ),
    Mutant("answer_before_durable", "an answer goes out before the flush", ((Lane, "end", answer_before_durable),)),
    Mutant("overtake", "a Transact goes before another call of its message", ((Dispatcher, "message", overtake),)),
    Mutant(
        "overtake_what_is_parked",
        "a Transact goes before calls of its id that wait",
        ((Lane, "_check_common", overtake_what_is_parked),),
    ),
    Mutant("lose_the_offsets", "the offsets of a group are lost", ((Lane, "_settle", lose_the_offsets),)),
    Mutant("tell_nothing", "nothing is counted and logged", ((Runtime, "write_decided", tell_nothing),)),
    Mutant(
        "give_numbers_again",
        "commit sequence numbers are not stored",
        ((Runtime, "write_decided", give_numbers_again),),
    ),
    Mutant("allow_all", "who may not write writes", ((lane_module, "require", allow_all),)),
    Mutant(
        "ask_for_no_id",
        "who may write to the topic may use any id",
        ((lane_module, "require", ask_nothing_of(ResourceType.TRANSACTIONAL_ID)),),
    ),
    Mutant(
        "ask_for_no_topic",
        "who may use the id may write to any topic",
        ((lane_module, "require", ask_nothing_of(ResourceType.TOPIC)),),
    ),
    Mutant(
        "ask_not_to_describe",
        "who may not see a topic learns what is in it",
        ((lane_module, "require", ask_not_to(Permission.DESCRIBE)),),
    ),
    Mutant("ask_for_no_group", "offsets of anybody's group are committed", ((Lane, "_settle", ask_for_no_group),)),
    Mutant(
        "ask_for_no_topic_of_offsets",
        "offsets of topics are committed that the caller may not read",
        ((Lane, "_settle", ask_for_no_topic_of_offsets),),
    ),
    Mutant("remember_who_may", "who lost a right keeps it", ((lane_module, "require", remember_who_may),)),
    Mutant(
        "remember_what_may_be_done",
        "what one caller may do all may do",
        ((lane_module, "require", remember_what_may_be_done),),
    ),
    Mutant("ask_to_read", "who may read may write", ((lane_module, "require", ask_to_read),)),
    Mutant("tell_of_refusals", "a refusal is told twice", ((SilentAuthorizer, "on_refused", tell_of_refusals),)),
    Mutant(
        "let_anybody_commit",
        "offsets are taken from who is not in the group any more",
        ((Lane, "_settle", let_anybody_commit),),
    ),
    Mutant("look_at_no_disk", "records are taken by a full disk", ((Lane, "_begin", look_at_no_disk),)),
    Mutant("live_in_the_past", "times are not those of the call", ((Lane, "_begin", live_in_the_past),)),
    Mutant("mix_up_offsets", "an answer names the offset of another partition", ((Lane, "transact", mix_up_offsets),)),
    Mutant(
        "forget_who_asks", "the history does not say whose call it was", ((Runtime, "write_decided", forget_who_asks),)
    ),
    Mutant(
        "give_one_number_to_all",
        "transactions of a message share a commit sequence number",
        ((Lane, "transact", give_one_number_to_all),),
    ),
    Mutant("use_epochs_up", "an id goes on beyond its last epoch", ((transacting, "run_through", use_epochs_up),)),
    Mutant(
        "open_what_is_open",
        "an open transaction is forgotten",
        ((TransactionShard, "init_at_once", open_what_is_open),),
    ),
    Mutant(
        "init_whatever_the_timeout",
        "any timeout is stored",
        ((initialising, "check_init_arguments", lambda *_args: None),),
    ),
    Mutant(
        "forget_the_first_request",
        "an InitProducerId that comes again fences its own producer",
        ((TransactionShard, "init_at_once", change_the_request(request_id=b"")),),
    ),
    Mutant(
        "store_another_version",
        "the client's version is not stored",
        ((TransactionShard, "init_at_once", change_the_request(client_txn_version=2)),),
    ),
    Mutant(
        "give_the_same_producer_id",
        "two ids of a message have one producer id",
        ((Lane, "_allocate", give_the_same_producer_id),),
    ),
    Mutant(
        "count_one_producer_id",
        "producer ids are given and not counted",
        ((Runtime, "write_decided", count_one_producer_id),),
    ),
    Mutant(
        "forget_what_producer_ids_were_given",
        "ids of two messages have one producer id",
        ((Runtime, "write_decided", forget_what_producer_ids_were_given),),
    ),
    Mutant(
        "overlook_who_is_expected",
        "who shows an older identity fences the newer one",
        ((InitFront, "take", overlook("expected_producer_id", "expected_producer_epoch")),),
    ),
    Mutant(
        "overlook_the_other_phase",
        "what awaits an outside decision times out",
        ((InitFront, "take", overlook("enable_2pc")),),
    ),
    Mutant(
        "take_any_name",
        "an id has a name that is reserved, or none",
        ((lane_module, "check_transactional_id", bring_no_name),),
    ),
    Mutant("arm_no_timer", "a transaction that nobody ends stays open", ((Runtime, "write_decided", arm_no_timer),)),
    Mutant("ask_nobody", "nobody ends what a batch has opened", ((Growth, "admits", ask_nobody),)),
    Mutant("append_what_is_there", "a batch that comes again is appended", ((Growth, "admits", append_what_is_there),)),
    Mutant("open_nothing", "committed readers see what is undecided", ((Growth, "append", open_nothing),)),
    Mutant(
        "belong_to_another_shard",
        "a marker of the producer's own coordinator is taken for another's",
        ((Growth, "append", belong_to_another_shard),),
    ),
    Mutant(
        "append_as_any_producer",
        "who names an id appends to its transaction",
        ((Lane, "produce", append_as_any_producer),),
    ),
    Mutant(
        "overlook_the_version",
        "a partition joins that a client of version 1 has not added",
        ((Lane, "produce", overlook_the_version),),
    ),
    Mutant("mix_up_results", "an offset is told of another partition", ((Lane, "produce", mix_up_results),)),
    Mutant(
        "answer_although_it_is_lost",
        "what the disk lost is called appended",
        ((ProduceFront, "refused", answer_although_it_is_lost),),
    ),
    Mutant(
        "look_for_no_other_commit",
        "an offset goes back to an older one",
        ((Lane, "_settle_pending", look_for_no_other_commit),),
    ),
    Mutant(
        "leave_offsets_pending",
        "a transaction ends without its offsets",
        ((Lane, "_settle_pending", leave_offsets_pending),),
    ),
    Mutant("begin_nowhere", "a marker does not tell where its transaction begins", ((Growth, "end", begin_nowhere),)),
    Mutant(
        "end_the_first_one_alone",
        "a partition gets one marker of several",
        ((Growth, "end", end_the_first_one_alone),),
    ),
    Mutant("commit_for_anybody", "a zombie commits", ((Lane, "commit", commit_for_anybody),)),
    Mutant("commit_whatever_is_asked", "an abort commits", ((EndFront, "take", commit_whatever_is_asked),)),
    Mutant(
        "overlook_last_sequences",
        "a commit does not notice that records are missing",
        ((EndFront, "take", overlook("last_sequences")),),
    ),
    Mutant(
        "show_the_last_one_to_none",
        "committed readers are shown an open transaction",
        ((Growth, "record", show_the_last_one_to_none),),
    ),
    Mutant(
        "there_is_always_room",
        "more waits for the disk than may wait",
        ((Runtime, "room_bytes", there_is_always_room),),
    ),
)
"""Each is a way in which the lane could differ."""

CANARIES = tuple(
    mutant for mutant in MUTANTS if mutant.name in ("ask_nobody", "give_numbers_again", "lose_the_offsets", "overtake")
)
"""Some that every run of the fast suite must notice."""
