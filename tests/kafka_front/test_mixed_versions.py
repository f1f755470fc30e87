"""A client may go from one version of transactions to the other at any call (KIP-890), and loses nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode
from tests.harness.kafka_producer import KafkaProducer
from tests.harness.world import World

OK = ErrorCode.NONE
PARTITIONS = ("t-0", "t-1")

Step = tuple[str, int, str, bool]
"""What is done, the version of transactions, a partition, and whether an end commits."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "add", "offset", "end", "end", "initialise"]),
        st.sampled_from([1, 2]),
        st.sampled_from(PARTITIONS),
        st.booleans(),
    ),
    max_size=25,
)


class Story:
    """One producer, and what readers must see of it."""

    def __init__(self) -> None:
        self.world = World()
        self.world.create_topic("t", len(PARTITIONS))
        self.producer = KafkaProducer(self.world)
        self.committed: dict[str, list[str]] = {each: [] for each in PARTITIONS}
        self.offset = -1
        self._number = 0
        self._initialise()

    def _initialise(self) -> None:
        assert self.producer.initialises() is OK
        self._sequences: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._members: set[str] = set()
        self._pending: defaultdict[str, list[str]] = defaultdict(list)
        self._pending_offset: int | None = None

    def take(self, what: str, version: int, partition: str, is_committed: bool) -> None:
        self._number += 1
        if what == "initialise":
            self._initialise()
        elif what == "add":
            self._add(partition)
        elif what == "write":
            self._write(partition, version)
        elif what == "offset":
            self._commit_offset(version)
        elif self._members:
            self._end(version, is_committed)

    def _add(self, partition: str) -> None:
        assert self.producer.adds(partition) == {partition: OK}
        self._members.add(partition)

    def _write(self, partition: str, version: int) -> None:
        if version == 1 and partition not in self._members:
            self._add(partition)
        value = str(self._number)
        self.producer.writes(partition, value, sequence=self._sequences[partition], txn_version=version)
        self._sequences[partition] += 1
        self._members.add(partition)
        self._pending[partition].append(value)

    def _commit_offset(self, version: int) -> None:
        if version == 1:
            assert self.producer.adds_group() is OK
        assert self.producer.commits_offset("t-0", self._number, 3 if version == 1 else 5) is OK
        self._members.add("group")
        self._pending_offset = self._number

    def _end(self, version: int, is_committed: bool) -> None:
        held = self.producer.identity
        assert self.producer.ends(3 if version == 1 else 5, committed=is_committed) is OK
        if version == 2:
            assert self.producer.identity.producer_epoch == held.producer_epoch + 1
            self._sequences.clear()
        else:
            assert self.producer.identity == held
        if is_committed:
            for partition, values in self._pending.items():
                self.committed[partition] += values
            if self._pending_offset is not None:
                self.offset = self._pending_offset
        self._begin()

    def check(self) -> None:
        assert {each: list(self.world.read(each).values) for each in PARTITIONS} == self.committed
        assert self.world.offsets.fetches("t-0") == {"t-0": self.offset}
        self.world.check_replay()


@given(steps=STEPS)
def test_versions_may_be_mixed(steps: Sequence[Step]) -> None:
    story = Story()
    for step in steps:
        story.take(*step)
    # What is open is aborted.
    story.take("initialise", 1, "t-0", False)
    story.check()
