"""The version of a client is that of each call. So a client may go from version 1 to 2, or back, with an open id and
within a transaction: each transaction is committed or aborted as a whole, and a late call of an older epoch is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

ID = "billing-0"
PARTITIONS = ("orders-0", "orders-1")
AS = {version: CallContext(client_txn_version=version) for version in (1, 2)}

AnswerT = TypeVar("AnswerT")

VERSIONS = st.sampled_from((1, 2))


@dataclass(frozen=True, slots=True)
class Script:
    """One transaction, and the version of each of its calls."""

    adds: int | None
    """None: nothing is added by a call of its own."""
    produces: tuple[int, ...]
    """One version for each partition, in order."""
    ends: int
    outcome: Outcome
    repeats_the_end: bool


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    produces = draw(st.lists(VERSIONS, min_size=1, max_size=len(PARTITIONS)).map(tuple))
    return Script(
        # Without an addition, only a Produce of version 2 adds the partition.
        adds=draw(VERSIONS if 1 in produces else st.none() | VERSIONS),
        produces=produces,
        ends=draw(VERSIONS),
        outcome=draw(st.sampled_from(Outcome)),
        repeats_the_end=draw(st.booleans()),
    )


class Changing:
    """A client whose version changes, and what readers must see of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._identity = self.answer(world.init(ID, AS[1]))
        self._sequences = dict.fromkeys(PARTITIONS, 0)
        self._values = 0
        self.committed: dict[str, list[str]] = {partition: [] for partition in PARTITIONS}
        self.earlier: list[Identity] = []
        """Identities that an end of version 2 has replaced."""

    def answer(self, reply: Pending[AnswerT]) -> AnswerT:
        """Once everything is durable. Raises Refused."""
        self._world.settle()
        return reply.result()

    def live(self, script: Script) -> None:
        partitions = PARTITIONS[: len(script.produces)]
        if script.adds is not None:
            self.answer(self._world.add(ID, self._identity, partitions, AS[script.adds]))
        written = [self._produce(*each) for each in zip(partitions, script.produces, strict=True)]
        if script.outcome is Outcome.COMMIT:
            for partition, value in zip(partitions, written, strict=True):
                self.committed[partition].append(value)
        self._end(script)

    def _produce(self, partition: str, version: int) -> str:
        self._values += 1
        value = f"v{self._values}"
        sequence = self._sequences[partition]
        result = self.answer(
            self._world.produce(ID, self._identity, partition, [value], sequence=sequence, context=AS[version])
        )
        assert result.error is None
        self._sequences[partition] += 1
        return value

    def _end(self, script: Script) -> None:
        shown, world = self._identity, self._world
        ends = [self.answer(world.end(ID, shown, script.outcome, AS[script.ends]))]
        if script.repeats_the_end:
            ends.append(self.answer(world.end(ID, shown, script.outcome, AS[script.ends])))
        assert len(set(ends)) == 1, "a repetition has the same answer"
        self._identity = ends[0].next_identity
        assert (self._identity != shown) is (script.ends == 2), "an end of version 2 alone gives another identity"
        if self._identity != shown:
            self.earlier.append(shown)
            self._sequences = dict.fromkeys(PARTITIONS, 0)


def lived_through(options: WorldOptions, history: list[Script]) -> tuple[World, Changing]:
    world = World(options)
    world.create_topic("orders", len(PARTITIONS))
    client = Changing(world)
    for script in history:
        client.live(script)
    world.settle()
    return world, client


OPTIONS = st.builds(
    WorldOptions,
    lane=st.booleans(),
    two_phase=st.sampled_from(TwoPhase),
    producer_epoch_max=st.sampled_from((3, 2**15 - 1)),
)


@given(OPTIONS, st.lists(scripts(), min_size=1, max_size=8))
def test_each_transaction_is_whole_whatever_the_versions_of_its_calls(
    options: WorldOptions, history: list[Script]
) -> None:
    world, client = lived_through(options, history)
    for partition in PARTITIONS:
        reading = world.read(partition)
        assert reading.values == client.committed[partition]
        assert reading.last_stable_offset == reading.high_watermark, "nothing stays open"
    for late in client.earlier:
        for version in (1, 2):
            with pytest.raises(CoordinatorError) as refused:
                client.answer(world.add(ID, late, PARTITIONS, AS[version]))
            assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    world.check_replay()
    world.check_stored()
