"""Dead letters: each record that a group gives up has exactly one letter, whatever happens (decision 61)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator
from group_coordinator.share_partitions import letter_writer
from group_coordinator.share_partitions.draft import LetterEnd
from group_coordinator.share_partitions.events import LettersDelayed, LettersDropped, RecordsArchived
from group_coordinator.share_partitions.letter_writer import LETTERS_MAX, RETRY_MS
from tests.groups.share_partitions.pictures import picture
from tests.harness.dead_letters import FoundLetter, letters_in
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, code
from tests.harness.share_consumers import ACCEPT, REJECT, RELEASE, alter_shares, share_consumer
from tests.harness.share_partitions import Shares
from txn_coordinator.config import TwoPhase

LOCK_MS = 30_000
NO_LETTER: list[tuple[str, int]] = []


class Office:
    """A group with a dead-letter topic, and one member that works for it."""

    def __init__(self, *lengths: int, topics: dict[str, int] | None = None, **options: Any) -> None:
        self.events: list[Any] = []
        shapes = {"t": 2, "dead": 2} if topics is None else topics
        self.world = group_world(topics=shapes, writes_records=True, on_assembled=self._listen, **options)
        alter_shares(self.world, auto_offset_reset="earliest", delivery_count_limit=2)
        if "dead" in shapes:
            alter_shares(self.world, dead_letter_topic="dead")
        self.member = share_consumer(self.world, "w", "t")
        self.shares.produce(*lengths)

    def _listen(self, core: Any) -> None:
        core.runtime.on_event = lambda event, _turn: self.events.append(event)

    @property
    def shares(self) -> Shares:
        return Shares(self.world, "t-0", GROUP)

    @property
    def picture(self) -> str:
        return picture(self.shares.state)

    @property
    def due(self) -> dict[str, int]:
        """Letters to be written, as an administrator sees them."""
        described = self.world.ask(group_pb2.DescribeShareGroupOffsetsRequest(group_id=GROUP))
        return {f"{each.topic}-{each.partition}": each.due_letters for each in described.offsets}

    def reject(self, first: int, last: int) -> None:
        """The member takes everything, and rejects these. Nothing else happens before the answer."""
        self.member.fetch()
        self.member.acknowledging({"t-0": [(first, last, REJECT)]})

    def letters(self, partition: str = "dead-0") -> list[FoundLetter]:
        return letters_in(self.world, partition)

    @property
    def places(self) -> list[tuple[str, int]]:
        """The records that have letters."""
        return [each.place for number in (0, 1) for each in self.letters(f"dead-{number}")]

    @property
    def ends(self) -> list[tuple[LetterEnd, int]]:
        """What became of the letters, and of how many records."""
        return [
            (each.letter, each.record_count)
            for each in self.events
            if isinstance(each, RecordsArchived) and each.letter is not LetterEnd.NONE
        ]

    @property
    def delays(self) -> list[str]:
        return [each.why for each in self.events if isinstance(each, LettersDelayed)]

    def check(self) -> None:
        self.world.check_replay()
        self.world.check_stored()


def test_a_rejected_record_has_a_letter_with_its_content_and_its_story() -> None:
    office = Office(3)
    office.reject(1, 1)
    office.world.settle()
    (letter,) = office.letters()
    assert (letter.key, letter.value, letter.headers) == (b"v", b"v", {})
    assert letter.about == {
        "topic": "t",
        "partition": "0",
        "offset": "1",
        "group": GROUP,
        "delivery.count": "1",
        "message": "Offset rejected by client.",
    }
    assert office.picture == "0: w1 x1 w1"
    assert office.ends == [(LetterEnd.WRITTEN, 1)]
    office.check()


def test_a_record_at_the_delivery_limit_has_one_when_its_lock_ends_or_it_is_released() -> None:
    office = Office(2)
    for _delivery in range(2):
        assert office.member.fetch() == {"t-0": [0, 1]}
        office.member.acknowledge("t-0", (0, 0, RELEASE))
        office.world.pass_time(LOCK_MS)
        office.member.member.beats()
    assert office.places == [("t-0", 0), ("t-0", 1)]
    assert [each.about["message"] for each in office.letters()] == ["Offset delivery count exceeded the threshold."] * 2
    assert office.picture == "2:"
    office.check()


def test_a_limit_that_is_lowered_gives_up_what_was_delivered_as_often() -> None:
    office = Office(1)
    alter_shares(office.world, delivery_count_limit=3)
    for _delivery in range(2):
        office.member.fetch()
        office.member.acknowledge("t-0", (0, 0, RELEASE))
    alter_shares(office.world, delivery_count_limit=2)
    assert office.member.fetch() == {}
    office.world.settle()
    assert (office.places, office.picture) == ([("t-0", 0)], "1:")


def test_letters_of_a_partition_lie_in_one_partition_in_the_order_of_their_records() -> None:
    office = Office(4)
    other = Shares(office.world, "t-1", GROUP)
    other.produce(2)
    office.member.fetch()
    office.member.fetch()
    office.member.acknowledges({"t-0": [(0, 3, REJECT)], "t-1": [(0, 1, REJECT)]})
    office.world.settle()
    assert [each.place for each in office.letters("dead-0")] == [("t-0", at) for at in range(4)]
    assert [each.place for each in office.letters("dead-1")] == [("t-1", 0), ("t-1", 1)]


@pytest.mark.parametrize("kept", range(4))
@pytest.mark.parametrize("life", [1, 2])
def test_no_crash_loses_a_letter_or_doubles_it(kept: int, life: int) -> None:
    office = Office(3)
    office.reject(0, 1)
    for _life in range(life):
        for _step in range(kept):
            office.world.seal()
            office.world.flush(1)
        office.world.crash(kept_groups=1)
    office.world.settle()
    office.world.pass_time(RETRY_MS)
    rejected = [("t-0", 0), ("t-0", 1)] if office.picture.startswith("2:") else NO_LETTER
    assert office.places == rejected
    office.check()


def test_a_disk_that_fails_under_letters_leaves_the_rest_to_the_next_start() -> None:
    office = Office(topics={"t": 6, "dead": 1})
    partitions = [f"t-{number}" for number in range(6)]
    for partition in partitions:
        Shares(office.world, partition, GROUP).produce(1)
        office.member.fetch()
    rejected = office.member.acknowledging({partition: [(0, 0, REJECT)] for partition in partitions})
    office.world.flush()
    assert rejected.error is None, "more letters are due than are written at once"
    office.world.fail_disk()
    office.world.settle()
    office.world.pass_time(RETRY_MS)
    assert sorted(each.place for each in office.letters()) == [(partition, 0) for partition in partitions]
    office.check()


def test_a_record_waits_for_its_letter_through_restarts() -> None:
    office = Office(2)
    office.world.delete_topic("dead")
    office.reject(0, 0)
    office.world.restart()
    assert office.picture == "0: !1"
    office.world.restart()
    office.world.create_topic("dead", 1)
    office.world.pass_time(RETRY_MS)
    assert ([each.place for each in office.letters()], office.picture) == ([("t-0", 0)], "1:")
    office.check()


def test_letters_wait_for_a_shard_that_is_not_served() -> None:
    office = Office(topics={"t": 4, "dead": 4}, shard_count=3)
    world = office.world
    number = next(each for each in range(4) if world.shard_of(f"t-{each}") != world.shard_of(f"dead-{each}"))
    shares = Shares(world, f"t-{number}", GROUP)
    shares.produce(1)
    office.member.fetch()
    world.unload(f"dead-{number}")
    office.member.acknowledging({shares.partition: [(0, 0, REJECT)]})
    world.settle()
    assert (picture(shares.state), len(office.delays)) == ("0: !1", 1)
    world.load(f"dead-{number}")
    world.settle()
    world.pass_time(RETRY_MS)
    assert [each.place for each in office.letters(f"dead-{number}")] == [(shares.partition, 0)]


def test_letters_wait_for_a_topic_that_was_deleted() -> None:
    office = Office(2)
    office.world.delete_topic("dead")
    office.world.settle()
    office.reject(0, 1)
    office.world.settle()
    assert office.picture == "0: !1 !1"
    office.world.pass_time(3 * RETRY_MS)
    assert office.delays == ["UNKNOWN_TOPIC_OR_PARTITION (3): there is no topic dead"] * 4
    assert office.due == {"t-0": 2, "t-1": 0}
    office.world.create_topic("dead", 1)
    office.world.pass_time(RETRY_MS)
    assert [each.place for each in office.letters()] == [("t-0", 0), ("t-0", 1)]
    assert office.due == {"t-0": 0, "t-1": 0}
    assert office.picture == "2:"


def test_a_group_whose_topic_is_unset_meanwhile_archives_what_waits() -> None:
    office = Office(2)
    office.world.delete_topic("dead")
    office.reject(0, 1)
    office.world.settle()
    office.world.ask(group_pb2.AlterGroupConfigsRequest(group_id=GROUP, unset=["share_dead_letter_topic"]))
    office.world.pass_time(RETRY_MS)
    assert (office.picture, office.ends) == ("2:", [(LetterEnd.NO_TOPIC, 2)])


def test_a_group_without_a_topic_archives_with_an_event() -> None:
    office = Office(2)
    alter_shares(office.world, dead_letter_topic="")
    for _delivery in range(2):
        office.member.fetch()
        office.member.acknowledge("t-0", (0, 0, RELEASE), (1, 1, RELEASE))
    assert (office.places, office.picture, office.ends) == (NO_LETTER, "2:", [(LetterEnd.NO_TOPIC, 1)] * 2)


def test_the_topic_at_the_acquisition_decides_whether_there_is_a_letter() -> None:
    office = Office(1)
    alter_shares(office.world, dead_letter_topic="")
    office.member.fetch()
    alter_shares(office.world, dead_letter_topic="dead")
    office.member.acknowledge("t-0", (0, 0, REJECT))
    office.world.settle()
    assert (office.places, office.picture) == (NO_LETTER, "1:")


def test_no_other_letter_is_begun_once_the_disk_fails_under_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_writer, "_AT_ONCE_MAX", 1)
    office = Office(1)
    Shares(office.world, "t-1", GROUP).produce(1)
    office.member.fetch()
    office.member.acknowledging({"t-0": [(0, 0, REJECT)], "t-1": [(0, 0, REJECT)]})
    office.world.flush()
    assert office.world.undurable_groups, "the first letter is being written"
    office.world.fail_disk()
    office.world.settle()
    office.world.pass_time(RETRY_MS)
    assert office.places == [("t-0", 0), ("t-1", 0)]


def test_a_full_disk_delays_letters() -> None:
    office = Office(1)
    disk = office.world.inside.core.checks.disk
    disk.free_bytes_min = 1_000
    disk.looked(10)
    office.reject(0, 0)
    office.world.settle()
    assert (office.picture, len(office.delays)) == ("0: !1", 1)
    disk.looked(2_000)
    office.world.pass_time(RETRY_MS)
    assert office.places == [("t-0", 0)]


def test_a_record_that_is_too_large_for_the_topic_has_a_letter_without_it() -> None:
    office = Office(topics={"t": 2})
    office.world.create_topic("dead", 2, config={"batch_bytes_max": "1200"})
    alter_shares(office.world, dead_letter_topic="dead")
    identity = office.world.init_plain()
    office.world.settle()
    values = ["x" * 400, "x" * 2_000, "x" * 400]
    office.world.produce(None, identity.result(), "t-0", values, sequence=0)
    office.world.settle()
    office.reject(0, 2)
    office.world.settle()
    assert [len(each.value or b"") for each in office.letters()] == [400, 0, 400]
    assert office.letters()[1].value is None
    assert "does not fit" in office.letters()[1].about["message"]
    assert office.ends == [(LetterEnd.WRITTEN, 1), (LetterEnd.BARE, 1), (LetterEnd.WRITTEN, 1)]


def test_records_that_retention_removes_first_have_no_letter_and_an_event() -> None:
    office = Office(2, 1)
    office.world.delete_topic("dead")
    office.reject(0, 2)
    office.world.settle()
    office.shares.trim(2)
    office.world.pass_time(RETRY_MS)
    assert (office.picture, office.ends) == ("2: !1", [(LetterEnd.REMOVED, 2)])
    office.world.create_topic("dead", 1)
    office.world.pass_time(RETRY_MS)
    assert [each.place for each in office.letters()] == [("t-0", 2)]


def test_a_record_that_no_reader_can_decode_has_a_letter_without_it() -> None:
    office = Office()
    office.world.options = type(office.world.options)(writes_records=False)
    identity = office.world.init_plain()
    office.world.settle()
    office.world.produce(None, identity.result(), "t-0", ["word"], sequence=0)
    office.world.settle()
    office.reject(0, 0)
    office.world.settle()
    (letter,) = office.letters()
    assert (letter.value, office.ends) == (None, [(LetterEnd.BARE, 1)])


def test_records_of_the_dead_letter_topic_have_none() -> None:
    office = Office(1)
    alter_shares(office.world, dead_letter_topic="t")
    office.reject(0, 0)
    office.world.settle()
    assert (office.picture, office.ends) == ("1:", [(LetterEnd.OWN_TOPIC, 1)])


SHARES = Coordinator.SHARE_PARTITIONS


def delete_group(office: Office) -> None:
    office.member.member.leaves()
    office.world.ask(group_pb2.DeleteGroupsRequest(group_ids=[GROUP]))


def delete_topic(office: Office) -> None:
    office.world.delete_topic("t")


@pytest.mark.parametrize("drop", [delete_topic, delete_group])
def test_letters_that_wait_go_with_the_group_and_with_the_topic(drop: Callable[[Office], Any]) -> None:
    office = Office(2)
    office.world.delete_topic("dead")
    office.reject(0, 1)
    office.world.settle()
    drop(office)
    office.world.settle()
    assert [each.letter_count for each in office.events if isinstance(each, LettersDropped)] == [2]
    assert sum(shard.counts().due_letters for shard in office.world.inside.runtime.shards(SHARES)) == 0
    office.world.pass_time(RETRY_MS)
    office.check()


def test_an_offset_is_not_altered_while_letters_wait() -> None:
    office = Office(2)
    office.world.delete_topic("dead")
    office.reject(0, 1)
    office.member.member.leaves()
    office.world.settle()
    wanted = group_pb2.ShareStartOffset(topic="t", partition=0, start_offset=0)
    response = office.world.ask(group_pb2.AlterShareGroupOffsetsRequest(group_id=GROUP, offsets=[wanted]))
    assert code(response.results[0]) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_the_end_of_a_transaction_gives_records_up(two_phase: TwoPhase) -> None:
    office = Office(2, two_phase=two_phase)
    for outcome in (Outcome.ABORT, Outcome.ABORT):
        acknowledge_in_transaction(office, (0, 0, (ACCEPT,)), outcome=outcome)
    assert (office.places, office.picture) == ([("t-0", 0)], "1: w1")
    acknowledge_in_transaction(office, (1, 1, (REJECT,)), outcome=Outcome.COMMIT)
    assert (office.places, office.picture) == ([("t-0", 0), ("t-0", 1)], "2:")
    assert [each.about["delivery.count"] for each in office.letters()] == ["2", "1"]
    office.check()


def test_a_transaction_that_ends_after_a_restart_gives_up_with_letters() -> None:
    office = Office(1)
    office.member.fetch()
    begun = office.world.init("worker-1")
    office.world.settle()
    acknowledge = office.shares.acknowledging_in_transaction
    acknowledge("worker-1", begun.result(), office.member.member, (0, 0, (REJECT,)))
    office.world.restart()
    office.world.end("worker-1", begun.result(), Outcome.COMMIT)
    office.world.settle()
    assert (office.places, office.picture) == ([("t-0", 0)], "1:")


def acknowledge_in_transaction(office: Office, wanted: tuple[int, int, Sequence[int]], *, outcome: Outcome) -> None:
    """The member takes what there is, and acknowledges this in a transaction that ends so."""
    office.member.fetch()
    begun = office.world.init("worker-1")
    office.world.settle()
    office.shares.acknowledging_in_transaction("worker-1", begun.result(), office.member.member, wanted)
    office.world.end("worker-1", begun.result(), outcome)
    office.world.settle()


def test_more_letters_than_one_step_writes() -> None:
    office = Office(*[300] * 4)
    office.member.fetch(max_records=2_000)
    office.member.acknowledge("t-0", (0, 1_199, REJECT))
    office.world.settle()
    assert LETTERS_MAX < 1_200
    assert office.places == [("t-0", at) for at in range(1_200)]
    assert office.ends == [(LetterEnd.WRITTEN, 500), (LetterEnd.WRITTEN, 500), (LetterEnd.WRITTEN, 200)]


def test_letters_of_more_bytes_than_one_read_have_their_content() -> None:
    office = Office()
    identity = office.world.init_plain()
    office.world.settle()
    for at, letter in enumerate("abcd"):
        office.world.produce(None, identity.result(), "t-0", [letter * 300_000], sequence=at)
    office.world.settle()
    assert office.member.fetch(max_bytes=4 << 20) == {"t-0": [0, 1, 2, 3]}
    office.member.acknowledge("t-0", (0, 3, REJECT))
    office.world.settle()
    assert [(each.value or b"")[:1] for each in office.letters()] == [b"a", b"b", b"c", b"d"]
    assert {end for end, _count in office.ends} == {LetterEnd.WRITTEN}


def test_accepted_records_between_rejected_ones_have_none() -> None:
    office = Office(5)
    office.member.fetch()
    office.member.acknowledge("t-0", (0, 4, (REJECT, ACCEPT, REJECT, ACCEPT, REJECT)))
    office.world.settle()
    assert office.places == [("t-0", at) for at in (0, 2, 4)]
