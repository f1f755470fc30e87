"""What the mutants put in the place of functions of the product: each does what the original does, but for one bug.

A function gets the original first, then the arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, ShardKey
from coordinator_runtime.parking import Parking
from coordinator_runtime.pending import settled
from coordinator_runtime.rows import ShardHistory, StagedRows, TableCodec
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.codec import PENDING_OFFSET
from group_coordinator.committed.decisions import GroupMarkers
from group_coordinator.committed.offsets import Offsets, OffsetTable
from partition_log import index_rows
from partition_log.catalog.state import TopicSet
from partition_log.requests import TopicResult
from partition_log.rules.appending import AppendVerdict
from partition_log.rules.marking import MarkerVerdict
from partition_log.shard import LogShard, PartitionMarkers
from partition_log.state import AbortedTransaction, PartitionHead
from txn_coordinator import state
from txn_coordinator.codec import TransactionCodec
from txn_coordinator.counters import CountersShard
from txn_coordinator.outcomes import SendMarkers
from txn_coordinator.records import ProducerIdBlockTaken, TransactionChanged
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import ending
from txn_coordinator.rules.ending import Ending
from txn_coordinator.rules.transacting import TransactRequest
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import NO_EPOCH, Transaction, TransactionState
from txn_coordinator.transaction_table import TransactionTable

# Spec transactions 12


def keep_last_epoch(initialise: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = initialise(current, request, **kwargs)
    if request.expected is None and current.producer_epoch != NO_EPOCH:
        return replace(done, last_producer_epoch=current.producer_epoch)
    return done


def refuse_repeated_marker(judge: Any, *args: Any, **kwargs: Any) -> MarkerVerdict:
    verdict: MarkerVerdict = judge(*args, **kwargs)
    if verdict is MarkerVerdict.REPEATED:
        # Not as INVALID_PRODUCER_EPOCH: then the marker sender would ask whether the transaction is open, and go on.
        raise Refused(ErrorCode.INVALID_TXN_STATE, "the epoch of the marker is not greater")
    return verdict


class EndlessEpochs:
    producer_epoch_max = 2**30


def without_rotation(decide: Any, *args: Any, **kwargs: Any) -> Any:
    return decide(*args, **{**kwargs, "limits": EndlessEpochs()})


def without_bump(decide: Any, current: Transaction, how: ending.Ending, **kwargs: Any) -> Any:
    return decide(current, replace(how, bumps_epoch=how.cause != "client"), **kwargs)


def retry_ends_what_is_open(judge: Any, current: Transaction, command: EndTxn, **kwargs: Any) -> Any:
    before = (current.producer_id, current.producer_epoch - 1)
    if current.state is TransactionState.ONGOING and command.identity == before:
        return ending.EndVerdict.DECIDE
    return judge(current, command, **kwargs)


def due_when_decided(_is_due: Any, current: Transaction, meant: Transaction) -> bool:
    is_due = current.state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT)
    return is_due and current.start_ms == meant.start_ms


def without_cancelled_timer(decide: Any, *args: Any, **kwargs: Any) -> Decision:
    decision: Decision = decide(*args, **kwargs)
    return replace(decision, effects=tuple(each for each in decision.effects if not isinstance(each, CancelTimer)))


LOOSE_STEPS = {
    **state.LEGAL_STEPS,
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.PREPARE_ABORT}),
}


def keep_without_bump(keep: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = keep(current, request, **kwargs)
    client = current.client_identity
    return replace(done, next_producer_id=client.producer_id, next_producer_epoch=client.producer_epoch)


# The coordinator


def forget_the_fence(initialise: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = initialise(current, request, **kwargs)
    if request.expected is None and current.producer_epoch != NO_EPOCH:
        return replace(done, producer_id=current.producer_id, producer_epoch=current.producer_epoch)
    return done


def forget_the_request_id(_repeated: Any, _current: Transaction, _request: Any) -> bool:
    return False


def forget_what_is_prepared(on_loaded: Any, shard: TransactionShard, turn: Any) -> Decision:
    decision: Decision = on_loaded(shard, turn)
    return Decision(effects=tuple(effect for effect in decision.effects if not isinstance(effect, SendMarkers)))


def forget_timeouts(on_loaded: Any, shard: TransactionShard, turn: Any) -> Decision:
    decision: Decision = on_loaded(shard, turn)
    return Decision(effects=tuple(effect for effect in decision.effects if not isinstance(effect, ArmTimer)))


def store_no_last_epoch(encode: Any, stored: TransactionCodec, value: Any) -> Any:
    if isinstance(value, TransactionChanged):
        value = replace(value, transaction=replace(value.transaction, last_producer_epoch=NO_EPOCH))
    return encode(stored, value)


def swallow_refusal(decide: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return decide(*args, **kwargs)
    except Refused:
        return Decision(reply=0)


def hold_no_offsets(hold: Any, *args: Any) -> Any:
    return replace(hold(*args), decide=lambda _shard, _turn: Decision())


def answer_older_epochs(judge: Any, current: Transaction, request: TransactRequest, **kwargs: Any) -> Any:
    if current.state in state.COMPLETE and request.identity.producer_epoch < current.producer_epoch:
        return None
    return judge(current, request, **kwargs)


def lose_the_tail(split_row: Any, row: bytes) -> Any:
    batch, _tail = split_row(row)
    return batch, None


def end_from_the_last_batch(encode_tail: Any, marker: Any, first_offset: int, now_ms: int) -> bytes:
    tail: bytes = encode_tail(marker, first_offset + 1, now_ms)
    return tail


def number_steps_again(row: Any, history: ShardHistory, steps: Any) -> Any:
    before = history.next_number
    made = row(history, steps)
    history.next_number = max(before, history.next_number - 1)
    return made


def tell_the_clients_identity(step_of: Any, value: TransactionChanged) -> Any:
    step = step_of(value)
    if step.decided is None:
        return step
    decided = replace(step.decided, producer_id=step.producer_id, txn_epoch=step.producer_epoch - 1)
    return replace(step, decided=decided)


def tell_what_is_left(step_of: Any, value: TransactionChanged) -> Any:
    step, after = step_of(value), value.transaction
    if step.decided is None:
        return step
    return replace(step, decided=replace(step.decided, partitions=tuple(after.partitions), groups=tuple(after.groups)))


def take_a_row_for_one_step(init: Any, history: ShardHistory, store: Any, shard: ShardKey) -> None:
    init(history, store, shard)
    newest = store.last(Family.HISTORY, struct.pack(">BH", *shard))
    if newest is not None:
        history.next_number = int.from_bytes(newest[0][3:], "big") + 1


def start_blocks_anew(replay: Any, counters: CountersShard, value: Any) -> None:
    replay(counters, ProducerIdBlockTaken(0) if isinstance(value, ProducerIdBlockTaken) else value)


def same_csn(next_csn: Any, counters: CountersShard) -> Any:
    csn, record = next_csn(counters)
    return max(csn - 1, 1), record


def no_marker_for_one(partition_marker: Any, port: PartitionMarkers, ordinal: int, marker: Any) -> Any:
    operation = partition_marker(port, ordinal, marker)
    return operation if ordinal else replace(operation, decide=lambda _shard, _turn: Decision())


def seal_nothing(partition_seal: Any, port: PartitionMarkers, *args: Any) -> Any:
    return replace(partition_seal(port, *args), decide=lambda _shard, _turn: Decision())


def no_group_marker(group_marker: Any, groups: GroupMarkers, group: str, marker: Any) -> Any:
    return replace(group_marker(groups, group, marker), decide=lambda _shard, _turn: Decision())


def any_marker_settles(decide: Any, shard: Any, turn: Any, *, group_id: str, marker: Any) -> Any:
    return decide(shard, turn, group_id=group_id, marker=replace(marker, csn=2**62))


def no_offset_waits(_blocking: Any, _offsets: OffsetTable, _partition: Any) -> list[Any]:
    return []


def the_last_marker_wins(_is_installed: Any, _current: Any, _settled: Any) -> bool:
    return True


def forget_positions(replay: Any, offsets: Offsets, record: Any) -> None:
    before = offsets._last_position
    replay(offsets, record)
    offsets._last_position = before


def lose_what_waits(decode: Any, stored: TableCodec, record_type: int, key: bytes, value: bytes) -> Any:
    return None if record_type == PENDING_OFFSET else decode(stored, record_type, key, value)


def commit_everywhere_else(partition_marker: Any, port: PartitionMarkers, ordinal: int, marker: Any) -> Any:
    return partition_marker(port, ordinal, replace(marker, outcome=Outcome.COMMIT) if ordinal else marker)


# The runtime


def answer_before_durable(conclude: Any, runtime: Runtime, work: Any, answer: Any, rows: Any) -> None:
    conclude(runtime, work, answer, rows)
    if rows is not None:
        reply, value, _error = answer
        reply.succeed(value)


def roll_nothing_back(_roll_back: Any, _journal: Journal, _position: int) -> None:
    return None


def read_what_is_live(_durable: Any, timeline: TimelineMap[Any, Any], key: Any) -> Any:
    return timeline.get(key)


def never_unpark(_retry: Any, _parking: Parking, _key: Any) -> None:
    return None


def read_too_early(_when_durable: Any, _runtime: Runtime, _key: Any, action: Callable[[], None]) -> None:
    action()


def leave_waiting(_retry: Any, _parking: Parking, _shard: Any) -> None:
    return None


# Members of groups


def give_what_is_held(_owner: Any, *_where: Any) -> None:
    return None


def any_member_commits(_check: Any, *_args: Any, **_kwargs: Any) -> None:
    return None


def leave_members_waiting(_refuse: Any, *_args: Any) -> None:
    return None


def watch_no_member(_owed: Any, *_args: Any) -> Decision:
    return Decision()


# The log


def show_what_is_open(_bound_of: Any, head: Any, _isolation: Any) -> int:
    end: int = head.log_end_offset
    return end


def any_sequence(judge: Any, entry: Any, batch: Any, **kwargs: Any) -> Any:
    follows = entry is not None and entry.epoch == batch.producer_epoch
    return judge(entry, replace(batch, base_sequence=entry.last_sequence + 1 if follows else 0), **kwargs)


def skip_admission(judge: Any, *args: Any, **kwargs: Any) -> Any:
    verdict = judge(*args, **kwargs)
    return AppendVerdict.APPEND if verdict is AppendVerdict.ADMIT else verdict


def forget_what_ended(_refusal_if_open: Any, *_args: Any) -> None:
    return None


def admit_plain_batches(judge: Any, entry: Any, batch: Any, *, is_admitted: bool, **kwargs: Any) -> Any:
    return judge(entry, batch, is_admitted=is_admitted or not batch.is_transactional, **kwargs)


def any_marker_closes(judge: Any, entry: Any, marker: Any, **kwargs: Any) -> Any:
    if entry is not None and entry.open_transaction is not None:
        return MarkerVerdict.APPEND
    return judge(entry, marker, **kwargs)


def forget_open_producers(last_uses: Any, shard: LogShard, *args: Any) -> Any:
    for _last_used_ms, (ordinal, producer_id, entry) in last_uses(shard, *args):
        yield entry.last_append_ms, (ordinal, producer_id, replace(entry, open_transaction=None))


def forget_the_csn(forget: Any, head: PartitionHead, entries: Any) -> PartitionHead:
    done: PartitionHead = forget(head, entries)
    return replace(done, forgotten=replace(done.forgotten, csns=()))


def leave_out_the_last_row(stretches_after: Any, *args: Any, **kwargs: Any) -> Any:
    index, finished = stretches_after(*args, **kwargs)
    totals = [stretch.totals for stretch in finished]
    wrong = [replace(each, marker_count=max(0, each.marker_count - 1)) for each in totals]
    return index, [replace(stretch, totals=total) for stretch, total in zip(finished, wrong, strict=True)]


def leave_out_a_boundary(offsets: Any, aborted: AbortedTransaction) -> list[int]:
    return [offset for offset in offsets(aborted) if offset == aborted.marker_offset]


def lose_an_outcome_by_merging(merge: Any, staged: StagedRows, later: StagedRows) -> None:
    if any(family is Family.ABORTED for family, _key, _value in later.added):
        staged.added[:] = [row for row in staged.added if row[0] is not Family.ABORTED]
    merge(staged, later)


def remember_no_end(_remembered: Any, _forgotten: Any) -> tuple[()]:
    return ()


def repeat_the_marker(judge: Any, entry: Any, marker: Any, **kwargs: Any) -> Any:
    verdict = judge(entry, marker, **kwargs)
    return MarkerVerdict.APPEND if verdict is MarkerVerdict.REPEATED else verdict


def move_past_what_is_open(move: Any, head: PartitionHead, wanted: int, **kwargs: Any) -> Any:
    return move(replace(head, last_stable_offset=head.log_end_offset), wanted, **kwargs)


def move_past_what_is_held(move: Any, head: PartitionHead, wanted: int, **kwargs: Any) -> Any:
    return move(head, wanted, **{**kwargs, "leased_from": None})


def remove_the_index_too_early(ranges: Any, ordinal: int, offset: int) -> Any:
    log, index, (family, first, _below) = ranges(ordinal, offset)
    return [log, index, (family, first, index_rows.aborted_key(ordinal, offset + 4, 0))]


def remove_before_it_is_durable(remove: Any, removal: Any, placed: Any, head: PartitionHead) -> Any:
    live = removal._runtime.shard(placed.shard)._heads.get(placed.ref.ordinal)
    return remove(removal, placed, head if live is None else live)


def remove_what_holds_the_log_start(ranges: Any, ordinal: int, offset: int) -> Any:
    return ranges(ordinal, offset + 1)


def look_from_where_the_batch_begins(hides: Any, index: Any, batch: Any) -> Any:
    index._head = replace(index._head, log_start_offset=0)
    return hides(index, batch)


def store_no_growth(encode: Any, codec: Any, value: Any) -> Any:
    if isinstance(value, TopicSet) and value.topic.name == "t":
        value = TopicSet(replace(value.topic, partition_ordinals=value.topic.partition_ordinals[:1]))
    return encode(codec, value)


def answer_growth_too_early(create: Any, service: Any, command: Any, context: Any) -> Any:
    asked = create(service, command, context)
    live = [service._catalog.topic(each.name, each.topic_id) for each in command.topics]
    results = [TopicResult(each.name, each.topic_id, len(each.partition_ordinals)) for each in live]
    is_done = all(
        result.partition_count >= each.partition_count for result, each in zip(results, command.topics, strict=True)
    )
    return settled(results) if is_done and not asked.is_settled else asked


def put_new_partitions_first(
    extended: Any, catalog: Any, before: Any, topic: Any, ordinals: range, **kwargs: Any
) -> Any:
    if before is not None:
        topic = replace(topic, partition_ordinals=(*ordinals, *before.partition_ordinals))
    return extended(catalog, before, topic, ordinals, **kwargs)


def grow_without_settings(decide: Any, catalog: Any, *args: Any) -> Any:
    decision = decide(catalog, *args)
    return replace(decision, records=tuple(map(_without_settings, decision.records)))


def _without_settings(record: Any) -> Any:
    if not isinstance(record.value, TopicSet):
        return record
    return replace(record, value=TopicSet(replace(record.value.topic, settings=())))


def store_no_settings(encode: Any, codec: Any, value: Any) -> Any:
    if isinstance(value, TopicSet) and value.topic.name == "t":
        value = TopicSet(replace(value.topic, settings=value.topic.settings[-1:]))
    return encode(codec, value)


def look_away(_check: Any, *_args: Any, **_kwargs: Any) -> None:
    """What should refuse to serve says nothing."""


# Sinks


def not_committed(_original: Any, _sink: Any, _batch_id: int) -> bool:
    return False


def give_no_member_up(_original: Any, sink: Any, _members: Any) -> Any:
    return sink


def never_idle(_original: Any, _sink: Any, _members: Any, *, now_ms: int) -> int:
    return 0 * now_ms


def choose_the_own_member(original: Any, sink: Any, request: Any, identity: Any, members: Any) -> Any:
    return members.get(identity.producer_id) or original(sink, request, identity, members)


def look_after_no_sink(_original: Any, _decisions: Any, _turn: Any, _expiration_ms: int) -> tuple[()]:
    return ()


def abort_what_commits(original: Any, sink: Any, member: Any) -> Any:
    return None if original(sink, member) is None else Outcome.ABORT


def keep_producers(original: Any, shard: Any, turn: Any, *, ordinal: int, marker: Any) -> Any:
    return original(shard, turn, ordinal=ordinal, marker=replace(marker, is_last=False))


def csn_for_each(original: Any, outcomes: Any, current: Any, ending: Any, *args: Any, **kwargs: Any) -> Any:
    return original(outcomes, current, replace(ending, csn=0), *args, **kwargs)


def spare_members(open_touching: Any, table: TransactionTable, ordinals: frozenset[int]) -> list[Transaction]:
    return [found for found in open_touching(table, ordinals) if found.member is None]


def abort_what_is_certain(
    decide: Any, shard: TransactionShard, turn: Any, *, meant: Transaction, cause: str
) -> Decision:
    if cause != "topic_deleted" or not shard.sinks.state.is_settled(meant):
        decision: Decision = decide(shard, turn, meant=meant, cause=cause)
        return decision
    aborting = Ending(Outcome.ABORT, bumps_epoch=True, cause=cause)
    return replace(shard.outcomes.decide(meant, aborting, turn), reply=None)
