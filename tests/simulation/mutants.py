"""Bugs on purpose. Each takes one promise away; an auditor that misses one is a torn net.

A mutant replaces functions of the product while it is applied. Some are those of spec transactions 12; the others aim
at recovery, at the runtime and at the log.
"""

from __future__ import annotations

from coordinator_protocol import marker as protocol_marker
from coordinator_runtime import rows as runtime_rows
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.parking import Parking
from coordinator_runtime.rows import ShardHistory, StagedRows, TableCodec
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.catalog_watch import CatalogWatch
from group_coordinator.classic.state import ClassicGroup
from group_coordinator.committed import decisions as offset_decisions
from group_coordinator.committed.decisions import GroupMarkers
from group_coordinator.committed.offsets import Offsets, OffsetTable
from group_coordinator.committed.transacted import OffsetsWrite
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.shard import GroupShard
from partition_log import batches as log_batches
from partition_log import codec as log_codec
from partition_log import index_rows, load_checks
from partition_log import reading as log_reading
from partition_log.catalog.codec import CatalogCodec
from partition_log.catalog.shard import CatalogShard
from partition_log.reading import AbortedIndex
from partition_log.removal import LogRemoval
from partition_log.rules import appending, indexing, marking, removing
from partition_log.shard import LogShard, PartitionMarkers
from partition_log.topics import TopicService
from partition_log.transacted import BatchWrite
from tests.simulation import bugs
from tests.simulation.compaction_mutants import COMPACTION
from tests.simulation.kafka_mutants import KAFKA
from tests.simulation.mutant import Mutant
from tests.simulation.share_mutants import SHARES
from tests.simulation.snapshot_mutants import SNAPSHOTS
from tests.simulation.streams_mutants import STREAMS
from txn_coordinator import codec, state
from txn_coordinator.config import TwoPhase
from txn_coordinator.counters import CountersShard
from txn_coordinator.outcomes import Outcomes
from txn_coordinator.rules import ending, initialising, transacting
from txn_coordinator.shard import TransactionShard
from txn_coordinator.sink_state import Sink
from txn_coordinator.sinks import rules as sink_rules
from txn_coordinator.sinks.decisions import SinkDecisions
from txn_coordinator.state import Transaction
from txn_coordinator.transaction_table import TransactionTable

_SINKING = {"sink_weight": 40.0, "tick_weight": 3.0, "steps": 600}
_PASSING = {"passing_weight": 2.0, "flush_weight": 60.0, "participants_at_once": 1}
_SPLIT = {"two_phase": TwoPhase.SPLIT}
_TRANSACTING = {"transact_share": 0.7, "version_1_share": 0.0}
_MOVING = {"shard_weight": 3.0}
_GATHERED = {"member_weight": 40.0, "steps": 600}
_FEW_EPOCHS = {"epoch_max": 3}
_CRASHING = {"crash_weight": 4.0}
_FORGETFUL = {"producer_expiration_ms": 500, "tick_weight": 3.0}
_DELETING = {"delete_weight": 6.0, "tick_weight": 3.0, "removal_interval_ms": 200}
_SHORT_STRETCHES = {"stretch_rows": 2}
_GROWING = {"growth_weight": 10.0}
_IMPATIENT = {
    "version_1_share": 1.0,
    "give_up_weight": 20.0,
    "steps": 600,
    "partitions": 1,
    "participant_ids": 0,
    "tick_weight": 0.5,
    "flush_weight": 60.0,
    "passing_weight": 0.0,
    "growth_weight": 0.0,
    "delete_weight": 0.0,
}
_DECIDED_OUTSIDE = {"participant_ids": 2, "tick_weight": 3.0}

CANARIES = (
    Mutant(
        "forget_the_fence",
        "a new instance gets the identity that its predecessor has",
        ((initialising, "initialise", bugs.forget_the_fence),),
    ),
    Mutant(
        "answer_before_durable",
        "a reply goes out before the flush",
        ((Runtime, "_conclude", bugs.answer_before_durable),),
        _CRASHING,
    ),
)
"""Two that every run of the fast suite must catch."""

