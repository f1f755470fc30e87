"""Report of a soak, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.machine import machine
from bench.soak.growth import JUDGED_FROM, Judgement, Sample, age_s

BY_HAND: Final = "## What this does not show"
LOAD: Final = (
    "Four transactors at a steady pace, one transaction in ten aborted; two copiers that consume, copy and commit\n"
    "offsets in one transaction; two members that join a group and leave it again; large records beside them, of\n"
    "which retention keeps little."
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a run."""

    command: str
    samples: Sequence[Sample]
    judgements: Sequence[Judgement]
    differences: Sequence[str]
    orders: int
    copies: int
    """Number of committed records that the auditor saw."""
    server_kills: int
    client_kills: int
    spark_reads: int
    was_interrupted: bool = False

    @property
    def is_good(self) -> bool:
        grows = any(judgement.grows for judgement in self.judgements)
        return bool(self.judgements) and not grows and not self.differences and not self.was_interrupted

    @property
    def verdict(self) -> str:
        """Verdict in one line."""
        minutes = self.samples[-1].elapsed_s / 60 if self.samples else 0.0
        what = f"{minutes:.1f} minutes, {self.orders:,} records committed and {self.copies:,} copies of them"
        if self.was_interrupted:
            return f"soak: INTERRUPTED after {what}; what readers saw was not compared"
        if self.differences:
            return f"soak: FAILED after {what}: {'; '.join(self.differences)}"
        if not self.judgements:
            return f"soak: TOO SHORT to judge growth, {what}, each there once"
        growing = [judgement.measure.name for judgement in self.judgements if judgement.grows]
        if growing:
            return f"soak: GROWS, {', '.join(growing)}; {what}, each there once"
        return f"soak: OK, nothing grows; {what}, each there once"


def page(outcome: Outcome, svg: Path, by_hand: str = "") -> str:
    """Return the report as Markdown. `svg` is the file with the charts, named relative to it. `by_hand` comes last."""
    rows = [
        f"| {each.measure.name} | {each.early:.1f} | {each.late:.1f} | {each.limit:.1f} "
        f"| {each.trend.per_hour:+.1f} ± {each.trend.margin:.1f} | {each.words} |"
        for each in outcome.judgements
    ]
    kills = (
        f"The server was killed with SIGKILL and started again {outcome.server_kills} times, "
        f"clients {outcome.client_kills} times; Spark read a topic {outcome.spark_reads} times."
    )
    return "\n".join(
        [
            "# Soak",
            "",
            f"**{outcome.verdict}**",
            "",
            f"`{outcome.command}` on {datetime.now(UTC):%Y-%m-%d}, {', '.join(machine().values())}.",
            "",
            f"{LOAD} {kills}",
            "A reader counts every committed record while it is written: what was acknowledged is there once in each",
            "partition, what was aborted nowhere, and copies are what they were made of.",
            "",
            f"Judged is the time after {JUDGED_FROM:.0%} of the run (grey in the charts), in which the server lives on",
            f"undisturbed; it was {age_s(outcome.samples) / 60:.1f} minutes old when that began. The median of its",
            "last third stands against that of its first third, by the rule in `bench/soak/growth.py`. Beside it is",
            "the line through that time: what surely rises is called so, however little it is.",
            "",
            "| measure | early | late | allowed | change an hour, 95 % | |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            f"![memory, handles, threads, disk and latency over time]({svg.name})",
            "",
            *([by_hand] if by_hand else []),
        ]
    )


def by_hand(report: str) -> str:
    """Return the handwritten part of a report, from its heading to the end. A new report keeps it."""
    _, heading, section = report.partition(f"\n{BY_HAND}\n")
    return f"{heading.lstrip()}{section}"
