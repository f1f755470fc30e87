"""The table of spec transactions 4 with real processes: the server is killed (SIGKILL) at every point of a commit or an
abort, in both modes and for both client versions, and what the table demands is what a client then finds: in two
partitions and in the offset of a group.

The same rows without processes, and with the rows between: tests/scenarios/crash_*.txt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from tests.harness.combinations import Combination, row_of_case
from tests.harness.engines import open_stopped
from tests.harness.long_cases import one_in
from tests.harness.server_process import ServerProcess
from tests.harness.stopping_server import POINT_VARIABLE, STOPPED, WATCHED_ID
from tests.server.producer_by_wire import ProducerByWire, Reader
from txnctl.stopped import stored

pytestmark = [pytest.mark.slow, pytest.mark.kill]

GROUP = "copiers"
NEVER = "never"
V2, V1 = 2, 1
COMMIT, ABORT = True, False
FUSED, SPLIT = "fused", "split"
ONGOING, PREPARE, COMPLETE = "Ongoing", "Prepare", "Complete"
"""States as the table has them, for both outcomes."""


@dataclass(frozen=True, slots=True)
class Crash:
    """One row of the table."""

    mode: str
    point: str
    """Point at which the server stops (tests/harness/stopping_server.py)."""
    version: int
    """The client's version of the protocol."""
    committed: bool
    """Outcome that it asks for: commit, or abort."""
    is_answered: bool
    """True if the client has its answer by then."""
    left: tuple[tuple[str, int], ...]
    """(state, markers in partitions) that may be in the store."""

    def __str__(self) -> str:
        asked = f"v{self.version}-{'commit' if self.committed else 'abort'}"
        return f"{self.mode}-{asked}-{self.point}-{'answered' if self.is_answered else 'unanswered'}".replace(" ", "_")


def _both(mode: str, point: str, is_answered: bool, *left: tuple[str, int]) -> list[Crash]:
    """With both versions of clients, each of which asks for one of the outcomes: for what must be finished."""
    asked = ((V2, COMMIT), (V1, ABORT))
    return [Crash(mode, point, version, committed, is_answered, left) for version, committed in asked]


CRASHES = (
    # Before PREPARE is durable. What is written and not synced survives a killed process, but not a power cut.
    Crash(SPLIT, "before prepare", V2, ABORT, False, ((ONGOING, 0),)),
    Crash(SPLIT, "written prepare", V1, COMMIT, False, ((ONGOING, 0), (PREPARE, 0))),
    # After PREPARE, before the answer.
    *_both(SPLIT, "durable prepare", False, (PREPARE, 0)),
    # After the answer, before and between the markers.
    Crash(SPLIT, "before marker-1", V1, COMMIT, True, ((PREPARE, 0),)),
    *_both(SPLIT, "before marker-2", True, (PREPARE, 1)),
    Crash(SPLIT, "before group", V2, COMMIT, True, ((PREPARE, 2),)),
    # All markers done, before COMPLETE.
    Crash(SPLIT, "before complete", V1, ABORT, True, ((PREPARE, 2),)),
    # After COMPLETE.
    Crash(SPLIT, "durable complete", V2, ABORT, True, ((COMPLETE, 2),)),
    # One batch: all of it or nothing. Before it is durable; after, before the answer; after the answer.
    Crash(FUSED, "before prepare", V1, COMMIT, False, ((ONGOING, 0),)),
    Crash(FUSED, "written prepare", V2, ABORT, False, ((ONGOING, 0), (COMPLETE, 2))),
    Crash(FUSED, "durable complete", V2, COMMIT, False, ((COMPLETE, 2),)),
    Crash(FUSED, NEVER, V2, COMMIT, True, ((COMPLETE, 2),)),
)


ROWS = [row_of_case(number, crash.mode) for number, crash in enumerate(CRASHES)]


