"""Progress of long work, on a clock that the test moves."""

from __future__ import annotations

import io

from coordinator_client.progress import ProgressShown, WorkProgress, rate_and_left
from tests.harness.manual_clock import ManualClock


class ClientClock(ManualClock):
    """A manual clock without waits."""

    __slots__ = ()

    def pause(self, wait_ms: int) -> None:
        raise AssertionError("progress waits for nothing")

    def take(self, *_unused: object) -> None:
        raise AssertionError("progress waits for nothing")


class ErrorStream(io.StringIO):
    """A stderr that is a terminal, or is none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def worked(
    *steps: tuple[int, int],
    unit: str = "records",
    total: int | None = None,
    is_terminal: bool = True,
    shown: ProgressShown = ProgressShown.TERMINAL,
) -> str:
    """Return the output for work that takes steps: the time (ms) that passes, and then the amount done."""
    clock, stream = ClientClock(), ErrorStream(is_terminal=is_terminal)
    with WorkProgress("sent", unit, total=total, clock=clock, stream=stream, shown=shown) as progress:
        for elapsed_ms, done in steps:
            clock.advance(elapsed_ms)
            progress.reach(done)
    return stream.getvalue()


def test_work_under_two_seconds_shows_nothing() -> None:
    assert worked((1_000, 10), (999, 20)) == ""
    assert worked((4_999, 10), is_terminal=False, shown=ProgressShown.EVERYWHERE) == ""


def test_a_terminal_has_one_line_that_goes_when_the_work_is_done() -> None:
    assert worked((2_000, 1_000), (100, 1_001), (100, 1_200), total=5_000) == (
        "\rsent 1,000 of 5,000 records (20%), 500/s, 8s left\x1b[K"
        "\rsent 1,200 of 5,000 records (24%), 545/s, 7s left\x1b[K"
        "\r\x1b[K"
    )


def test_bytes_have_units() -> None:
    assert worked((4_000, 5 << 30), unit="bytes", total=20 << 30) == (
        "\rsent 5.0 GiB of 20.0 GiB (25%), 1.2 GiB/s, 12s left\x1b[K\r\x1b[K"
    )


def test_without_a_total_nothing_is_said_to_be_left() -> None:
    assert worked((2_000, 1_000)).startswith("\rsent 1,000 records, 500/s\x1b[K")


def test_a_stream_that_is_no_terminal_gets_lines_only_if_they_are_wanted() -> None:
    steps = ((2_000, 1_000), (3_000, 2_500), (1_000, 3_000), (4_000, 5_000))
    assert worked(*steps, is_terminal=False) == ""
    assert worked(*steps, total=10_000, is_terminal=False, shown=ProgressShown.EVERYWHERE).splitlines() == [
        "sent 2,500 of 10,000 records (25%), 500/s, 15s left",
        "sent 5,000 of 10,000 records (50%), 500/s, 10s left",
    ]
    assert worked(*steps, shown=ProgressShown.NOWHERE) == ""


def test_the_rate_is_that_of_the_last_seconds() -> None:
    steps = [(5_000, 10_000), *((5_000, 10_000 + 50 * at) for at in range(1, 9))]
    assert worked(*steps, total=11_000).split("\r")[-2] == "sent 10,400 of 11,000 records (94%), 10/s, 1m00s left\x1b[K"


def test_work_that_stands_still_has_no_time_left() -> None:
    assert "left" not in worked((2_000, 0), total=5)


def test_a_step_tells_the_rate_and_the_time_for_what_is_left() -> None:
    assert rate_and_left(1_000, 4_000, 2_000) == "500/s, 8s left"
    assert rate_and_left(1_000, 999, 2_000) == ""
    assert rate_and_left(0, 5, 2_000) == ""
    assert rate_and_left(1_000, 4_000, 0) == ""
