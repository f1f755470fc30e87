"""The white-box checks of a store: silent on everything that the server writes, loud on every single damaged row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.own_rows import FEATURES_KEY, WRITER_KEY
from coordinator_runtime.ports import EndIdentity
from coordinator_runtime.rocks import open_store
from coordinator_runtime.running_version import running_version
from coordinator_runtime.store import CommitGroup, Family, Mutation
from partition_log import codec, forgotten_rows, index_rows
from partition_log.state import EMPTY_HEAD, ForgottenProducers, IndexEntry, RememberedEnd
from tests.cli.damaged_store import HEAD, LOG, ORDERS, Damaged, encoded, late_batch, marker_batch, play, violations
from tests.cli.terminal import Terminal
from tests.harness.rocks_shelf import RocksShelf
from tests.harness.script import Script
from tests.harness.transcript import read_transcript
from tests.harness.world import World
from txn_coordinator.codec import CSN_TYPE
from txn_coordinator.state import TransactionState
from txnctl.stopped import stored
from txnctl.stopped.store_verify import Check

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_whatever_happens_the_store_keeps_its_promises(path: Path) -> None:
    transcript = read_transcript(path.read_text())
    for mode in transcript.modes:
        world = World(transcript.options(mode))
        script = Script(world)
        for block in transcript.blocks:
            for command in block.commands:
                script.run(command)
            assert violations(world.shelf.store) == {}, (mode, block.commands)


def forget_a_marker(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 4), None)


def write_a_marker_twice(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 5), marker_batch(5, 2, Outcome.ABORT, txn_epoch=1))


def turn_a_commit_into_an_abort(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 2), marker_batch(2, 1, Outcome.ABORT))


def write_an_undecided_marker(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 5), marker_batch(5, 77, Outcome.COMMIT, txn_epoch=2))


def write_a_marker_where_it_does_not_belong(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(1, 3), marker_batch(3, 2, Outcome.ABORT, txn_epoch=1))


def write_a_late_batch(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 5), late_batch(5, 0))


def lose_a_batch(damaged: Damaged) -> None:
    damaged.put(LOG, codec.log_key(0, 1), None)


def flip_a_bit(damaged: Damaged) -> None:
    damaged.spoil(LOG, codec.log_key(0, 1), lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]))


def flip_a_bit_behind_what_was_trimmed(damaged: Damaged) -> None:
    flip_a_bit(damaged)
    head = stored.heads(damaged.store)[0]
    damaged.put(HEAD, codec.head_key(0), codec.encode_head(replace(head, log_start_offset=2)))


def trim(damaged: Damaged, ordinal: int, log_start_offset: int) -> None:
    head = stored.heads(damaged.store)[ordinal]
    damaged.put(HEAD, codec.head_key(ordinal), codec.encode_head(replace(head, log_start_offset=log_start_offset)))


def lose_the_row_that_holds_the_log_start(damaged: Damaged) -> None:
    trim(damaged, 0, 3)
    damaged.put(LOG, codec.log_key(0, 3), None)


def lose_an_outcome_of_what_is_left(damaged: Damaged) -> None:
    trim(damaged, 0, 3)
    damaged.put(Family.ABORTED, index_rows.aborted_key(0, 4, 0), None)


def lose_the_end_of_what_is_left(damaged: Damaged) -> None:
    trim(damaged, 0, 3)
    damaged.put(LOG, codec.log_key(0, 4), None)


def begin_behind_what_is_open(damaged: Damaged) -> None:
    trim(damaged, 1, 3)


def cut_a_batch(damaged: Damaged) -> None:
    damaged.spoil(LOG, codec.log_key(0, 1), lambda batch: batch[:66])


def put_a_batch_under_another_key(damaged: Damaged) -> None:
    batch = damaged.store.get(LOG, codec.log_key(1, 2))
    damaged.put(LOG, codec.log_key(1, 2), None)
    damaged.put(LOG, codec.log_key(1, 3), batch)


def move_the_stable_offset(damaged: Damaged) -> None:
    head = stored.heads(damaged.store)[1]
    damaged.put(HEAD, codec.head_key(1), codec.encode_head(replace(head, last_stable_offset=3)))


def forget_an_open_transaction(damaged: Damaged) -> None:
    head = stored.heads(damaged.store)[1]
    damaged.put(HEAD, codec.head_key(1), codec.encode_head(replace(head, open_transactions=0)))


def forget_an_abort(damaged: Damaged) -> None:
    head = stored.heads(damaged.store)[0]
    damaged.put(HEAD, codec.head_key(0), codec.encode_head(replace(head, last_abort_offset=-1)))


def miscount(damaged: Damaged, **changes: int) -> None:
    head = stored.heads(damaged.store)[0]
    wrong = replace(head, totals=replace(head.totals, **changes))
    damaged.put(HEAD, codec.head_key(0), codec.encode_head(wrong))


def miscount_the_markers(damaged: Damaged) -> None:
    miscount(damaged, marker_count=9)


def miscount_the_bytes(damaged: Damaged) -> None:
    miscount(damaged, size_bytes=1)


def miscount_the_aborted_transactions(damaged: Damaged) -> None:
    miscount(damaged, abort_count=0)


def put_stretch(damaged: Damaged, stretch: IndexEntry) -> None:
    damaged.put(Family.STRETCHES, index_rows.stretch_key(0, stretch.last_offset), index_rows.encode_stretch(stretch))


def only_stretch(damaged: Damaged) -> IndexEntry:
    (stretch,) = stored.stretches(damaged.store, 0)
    return stretch


def miscount_a_stretch(damaged: Damaged) -> None:
    stretch = only_stretch(damaged)
    put_stretch(damaged, replace(stretch, totals=replace(stretch.totals, record_count=4)))


def end_a_stretch_within_a_batch(damaged: Damaged) -> None:
    put_stretch(damaged, replace(only_stretch(damaged), last_offset=0))


def begin_a_stretch_too_late(damaged: Damaged) -> None:
    put_stretch(damaged, replace(only_stretch(damaged), first_offset=1))


def lose_a_stretch(damaged: Damaged) -> None:
    damaged.put(Family.STRETCHES, index_rows.stretch_key(0, only_stretch(damaged).last_offset), None)


def miscount_a_stretch_of_what_was_trimmed(damaged: Damaged) -> None:
    miscount_a_stretch(damaged)
    head = stored.heads(damaged.store)[0]
    damaged.put(HEAD, codec.head_key(0), codec.encode_head(replace(head, log_start_offset=2)))


def lose_a_producer(damaged: Damaged) -> None:
    damaged.put(Family.PRODUCERS, codec.producer_key(0, 0), None)


def forget(damaged: Damaged, forgotten: ForgottenProducers) -> None:
    head = stored.heads(damaged.store)[0]
    damaged.put(HEAD, codec.head_key(0), codec.encode_head(replace(head, forgotten=forgotten)))
    for shard, csn in forgotten.csns:
        damaged.put(HEAD, forgotten_rows.forgotten_key(0, shard), forgotten_rows.encode_forgotten(csn))


def lose_a_producer_that_wrote_after_others_were_forgotten(damaged: Damaged) -> None:
    forget(damaged, ForgottenProducers(end_offset=4, csns=((ORDERS, 2),)))
    lose_a_producer(damaged)


def forget_a_producer_and_not_its_marker(damaged: Damaged) -> None:
    forget(damaged, ForgottenProducers(end_offset=5, csns=((ORDERS, 1),)))
    lose_a_producer(damaged)


def forget_a_marker_that_never_was(damaged: Damaged) -> None:
    forget(damaged, ForgottenProducers(end_offset=5, csns=((ORDERS, 77),)))


def lose_what_is_left_of_a_producer(damaged: Damaged) -> None:
    entry = stored.producers(damaged.store, 0)[0]
    forget(damaged, ForgottenProducers(end_offset=5, csns=((ORDERS, 2),)))
    damaged.put(Family.PRODUCERS, codec.producer_key(0, 0), codec.encode_producer(replace(entry, last_marker=None)))


def invent_a_producer(damaged: Damaged) -> None:
    entry = damaged.store.get(Family.PRODUCERS, codec.producer_key(0, 0))
    damaged.put(Family.PRODUCERS, codec.producer_key(0, 99), entry)


def lower_the_epoch_of_a_producer(damaged: Damaged) -> None:
    entry = stored.producers(damaged.store, 0)[0]
    damaged.put(Family.PRODUCERS, codec.producer_key(0, 0), codec.encode_producer(replace(entry, epoch=0)))


def forget_an_outcome(damaged: Damaged) -> None:
    damaged.put(Family.ABORTED, index_rows.aborted_key(0, 4, 0), None)


def invent_an_outcome(damaged: Damaged) -> None:
    row = damaged.store.get(Family.ABORTED, index_rows.aborted_key(0, 4, 0))
    damaged.put(Family.ABORTED, index_rows.aborted_key(1, 4, 0), row)


def put_an_outcome_in_a_wrong_row(damaged: Damaged) -> None:
    row = damaged.store.get(Family.ABORTED, index_rows.aborted_key(0, 4, 0))
    damaged.put(Family.ABORTED, index_rows.aborted_key(0, 4, 0), None)
    damaged.put(Family.ABORTED, index_rows.aborted_key(0, 3, 0), row)


def remember_an_end_that_never_was(damaged: Damaged) -> None:
    identity = EndIdentity(coordinator_shard=ORDERS, csn=77, producer_id=0)
    end = RememberedEnd(identity, first_offset=0)
    damaged.put(Family.PRODUCERS, forgotten_rows.remembered_key(0, identity), forgotten_rows.encode_remembered(end))


def forget_an_end_with_its_producer(damaged: Damaged) -> None:
    forget(damaged, ForgottenProducers(end_offset=5, csns=((ORDERS, 2),)))
    lose_a_producer(damaged)


def forget_the_owner_of_an_open_transaction(damaged: Damaged) -> None:
    key, _ = damaged.transaction("open")
    damaged.put(Family.COORDINATOR_STATE, key, None)


def end_a_transaction_without_its_marker(damaged: Damaged) -> None:
    key, transaction = damaged.transaction("open")
    ended = replace(transaction, state=TransactionState.COMPLETE_ABORT)
    damaged.put(Family.COORDINATOR_STATE, key, encoded(ended))


def raise_the_epoch_over_an_open_transaction(damaged: Damaged) -> None:
    key, transaction = damaged.transaction("open")
    damaged.put(Family.COORDINATOR_STATE, key, encoded(replace(transaction, producer_epoch=9)))


def leave_a_partition_out_of_its_transaction(damaged: Damaged) -> None:
    key, transaction = damaged.transaction("open")
    damaged.put(Family.COORDINATOR_STATE, key, encoded(replace(transaction, partitions=frozenset())))


def turn_the_csn_back(damaged: Damaged) -> None:
    (key,) = (
        stored.state_key(row.shard, row.record_type, row.key)
        for row in stored.state_rows(damaged.store, Coordinator.COUNTERS)
        if row.record_type == CSN_TYPE
    )
    damaged.put(Family.COORDINATOR_STATE, key, None)


def lose_the_positions_of_a_partition(damaged: Damaged) -> None:
    damaged.put(HEAD, codec.head_key(0), None)


def invent_a_partition(damaged: Damaged) -> None:
    damaged.put(HEAD, codec.head_key(7), codec.encode_head(EMPTY_HEAD))


def write_with_a_newer_program(damaged: Damaged) -> None:
    damaged.spoil(Family.PRODUCERS, codec.producer_key(0, 0), lambda entry: b"\x09" + entry[1:])


def add_a_state_of_a_newer_program(damaged: Damaged) -> None:
    damaged.put(Family.COORDINATOR_STATE, bytes([Coordinator.TRANSACTIONS, 0, 0, 0x7F]) + b"id", b"fenced")


def add_a_kind_of_a_newer_program(damaged: Damaged) -> None:
    damaged.put(Family.PARTITIONS, codec.partition_key(0) + b"\x7f", b"fenced")


def cut_a_state(damaged: Damaged) -> None:
    key, _ = damaged.transaction("orders")
    damaged.spoil(Family.COORDINATOR_STATE, key, lambda value: value[:-1])


DAMAGES = [
    (forget_a_marker, "outcomes", "t-0 has no marker of abort 2 of 'orders' (producer 0, epoch 1), which is complete"),
    (write_a_marker_twice, "outcomes", "t-0 has 2 markers of abort 2 of 'orders' (producer 0, epoch 1), at 4, 5"),
    (write_a_marker_twice, "placement", "the marker at offset 5 (producer 0, epoch 1, csn 2) follows csn 2"),
    (turn_a_commit_into_an_abort, "outcomes", "t-0: the marker at offset 2 says abort of producer 0, epoch 0, and not"),
    (turn_a_commit_into_an_abort, "index", "is in the log and has no row at offset 2"),
    (write_an_undecided_marker, "outcomes", "producer 0, has markers in t-0 and was never decided"),
    (write_a_marker_where_it_does_not_belong, "outcomes", "t-1 has a marker of abort 2 of 'orders'"),
    (write_a_late_batch, "placement", "t-0: the batch at offset 5 (producer 0, epoch 0) lies behind epoch 2"),
    (write_a_late_batch, "positions", "t-0: end 5, last stable 5, 0 open"),
    (lose_a_batch, "batches", "t-0: the batch at offset 2 does not follow, 0 is next"),
    (flip_a_bit, "batches", "t-0: at offset 0: not a stored batch: the checksum says"),
    (flip_a_bit_behind_what_was_trimmed, "batches", "t-0: at offset 0: not a stored batch: the checksum says"),
    (lose_the_row_that_holds_the_log_start, "batches", "t-0: the batch at offset 4 does not follow 3"),
    (lose_an_outcome_of_what_is_left, "index", "is in the log and has no row at offset 4"),
    (lose_the_end_of_what_is_left, "batches", "t-0: what is left ends at 4, and the log at 5"),
    (begin_behind_what_is_open, "positions", "t-1: begins at 3, which is not stable"),
    (cut_a_batch, "batches", "and is cut off after 66"),
    (put_a_batch_under_another_key, "batches", "t-1: the batch that ends at 2 lies under the key 3"),
    (move_the_stable_offset, "positions", "t-1: end 3, last stable 3, 1 open"),
    (
        forget_an_open_transaction,
        "positions",
        "t-1: end 3, last stable 2, 0 open, newest abort at -1, ",
    ),
    (forget_an_abort, "positions", "newest abort at -1, "),
    (miscount_the_markers, "positions", "9 markers and 1 aborted transactions"),
    (miscount_the_bytes, "positions", ", 1 bytes, 3 records, 2 markers"),
    (miscount_the_aborted_transactions, "positions", "2 markers and 0 aborted transactions"),
    (miscount_a_stretch, "stretches", "t-0: the stretch from offset 0 to 4 says"),
    (miscount_a_stretch_of_what_was_trimmed, "stretches", "and not what lies between them in the log"),
    (
        end_a_stretch_within_a_batch,
        "stretches",
        "the stretch from offset 0 to 0 ends where no row of the log does",
    ),
    (end_a_stretch_within_a_batch, "stretches", "t-0: the stretch from offset 0 to 4 does not follow, 1 is next"),
    (begin_a_stretch_too_late, "stretches", "t-0: the stretch from offset 1 to 4 does not follow, 0 is next"),
    (lose_a_stretch, "positions", "the last stretch IndexProgress(first_offset=5"),
    (lose_a_producer, "producers", "t-0: producer 0 wrote here and is not stored"),
    (
        lose_a_producer_that_wrote_after_others_were_forgotten,
        "producers",
        "t-0: producer 0 wrote here and is not stored",
    ),
    (forget_a_producer_and_not_its_marker, "producers", "t-0: producer 0 wrote here and is not stored"),
    (
        forget_a_marker_that_never_was,
        "positions",
        "t-0: producers were forgotten at offset 5, with markers up to csn 77",
    ),
    (lose_what_is_left_of_a_producer, "producers", "t-0: producer 0 is stored as ProducerEntry(epoch=2"),
    (invent_a_producer, "producers", "t-0: producer 99 is stored and never wrote here"),
    (lower_the_epoch_of_a_producer, "producers", "t-0: producer 0 is stored as ProducerEntry(epoch=0"),
    (forget_an_outcome, "index", "is in the log and has no row at offset 4"),
    (invent_an_outcome, "index", "has a row at offset 4 and is not in the log"),
    (put_an_outcome_in_a_wrong_row, "index", "is in the log and has no row at offset 4"),
    (remember_an_end_that_never_was, "producers", "producer 0, is remembered from offset 0, the log says None"),
    (forget_an_end_with_its_producer, "producers", "producer 0, is not remembered, and its producer is forgotten"),
    (forget_the_owner_of_an_open_transaction, "hanging", "belongs to no transactional id"),
    (end_a_transaction_without_its_marker, "hanging", "is open, but 'open' is CompleteAbort"),
    (raise_the_epoch_over_an_open_transaction, "hanging", "is open, but 'open' is at epoch 9"),
    (leave_a_partition_out_of_its_transaction, "hanging", "is open, but 'open' does not list the partition"),
    (turn_the_csn_back, "outcomes", "csn 2 was used, the counter stands at 0"),
    (lose_the_positions_of_a_partition, "catalog", "t-0 (ordinal 0) has no row of positions"),
    (invent_a_partition, "catalog", "the partition with ordinal 7 belongs to no topic"),
    (add_a_state_of_a_newer_program, "known", "COORDINATOR_STATE has a row 0300007f6964 of a kind that only a newer"),
    (
        add_a_kind_of_a_newer_program,
        "known",
        "PARTITIONS has a row 000000007f of a kind that only a newer",
    ),
    (write_with_a_newer_program, "batches", "t-0: a row cannot be read: UnknownRow"),
    (cut_a_state, "hanging", "a row cannot be read"),
]


@pytest.mark.parametrize(("damage", "check", "said"), DAMAGES, ids=lambda item: getattr(item, "__name__", None))
def test_every_damage_is_named(damage: Callable[[Damaged], None], check: str, said: str) -> None:
    damaged = Damaged()
    damage(damaged)
    found = violations(damaged.store)
    assert any(said in violation for violation in found.get(check, [])), found


def test_rows_of_a_newer_program_that_can_be_done_without_are_no_violation() -> None:
    damaged = Damaged()
    damaged.put(Family.META, b"a note", b"newer")
    damaged.put(Family.COORDINATOR_STATE, bytes([Coordinator.TRANSACTIONS, 0, 0, 0x80]) + b"id", b"newer")
    for family in (Family.PARTITIONS, Family.PRODUCERS):
        damaged.put(family, codec.partition_key(0) + b"\xff\x01", b"newer")
    assert violations(damaged.store) == {}


def test_many_violations_are_counted_and_some_are_kept() -> None:
    check = Check("a", "b", "c")
    for number in range(1_500):
        check.violated(str(number))
    assert (check.violation_count, len(check.violations)) == (1_500, 1_000)


# The command


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a server that stopped after the story."""
    shelf = RocksShelf(tmp_path / "data")
    play(World(shelf=shelf))
    shelf.close()
    return tmp_path / "data"


