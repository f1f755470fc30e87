"""Soak test: a mixed load for half an hour, among kills, with samples of the server's memory, handles and disk.

    python -m bench.soak                                  30 minutes; `make soak` does this
    python -m bench.soak --minutes 5 --without-spark
    python -m bench.soak --report docs/reference/soak.md            also draws docs/reference/soak.svg

In the first three tenths of the time the server is killed repeatedly. Later only clients are killed, and the second
half is judged. Progress goes to stderr. Exit status: 0 = nothing grows, and readers saw the right records; 1 =
something grows, differs or failed; 130 = interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.results import LoadFailed
from bench.soak.charts import charts
from bench.soak.report import Outcome, by_hand, page
from bench.soak.run import Soak, tell

INTERRUPTED: Final = 130
MINUTES: Final = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak, report, and return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    asked = parsed(words)
    directory = Path(tempfile.mkdtemp(prefix="bench-soak-"))
    soak = Soak(directory, seconds=asked.minutes * 60, has_spark=not asked.without_spark)
    try:
        outcome = soak.run(" ".join(["python -m bench.soak", *words]))
    except LoadFailed as failure:
        print(f"soak: FAILED, {failure}; logs: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    if asked.report is not None and outcome.samples:
        write(outcome, asked.report)
    print(outcome.verdict, flush=True)
    if outcome.was_interrupted:
        return INTERRUPTED
    return 0 if outcome.is_good else 1


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=_minutes, default=MINUTES, help="how long (default: %(default)g)")
    parser.add_argument("--without-spark", action="store_true", help="leave out the reads that need Java")
    parser.add_argument("--report", type=Path, help="where to write the page; the charts lie beside it, as .svg")
    return parser.parse_args(words)


def write(outcome: Outcome, report: Path) -> None:
    """Write the page and its charts, and keep the section that was written by hand."""
    svg = report.with_suffix(".svg")
    svg.write_text(charts(outcome.samples))
    report.write_text(page(outcome, svg, by_hand(report.read_text()) if report.exists() else ""))
    tell(f"written: {report}, {svg}")


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes up to a day")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
