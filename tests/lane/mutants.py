"""Bugs of the lane on purpose. Each must make it differ from the general path, and the twins must notice.

They are written as those of the simulation are (`tests/simulation/mutants.py`), and one that is noticed by nothing is a
torn net. A function gets the original first, then the arguments.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from coordinator_core import lane as lane_module
from coordinator_core.lane import Lane
from coordinator_runtime.pending import settled
from coordinator_runtime.runtime import Runtime
from coordinator_server.transport import Dispatcher
from partition_log.batch_checks import BatchChecks
from partition_log.growth import Growth
from tests.simulation.mutants import Mutant
from txn_coordinator.records import CsnGiven


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
    known, lane._growths = lane._growths, {}
    try:
        return growth(lane, *args)
    finally:
        lane._growths = {**known, **lane._growths}


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


def tell_nothing(write_decided: Any, runtime: Runtime, records: Any, _events: Any, turn: Any) -> Any:
    return write_decided(runtime, records, [], turn)


def give_numbers_again(write_decided: Any, runtime: Runtime, records: Any, events: Any, turn: Any) -> Any:
    kept = [record for record in records if not isinstance(record.value, CsnGiven)]
    return write_decided(runtime, kept, events, turn)


def allow_all(_require: Any, *_args: Any) -> None:
    return None


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
        "there_is_always_room",
        "more waits for the disk than may wait",
        ((Runtime, "room_bytes", there_is_always_room),),
    ),
)
"""Each is a way in which the lane could differ."""

CANARIES = tuple(mutant for mutant in MUTANTS if mutant.name in ("give_numbers_again", "lose_the_offsets", "overtake"))
"""Some that every run of the fast suite must notice."""