def test_a_sound_store_is_said_to_be_one(txnctl: Terminal, data_dir: Path) -> None:
    ended = txnctl("store", "verify", str(data_dir)).well()
    assert "every promise holds" in ended.stderr
    examined = {line.split()[0]: line for line in ended.lines[2:]}
    names = (
        "durable known catalog batches placement positions stretches producers index history outcomes shares hanging"
    )
    assert list(examined) == names.split()
    report = txnctl("store", "verify", str(data_dir), "-o", "json").well().document
    assert report["violations"] == 0
    assert report["store"]["store_id"] in ended.stderr
    counts = {check["check"]: check["examined"] for check in report["checks"]}
    assert counts["batches"] == 7
    assert counts["placement"] == 4
    assert counts["outcomes"] == 2
    assert counts["hanging"] == 1


def test_the_store_tells_who_wrote_it_and_what_it_demands(txnctl: Terminal, data_dir: Path) -> None:
    facts = txnctl("store", "inspect", str(data_dir), "-o", "json").well().document
    assert len(facts.pop("store_id")) == 22
    assert facts.pop("group_version") > 0
    assert facts.pop("incarnation") == {"number": 0, "cause": "created"}
    assert facts == {"format_version": 3, "writer": running_version(), "features": [], "shard_count": 2, "loss": None}
    told = txnctl("store", "inspect", str(data_dir)).well().lines
    assert told[2].split() == ["WRITER", running_version()]


