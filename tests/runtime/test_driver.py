"""Operations of one commit group: they wait for the write under way, and for nothing else."""

from __future__ import annotations

import asyncio

import pytest

from coordinator_runtime.driver import LoopDriver
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import RuntimeLimits
from tests.runtime.ledger import Ledger, put


class DrivenLedger:
    """A ledger on the running loop. The test plays the commit thread."""

    def __init__(self, limits: RuntimeLimits | None = None) -> None:
        self.ledger = Ledger(limits=limits)
        self.failures: list[Exception] = []
        self.begun_with: list[list[int]] = []
        """Groups handed over whenever the loop let the commit thread begin."""
        self.driver = LoopDriver(
            self.ledger.runtime, self.failures.append, lambda: self.begun_with.append(self.versions_handed_over)
        )

    def put(self, name: str) -> Pending[object]:
        return self.ledger.runtime.write(put(name, 1))

    @property
    def versions_handed_over(self) -> list[int]:
        return [group.version for group in self.ledger.driver.handed_over]

    async def report_written(self) -> None:
        """The oldest group that was handed over is on disk, and the loop hears of it."""
        group = self.ledger.driver.handed_over.pop(0)
        self.driver.durable_from_thread(group.version)
        await turns()


async def turns() -> None:
    """Let everything run that is ready, and what follows from it."""
    for _turn in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def driven() -> DrivenLedger:
    driven = DrivenLedger()
    await turns()
    return driven


async def test_a_lone_operation_is_handed_over_at_the_end_of_its_turn(driven: DrivenLedger) -> None:
    driven.put("a")
    assert driven.versions_handed_over == []
    await asyncio.sleep(0)
    assert driven.versions_handed_over == [1]


async def test_operations_of_one_turn_are_one_group(driven: DrivenLedger) -> None:
    replies = [driven.put("a"), driven.put("b")]
    await turns()
    assert driven.versions_handed_over == [1]
    await driven.report_written()
    assert [reply.result() for reply in replies] == [1, 1]


async def test_what_comes_during_a_write_is_one_group_and_goes_when_the_write_is_reported(driven: DrivenLedger) -> None:
    driven.put("a")
    await turns()
    later = [driven.put("b")]
    await turns()
    later.append(driven.put("c"))
    await turns()
    assert driven.versions_handed_over == [1]
    await driven.report_written()
    assert driven.versions_handed_over == [2]
    await driven.report_written()
    assert [reply.result() for reply in later] == [1, 1]
    assert driven.versions_handed_over == []


async def test_the_next_group_goes_before_the_answers_of_the_last_one(driven: DrivenLedger) -> None:
    handed_over_when_answered: list[list[int]] = []
    first = driven.put("a")
    first.on_settled(lambda _first: handed_over_when_answered.append(driven.versions_handed_over))
    await turns()
    driven.put("b")
    await driven.report_written()
    assert handed_over_when_answered == [[2]]


async def test_the_disk_begins_with_the_next_group_before_the_loop_answers_the_last_one(driven: DrivenLedger) -> None:
    begun_when_answered: list[list[list[int]]] = []
    driven.put("a").on_settled(lambda _first: begun_when_answered.append([*driven.begun_with]))
    await turns()
    driven.put("b")
    await driven.report_written()
    assert begun_when_answered == [[[2]]]


async def test_the_loop_waits_for_no_group_that_it_has_not_handed_over(driven: DrivenLedger) -> None:
    for name in "ab":
        driven.put(name)
        await turns()
        await driven.report_written()
    assert driven.begun_with == [], "it has nothing else to do then, and the thread gets the interpreter at once"


async def test_a_large_group_does_not_wait_for_the_write_before_it() -> None:
    driven = DrivenLedger(RuntimeLimits(group_bytes_max=0))
    driven.put("a")
    driven.put("b")
    assert driven.versions_handed_over == [1, 2]


async def test_a_group_that_is_still_being_written_holds_the_next_one_back() -> None:
    driven = DrivenLedger(RuntimeLimits(group_bytes_max=500))
    await turns()
    driven.put("a")
    await turns()
    large = driven.put("b" * 500)
    assert driven.versions_handed_over == [1, 2], "it did not wait"
    small = driven.put("c")
    await turns()
    await driven.report_written()
    assert driven.versions_handed_over == [2]
    assert driven.begun_with == []
    await driven.report_written()
    assert driven.versions_handed_over == [3]
    assert driven.begun_with == [[3]]
    assert large.is_settled
    assert not small.is_settled


async def test_what_an_answer_leads_to_goes_with_the_next_group(driven: DrivenLedger) -> None:
    following: list[Pending[object]] = []
    driven.put("a").on_settled(lambda _first: following.append(driven.put("b")))
    await turns()
    await driven.report_written()
    assert driven.versions_handed_over == [2]
    assert not following[0].is_settled
    await driven.report_written()
    assert following[0].result() == 1


async def test_a_drain_ends_when_the_last_group_is_answered(driven: DrivenLedger) -> None:
    driven.put("a")
    await turns()
    late = driven.put("b")
    drain = asyncio.ensure_future(driven.driver.drain())
    await turns()
    await driven.report_written()
    assert not drain.done()
    await driven.report_written()
    assert drain.done()
    assert late.result() == 1


async def test_a_failure_of_the_store_is_told_once_and_answers_those_who_were_still_collecting(
    driven: DrivenLedger,
) -> None:
    driven.put("a")
    await turns()
    collecting = driven.put("b")
    failure = OSError("the disk is gone")
    driven.driver.failed_from_thread(failure)
    driven.driver.failed_from_thread(failure)
    await turns()
    assert driven.failures == [failure]
    assert collecting.is_settled
