"""Compares the speed of two working trees, which take turns on one machine.

    python -m bench.alternate ../before                 everything, about ten minutes
    python -m bench.alternate ../before --rows 64 ids   rows with one of these words in their label
    python -m bench.alternate ../before --quick         everything once and briefly, to check that it works

`../before` is another working tree with its own `.venv` (`git worktree add`, then `make venv` in it). Each tree runs
its own server on its own store, with its own client and load programs. So neither the stored form nor the wire must be
the same. The servers stay up, and an idle one takes next to nothing. The two runs of one round are compared, which are
seconds apart. If the speed of the machine drifts, the quotient of two medians says less. The table shows the median of
the rounds' quotients, this tree : the other, with the lowest and the highest. Processor time is the server's, all
threads, for one operation.

Exit status 1: something failed, or a goal was missed (a quick run has no goals).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from bench.arena import PARTITIONS, TOPIC, of_server
from bench.case import FLUSHED, Contender, Row
from bench.machine import commit_of, machine, versions
from bench.programs import load_command, output_of, run_of_output
from bench.report import number
from bench.results import OPERATIONS_PER_SECOND, TRANSACTIONS_PER_SECOND, Result, Run, Side, Unit
from bench.runner import measure
from bench.scale import FULL, QUICK, Scale
from bench.server import HERE, OwnServer

_ROUNDS: Final = 7
_CACHE: Final = HERE / ".cache" / "bench"
_VALUE_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Goal:
    """Limits of the quotients, this tree : the other."""

    rate_min: float | None = None
    server_us_max: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """A line of the table: one load for both trees."""

    label: str
    unit: Unit
    program: str
    settings: dict[str, object]
    goal: Goal


def _transactions(driver: str, producers: int, goal: Goal) -> Compared:
    settings = {"driver": driver, "producers": producers, "value_bytes": _VALUE_BYTES, "topic": TOPIC}
    label = f"{driver}, {producers} producer{'s' * (producers > 1)}"
    return Compared(label, TRANSACTIONS_PER_SECOND, "transactions", settings, goal)


ROWS: Final = (
    _transactions("SDK", 64, Goal(1.35, 0.65)),
    _transactions("SDK", 256, Goal(1.2)),
    _transactions("SDK", 16, Goal(1.2)),
    _transactions("SDK", 1, Goal()),
    _transactions("session, Transact", 64, Goal()),
    _transactions("stubs", 64, Goal(1.15)),
    Compared(
        "new ids over sessions, 64 at a time",
        OPERATIONS_PER_SECOND,
        "init_producer_id",
        {"driver": "session", "in_flight": 64},
        Goal(1.5),
    ),
)
"""Rows with the goals for the fast path (`coordinator_core/fast_path.py`), compared with 2e47a83.

`stubs` sends a Produce and an EndTxn, as unary calls."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Runs of this tree divided by those of the other, round by round."""

    middle: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def ratio_of(here: Sequence[Run], there: Sequence[Run], field: str) -> Ratio | None:
    """Return the quotients of a field; None if it was not measured in both."""
    pairs = [(getattr(one, field), getattr(other, field)) for one, other in zip(here, there, strict=False)]
    quotients = [one / other for one, other in pairs if one is not None and other]
    return Ratio(median(quotients), min(quotients), max(quotients)) if quotients else None


def verdict(goal: Goal, rate: Ratio | None, server_us: Ratio | None) -> str:
    """Return the verdict on each goal; empty if there is none."""
    said = []
    if goal.rate_min is not None:
        said.append((f"rate {goal.rate_min:g}", rate is not None and rate.middle >= goal.rate_min))
    if goal.server_us_max is not None:
        said.append(
            (f"server time {goal.server_us_max:g}", server_us is not None and server_us.middle <= goal.server_us_max)
        )
    return ", ".join(f"{what}: {'reached' if is_reached else 'missed'}" for what, is_reached in said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    asked = _parse(arguments)
    _CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="alternate-", dir=asked.dir or _CACHE))
    try:
        pairs = _measure(asked.rows, [HERE, asked.other], directory, asked.runs, QUICK if asked.quick else FULL)
        head = machine(directory) | versions()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lines = table(pairs, has_goals=not asked.quick)
    head |= {"this tree": commit_of(HERE), "the other": commit_of(asked.other), "rounds": str(asked.runs)}
    print("\n".join([*(f"- {name}: {value}" for name, value in head.items()), "", *lines]))
    if asked.json is not None:
        asked.json.write_text(json.dumps({"head": head, "rows": list(map(_as_json, pairs))}, indent=2) + "\n")
    return int(any(result.problem for _, *pair in pairs for result in pair) or any("missed" in line for line in lines))