def test_a_store_of_a_newer_program_is_refused_with_its_version(txnctl: Terminal, data_dir: Path) -> None:
    store = open_store(data_dir, shard_count=2)
    rows: list[Mutation] = [(Family.META, WRITER_KEY, b"9.1"), (Family.META, FEATURES_KEY, b"tiers")]
    store.write([CommitGroup(store.version() + 1, rows)])
    store.close()
    for words in ("inspect", "verify"):
        txnctl("store", words, str(data_dir)).refused(3, "the feature 'tiers'", "the version that wrote it (9.1)")


def test_a_broken_promise_is_named_and_is_a_problem(txnctl: Terminal, data_dir: Path) -> None:
    store = open_store(data_dir, shard_count=2)
    store.write([CommitGroup(store.version() + 1, [(LOG, codec.log_key(0, 4), None)])])
    store.close()
    ended = txnctl("store", "verify", str(data_dir))
    assert ended.status == 1
    assert "txnctl: outcomes: t-0 has no marker of abort 2 of 'orders'" in ended.stderr
    report = txnctl("store", "verify", str(data_dir), "-o", "json")
    assert report.status == 1
    assert report.document["violations"] > 0


def test_a_missing_durable_mark_is_named_and_the_rest_is_checked(txnctl: Terminal, data_dir: Path) -> None:
    (data_dir / "durable_mark").unlink()
    ended = txnctl("store", "verify", str(data_dir))
    assert ended.status == 1
    assert "txnctl: durable: the durable mark" in ended.stderr
    assert "outcomes" in ended.stdout


def test_to_verify_changes_nothing(txnctl: Terminal, data_dir: Path) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in data_dir.rglob("*.sst")} | {
            path.name: path.read_bytes() for path in data_dir.rglob("*.log")
        }

    before = files()
    txnctl("store", "verify", str(data_dir)).well()
    assert files() == before


def test_one_flipped_bit_is_one_violation() -> None:
    damaged = Damaged()
    flip_a_bit(damaged)
    assert {name: len(found) for name, found in violations(damaged.store).items()} == {"batches": 1}
