"""Bugs in what share groups hand out. `mutants` has those of everything else."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import ArmTimer, Decision, Operation
from coordinator_runtime.pending import settled
from coordinator_runtime.ports import OutcomeNumber
from coordinator_runtime.record_log import LogBatches
from group_coordinator.share_partitions import (
    acquiring,
    decisions,
    draft,
    fetching,
    letter_writer,
    naming,
    places,
    rules,
    shard,
)
from group_coordinator.share_partitions.acquiring import Content, Read
from group_coordinator.share_partitions.draft import Draft, Run
from group_coordinator.share_partitions.state import RecordState
from partition_log import record_log
from partition_log.state import Isolation
from tests.simulation.mutant import Mutant
from txn_coordinator.verifier import CoordinatorVerifier

_SHARING: Final = {"share_weight": 80.0}
_CRASHING: Final = {"crash_weight": 2.0, "flush_weight": 4.0}


def forget_what_was_acknowledged(decision: Any, *args: Any, **kwargs: Any) -> Any:
    made = decision(*args, **kwargs)
    if kwargs.get("cause") != "acknowledge":
        return made
    records = tuple(replace(each, value=replace(each.value, is_stored=False)) for each in made.records)
    return replace(made, records=records)


def pass_what_is_held(first_open: Any, cells: bytes | bytearray) -> int:
    end: int = first_open(cells)
    while end < len(cells) and cells[end] & 7 == RecordState.ACQUIRED:
        end += 1
    return end


def release_without_limit(_release: Any, self: Draft, run: Run, _holder: Any) -> None:
    self._step(run, RecordState.AVAILABLE, run.deliveries)


def take_without_limit(take: Any, self: Any, run: Run, content: Content) -> bool:
    terms, self._terms = self._terms, replace(self._terms, delivery_count_limit=30)
    goes_on: bool = take(self, run, content)
    self._terms = terms
    return goes_on


def hand_out_what_was_aborted(read_of: Any, *args: Any, **kwargs: Any) -> Read:
    read: Read = read_of(*args, **kwargs)
    spans = [each._replace(content=Content.RECORDS) if each.content is Content.ABORTED else each for each in read.spans]
    return replace(read, spans=tuple(spans))


def answer_before_it_is_durable(acknowledge: Any, *args: Any, **kwargs: Any) -> Any:
    written = acknowledge(*args, **kwargs)
    if isinstance(written.error, Refused) or written.is_settled:
        return written
    return settled(naming.AcknowledgeResult(args[1].name, None))


def skip_what_was_not_read(
    read_of: Any, found: LogBatches, first_offset: int, *, end_offset: int | None = None
) -> Read:
    longer = replace(found, next_offset=found.next_offset + 1) if found.batches else found
    made: Read = read_of(longer, first_offset, end_offset=end_offset)
    return made


def accept_for_any_holder(apply: Any, draft_: Draft, run: Run, kind: Any, member_id: str, terms: Any) -> None:
    holder = draft_.acquisitions.get(run.number)
    apply(draft_, run, kind, member_id if holder is None else holder.member_id, terms)


def archive_without_letter(decide: Any, *args: Any, **kwargs: Any) -> Any:
    return decide(*args, **{**kwargs, "append": None})


def write_letters_apart(decide: Any, *args: Any, **kwargs: Any) -> Any:
    made, append = decide(*args, **{**kwargs, "append": None}), kwargs["append"]
    if append is None:
        return made
    return replace(made, effects=(*made.effects, ArmTimer(("share_letters", "apart", kwargs["ends"][0]), 1, append)))


def forget_that_letters_are_written(decide: Any, *args: Any, **kwargs: Any) -> Any:
    made = decide(*args, **kwargs)
    records = tuple(replace(each, value=replace(each.value, is_stored=False)) for each in made.records)
    return replace(made, records=records)


def forget_letters_of_a_load(_on_loaded: Any, *_args: Any) -> Decision:
    return Decision()


def give_up_without_letter(give_up: Any, self: Draft, run: Run, reason: Any, *, has_letters: bool) -> None:
    give_up(self, run, reason, has_letters=has_letters and reason is not draft.ArchiveReason.REJECTED)


def raise_no_count(_take: Any, self: Any, run: Run, content: Content) -> bool:
    if content is Content.RECORDS:
        self._draft.hold(run, self._number, run.deliveries)
        self.count += run.end_offset - run.first_offset
        self._note(run.first_offset, run.end_offset, run.deliveries)
    return True


def never_end_a_lock(_decide: Any, *_args: Any, **_kwargs: Any) -> Decision:
    return Decision()


def read_what_is_open(_isolation: Any, *, is_committed: bool) -> Isolation:
    del is_committed
    return Isolation.READ_UNCOMMITTED


def settle_nothing(_decide: Any, *_args: Any, **_kwargs: Any) -> Decision:
    return Decision()


def take_late_acknowledgements(
    add: Any, self: CoordinatorVerifier, membership: Any, shares: Any, then: Any, **kwargs: Any
) -> Any:
    operation = add(self, membership, shares, then, **kwargs)

    def decide(shard_: Any, turn: Any) -> Decision:
        try:
            made: Decision = operation.decide(shard_, turn)
        except Refused:
            made = then(OutcomeNumber(shard_.key.number, 0))
        return made

    return Operation(operation.shard, decide)


SHARES: Final = (
    Mutant(
        "forget_what_was_acknowledged",
        "the outcome of a record is not stored",
        ((decisions, "_decision", forget_what_was_acknowledged),),
        _SHARING | _CRASHING,
    ),
    Mutant(
        "pass_what_is_held",
        "the start offset passes records that a member holds",
        ((draft, "first_open", pass_what_is_held),),
        _SHARING,
    ),
    Mutant(
        "release_without_limit",
        "a record is delivered as often as it is released",
        ((Draft, "release", release_without_limit), (acquiring._Taking, "_take_again", take_without_limit)),
        _SHARING,
    ),
    Mutant(
        "hand_out_what_was_aborted",
        "records of aborted transactions are delivered to a group that reads committed ones",
        ((fetching, "read_of", hand_out_what_was_aborted),),
        _SHARING,
    ),
    Mutant(
        "answer_before_it_is_durable",
        "an acknowledgement is answered before it is durable",
        ((naming.PartitionNaming, "_acknowledge", answer_before_it_is_durable),),
        _SHARING | _CRASHING,
    ),
    Mutant(
        "skip_what_was_not_read",
        "the offset after a read counts as one without a record",
        ((fetching, "read_of", skip_what_was_not_read),),
        _SHARING,
    ),
    Mutant(
        "accept_for_any_holder",
        "a member acknowledges what another one holds",
        ((rules, "_apply", accept_for_any_holder),),
        _SHARING,
    ),
    Mutant(
        "archive_without_letter",
        "a record is archived, and its letter is not written",
        ((letter_writer, "decide_end_letters", archive_without_letter),),
        _SHARING,
    ),
    Mutant(
        "write_letters_apart",
        "a letter is written after its record was archived, in another batch",
        ((letter_writer, "decide_end_letters", write_letters_apart),),
        _SHARING | _CRASHING,
    ),
    Mutant(
        "forget_that_letters_are_written",
        "a restart writes letters again",
        ((letter_writer, "decide_end_letters", forget_that_letters_are_written),),
        _SHARING | _CRASHING,
    ),
    Mutant(
        "forget_letters_of_a_load",
        "the letters that a restart has found are not written",
        ((shard.ShareShard, "on_loaded", forget_letters_of_a_load),),
        _SHARING | _CRASHING,
    ),
    Mutant(
        "give_up_without_letter",
        "a rejected record has no letter",
        ((Draft, "give_up", give_up_without_letter),),
        _SHARING,
    ),
    Mutant(
        "raise_no_count",
        "a delivery is not counted",
        ((acquiring._Taking, "_take_again", raise_no_count),),
        _SHARING,
    ),
    Mutant(
        "never_end_a_lock",
        "a member keeps records beyond the end of its locks",
        ((decisions, "decide_lock_due", never_end_a_lock),),
        _SHARING,
    ),
    Mutant(
        "read_what_is_open",
        "records of open transactions are delivered to a group that reads committed ones",
        ((record_log, "_isolation", read_what_is_open),),
        _SHARING,
    ),
    Mutant(
        "settle_nothing",
        "the end of a transaction leaves its acknowledged records pending",
        ((places, "decide_marker", settle_nothing),),
        _SHARING,
    ),
    Mutant(
        "take_late_acknowledgements",
        "an acknowledgement after the end of its transaction leaves a record pending",
        ((CoordinatorVerifier, "add_shares", take_late_acknowledgements),),
        _SHARING,
    ),
)
"""Every bug in share groups that the simulation must catch."""
