"""Measures cases by name and prints one table, with the machine, versions and settings above it.

    make bench                                   everything, about an hour
    python -m bench transactions --kafka none    one case, our side alone
    python -m bench --quick                      everything once and briefly, to check that it works
    python -m bench curves --help                growth of costs with the amount of work, with options of its own

The table goes to stdout, progress to stderr. Exit status 1: something that should have run failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.arena import Arena
from bench.case import FLUSHED, Row
from bench.curves import __main__ as curves
from bench.kafka.settings import HEAP, PROFILES
from bench.machine import machine, versions
from bench.probes import probes
from bench.registry import CASES, known_stories, tell
from bench.report import Report, as_json, markdown
from bench.results import Result
from bench.runner import measure
from bench.scale import FULL, QUICK

_ROUNDS: Final = 3
_CURVES: Final = "curves"
_CACHE: Final = Path(__file__).resolve().parent.parent / ".cache" / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [_CURVES]:
        return curves.main(words[1:])
    asked = _parse(words)
    if asked.list:
        for name, summary in [*((case.name, case.summary) for case in CASES.values()), *known_stories().items()]:
            print(f"{name:17} {summary}")
        return 0
    _CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=asked.dir or _CACHE))
    try:
        report = _measure(asked, directory)
    finally:
        if asked.keep:
            _say(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    print(markdown(report), end="")
    if asked.json is not None:
        asked.json.write_text(json.dumps(as_json(report), indent=2) + "\n")
    return int(any(result.is_failure for result in report.results))


def _measure(asked: argparse.Namespace, directory: Path) -> Report:
    scale = QUICK if asked.quick else FULL
    rounds = asked.runs or (1 if asked.quick else _ROUNDS)
    profiles = [PROFILES[name] for name in asked.kafka]
    arena = Arena(directory, _CACHE, scale, profiles, _say, own_processors=asked.own_processors)
    rows = _rows(arena, asked)
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    probed = probes(directory)
    results: list[Result] = []
    with closing(arena):
        try:
            for result in measure(rows, rounds, _say):
                results.append(result)  # noqa: PERF402  what is there is kept where the rest is interrupted
        except KeyboardInterrupt:
            _say("interrupted; what was measured follows")
    return Report(
        machine=machine(directory) | probed,
        versions=versions() | arena.versions(),
        settings=_settings(arena),
        command=f"python -m bench {shlex.join(sys.argv[1:])}".rstrip(),
        began=began,
        rounds=rounds,
        is_quick=scale.is_quick,
        results=results,
        stories=_stories([name for name in asked.cases if name not in CASES]),
    )


def _rows(arena: Arena, asked: argparse.Namespace) -> dict[str, list[Row]]:
    """Return the requested rows, by case. Exits the program if there is no row and no story."""
    cases = [name for name in asked.cases if name in CASES]
    rows = {name: [row for row in CASES[name].rows(arena) if asked.rows in row.label] for name in cases}
    if cases == asked.cases and not any(rows.values()):
        sys.exit(f"no row of {', '.join(cases)} has {asked.rows!r} in its label")
    return rows


def _stories(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        _say(f"{name}, which has a table of its own")
        found[name] = tell(name)
    return found


def _settings(arena: Arena) -> dict[str, str]:
    bound = "" if arena.own_processors is None else f", bound to processor {arena.own_processors} (taskset)"
    found = {"our server": f"defaults{bound}; {FLUSHED}"}
    found |= {f"Kafka, {profile.name}": profile.in_words for profile in arena.profiles}
    if arena.profiles:
        found["side by side"] = f"contenders take turns; the other servers are paused; a broker has a heap of {HEAP}"
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    asked = parser.parse_args(arguments)
    stories = known_stories()
    unknown = [name for name in asked.cases if name not in CASES and name not in stories]
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join([*CASES, *stories])}")
    # Stories take minutes and cannot be shortened, so a quick run leaves them out.
    asked.cases = asked.cases or [*CASES, *([] if asked.quick else stories)]
    named = asked.kafka or ("stock" if asked.quick else "stock,tuned")
    asked.kafka = [] if named == "none" else named.split(",")
    if strangers := [name for name in asked.kafka if name not in PROFILES]:
        parser.error(f"Kafka has no profile {', '.join(strangers)} here; there are {', '.join(PROFILES)}")
    return asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure; default: everything")
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    parser.add_argument("--quick", action="store_true", help="everything briefly; the figures are not for quoting")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help=f"rounds [{_ROUNDS}; with --quick 1]")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows with this in their label [all]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, single runs included")
    parser.add_argument(
        "--kafka",
        metavar="PROFILES",
        help=f"of {', '.join(PROFILES)}, with commas between, or none [stock,tuned; with --quick stock]",
    )
    parser.add_argument(
        "--own-processors",
        metavar="LIST",
        help="bind our server to these processors, as taskset writes them: on few cores it saves waking others [all]",
    )
    parser.add_argument("--dir", type=Path, help="where stores are written; must be on the disk that is to be measured")
    parser.add_argument("--keep", action="store_true", help="leave stores and logs there")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
