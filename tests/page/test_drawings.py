"""The drawing of a transaction's steps, and the charts of rates."""

from __future__ import annotations

from coordinator_client import RateHistory, TransactionStep
from txnctl.page.charts import HEIGHT, POINTS_MAX, WIDTH, charts
from txnctl.page.timeline import CAUSES, cause_words, drawing


def step(state: str, cause: str = "client", at_ms: int = 0) -> TransactionStep:
    return TransactionStep(
        at_ms=at_ms,
        state=state,
        cause=cause,
        client_id="c",
        host="h",
        producer_id=1,
        producer_epoch=0,
        fenced=None,
        participants=1,
        csn=0,
    )


def newest_first(*steps: TransactionStep) -> list[TransactionStep]:
    return list(reversed(steps))


def test_only_the_newest_transaction_is_drawn() -> None:
    history = newest_first(
        step("Empty", "init"),
        step("Ongoing", "add", 1),
        step("CompleteCommit", at_ms=2),
        step("Ongoing", "add", 3),
        step("Ongoing", "add", 4),
        step("PrepareAbort", "timeout", 9),
        step("CompleteAbort", "timeout", 12),
    )
    drawn = drawing(history)
    assert drawn is not None
    assert [(mark.title, mark.cause, mark.count, mark.gap) for mark in drawn.marks] == [
        ("Ongoing", "add", 2, ""),
        ("PrepareAbort", "timeout", 1, "5 ms"),
        ("CompleteAbort", "timeout", 1, "3 ms"),
    ]
    assert [phase.title for phase in drawn.phases] == ["Work", "Phase 1: decision", "Phase 2: markers"]
    assert [mark.from_client for mark in drawn.marks] == [True, False, False], "the server ended it by itself"
    assert drawn.marks[-1].x < drawn.width


def test_an_open_transaction_has_no_end() -> None:
    drawn = drawing(newest_first(step("CompleteCommit"), step("Ongoing", "add")))
    assert drawn is not None
    assert [mark.title for mark in drawn.marks] == ["Ongoing"]


def test_an_id_without_a_transaction_is_not_drawn() -> None:
    assert drawing([step("Empty", "init")]) is None
    assert drawing([]) is None


def test_causes_have_words() -> None:
    assert cause_words(step("PrepareCommit")) == CAUSES["client"]
    assert cause_words(step("CompleteCommit")) == "all markers are written"
    assert cause_words(step("Empty", "some\x00thing")) == "some\\x00thing"


def test_charts_fill_their_plot_from_the_right() -> None:
    found = {
        chart.title: chart
        for chart in charts(RateHistory(interval_ms=10_000, end_ms=0, series={"commits": (0.0, 4.0)}))
    }
    chart = found["Commits"]
    first, last = (tuple(map(float, point.split(","))) for point in chart.line.split())
    assert (last[0], chart.now, chart.peak) == (WIDTH, "4/s", "4/s")
    assert first[0] > WIDTH - 2 * WIDTH / POINTS_MAX - 1
    assert last[1] < first[1] < HEIGHT
    assert found["Aborts"].is_empty