@pytest.mark.parametrize(("crash", "row"), one_in(4, zip(CRASHES, ROWS, strict=True)), ids=str)
def test_a_server_that_is_killed_there_finishes_what_was_decided(
    crash: Crash, row: Combination, tmp_path: Path
) -> None:
    committed = crash.committed
    data_dir = tmp_path / "data"
    # Every operation is a group of its own, so that there is a point between any two.
    settings = {**row.environment, "TXN_GROUP_BYTES_MAX": "1"}
    stopping = settings | {POINT_VARIABLE: crash.point}
    with (
        ServerProcess(data_dir, module="tests.harness.stopping_server", environment=stopping) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        Reader(channel).create_topic("t", 2)
        earlier = committed_earlier(channel)
        lost = ProducerByWire(channel, WATCHED_ID, crash.version)
        lost.init()
        lost.write("t", 0, "a")
        lost.write("t", 1, "b")
        lost.commit_offset(GROUP, "t", 0, 7)
        ending = lost.sends_end(committed=committed)
        if crash.is_answered:
            assert ending.result().error_code == 0
        if crash.point != NEVER:
            server.read_until(re.compile(f"{STOPPED}{crash.point}\n"))
        assert ending.done() is crash.is_answered
        server.kill()
    assert what_is_left(data_dir, lost.producer_id, committed=committed) in crash.left

    with ServerProcess(data_dir, environment=settings) as server, grpc.insecure_channel(server.address) as channel:
        again = replace(lost, channel=channel)
        check_finished(again, earlier, committed=committed)
        check_that_it_goes_on(again)


TRANSACTS = (
    (row_of_case(0, SPLIT), "durable prepare", False),
    (row_of_case(1, SPLIT), "before marker-2", True),
    *((row_of_case(number, FUSED), "before prepare", False) for number in range(2)),
    *((row_of_case(number, FUSED), "durable complete", False) for number in range(2)),
)
TRANSACT_ROWS = [row for row, _point, _is_answered in TRANSACTS]


@pytest.mark.parametrize(("row", "point", "is_answered"), one_in(4, TRANSACTS), ids=str)
def test_a_transact_that_is_repeated_after_a_kill_was_done_once(
    row: Combination, point: str, is_answered: bool, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    settings = {**row.environment, "TXN_GROUP_BYTES_MAX": "1"}
    with (
        ServerProcess(
            data_dir, module="tests.harness.stopping_server", environment=settings | {POINT_VARIABLE: point}
        ) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        Reader(channel).create_topic("t", 2)
        committed_earlier(channel)
        producer = ProducerByWire(channel, WATCHED_ID)
        producer.init()
        request = producer.whole_transaction({0: "a", 1: "b"}, GROUP, 7)
        lost = producer.sends(request)
        first = lost.result() if is_answered else None
        server.read_until(re.compile(f"{STOPPED}{point}\n"))
        assert lost.done() is is_answered
        server.kill()

    with ServerProcess(data_dir, environment=settings) as server, grpc.insecure_channel(server.address) as channel:
        again = replace(producer, channel=channel)
        repeated = again.repeats(request)
        assert repeated.error_code == 0, repeated
        assert first is None or repeated == first
        assert again.repeats(request) == repeated
        reader = Reader(channel)
        # The first partition has the record and the marker of the earlier transaction.
        assert [result.first_offset for result in repeated.results] == [2, 0]
        assert [reader.read("t", partition).values for partition in (0, 1)] == [["before", "a"], ["b"]]
        assert reader.committed(GROUP, "t", 0) == 7


def committed_earlier(channel: grpc.Channel) -> ProducerByWire:
    """A transaction that was acknowledged before anything happened."""
    earlier = ProducerByWire(channel, "earlier")
    earlier.init()
    earlier.write("t", 0, "before")
    assert earlier.ends(committed=True)[-1] == 0
    return earlier


def what_is_left(data_dir: Path, producer_id: int, *, committed: bool) -> tuple[str, int]:
    """State and number of markers in the store of the killed server, as the next one will find them."""
    store = open_stopped(data_dir)
    try:
        (found,) = [each for each in stored.transactions(store) if each.transactional_id == WATCHED_ID]
        markers = [
            marker.outcome
            for ordinal in stored.heads(store)
            for batch in stored.batches(store, ordinal)
            if (marker := batch.marker) is not None and marker.producer_id == producer_id
        ]
    finally:
        store.close()
    state = found.state.api_name
    if state != ONGOING:
        assert state.endswith("Commit" if committed else "Abort")
        assert len(found.partitions) == (2 if state.startswith(PREPARE) else 0), "PREPARE names all of them"
    assert markers == [committed] * len(markers)
    return state.removesuffix("Commit").removesuffix("Abort"), len(markers)


def check_finished(again: ProducerByWire, earlier: ProducerByWire, *, committed: bool) -> None:
    """The client hears its outcome, at first perhaps that it has to wait; and that outcome is everywhere, once."""
    repeated = replace(again)
    producer_id, epoch = again.producer_id, again.producer_epoch
    *waiting, answer = again.ends(committed=committed)
    assert (set(waiting) <= {51}, answer) == (True, 0)
    assert (again.producer_id, again.producer_epoch) == (producer_id, epoch + 1 if again.version == 2 else epoch)
    described = again.until_complete()
    assert repeated.ends(committed=committed) == [0]
    assert (repeated.producer_id, repeated.producer_epoch) == (again.producer_id, again.producer_epoch)
    assert (described.state, list(described.topics)) == ("CompleteCommit" if committed else "CompleteAbort", [])
    reader = Reader(again.channel)
    own = [(producer_id, committed)]
    assert reader.committed(GROUP, "t", 0) == (7 if committed else -1)
    first, second = reader.read("t", 0), reader.read("t", 1)
    assert (first.markers, second.markers) == ([(earlier.producer_id, True), *own], own)
    assert (first.values, second.values) == ((["before", "a"], ["b"]) if committed else (["before"], []))
    for partition in (first, second):
        assert partition.last_stable_offset == partition.high_watermark


def check_that_it_goes_on(again: ProducerByWire) -> None:
    """The same client runs its next transaction."""
    before = Reader(again.channel).read("t", 1).values
    again.write("t", 1, "next")
    assert again.ends(committed=True)[-1] == 0
    again.until_complete()
    assert Reader(again.channel).read("t", 1).values == [*before, "next"]