SPECIFIED = (
    Mutant(
        "keep_last_epoch_at_init",
        "a new instance does not erase the epoch that its predecessor may retry with",
        ((initialising, "initialise", bugs.keep_last_epoch),),
    ),
    Mutant(
        "refuse_repeated_marker",
        "a marker that is sent again after a crash is refused",
        ((marking, "judge_marker", bugs.refuse_repeated_marker),),
        _SPLIT | _CRASHING,
    ),
    Mutant(
        "no_rotation_at_end",
        "EndTxn at the last epoch goes on with the same producer id",
        ((ending, "decide", bugs.without_rotation),),
        _FEW_EPOCHS,
    ),
    Mutant(
        "no_rotation_at_init",
        "InitProducerId at the last epoch goes on with the same producer id",
        ((initialising, "initialise", bugs.without_rotation),),
        _FEW_EPOCHS,
    ),
    Mutant("no_bump_at_end", "the next transaction keeps the epoch", ((ending, "decide", bugs.without_bump),)),
    Mutant(
        "no_bump_on_keep",
        "an instance that keeps a transaction gets the identity that its predecessor has",
        ((initialising, "keep", bugs.keep_without_bump),),
        _DECIDED_OUTSIDE,
    ),
    Mutant(
        "retry_ends_what_is_open",
        "an EndTxn with the epoch before ends the transaction that is open now",
        ((ending, "judge_end", bugs.retry_ends_what_is_open),),
        {"version_1_share": 0.0},
    ),
    Mutant(
        "time_out_what_is_decided",
        "a timeout aborts a commit that is decided",
        ((ending, "is_due", bugs.due_when_decided), (Outcomes, "decide", bugs.without_cancelled_timer)),
        _SPLIT | {"tick_weight": 20.0, "flush_weight": 2.0, "steps": 600, "transact_share": 0.0},
        ((state, "LEGAL_STEPS", bugs.LOOSE_STEPS),),
    ),
)
"""The eight that spec transactions 12 names, in its order."""

SINKS = (
    Mutant(
        "batch_committed_twice",
        "a committed batch may be written again",
        ((sink_rules, "is_committed", bugs.not_committed),),
        _SINKING,
    ),
    Mutant(
        "members_never_given_up",
        "a new run, or an abort, leaves the members that are there",
        ((sink_rules, "give_up", bugs.give_no_member_up),),
        _SINKING,
    ),
    Mutant(
        "sinks_never_idle",
        "members of a dead engine wait for ever",
        ((sink_rules, "idle_ms", bugs.never_idle),),
        _SINKING,
    ),
    Mutant(
        "commit_what_is_not_sealed",
        "a decision takes members that still write",
        ((sink_rules, "_chosen", bugs.choose_the_own_member),),
        _SINKING,
    ),
    Mutant(
        "decision_stops_at_a_crash",
        "after a load sinks are not looked after",
        ((SinkDecisions, "on_loaded", bugs.look_after_no_sink),),
        _SINKING | _CRASHING,
    ),
    Mutant(
        "abort_what_was_decided",
        "a decision that is carried out later aborts its members",
        ((Sink, "outcome_of", bugs.abort_what_commits),),
        _SINKING | _SPLIT,
    ),
    Mutant(
        "producers_of_members_stay",
        "a partition keeps the producer of a member behind its last marker",
        ((LogShard, "decide_marker", bugs.keep_producers),),
        _SINKING,
    ),
    Mutant(
        "csn_for_each_member",
        "members of one decision have csns of their own",
        ((Outcomes, "decide", bugs.csn_for_each),),
        _SINKING | _SPLIT,
    ),
    Mutant(
        "commit_without_what_was_deleted",
        "a topic is deleted under members of a batch, and they are committed nevertheless",
        ((TransactionTable, "open_touching", bugs.spare_members),),
        _SINKING | _PASSING,
    ),
    Mutant(
        "delete_a_part_of_a_decision",
        "deleting a topic aborts members that a decision has committed",
        ((TransactionShard, "decide_abort", bugs.abort_what_is_certain),),
        _SINKING | _PASSING | _SPLIT,
    ),
)
"""Bugs of sinks."""

