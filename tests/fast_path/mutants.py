"""Bugs of the fast path on purpose (`bugs`), and what each would do. Each must make it differ from the general path,
and the twins must notice.

They are written as those of the simulation are (`tests/simulation/mutants.py`), and one that is noticed by nothing is a
torn net.
"""

from __future__ import annotations

from coordinator_core import fast_path as fast_path_module
from coordinator_core.fast_path import FastPath, SilentAuthorizer
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_runtime.runtime import Runtime
from coordinator_server.grpc_front.dispatcher import Dispatcher
from coordinator_server.grpc_front.wire.log.servicer import FastProduce
from coordinator_server.grpc_front.wire.transactions.servicer import FastEnd, FastInit
from partition_log.batch_checks import BatchChecks
from tests.fast_path import bugs
from tests.simulation.mutant import Mutant
from txn_coordinator.rules import initialising, transacting
from txn_coordinator.shard import TransactionShard

MUTANTS = (
    Mutant(
        "look_at_no_epoch", "the name of an id is enough to own it", ((FastPath, "transact", bugs.look_at_no_epoch),)
    ),
    Mutant(
        "look_at_no_sequence",
        "a batch that does not follow is appended",
        ((FastPath, "transact", bugs.look_at_no_sequence),),
    ),
    Mutant("look_at_no_checksum", "a damaged batch is appended", ((FastPath, "transact", bugs.look_at_no_checksum),)),
    Mutant(
        "every_payload_is_good",
        "what no reader can decode is appended",
        ((BatchChecks, "take", bugs.every_payload_is_good),),
    ),
    Mutant(
        "take_a_number_all_the_same",
        "a call that is left for the general path has taken a commit sequence number",
        ((FastPath, "transact", bugs.take_a_number_all_the_same),),
    ),
    Mutant(
        "take_those_before_back",
        "a call that is left takes those before it in the message with it",
        ((FastPath, "transact", bugs.take_those_before_back),),
    ),
    Mutant(
        "forget_the_request_id",
        "a repetition is not known for one",
        ((FastPath, "transact", bugs.forget_the_request_id),),
    ),
    Mutant(
        "take_all_for_one_caller",
        "what one caller did is told of another",
        ((FastPath, "_check_common", bugs.take_all_for_one_caller),),
    ),
    Mutant(
        "look_for_no_other_name",
        "a partition that is called by its name and by its id is taken for two",
        ((FastPath, "_target", bugs.look_for_no_other_name),),
    ),
    Mutant(
        "keep_the_stable_offset",
        "committed readers never see what the fast path wrote",
        ((FastPath, "_target", bugs.in_the_draft(record=bugs.keep_the_stable_offset)),),
    ),
    Mutant(
        "answer_before_durable", "an answer goes out before the flush", ((FastPath, "end", bugs.answer_before_durable),)
    ),
    Mutant("overtake", "a Transact goes before another call of its message", ((Dispatcher, "message", bugs.overtake),)),
    Mutant(
        "overtake_what_is_parked",
        "a Transact goes before calls of its id that wait",
        ((FastPath, "_check_common", bugs.overtake_what_is_parked),),
    ),
    Mutant("lose_the_offsets", "the offsets of a group are lost", ((FastPath, "_settle", bugs.lose_the_offsets),)),
    Mutant("tell_nothing", "nothing is counted and logged", ((Runtime, "write_decided", bugs.tell_nothing),)),
    Mutant(
        "give_numbers_again",
        "commit sequence numbers are not stored",
        ((Runtime, "write_decided", bugs.give_numbers_again),),
    ),
    Mutant("allow_all", "who may not write writes", ((fast_path_module, "require", bugs.allow_all),)),
    Mutant(
        "ask_for_no_id",
        "who may write to the topic may use any id",
        ((fast_path_module, "require", bugs.ask_nothing_of(ResourceType.TRANSACTIONAL_ID)),),
    ),
    Mutant(
        "ask_for_no_topic",
        "who may use the id may write to any topic",
        ((fast_path_module, "require", bugs.ask_nothing_of(ResourceType.TOPIC)),),
    ),
    Mutant(
        "ask_not_to_describe",
        "who may not see a topic learns what is in it",
        ((fast_path_module, "require", bugs.ask_not_to(Permission.DESCRIBE)),),
    ),
    Mutant(
        "ask_for_no_group", "offsets of anybody's group are committed", ((FastPath, "_settle", bugs.ask_for_no_group),)
    ),
    Mutant(
        "ask_for_no_topic_of_offsets",
        "offsets of topics are committed that the caller may not read",
        ((FastPath, "_settle", bugs.ask_for_no_topic_of_offsets),),
    ),
    Mutant("remember_who_may", "who lost a right keeps it", ((fast_path_module, "require", bugs.remember_who_may),)),
    Mutant(
        "remember_what_may_be_done",
        "what one caller may do all may do",
        ((fast_path_module, "require", bugs.remember_what_may_be_done),),
    ),
    Mutant("ask_to_read", "who may read may write", ((fast_path_module, "require", bugs.ask_to_read),)),
    Mutant("tell_of_refusals", "a refusal is told twice", ((SilentAuthorizer, "on_refused", bugs.tell_of_refusals),)),
    Mutant(
        "let_anybody_commit",
        "offsets are taken from who is not in the group any more",
        ((FastPath, "_settle", bugs.let_anybody_commit),),
    ),
    Mutant("look_at_no_disk", "records are taken by a full disk", ((FastPath, "_begin", bugs.look_at_no_disk),)),
    Mutant("live_in_the_past", "times are not those of the call", ((FastPath, "_begin", bugs.live_in_the_past),)),
    Mutant(
        "mix_up_offsets",
        "an answer names the offset of another partition",
        ((FastPath, "transact", bugs.mix_up_offsets),),
    ),
    Mutant(
        "forget_who_asks",
        "the history does not say whose call it was",
        ((Runtime, "write_decided", bugs.forget_who_asks),),
    ),
    Mutant(
        "give_one_number_to_all",
        "transactions of a message share a commit sequence number",
        ((FastPath, "transact", bugs.give_one_number_to_all),),
    ),
    Mutant(
        "use_epochs_up",
        "an id goes on beyond its last epoch",
        ((transacting, "commit_in_one_step", bugs.use_epochs_up),),
    ),
    Mutant(
        "open_what_is_open",
        "an open transaction is forgotten",
        ((TransactionShard, "init_at_once", bugs.open_what_is_open),),
    ),
    Mutant(
        "init_whatever_the_timeout",
        "any timeout is stored",
        ((initialising, "check_init_arguments", lambda *_args: None),),
    ),
    Mutant(
        "forget_the_first_request",
        "an InitProducerId that comes again fences its own producer",
        ((TransactionShard, "init_at_once", bugs.change_the_request(request_id=b"")),),
    ),
    Mutant(
        "store_another_version",
        "the client's version is not stored",
        ((TransactionShard, "init_at_once", bugs.change_the_request(client_txn_version=2)),),
    ),
    Mutant(
        "give_the_same_producer_id",
        "two ids of a message have one producer id",
        ((FastPath, "_allocate", bugs.give_the_same_producer_id),),
    ),
    Mutant(
        "count_one_producer_id",
        "producer ids are given and not counted",
        ((Runtime, "write_decided", bugs.count_one_producer_id),),
    ),
    Mutant(
        "forget_what_producer_ids_were_given",
        "ids of two messages have one producer id",
        ((Runtime, "write_decided", bugs.forget_what_producer_ids_were_given),),
    ),
    Mutant(
        "overlook_who_is_expected",
        "who shows an older identity fences the newer one",
        ((FastInit, "take", bugs.overlook("expected_producer_id", "expected_producer_epoch")),),
    ),
    Mutant(
        "overlook_the_other_phase",
        "what awaits an outside decision times out",
        ((FastInit, "take", bugs.overlook("enable_2pc")),),
    ),
    Mutant(
        "take_any_name",
        "an id has a name that is reserved, or none",
        ((fast_path_module, "check_transactional_id", bugs.bring_no_name),),
    ),
    Mutant("arm_no_timer", "an abandoned transaction stays open", ((Runtime, "write_decided", bugs.arm_no_timer),)),
    Mutant(
        "skip_admission",
        "a transaction opened by a batch is never ended",
        ((fast_path_module, "admits_at_once", bugs.skip_admission),),
    ),
    Mutant(
        "append_what_is_there",
        "a batch that comes again is appended",
        ((fast_path_module, "admits_at_once", bugs.append_what_is_there),),
    ),
    Mutant(
        "open_nothing",
        "committed readers see what is undecided",
        ((FastPath, "_target", bugs.in_the_draft(append=bugs.open_nothing)),),
    ),
    Mutant(
        "belong_to_another_shard",
        "a marker of the producer's own coordinator is taken for another's",
        ((FastPath, "_target", bugs.in_the_draft(append=bugs.belong_to_another_shard)),),
    ),
    Mutant(
        "append_as_any_producer",
        "who names an id appends to its transaction",
        ((FastPath, "produce", bugs.append_as_any_producer),),
    ),
    Mutant(
        "overlook_the_version",
        "a partition joins that a client of version 1 has not added",
        ((FastPath, "produce", bugs.as_of_version(2)),),
    ),
    Mutant(
        "take_any_transact",
        "a client of version 1 sends a Transact",
        ((FastPath, "transact", bugs.as_of_version(2)),),
    ),
    Mutant(
        "raise_every_epoch",
        "a client of version 1 is fenced by its own commit",
        ((FastPath, "commit", bugs.as_of_version(2)),),
    ),
    Mutant(
        "raise_no_epoch",
        "a late batch of a client of version 2 gets into its next transaction",
        ((FastPath, "commit", bugs.as_of_version(1)),),
    ),
    Mutant(
        "every_partition_is_there",
        "a client of version 1 writes where it has added nothing",
        ((fast_path_module, "verify", bugs.every_partition_is_there),),
    ),
    Mutant("mix_up_results", "an offset is told of another partition", ((FastPath, "produce", bugs.mix_up_results),)),
    Mutant(
        "answer_although_it_is_lost",
        "what the disk lost is called appended",
        ((FastProduce, "refused", bugs.answer_although_it_is_lost),),
    ),
    Mutant(
        "look_for_no_other_commit",
        "an offset goes back to an older one",
        ((FastPath, "_settle_pending", bugs.look_for_no_other_commit),),
    ),
    Mutant(
        "leave_offsets_pending",
        "a transaction ends without its offsets",
        ((FastPath, "_settle_pending", bugs.leave_offsets_pending),),
    ),
    Mutant(
        "begin_nowhere",
        "a marker does not tell where its transaction begins",
        ((FastPath, "_target", bugs.in_the_draft(end=bugs.begin_nowhere)),),
    ),
    Mutant(
        "end_the_first_one_alone",
        "a partition gets one marker of several",
        ((FastPath, "_target", bugs.in_the_draft(end=bugs.end_the_first_one_alone)),),
    ),
    Mutant("commit_for_anybody", "a zombie commits", ((FastPath, "commit", bugs.commit_for_anybody),)),
    Mutant("commit_whatever_is_asked", "an abort commits", ((FastEnd, "take", bugs.commit_whatever_is_asked),)),
    Mutant(
        "overlook_last_sequences",
        "a commit does not notice that records are missing",
        ((FastEnd, "take", bugs.overlook("last_sequences")),),
    ),
    Mutant(
        "show_the_last_one_to_none",
        "committed readers are shown an open transaction",
        ((FastPath, "_target", bugs.in_the_draft(record=bugs.show_the_last_one_to_none)),),
    ),
    Mutant(
        "there_is_always_room",
        "more waits for the disk than may wait",
        ((Runtime, "bytes_left", bugs.there_is_always_room),),
    ),
    Mutant(
        "take_any_timestamp",
        "records lie further ahead of the clock than their topic takes",
        ((FastPath, "_target", bugs.take_any_timestamp),),
    ),
    Mutant(
        "take_any_size",
        "a batch is larger than its topic takes",
        ((FastPath, "_target", bugs.take_any_size),),
    ),
)
"""Each is a way in which the fast path could differ."""

CANARIES = tuple(
    mutant
    for mutant in MUTANTS
    if mutant.name in ("skip_admission", "give_numbers_again", "lose_the_offsets", "overtake")
)
"""Some that every run of the fast suite must notice."""
