"""Bugs on purpose. Each takes one promise away; an auditor that misses one is a torn net.

A mutant replaces functions of the product while it is applied. Some are those of spec transactions 12; the others aim
at recovery, at the runtime and at the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.parking import Parking
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.classic.state import ClassicGroup
from group_coordinator.codec import PENDING_OFFSET, GroupCodec
from group_coordinator.committed import participant
from group_coordinator.committed import rules as offset_rules
from group_coordinator.committed.offsets import GroupOffsets, Offsets
from group_coordinator.committed.participant import GroupMarkers
from group_coordinator.committed.transacted import OffsetsWrite
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.shard import GroupShard
from partition_log import rules as log_rules
from partition_log.events import PartitionGrew
from partition_log.markers import PartitionMarkers
from partition_log.records import ProducersForgotten
from partition_log.rules import AppendVerdict, MarkerVerdict
from partition_log.shard import LogShard
from partition_log.state import Isolation, PartitionHead
from partition_log.transacted import BatchesAndMarker, BatchWrite
from txn_coordinator import codec, rules, state
from txn_coordinator.counters import CountersShard
from txn_coordinator.outcomes import Outcomes
from txn_coordinator.records import Decided, ProducerIdBlockTaken, TransactionChanged
from txn_coordinator.shard import SendMarkers, TransactionShard, TwoPhase
from txn_coordinator.state import NO_EPOCH, Transaction, TransactionState

Change = tuple[Any, str, Callable[..., Any]]
"""(owner, attribute, function that takes its place). The function gets the original first, then the arguments."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug, how to put it in, and what kind of run shows it soon."""

    name: str
    what: str
    changes: tuple[Change, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[tuple[Any, str, Any], ...] = ()
    """Further (owner, attribute, value)."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The product has the bug until the end of the block."""
        with ExitStack() as undo:
            for owner, attribute, change in self.changes:
                _put(undo, owner, attribute, _bound(change, owner.__dict__[attribute]))
            for owner, attribute, value in self.values:
                _put(undo, owner, attribute, value)
            yield


def _put(undo: ExitStack, owner: Any, attribute: str, value: Any) -> None:
    undo.callback(setattr, owner, attribute, owner.__dict__[attribute])
    setattr(owner, attribute, value)


def _bound(change: Callable[..., Any], original: Any) -> Callable[..., Any]:
    def mutated(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    return mutated


# Spec transactions 12


def _keep_last_epoch(initialise: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = initialise(current, request, **kwargs)
    if request.expected is None and current.producer_epoch != NO_EPOCH:
        return replace(done, last_producer_epoch=current.producer_epoch)
    return done


def _refuse_repeated_marker(judge: Any, *args: Any, **kwargs: Any) -> MarkerVerdict:
    verdict: MarkerVerdict = judge(*args, **kwargs)
    if verdict is MarkerVerdict.REPEATED:
        # Not as INVALID_PRODUCER_EPOCH: then the marker sender would ask whether the transaction is open, and go on.
        raise Refused(ErrorCode.INVALID_TXN_STATE, "the epoch of the marker is not greater")
    return verdict


class _EndlessEpochs:
    producer_epoch_max = 2**30

    def is_exhausted(self, _epoch: int) -> bool:
        return False


def _without_rotation(decide: Any, *args: Any, **kwargs: Any) -> Any:
    return decide(*args, **{**kwargs, "limits": _EndlessEpochs()})


def _without_bump(prepare: Any, current: Transaction, ending: rules.Ending, **kwargs: Any) -> Any:
    return prepare(current, replace(ending, bumps_epoch=ending.cause != "client"), **kwargs)


def _retry_ends_what_is_open(end: Any, current: Transaction, request: rules.EndRequest) -> Any:
    before = (current.producer_id, current.producer_epoch - 1)
    if current.state is TransactionState.ONGOING and request.identity == before:
        return rules.EndVerdict.PREPARE
    return end(current, request)


def _due_when_decided(_is_due: Any, current: Transaction, *, identity: Any, start_ms: int) -> bool:
    return current.state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT) and current.start_ms == start_ms


def _without_cancelled_timer(decide: Any, *args: Any, **kwargs: Any) -> Decision:
    decision: Decision = decide(*args, **kwargs)
    return replace(decision, effects=tuple(each for each in decision.effects if not isinstance(each, CancelTimer)))


_LOOSE_STEPS = {
    **state.LEGAL_STEPS,
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.PREPARE_ABORT}),
}


