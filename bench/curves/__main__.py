"""Measures how costs grow with the amount of work, one curve after the other.

    python -m bench curves                                    everything, well over half an hour
    python -m bench curves ids partitions --json curves.json  two axes, and the results for charts and page
    python -m bench curves stored --max stored=51200          50 GiB
    python -m bench curves --list                             axes, their points and their usual times

Tables go to stdout, progress to stderr. What was measured before Ctrl-C is reported and written. Exit status 1: a
server or a load failed; 130: interrupted.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.curves.axes import AXES, ONE_SERVER, TWO_SERVERS, Axis
from bench.curves.curve import Curve, Curves
from bench.curves.page import tables
from bench.curves.pair import PairSubject
from bench.curves.subject import ServerSubject
from bench.curves.verdicts import amount
from bench.curves.walk import INTERRUPTED, walk
from bench.machine import machine, versions
from bench.results import LoadFailed

SUBJECTS: Final[Mapping[str, type[ServerSubject] | type[PairSubject]]] = MappingProxyType(
    {ONE_SERVER: ServerSubject, TWO_SERVERS: PairSubject}
)
"""Servers that an axis is measured at, by their names for people."""
_MEASURED_S: Final = 5.0
_QUICK_S: Final = 0.5
_QUICK_POINTS: Final = 2
_QUICK_SHARE: Final = 0.01
"""Share of the usual last point of an axis, up to which a quick run goes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    asked = _parsed(words)
    if asked.list:
        for axis in AXES.values():
            places = axis.places()
            print(f"{axis.name:12} {axis.title}: {', '.join(map(amount, places))} {axis.unit};", end=" ")
            print(f"about {axis.expected_s(places) / 60:.0f} min")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="bench-curves-", dir=asked.dir))
    found = Curves(
        machine=machine(directory),
        versions=versions(),
        command=f"python -m bench curves {shlex.join(words)}".rstrip(),
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        is_quick=asked.quick,
        curves=[],
    )
    try:
        found = _measured(asked, directory, found)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("\n".join(tables(found)))
    if any(curve.ended == INTERRUPTED for curve in found.curves):
        return 130
    return int(any(curve.is_failure for curve in found.curves))


def _measured(asked: argparse.Namespace, directory: Path, found: Curves) -> Curves:
    """Measure the axes, and write the results after each of them."""
    for name in asked.axes:
        curve = _measure(AXES[name], asked, directory / name)
        found = replace(found, curves=[*found.curves, curve])
        if asked.json is not None:
            asked.json.write_text(json.dumps(found.as_json(), indent=1) + "\n")
        if curve.ended == INTERRUPTED:
            break
    return found


def _measure(axis: Axis, asked: argparse.Namespace, directory: Path) -> Curve:
    last = asked.max.get(axis.name, max(axis.first * 2, round(axis.last * _QUICK_SHARE)) if asked.quick else 0)
    places = axis.places(asked.points or (_QUICK_POINTS if asked.quick else 0), last)
    try:
        with SUBJECTS[axis.subject](axis, directory, _QUICK_S if asked.quick else _MEASURED_S) as subject:
            return walk(axis, places, subject, _say)
    except LoadFailed as failure:
        return Curve(axis.name, axis.title, axis.unit, axis.subject, [], str(failure), is_failure=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench curves", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"of {', '.join(AXES)} [all]")
    parser.add_argument("--list", action="store_true", help="say which axes there are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results; charts and page are made of them")
    parser.add_argument("--points", type=int, default=0, metavar="N", help="points of each axis [those of the axis]")
    parser.add_argument(
        "--max", action="append", default=[], metavar="AXIS=AMOUNT", help="last point of an axis, in its unit"
    )
    parser.add_argument("--quick", action="store_true", help="two small points of each axis, not for quoting")
    parser.add_argument("--dir", type=Path, help="where stores are written; must be on the disk that is to be measured")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.axes if name not in AXES]:
        parser.error(f"there is no axis {', '.join(unknown)}; there are {', '.join(AXES)}")
    asked.axes = asked.axes or list(AXES)
    try:
        asked.max = {name: _amount(name, value) for name, _, value in (each.partition("=") for each in asked.max)}
    except ValueError as error:
        parser.error(str(error))
    return asked


def _amount(name: str, value: str) -> int:
    if name not in AXES or not value.isdecimal() or int(value) < 1:
        raise ValueError(f"{name}={value} is no axis with a number")
    return int(value)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
