"""Hypothesis makes stories up in the language of the scenarios; a list scan of the logs says what readers must see.

A failing story is printed line by line: paste it into tests/scenarios to keep it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partition_log.state import Isolation
from tests.harness.inside import WorldOptions
from tests.harness.script import Script
from tests.harness.world import LogEntry, World
from txn_coordinator.config import TwoPhase

PRODUCERS = st.sampled_from(("p1", "p2", "p3"))
IDS = {"p1": "orders", "p2": "orders", "p3": "refunds"}
PARTITIONS = st.sampled_from(("t-0", "t-1"))
HOLD = st.sampled_from(("", "", " hold"))
OLD = st.sampled_from(("", "", "", " as=0/0", " as=0/1", " as=1/0", " as=2/0"))


class Story(RuleBasedStateMachine):
    """p1 and p2 are rivals, p3 has another id; epochs run out at 3."""

    def __init__(self) -> None:
        super().__init__()
        self.values = 0
        self.bounds = {"t-0": (0, 0), "t-1": (0, 0)}

    @initialize(two_phase=st.sampled_from(TwoPhase))
    def begin(self, two_phase: TwoPhase) -> None:
        note(f"modes: {two_phase}\nproducer_epoch_max: 3\n")
        self.world = World(WorldOptions(two_phase=two_phase, producer_epoch_max=3))
        self.script = Script(self.world)
        self.do("topic t 2")
        self.do("init p1 orders timeout=1000")

    def do(self, line: str) -> None:
        note(line.strip())
        for said in self.script.run(line):
            note(f"    {said}")

    def knows(self, producer: str) -> bool:
        return producer in self.script.producers and self.script.producers[producer].identity is not None

    @rule(producer=PRODUCERS, options=st.sampled_from(("", " request=x", " now", " deadline=50")), hold=HOLD)
    def init(self, producer: str, options: str, hold: str) -> None:
        self.do(f"init {producer} {IDS[producer]} timeout=1000{options}{hold}")

    @rule(producer=PRODUCERS, hold=HOLD)
    def recover(self, producer: str, hold: str) -> None:
        if self.knows(producer):
            self.do(f"init {producer} {IDS[producer]} expected={producer}{hold}")

    @rule(producer=PRODUCERS, partition=PARTITIONS, size=st.integers(1, 2), old=OLD, hold=HOLD)
    def produce(self, producer: str, partition: str, size: int, old: str, hold: str) -> None:
        if self.knows(producer):
            values = [f"v{self.values + number}" for number in range(size)]
            self.values += size
            self.do(f"produce {producer} {partition} {' '.join(values)}{old}{hold}")

    @rule(producer=PRODUCERS, partition=PARTITIONS, old=OLD, hold=HOLD)
    def add(self, producer: str, partition: str, old: str, hold: str) -> None:
        if self.knows(producer):
            self.do(f"add {producer} {partition}{old}{hold}")

    @rule(
        producer=PRODUCERS,
        outcome=st.sampled_from(("commit", "abort")),
        options=st.sampled_from(("", "", " lost", " now")),
        old=OLD,
        hold=HOLD,
    )
    def end(self, producer: str, outcome: str, options: str, old: str, hold: str) -> None:
        if self.knows(producer):
            self.do(f"end {producer} {outcome}{options}{old}{hold}")

    @rule(producer=PRODUCERS)
    def cancel(self, producer: str) -> None:
        if self.knows(producer):
            self.do(f"cancel {producer}")

    @rule(elapsed_ms=st.sampled_from((1, 400, 1001)))
    def tick(self, elapsed_ms: int) -> None:
        self.do(f"tick {elapsed_ms}")

    @rule(verb=st.sampled_from(("flush", "flush 1", "seal", "settle", "markers")))
    def let_the_server_work(self, verb: str) -> None:
        self.do(verb)

    @precondition(lambda self: hasattr(self, "world"))
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.do(f"crash keep={data.draw(st.integers(0, self.world.undurable_groups))}")
        self.world.check_replay()

    @invariant()
    def readers_see_what_a_list_scan_sees(self) -> None:
        if not hasattr(self, "world"):
            return
        for partition in ("t-0", "t-1"):
            raw = self.world.read(partition, isolation=Isolation.READ_UNCOMMITTED, is_raw=True)
            stable, committed = scan(raw.entries, raw.high_watermark)
            assert raw.last_stable_offset == stable
            assert self.world.read(partition).values == committed
            before, self.bounds[partition] = self.bounds[partition], (raw.last_stable_offset, raw.high_watermark)
            assert before <= self.bounds[partition]
            assert before[1] <= raw.high_watermark

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.do("settle")
        self.do("tick 60001")
        self.do("settle")
        self.world.check_replay()
        self.world.check_stored()
        assert len(self.world.inside.runtime.parking) == 0
        for transaction in self.world.inside.state().transactions.values():
            assert transaction.state.api_name in ("Empty", "CompleteCommit", "CompleteAbort")
        self.readers_see_what_a_list_scan_sees()


def scan(entries: tuple[LogEntry, ...], end_offset: int) -> tuple[int, list[str]]:
    """Last stable offset and committed values, from nothing but the records and markers of a log."""
    open_values: dict[int, list[LogEntry]] = {}
    fates: dict[int, bool] = {}
    for entry in entries:
        if entry.marker is None:
            open_values.setdefault(entry.producer_id, []).append(entry)
        else:
            for ended in open_values.pop(entry.producer_id, []):
                fates[ended.offset] = entry.marker.outcome.name == "COMMIT"
    stable = min((values[0].offset for values in open_values.values()), default=end_offset)
    return stable, [entry.value for entry in entries if entry.offset < stable and fates.get(entry.offset, False)]


Story.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStories = Story.TestCase