Pair = tuple[Compared, Result, Result]
"""A row, with its results for this tree and for the other."""


def _measure(rows: Sequence[Compared], trees: Sequence[Path], directory: Path, runs: int, scale: Scale) -> list[Pair]:
    with ExitStack() as ending:
        servers = []
        for number, tree in enumerate(trees):
            server = OwnServer(directory / str(number), tree=tree)
            server.start()
            ending.callback(server.stop)
            _create_topic(server)
            servers.append(server)
        found = list(measure({"": [_row(compared, servers, scale) for compared in rows]}, runs, _say))
    return list(zip(rows, found[::2], found[1::2], strict=True))


def _create_topic(server: OwnServer) -> None:
    """Create the topic with the tree's own txnctl. Raises: LoadFailed."""
    command = [*server.txnctl, "topic", "create", TOPIC]
    command += ["--partitions", str(PARTITIONS), "--server", server.endpoint]
    output_of(command, "txnctl topic create", folder=server.tree)


def _row(compared: Compared, servers: Sequence[OwnServer], scale: Scale) -> Row:
    contenders = [
        Contender(Side.OURS, str(server.tree), FLUSHED, partial(_load, compared, server, scale)) for server in servers
    ]
    return Row(compared.label, compared.unit, contenders)


def _load(compared: Compared, server: OwnServer, scale: Scale) -> Run:
    """Run the tree's own load program. Raises: LoadFailed."""
    spans = {"warm_up_s": scale.warm_up_s, "measured_s": scale.measured_s}
    command, environment = load_command(
        compared.program, of_server(server) | compared.settings | spans, server.python, server.tree
    )
    return run_of_output(output_of(command, f"the load program {compared.program}", environment, server.tree))


def table(pairs: Sequence[Pair], *, has_goals: bool) -> list[str]:
    """Return a line for each row."""
    columns = ["row", "here", "there", "rate here : there", "server us here", "there", "server us here : there"]
    lines = [f"| {' | '.join([*columns, 'goal'])} |", f"|{' --- |' * (len(columns) + 1)}"]
    for compared, here, there in pairs:
        if problem := here.problem or there.problem:
            lines.append(f"| {compared.label} | failed: {problem} |" + " |" * (len(columns) - 1))
            continue
        rate, server_us = (ratio_of(here.runs, there.runs, field) for field in ("figure", "server_us"))
        cells = [compared.label, *(f"{number(each.figure or 0)} {compared.unit.name}" for each in (here, there))]
        cells += [str(rate), *(number(each.median_of("server_us") or 0) for each in (here, there)), str(server_us)]
        lines.append(f"| {' | '.join([*cells, verdict(compared.goal, rate, server_us) if has_goals else ''])} |")
    return lines


def _as_json(pair: Pair) -> dict[str, object]:
    compared, here, there = pair
    return {
        "row": compared.label,
        "problem": here.problem or there.problem,
        "here": [asdict(run) for run in here.runs],
        "there": [asdict(run) for run in there.runs],
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.alternate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, metavar="TREE", help="the root of another working tree, with its .venv")
    parser.add_argument("--rows", nargs="+", default=[""], metavar="WORD", help="those whose labels hold one of these")
    parser.add_argument("--quick", action="store_true", help="everything briefly; the figures are not for quoting")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help=f"rounds [{_ROUNDS}; with --quick 1]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single run")
    parser.add_argument("--dir", type=Path, help="where stores are written; must be on the disk that is to be measured")
    asked = parser.parse_args(arguments)
    asked.other = asked.other.resolve()
    if not (asked.other / "coordinator_server").is_dir():
        parser.error(f"{asked.other} holds no coordinator_server: name the root of a working tree of this project")
    if not (asked.other / ".venv").is_dir():
        parser.error(f"{asked.other} has no .venv: run `make venv` there first")
    asked.rows = [row for row in ROWS if any(word in row.label for word in asked.rows)]
    if not asked.rows:
        parser.error(f"there is no such row; there are: {'; '.join(row.label for row in ROWS)}")
    asked.runs = asked.runs or (1 if asked.quick else _ROUNDS)
    return asked


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