MUTANTS = (
    *CANARIES,
    *SPECIFIED,
    *SINKS,
    *SNAPSHOTS,
    *SHARES,
    *STREAMS,
    *KAFKA,
    *COMPACTION,
    Mutant(
        "time_out_what_awaits_a_decision",
        "a timeout aborts what waits for an outside decision",
        (),
        _DECIDED_OUTSIDE,
        ((Transaction, "never_times_out", False),),
    ),
    Mutant(
        "prepare_seals_nothing",
        "partitions take records of a transaction that is prepared",
        ((PartitionMarkers, "partition_seal", bugs.seal_nothing),),
        _DECIDED_OUTSIDE,
    ),
    Mutant(
        "forget_the_request_id",
        "a delayed first InitProducerId fences its own retry",
        ((initialising, "is_init_repeated", bugs.forget_the_request_id),),
    ),
    Mutant(
        "forget_what_is_prepared",
        "what a crash left decided is not finished",
        ((TransactionShard, "on_loaded", bugs.forget_what_is_prepared),),
        _SPLIT | _CRASHING,
    ),
    Mutant(
        "forget_timeouts",
        "timers are not armed again after a restart",
        ((TransactionShard, "on_loaded", bugs.forget_timeouts),),
        _CRASHING,
    ),
    Mutant(
        "store_no_last_epoch",
        "the last epoch is not in the record (KAFKA-20310)",
        ((codec.TransactionCodec, "encode", bugs.store_no_last_epoch),),
        _CRASHING,
    ),
    Mutant(
        "start_blocks_anew",
        "producer ids begin at 0 after a restart",
        ((CountersShard, "replay", bugs.start_blocks_anew),),
        _CRASHING,
    ),
    Mutant("same_csn", "two outcomes share a commit sequence number", ((CountersShard, "next_csn", bugs.same_csn),)),
    Mutant(
        "no_marker_for_one",
        "one partition never gets its marker",
        ((PartitionMarkers, "partition_marker", bugs.no_marker_for_one),),
    ),
    Mutant(
        "transact_swallows_a_refusal",
        "a Transact whose batch is refused by a partition commits without it",
        ((BatchWrite, "_decide_append", bugs.swallow_refusal),),
        _TRANSACTING,
    ),
    Mutant(
        "transact_forgets_offsets",
        "the offsets of a Transact are lost",
        ((OffsetsWrite, "hold", bugs.hold_no_offsets),),
        _TRANSACTING,
    ),
    Mutant(
        "transact_answers_anybody",
        "an old name is answered with the outcome of another transaction",
        ((transacting, "judge_transact", bugs.answer_older_epochs),),
        _TRANSACTING,
    ),
    Mutant(
        "tell_the_clients_identity",
        "the history tells of a kept transaction that its client's epoch was decided, and not the one of its records",
        ((codec, "step_of", bugs.tell_the_clients_identity),),
        _DECIDED_OUTSIDE | {"transact_share": 0.7, "two_phase": TwoPhase.FUSED},
    ),
    Mutant(
        "lose_the_tail",
        "who reads batches does not meet a marker that lies behind the last one",
        ((log_batches, "split_row", bugs.lose_the_tail),),
        _TRANSACTING,
    ),
    Mutant(
        "end_from_the_last_batch",
        "a marker says of its transaction that it begins later than it does",
        ((protocol_marker, "encode_tail", bugs.end_from_the_last_batch),),
        _TRANSACTING,
    ),
    Mutant(
        "number_steps_again",
        "the newest step of a shard is lost when the next commit group has one",
        ((ShardHistory, "row", bugs.number_steps_again),),
    ),
    Mutant(
        "tell_what_is_left",
        "the history tells for whom an outcome was decided by the state that followed",
        ((codec, "step_of", bugs.tell_what_is_left),),
        {"two_phase": TwoPhase.FUSED},
    ),
    Mutant(
        "take_a_row_for_one_step",
        "after a start, numbers of the history are given again",
        ((ShardHistory, "__init__", bugs.take_a_row_for_one_step),),
        _CRASHING,
    ),
    Mutant("no_group_marker", "groups never get their marker", ((GroupMarkers, "group_marker", bugs.no_group_marker),)),
    Mutant(
        "any_marker_settles",
        "a late marker settles the offsets of the transaction that is open now",
        ((offset_decisions, "decide_marker", bugs.any_marker_settles),),
        {"version_1_share": 1.0},
    ),
    Mutant(
        "no_offset_waits",
        "a consumer that wants stable offsets is given one that a transaction is about to change",
        ((OffsetTable, "blocking", bugs.no_offset_waits),),
        _SPLIT,
    ),
    Mutant(
        "the_last_marker_wins",
        "a transaction that ends late takes an offset back that was committed after its own",
        ((offset_decisions, "is_installed", bugs.the_last_marker_wins),),
    ),
    Mutant(
        "forget_positions",
        "the order of two commits is unknown",
        ((Offsets, "_commit", bugs.forget_positions), (Offsets, "_hold", bugs.forget_positions)),
    ),
    Mutant(
        "store_no_pending_offset",
        "offsets that wait for their transaction are lost in a crash",
        ((TableCodec, "decode", bugs.lose_what_waits),),
        _CRASHING,
    ),
    Mutant(
        "commit_everywhere_else",
        "partitions disagree on the outcome",
        ((PartitionMarkers, "partition_marker", bugs.commit_everywhere_else),),
        {"partitions": 3},
    ),
    Mutant(
        "roll_nothing_back",
        "a refused operation leaves its first half behind",
        ((Journal, "roll_back", bugs.roll_nothing_back),),
        _TRANSACTING,
    ),
    Mutant(
        "read_what_is_live",
        "readers see what a crash may take back",
        ((TimelineMap, "durable", bugs.read_what_is_live),),
        _CRASHING,
    ),
    Mutant(
        "read_too_early",
        "a shard is read back before what it had staged is in the store",
        ((Runtime, "when_durable", bugs.read_too_early),),
        _MOVING,
    ),
    Mutant(
        "leave_waiting",
        "calls wait for ever for a shard that left",
        ((Parking, "retry_all_held_up_by", bugs.leave_waiting),),
        _SPLIT | _MOVING | {"parked_calls_max": 10_000, "flush_weight": 4.0, "steps": 600},
    ),
    Mutant(
        "give_what_is_held",
        "a member is given a partition that another one still owns",
        ((ConsumerGroup, "owner", bugs.give_what_is_held),),
        _GATHERED,
    ),
    Mutant(
        "any_member_commits",
        "members of a generation that is over commit offsets",
        ((ClassicGroup, "check_commit", bugs.any_member_commits),),
        _GATHERED,
    ),
    Mutant(
        "leave_members_waiting",
        "a JoinGroup waits for ever for a shard that left",
        ((LateAnswers, "refuse_all", bugs.leave_members_waiting),),
        _GATHERED | _MOVING,
    ),
    Mutant(
        "watch_no_member",
        "members that died with the server stay for ever",
        ((GroupShard, "on_loaded", bugs.watch_no_member),),
        _GATHERED | _CRASHING,
    ),
    Mutant("never_unpark", "parked calls are never tried again", ((Parking, "retry", bugs.never_unpark),), _SPLIT),
    Mutant(
        "show_what_is_open",
        "committed readers go beyond the last stable offset",
        ((log_reading, "bound_of", bugs.show_what_is_open),),
    ),
    Mutant("any_sequence", "repeated batches are appended", ((appending, "judge_append", bugs.any_sequence),)),
    Mutant(
        "skip_admission",
        "a partition takes transactional records without asking the coordinator",
        ((appending, "judge_append", bugs.skip_admission),),
    ),
    Mutant(
        "forget_what_ended",
        "a batch with the sequences of an aborted one is acknowledged, and its transaction lacks it",
        ((appending, "refusal_if_open", bugs.forget_what_ended),),
        _IMPATIENT,
    ),
    Mutant(
        "admit_plain_batches",
        "a fenced producer appends outside of all transactions",
        ((appending, "judge_append", bugs.admit_plain_batches),),
    ),
    Mutant(
        "any_marker_closes",
        "a late marker ends the transaction that is open now",
        ((marking, "judge_marker", bugs.any_marker_closes),),
    ),
    Mutant(
        "repeat_the_marker",
        "a marker that comes twice is appended twice",
        ((marking, "judge_marker", bugs.repeat_the_marker),),
    ),
    Mutant(
        "forget_open_producers",
        "a partition forgets a producer whose transaction is open",
        ((LogShard, "_last_uses", bugs.forget_open_producers),),
        _FORGETFUL,
    ),
    Mutant(
        "leave_out_a_boundary",
        "an aborted transaction has no row at the multiples of the stride that it lies across",
        ((index_rows, "aborted_offsets", bugs.leave_out_a_boundary),),
        {"aborted_stride": 2},
    ),
    Mutant(
        "lose_an_outcome_by_merging",
        "of the transactions that are aborted in one commit group only the last one is stored as aborted",
        ((StagedRows, "merge", bugs.lose_an_outcome_by_merging),),
    ),
    Mutant(
        "remember_no_end",
        "a Transact is repeated once a partition has forgotten its producer, and the answer has no offsets",
        ((removing, "remembered_ends", bugs.remember_no_end),),
        _FORGETFUL | _TRANSACTING,
    ),
    Mutant(
        "pass_over_newer_rows",
        "rows that only a newer program knows are passed over, whatever they may fence",
        ((runtime_rows, "pass_over", bugs.look_away), (load_checks, "pass_over", bugs.look_away)),
        _CRASHING,
    ),
    Mutant(
        "check_no_last_rows",
        "a partition that lost the end of its log is served as if it had never been longer",
        ((log_codec, "check_partition", bugs.look_away),),
        _CRASHING,
    ),
    Mutant(
        "forget_the_csn",
        "a late marker is appended again once its producer is forgotten",
        ((removing, "head_after_forgetting", bugs.forget_the_csn),),
        _FORGETFUL,
    ),
    Mutant(
        "move_past_what_is_open",
        "the log start passes the last stable offset",
        ((removing, "move_log_start", bugs.move_past_what_is_open),),
        _DELETING,
    ),
    Mutant(
        "move_past_what_is_held",
        "the log start passes held records",
        ((removing, "move_log_start", bugs.move_past_what_is_held),),
        _DELETING,
    ),
    Mutant(
        "remove_the_index_too_early",
        "rows of aborted transactions go whose records are still read",
        ((log_codec, "ranges_below", bugs.remove_the_index_too_early),),
        _DELETING | {"aborted_stride": 2, "transact_share": 0.7, "version_1_share": 0.0},
    ),
    Mutant(
        "remove_before_it_is_durable",
        "records go before the log start has passed them durably",
        ((LogRemoval, "_remove", bugs.remove_before_it_is_durable),),
        _DELETING | _CRASHING,
    ),
    Mutant(
        "remove_what_holds_the_log_start",
        "the row goes that holds the log start",
        ((log_codec, "ranges_below", bugs.remove_what_holds_the_log_start),),
        _DELETING,
    ),
    Mutant(
        "look_from_where_the_batch_begins",
        "whether a batch was aborted is looked up where nothing is left that tells it",
        ((AbortedIndex, "hides", bugs.look_from_where_the_batch_begins),),
        _DELETING | {"aborted_stride": 2, "transact_share": 0.7},
    ),
    Mutant(
        "notice_no_growth",
        "groups hear of no topic that comes, goes or grows",
        ((CatalogWatch, "_look", bugs.look_away),),
        _GATHERED,
    ),
    Mutant(
        "store_no_growth",
        "the new partitions are durable, and the row of the catalog that names them is not",
        ((CatalogCodec, "encode", bugs.store_no_growth),),
        _GROWING | _CRASHING,
    ),
    Mutant(
        "answer_growth_too_early",
        "new partitions are told before they are durable",
        ((TopicService, "create_partitions", bugs.answer_growth_too_early),),
        _GROWING | _CRASHING,
    ),
    Mutant(
        "put_new_partitions_first",
        "new partitions take the numbers of the old ones",
        ((CatalogShard, "_extended", bugs.put_new_partitions_first),),
        _GROWING,
    ),
    Mutant(
        "grow_without_settings",
        "a topic that grows forgets what was set for it",
        ((CatalogShard, "decide_add_partitions", bugs.grow_without_settings),),
        _GROWING,
    ),
    Mutant(
        "store_no_settings",
        "altered settings hold until the server starts again",
        ((CatalogCodec, "encode", bugs.store_no_settings),),
        _GROWING | _CRASHING,
    ),
    Mutant(
        "leave_out_the_last_row",
        "a stretch does not count the marker that it ends with",
        ((indexing, "stretches_after", bugs.leave_out_the_last_row),),
        _SHORT_STRETCHES,
    ),
)
"""Every bug that the simulation must catch."""