def _keep_without_bump(keep: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = keep(current, request, **kwargs)
    client = current.client_identity
    return replace(done, next_producer_id=client.producer_id, next_producer_epoch=client.producer_epoch)


# The coordinator


def _forget_the_fence(initialise: Any, current: Transaction, request: Any, **kwargs: Any) -> Transaction:
    done: Transaction = initialise(current, request, **kwargs)
    if request.expected is None and current.producer_epoch != NO_EPOCH:
        return replace(done, producer_id=current.producer_id, producer_epoch=current.producer_epoch)
    return done


def _forget_the_request_id(_repeated: Any, _current: Transaction, _request: Any) -> bool:
    return False


def _forget_what_is_prepared(on_loaded: Any, shard: TransactionShard, turn: Any) -> Decision:
    decision: Decision = on_loaded(shard, turn)
    return Decision(effects=tuple(effect for effect in decision.effects if not isinstance(effect, SendMarkers)))


def _forget_timeouts(on_loaded: Any, shard: TransactionShard, turn: Any) -> Decision:
    decision: Decision = on_loaded(shard, turn)
    return Decision(effects=tuple(effect for effect in decision.effects if not isinstance(effect, ArmTimer)))


def _store_no_last_epoch(encode: Any, transaction: Transaction, *args: Any) -> Any:
    return encode(replace(transaction, last_producer_epoch=NO_EPOCH), *args)


def _swallow_refusal(decide: Any, *args: Any) -> Any:
    try:
        return decide(*args)
    except Refused:
        return Decision(reply=0)


def _write_nothing_where_refused(decide: Any, share: Any, log: Any, turn: Any) -> Any:
    try:
        return decide(share, log, turn)
    except Refused:
        ordinal = share.ref.ordinal
        return 0, ProducersForgotten(ordinal, (), log._heads.get(ordinal)), PartitionGrew(ordinal, 0, 0)


def _keep_no_offsets(keep: Any, *args: Any) -> Any:
    return replace(keep(*args), decide=lambda _shard, _turn: Decision())


def _answer_whoever_ended(transact: Any, current: Transaction, request: rules.TransactRequest, **kwargs: Any) -> Any:
    if current.state in state.COMPLETE and request.identity.producer_epoch < current.producer_epoch:
        return None
    return transact(current, request, **kwargs)


def _let_complete_stand_for_prepare(decide: Any, outcomes: Outcomes, *args: Any, **kwargs: Any) -> Decision:
    decision: Decision = decide(outcomes, *args, **kwargs)
    told = [each for each in decision.records if isinstance(each.value, TransactionChanged)]
    if len(told) < 2:
        return decision
    prepared, completed = (each.value.transaction for each in told)
    value = TransactionChanged(completed, Decided(prepared.partitions, prepared.groups))
    rest = tuple(each for each in decision.records if each not in told)
    return replace(decision, records=(*rest, replace(told[1], value=value)))


def _start_blocks_anew(replay: Any, counters: CountersShard, value: Any) -> None:
    replay(counters, ProducerIdBlockTaken(0) if isinstance(value, ProducerIdBlockTaken) else value)


def _same_csn(next_csn: Any, counters: CountersShard) -> Any:
    csn, record = next_csn(counters)
    return max(csn - 1, 1), record


def _no_marker_for_one(partition_marker: Any, port: PartitionMarkers, ordinal: int, marker: Any) -> Any:
    operation = partition_marker(port, ordinal, marker)
    return operation if ordinal else replace(operation, decide=lambda _shard, _turn: Decision())


def _seal_nothing(partition_seal: Any, port: PartitionMarkers, *args: Any) -> Any:
    return replace(partition_seal(port, *args), decide=lambda _shard, _turn: Decision())


def _no_group_marker(group_marker: Any, groups: GroupMarkers, group: str, marker: Any) -> Any:
    return replace(group_marker(groups, group, marker), decide=lambda _shard, _turn: Decision())


def _any_marker_settles(decide: Any, shard: Any, group: str, marker: Any) -> Any:
    return decide(shard, group, replace(marker, csn=2**62))


def _no_offset_waits(_blocking: Any, _offsets: GroupOffsets, _partition: Any) -> list[Any]:
    return []


def _the_last_marker_wins(_is_installed: Any, _current: Any, _settled: Any) -> bool:
    return True


def _forget_positions(_note: Any, _offsets: Offsets, _offset: Any) -> None:
    return None


def _lose_what_waits(decode: Any, stored: GroupCodec, record_type: int, key: bytes, value: bytes) -> Any:
    return None if record_type == PENDING_OFFSET else decode(stored, record_type, key, value)


def _commit_everywhere_else(partition_marker: Any, port: PartitionMarkers, ordinal: int, marker: Any) -> Any:
    return partition_marker(port, ordinal, replace(marker, outcome=Outcome.COMMIT) if ordinal else marker)


# The runtime


def _answer_before_durable(accept: Any, runtime: Runtime, work: Any, rows: Any, answer: Any) -> None:
    accept(runtime, work, rows, answer)
    reply, value, _error = answer
    reply.succeed(value)


def _roll_nothing_back(_roll_back: Any, _journal: Journal, _position: int) -> None:
    return None


def _read_what_is_live(_durable: Any, timeline: TimelineMap[Any, Any], key: Any) -> Any:
    return timeline.get(key)


def _never_unpark(_retry: Any, _parking: Parking, _key: Any) -> None:
    return None


def _read_too_early(_when_durable: Any, _runtime: Runtime, _key: Any, action: Callable[[], None]) -> None:
    action()


def _leave_waiting(_retry: Any, _parking: Parking, _shard: Any) -> None:
    return None


# Members of groups


def _give_what_is_held(_owner: Any, *_where: Any) -> None:
    return None


def _any_member_commits(_check: Any, *_args: Any, **_kwargs: Any) -> None:
    return None


def _leave_members_waiting(_refuse: Any, *_args: Any) -> None:
    return None


def _watch_nobody(_owed: Any, *_args: Any) -> Decision:
    return Decision()


# The log


def _show_what_is_open(_bound: Any, _isolation: Isolation, head: Any) -> int:
    end: int = head.log_end_offset
    return end


def _any_sequence(judge: Any, entry: Any, batch: Any, **kwargs: Any) -> Any:
    follows = entry is not None and entry.epoch == batch.producer_epoch
    return judge(entry, replace(batch, base_sequence=entry.last_sequence + 1 if follows else 0), **kwargs)


def _ask_nobody(judge: Any, *args: Any, **kwargs: Any) -> Any:
    verdict = judge(*args, **kwargs)
    return AppendVerdict.APPEND if verdict is AppendVerdict.ADMIT else verdict


def _any_marker_closes(judge: Any, entry: Any, marker: Any, **kwargs: Any) -> Any:
    if entry is not None and entry.open_transaction is not None:
        return MarkerVerdict.APPEND
    return judge(entry, marker, **kwargs)


def _forget_whoever_is_idle(last_uses: Any, shard: LogShard, *args: Any) -> Any:
    for _last_used_ms, (ordinal, producer_id, entry) in last_uses(shard, *args):
        yield entry.last_append_ms, (ordinal, producer_id, replace(entry, open_transaction=None))


def _forget_the_csn(forget: Any, head: PartitionHead, entries: Any) -> PartitionHead:
    done: PartitionHead = forget(head, entries)
    return replace(done, forgotten=replace(done.forgotten, csn=0))


def _repeat_the_marker(judge: Any, entry: Any, marker: Any, **kwargs: Any) -> Any:
    verdict = judge(entry, marker, **kwargs)
    return MarkerVerdict.APPEND if verdict is MarkerVerdict.REPEATED else verdict


_SPLIT = {"two_phase": TwoPhase.SPLIT}
_TRANSACTING = {"transact_share": 0.7, "version_1_share": 0.0}
_MOVING = {"shard_weight": 3.0}
_GATHERED = {"member_weight": 40.0, "steps": 600}
_FEW_EPOCHS = {"epoch_max": 3}
_CRASHING = {"crash_weight": 4.0}
_FORGETFUL = {"producer_expiration_ms": 500, "tick_weight": 3.0}
_DECIDED_OUTSIDE = {"participant_ids": 2, "tick_weight": 3.0}

CANARIES = (
    Mutant(
        "forget_the_fence",
        "a new instance gets the identity that its predecessor has",
        ((rules, "initialise", _forget_the_fence),),
    ),
    Mutant(
        "answer_before_durable",
        "a reply goes out before the flush",
        ((Runtime, "_accept", _answer_before_durable),),
        _CRASHING,
    ),
)
"""Two that every run of the fast suite must catch."""

SPECIFIED = (
    Mutant(
        "keep_last_epoch_at_init",
        "a new instance does not erase the epoch that its predecessor may retry with",
        ((rules, "initialise", _keep_last_epoch),),
    ),
    Mutant(
        "refuse_repeated_marker",
        "a marker that is sent again after a crash is refused",
        ((log_rules, "judge_marker", _refuse_repeated_marker),),
        _SPLIT | _CRASHING,
    ),
    Mutant(
        "no_rotation_at_end",
        "EndTxn at the last epoch goes on with the same producer id",
        ((rules, "prepare", _without_rotation),),
        _FEW_EPOCHS,
    ),
    Mutant(
        "no_rotation_at_init",
        "InitProducerId at the last epoch goes on with the same producer id",
        ((rules, "initialise", _without_rotation),),
        _FEW_EPOCHS,
    ),
    Mutant("no_bump_at_end", "the next transaction keeps the epoch", ((rules, "prepare", _without_bump),)),
    Mutant(
        "no_bump_on_keep",
        "an instance that keeps a transaction gets the identity that its predecessor has",
        ((rules, "keep", _keep_without_bump),),
        _DECIDED_OUTSIDE,
    ),
    Mutant(
        "retry_ends_what_is_open",
        "an EndTxn with the epoch before ends the transaction that is open now",
        ((rules, "end", _retry_ends_what_is_open),),
        {"version_1_share": 0.0},
    ),
    Mutant(
        "time_out_what_is_decided",
        "a timeout aborts a commit that is decided",
        ((rules, "is_due", _due_when_decided), (Outcomes, "decide", _without_cancelled_timer)),
        _SPLIT | {"tick_weight": 20.0, "flush_weight": 2.0, "steps": 600, "transact_share": 0.0},
        ((state, "LEGAL_STEPS", _LOOSE_STEPS),),
    ),
)
"""The eight that spec transactions 12 names, in its order."""

MUTANTS = (
    *CANARIES,
    *SPECIFIED,
    Mutant(
        "time_out_what_is_promised",
        "a timeout aborts what waits for an outside decision",
        (),
        _DECIDED_OUTSIDE,
        ((Transaction, "is_promised", False),),
    ),
    Mutant(
        "prepare_seals_nothing",
        "partitions take records of a transaction that is prepared",
        ((PartitionMarkers, "partition_seal", _seal_nothing),),
        _DECIDED_OUTSIDE,
    ),
    Mutant(
        "forget_the_request_id",
        "a delayed first InitProducerId fences its own retry",
        ((rules, "is_init_repeated", _forget_the_request_id),),
    ),
    Mutant(
        "forget_what_is_prepared",
        "what a crash left decided is not finished",
        ((TransactionShard, "on_loaded", _forget_what_is_prepared),),
        _SPLIT | _CRASHING,
    ),
    Mutant(
        "forget_timeouts",
        "timers are not armed again after a restart",
        ((TransactionShard, "on_loaded", _forget_timeouts),),
        _CRASHING,
    ),
    Mutant(
        "store_no_last_epoch",
        "the last epoch is not in the record (KAFKA-20310)",
        ((codec, "_encode", _store_no_last_epoch),),
        _CRASHING,
    ),
    Mutant(
        "start_blocks_anew",
        "producer ids begin at 0 after a restart",
        ((CountersShard, "replay", _start_blocks_anew),),
        _CRASHING,
    ),
    Mutant("same_csn", "two outcomes share a commit sequence number", ((CountersShard, "next_csn", _same_csn),)),
    Mutant(
        "no_marker_for_one",
        "one partition never gets its marker",
        ((PartitionMarkers, "partition_marker", _no_marker_for_one),),
    ),
    Mutant(
        "transact_swallows_a_refusal",
        "a Transact whose batch is refused by a partition commits without it",
        (
            (BatchWrite, "_decide_append", _swallow_refusal),
            (BatchesAndMarker, "decide", _write_nothing_where_refused),
        ),
        _TRANSACTING,
    ),
    Mutant(
        "transact_forgets_offsets",
        "the offsets of a Transact are lost",
        ((OffsetsWrite, "keep", _keep_no_offsets), (OffsetsWrite, "keep_and_end", _keep_no_offsets)),
        _TRANSACTING,
    ),
    Mutant(
        "transact_answers_anybody",
        "an old name is answered with the outcome of another transaction",
        ((rules, "transact", _answer_whoever_ended),),
        _TRANSACTING,
    ),
    Mutant(
        "let_complete_stand_for_prepare",
        "the history tells of a kept transaction that its client's epoch was decided, and not the one of its records",
        ((Outcomes, "decide", _let_complete_stand_for_prepare),),
        _DECIDED_OUTSIDE | {"transact_share": 0.7, "two_phase": TwoPhase.FUSED},
    ),
    Mutant("no_group_marker", "groups never get their marker", ((GroupMarkers, "group_marker", _no_group_marker),)),
    Mutant(
        "any_marker_settles",
        "a late marker settles the offsets of the transaction that is open now",
        ((participant, "decide_marker", _any_marker_settles),),
        {"version_1_share": 1.0},
    ),
    Mutant(
        "no_offset_waits",
        "a consumer that wants stable offsets is given one that a transaction is about to change",
        ((GroupOffsets, "blocking", _no_offset_waits),),
        _SPLIT,
    ),
    Mutant(
        "the_last_marker_wins",
        "a transaction that ends late takes an offset back that was committed after its own",
        ((offset_rules, "is_installed", _the_last_marker_wins),),
    ),
    Mutant(
        "forget_positions",
        "nobody knows which of two commits came later",
        ((Offsets, "_note_position", _forget_positions),),
    ),
    Mutant(
        "store_no_pending_offset",
        "offsets that wait for their transaction are lost in a crash",
        ((GroupCodec, "decode", _lose_what_waits),),
        _CRASHING,
    ),
    Mutant(
        "commit_everywhere_else",
        "partitions disagree on the outcome",
        ((PartitionMarkers, "partition_marker", _commit_everywhere_else),),
        {"partitions": 3},
    ),
    Mutant(
        "roll_nothing_back",
        "a refused operation leaves its first half behind",
        ((Journal, "roll_back", _roll_nothing_back),),
        _TRANSACTING,
    ),
    Mutant(
        "read_what_is_live",
        "readers see what a crash may take back",
        ((TimelineMap, "durable", _read_what_is_live),),
        _CRASHING,
    ),
    Mutant(
        "read_too_early",
        "a shard is read back before what it had staged is in the store",
        ((Runtime, "when_durable", _read_too_early),),
        _MOVING,
    ),
    Mutant(
        "leave_waiting",
        "calls wait for ever for a shard that left",
        ((Parking, "retry_all_held_up_by", _leave_waiting),),
        _SPLIT | _MOVING | {"parked_calls_max": 10_000, "flush_weight": 4.0, "steps": 600},
    ),
    Mutant(
        "give_what_is_held",
        "a member is given a partition that another one still owns",
        ((ConsumerGroup, "owner", _give_what_is_held),),
        _GATHERED,
    ),
    Mutant(
        "any_member_commits",
        "members of a generation that is over commit offsets",
        ((ClassicGroup, "check_commit", _any_member_commits),),
        _GATHERED,
    ),
    Mutant(
        "leave_members_waiting",
        "a JoinGroup waits for ever for a shard that left",
        ((LateAnswers, "refuse_all", _leave_members_waiting),),
        _GATHERED | _MOVING,
    ),
    Mutant(
        "watch_nobody",
        "members that died with the server stay for ever",
        ((GroupShard, "on_loaded", _watch_nobody),),
        _GATHERED | _CRASHING,
    ),
    Mutant("never_unpark", "parked calls are never tried again", ((Parking, "retry", _never_unpark),), _SPLIT),
    Mutant(
        "show_what_is_open",
        "committed readers go beyond the last stable offset",
        ((Isolation, "bound", _show_what_is_open),),
    ),
    Mutant("any_sequence", "repeated batches are appended", ((log_rules, "judge_append", _any_sequence),)),
    Mutant(
        "ask_nobody",
        "a partition takes transactional records without asking the coordinator",
        ((log_rules, "judge_append", _ask_nobody),),
    ),
    Mutant(
        "any_marker_closes",
        "a late marker ends the transaction that is open now",
        ((log_rules, "judge_marker", _any_marker_closes),),
    ),
    Mutant(
        "repeat_the_marker",
        "a marker that comes twice is appended twice",
        ((log_rules, "judge_marker", _repeat_the_marker),),
    ),
    Mutant(
        "forget_whoever_is_idle",
        "a partition forgets a producer whose transaction is open",
        ((LogShard, "_last_uses", _forget_whoever_is_idle),),
        _FORGETFUL,
    ),
    Mutant(
        "forget_the_csn",
        "a late marker is appended again once its producer is forgotten",
        ((log_rules, "head_after_forgetting", _forget_the_csn),),
        _FORGETFUL,
    ),
)
"""Every bug that the simulation must catch."""
