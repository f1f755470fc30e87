"""The soak: what it calls growth, what it calls lost, and a moment of the whole."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.__main__ import write
from bench.soak.charts import charts
from bench.soak.growth import JUDGED_FROM, KILLED_UNTIL, MEASURES, Sample, is_read_due, judge, trend
from bench.soak.ledger import PARTITIONS, Seen, Told, differences
from bench.soak.report import BY_HAND, Outcome, by_hand, page
from tests.harness import forked

QUIET = Sample(
    elapsed_s=0.0,
    memory_mib=100,
    buffers_mib=0,
    cache_mib=0,
    outside_python_mib=20,
    python_blocks=300_000,
    handles=50,
    threads=7,
    disk_mib=500,
    p50_ms=4,
    p99_ms=10,
    transactions=1,
)
BY_NAME = {measure.name.partition(",")[0]: measure for measure in MEASURES}


def run(memory_mib: Callable[[int], float], length: int = 120) -> list[Sample]:
    """A run of so many samples with this memory at each."""
    return [replace(QUIET, elapsed_s=float(at), memory_mib=memory_mib(at)) for at in range(length)]


def growing(samples: list[Sample]) -> list[str]:
    return [judgement.measure.name for judgement in judge(samples) if judgement.grows]


# Growth


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(lambda _at: 100, id="flat"),
        pytest.param(lambda at: 100 + random.Random(at).uniform(-9, 9), id="noisy"),
        pytest.param(lambda at: 100 + at % 7 * 6, id="a sawtooth"),
        pytest.param(lambda at: min(40 + at * 2, 120), id="warming up first"),
        pytest.param(lambda at: 500 if at == 119 else 100, id="one peak at the end"),
        pytest.param(lambda at: 300 - at, id="falling"),
    ],
)
def test_what_stays_level_is_not_called_growing(level: Callable[[int], float]) -> None:
    assert growing(run(level)) == []


def test_all_is_read_before_the_judged_part_and_within_its_last_third() -> None:
    """A read of all that there is fills the cache, and takes memory for its answers that was never used before. The
    first one at the begin of the judged part was a rise in it."""
    shares = [number / 360 for number in range(1, 361) if is_read_due(number, 360)]
    assert KILLED_UNTIL < shares[0] < JUDGED_FROM
    assert [share for share in shares if 1 - (1 - JUDGED_FROM) / 3 < share < 1]


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(lambda at: 100 + at * 0.5, id="a slope"),
        pytest.param(lambda at: 100 + at * 0.5 + at % 7 * 3, id="a sawtooth on a slope"),
        pytest.param(lambda at: 100 if at < 90 else 120, id="a step late in the run"),
    ],
)
def test_what_grows_after_the_warm_up_is(level: Callable[[int], float]) -> None:
    assert growing(run(level)) == ["memory without buffers and cache, MiB"]


def test_every_measure_is_judged_by_its_own_allowance() -> None:
    for name, (early, within, beyond) in {
        "memory without buffers and cache": (1_000, 1_049, 1_051),
        "open handles": (50, 66, 67),
        "threads": (7, 9, 10),
        "allocated outside Python": (40, 43.9, 44.1),
        "blocks of Python's objects": (300_000, 314_999, 315_001),
        "disk": (1_000, 1_149, 1_151),
        "write buffers of the store": (10, 73, 75),
        "block cache of the store": (10, 41, 43),
        "commit p99": (30, 45, 46),
    }.items():
        measure = BY_NAME[name]
        field = {
            "open handles": "handles",
            "memory without buffers and cache": "memory_mib",
            "allocated outside Python": "outside_python_mib",
            "blocks of Python's objects": "python_blocks",
            "disk": "disk_mib",
            "write buffers of the store": "buffers_mib",
            "block cache of the store": "cache_mib",
            "commit p99": "p99_ms",
        }
        for late, grows in ((within, False), (beyond, True)):
            samples = [
                replace(QUIET, elapsed_s=float(at), **{field.get(name, name): early if at < 30 else late})
                for at in range(10, 40)
            ]
            (found,) = (judgement for judgement in judge(samples) if judgement.measure is measure)
            assert found.grows is grows, (name, late)


def test_what_surely_rises_is_not_called_level_because_the_run_was_short() -> None:
    """Half a MiB a minute breaks no rule within half an hour, and is a fault nevertheless."""
    noise = random.Random(7)
    samples = [replace(each, elapsed_s=each.elapsed_s * 15) for each in run(lambda at: 80 + at / 8 + noise.random())]
    (memory, *others) = judge(samples)
    assert not memory.grows
    assert memory.words == "rises, within what is allowed"
    assert {each.words for each in others} == {"level"}


def test_too_few_samples_say_nothing() -> None:
    assert judge([]) == []
    assert judge(run(lambda at: at * 100, length=12)) == []


# Losses


def told(*lines: str) -> dict[int, Told]:
    said = Told()
    for line in lines:
        said.note(line + "\n")
    return {0: said}


def seen(**times: tuple[int, ...]) -> Seen:
    """`t0=(1, 1, 1)`: transaction 0 was seen once in every partition."""
    found = Seen()
    for name, counts in times.items():
        for partition, count in enumerate(counts):
            for _ in range(count):
                found.note(0, int(name[1:]), partition)
    return found


ONCE = (1,) * PARTITIONS


def test_a_run_in_which_all_is_well_has_no_differences() -> None:
    said = told("0 b 0", "0 c 3.5", "1 b 0", "1 a 2", "2 b 0", "3 b 0")
    orders = seen(t0=ONCE, t3=ONCE)
    assert differences(said, orders, orders) == [], "the outcomes of 2 and 3 are unknown, and either may be"


@pytest.mark.parametrize(
    ("orders", "copies", "complaint"),
    [
        (seen(), seen(), "1 transactions acknowledged and not there once"),
        (seen(t0=(1, 0, 1)), seen(t0=(1, 0, 1)), r"acknowledged.* 0/0: \(1, 0, 1\)"),
        (seen(t0=(1, 2, 1)), seen(t0=(1, 2, 1)), "acknowledged and not there once"),
        (seen(t0=ONCE, t1=(0, 1, 0)), seen(t0=ONCE, t1=(0, 1, 0)), "aborted and seen, such as 0/1"),
        (seen(t0=ONCE, t2=(1, 1, 0)), seen(t0=ONCE, t2=(1, 1, 0)), "in part or more than once, such as 0/2"),
        (seen(t0=ONCE, t2=(2, 2, 2)), seen(t0=ONCE, t2=(2, 2, 2)), "in part or more than once"),
        (seen(t0=ONCE), seen(t0=(1, 1, 0)), r"copied otherwise than it is.*copied \(1, 1, 0\)"),
        (seen(t0=ONCE), seen(t0=(1, 1, 2)), "copied otherwise than it is"),
    ],
)
def test_whatever_is_lost_doubled_torn_or_shown_is_told(orders: Seen, copies: Seen, complaint: str) -> None:
    (found,) = differences(told("0 b 0", "0 c 3.5", "1 b 0", "1 a 2", "2 b 0"), orders, copies)
    assert re.search(complaint, found)


def test_a_line_that_a_kill_has_cut_short_says_nothing() -> None:
    said = Told()
    assert said.note("4 b 0\n") is None
    assert said.note("4 c 12.5\n") == 12.5
    for cut in ("5 b 0", "5 c", "\n", "5 c 1"):
        assert said.note(cut) is None
    assert (said.begun, said.committed, said.aborted) == (5, {4}, set())


# The report


def test_the_report_says_what_was_judged_and_shows_the_kills() -> None:
    samples = run(lambda at: 100 + at)
    samples[20] = replace(samples[20], is_after_kill=True)
    outcome = Outcome("python -m bench.soak", samples, judge(samples), (), 30, 30, 1, 2, 3)
    assert not outcome.is_good
    assert outcome.verdict.startswith("soak: GROWS, memory without buffers and cache, MiB; 2.0 minutes")
    written = page(outcome, Path("docs/reference/soak.svg"))
    assert "| memory without buffers and cache, MiB | 169.5 | 209.5 | 178.0 | +3600.0 ± 0.0 | GROWS |" in written
    assert "| threads | 7.0 | 7.0 | 9.0 | +0.0 ± 0.0 | level |" in written
    assert "](soak.svg)" in written
    drawn = charts(samples)
    assert drawn.count("<polyline") == len(MEASURES)
    assert drawn.count("#d62728") == len(MEASURES)


def test_a_report_says_how_old_the_server_was_that_it_judges() -> None:
    samples = run(lambda _at: 100, length=601)
    samples[180] = replace(samples[180], is_after_kill=True)
    outcome = Outcome("python -m bench.soak", samples, judge(samples), (), 30, 30, 1, 2, 3)
    assert "it was 2.0 minutes old" in page(outcome, Path("docs/reference/soak.svg"))


def test_a_new_report_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    report, said = tmp_path / "soak.md", f"{BY_HAND}\n\nSpark's reads only had to succeed.\n"
    samples = run(lambda _at: 100)
    first = Outcome("python -m bench.soak", samples, judge(samples), (), 30, 30, 1, 2, 3)
    write(first, report)
    assert BY_HAND not in report.read_text()
    report.write_text(f"{report.read_text()}\n{said}")
    write(replace(first, orders=12_345), report)
    written = report.read_text()
    assert "12,345 records" in written
    assert written.endswith(f"](soak.svg)\n\n{said}")
    write(first, report)
    assert report.read_text().count(said) == 1


def test_the_committed_report_has_a_part_by_hand_that_a_new_one_would_keep() -> None:
    assert by_hand(Path("docs/reference/soak.md").read_text()).startswith(BY_HAND)


def test_a_run_is_good_only_if_it_was_whole_and_compared() -> None:
    samples = run(lambda _at: 100)
    good = Outcome("x", samples, judge(samples), (), 30, 30, 1, 2, 3)
    assert good.is_good
    assert good.verdict.startswith("soak: OK, nothing grows")
    for bad, word in (
        (replace(good, differences=("1 transaction is lost",)), "FAILED"),
        (replace(good, was_interrupted=True), "INTERRUPTED"),
        (replace(good, judgements=()), "TOO SHORT"),
    ):
        assert not bad.is_good
        assert word in bad.verdict


# All of it


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, "-m", "bench.soak", *arguments], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.long
def test_a_short_one_loses_nothing_among_kills_and_writes_its_report(tmp_path: Path) -> None:
    done = soak("--minutes", "0.2", "--without-spark", "--report", str(tmp_path / "soak.md"))
    # So short a run may be called growing: it ends before anything is warm.
    assert done.returncode in {0, 1}, done.stderr
    assert "each there once" in done.stdout, done.stdout + done.stderr
    assert "the server is killed, and back" in done.stderr
    assert "4 times, clients" in (tmp_path / "soak.md").read_text()
    assert (tmp_path / "soak.svg").read_text().startswith("<svg ")


@pytest.mark.slow
@pytest.mark.parametrize("minutes", ["0", "-1", "soon", "nan"])
def test_an_impossible_length_is_refused(minutes: str) -> None:
    done = soak(f"--minutes={minutes}")
    assert done.returncode == 2
    assert "is no number of minutes up to a day" in done.stderr


def test_a_line_is_found_under_a_sawtooth_and_its_margin_holds_it() -> None:
    points = [(5.0 * number, 80 + 30 * (5.0 * number / 3_600) + number % 7) for number in range(180)]
    found = trend(points)
    assert abs(found.per_hour - 30) <= found.margin
    assert 0 < found.margin < 10


def test_what_stays_level_has_no_change_beyond_its_margin() -> None:
    found = trend([(5.0 * number, 80.0 + number % 7) for number in range(180)])
    assert abs(found.per_hour) <= found.margin
