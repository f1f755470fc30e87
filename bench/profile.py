"""Shows where the microseconds of a transaction go in the server: `make profile`.

The load is that of the case `transactions`. The processor time of each thread comes from the kernel. That of the loop
thread is divided by samples of its Python stack, one for every few milliseconds of its own processor time. Time in C
code counts for the Python function that called it. C code without such a caller (uvloop, gRPC's Cython) has a row of
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.arena import TOPIC, WITH_FRONT, create_topic, of_server
from bench.kafka_clients import KAFKA_CLIENTS, Times
from bench.load.transactions import DRIVERS
from bench.machine import machine, versions
from bench.processes import processor_seconds_of_threads
from bench.profiled_server import FILE_VARIABLE
from bench.programs import load_command, output_of, run_of_output
from bench.results import LoadFailed, Run
from bench.server import OwnServer

_FUNCTIONS_SHOWN: Final = 30
_CACHE: Final = Path(__file__).resolve().parent.parent / ".cache" / "bench"
_DUMP_S_MAX: Final = 300
_IN_C: Final = "(uvloop and gRPC, in C)"
_LOOP_MODULES: Final = frozenset({"asyncio.runners", "asyncio.base_events"})
"""Modules of the innermost Python frames when no Python function of a callback runs."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Processor time by thread, and samples of the loop thread."""

    transactions: int
    threads_us: Mapping[str, float]
    """Microseconds per transaction, by thread."""
    loop_us: float
    stacks: Mapping[tuple[str, ...], int]
    """Numbers of samples by stack, innermost function first."""

    @property
    def samples(self) -> int:
        return sum(self.stacks.values())

    def share_of(self, modules: Collection[str]) -> float:
        """Return the share of these modules, and of packages with these names, in the time of all threads. A module
        counts with everything that it calls."""
        within = tuple(f"{module}{end}" for module in modules for end in ".:")
        found = sum(count for stack, count in self.stacks.items() if any(each.startswith(within) for each in stack))
        return self.us(found) / sum(self.threads_us.values())

    def us(self, samples: int) -> float:
        """Return the microseconds per transaction that this many samples stand for."""
        return self.loop_us * samples / self.samples if self.samples else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile, and print the tables as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--driver", choices=[*DRIVERS, *KAFKA_CLIENTS], default="SDK", help="client")
    parser.add_argument("--producers", type=int, default=64)
    parser.add_argument("--value-bytes", type=int, default=1_024, help="of each of the three records")
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args(arguments)
    _CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="profile-", dir=_CACHE))
    try:
        found, run = profile(directory, asked)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    head = {**machine(_CACHE), **versions()}
    print("\n".join(f"- {name}: {value}" for name, value in head.items()))
    print(
        f"- {asked.producers} producers, 3 x {asked.value_bytes} bytes, client {asked.driver}: {run.figure:,.0f} txn/s,"
        f" {found.transactions:,} transactions, {found.samples:,} samples\n"
    )
    print("\n".join(tables(found)))
    return 0


def profile(directory: Path, asked: argparse.Namespace) -> tuple[Profile, Run]:
    """Run the load on a server of its own. Raises: CannotRun, LoadFailed."""
    if asked.driver in KAFKA_CLIENTS:
        return _profile_front(directory, asked)

    def load(server: OwnServer) -> Run:
        settings: dict[str, object] = {"driver": asked.driver, "producers": asked.producers, "topic": TOPIC}
        settings |= {"value_bytes": asked.value_bytes, "warm_up_s": 0, "measured_s": asked.seconds}
        command, environment = load_command("transactions", of_server(server) | settings)
        return run_of_output(output_of(command, "the load program transactions", environment))

    return sampled(directory, load)


def _profile_front(directory: Path, asked: argparse.Namespace) -> tuple[Profile, Run]:
    from bench.kafka.kafka_server import Front
    from bench.kafka.toolchain import find_toolchain

    toolchain = find_toolchain(_CACHE, lambda line: print(line, file=sys.stderr))

    def load(server: OwnServer) -> Run:
        front, times = Front(toolchain, server), Times(warm_up_s=0, measured_s=asked.seconds)
        return KAFKA_CLIENTS[asked.driver].transactions(front, asked.producers, asked.value_bytes, times)

    return sampled(directory, load, WITH_FRONT)


def sampled(directory: Path, load: Callable[[OwnServer], Run], arguments: Sequence[str] = ()) -> tuple[Profile, Run]:
    """Start a server of its own on an empty directory, and profile it under a load on its topic. Raises: LoadFailed,
    and the errors of the load."""
    stacks = directory / "stacks.json"
    os.environ[FILE_VARIABLE] = str(stacks)
    server = OwnServer(directory, module="bench.profiled_server", arguments=arguments)
    server.start()
    try:
        create_topic(server, TOPIC)
        os.kill(server.process_id, signal.SIGUSR1)
        before = processor_seconds_of_threads(server.process_id)
        run = load(server)
        after = processor_seconds_of_threads(server.process_id)
        os.kill(server.process_id, signal.SIGUSR2)
        _wait_for(stacks)
        return read(stacks, before, after, run.operations), run
    finally:
        server.stop()


def read(
    stacks: Path, before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]], transactions: int
) -> Profile:
    """Combine the output of the sampler with the kernel's counters."""
    written = json.loads(stacks.read_text())
    names = {int(thread): name for thread, name in written["threads"].items()}
    threads: Counter[str] = Counter()
    loop_us = 0.0
    for thread, (kernel_name, seconds) in after.items():
        spent_us = (seconds - before.get(thread, ("", 0.0))[1]) * 1e6 / transactions
        if thread == written["loop"]:
            loop_us = spent_us
        threads["the loop" if thread == written["loop"] else names.get(thread, kernel_name)] += spent_us  # type: ignore[assignment]
    counted = {tuple(stack): count for count, stack in written["stacks"]}
    return Profile(transactions, dict(threads), loop_us, counted)


def tables(found: Profile) -> list[str]:
    """Return tables of the threads, then of packages and functions of the loop thread."""
    own, whole = Counter[str](), Counter[str]()
    for stack, count in found.stacks.items():
        inner = stack[0] if stack else _IN_C
        own[_IN_C if inner.partition(":")[0] in _LOOP_MODULES else inner] += count
        for function in set(stack):
            whole[function] += count
    packages: Counter[str] = Counter()
    for function, count in own.items():
        packages[_package(function)] += count
    lines = ["| thread | us per transaction |", "| --- | --- |"]
    lines += [f"| {name} | {us:.1f} |" for name, us in Counter(found.threads_us).most_common() if us >= 0.05]
    lines += ["", "| package, in the loop | us per transaction | share |", "| --- | --- | --- |"]
    lines += [
        f"| {name} | {found.us(count):.1f} | {count / found.samples:.0%} |" for name, count in packages.most_common()
    ]
    lines += ["", "| function, in the loop | own us per transaction | with what it calls |", "| --- | --- | --- |"]
    for name, count in own.most_common(_FUNCTIONS_SHOWN):
        lines.append(f"| {name} | {found.us(count):.1f} | {found.us(max(count, whole[name])):.1f} |")
    return lines


def _package(function: str) -> str:
    module = function.partition(":")[0]
    return (
        module.partition(".")[0]
        if module.startswith(("coordinator_api", "grpc", "google"))
        else ".".join(module.split(".")[:2])
    )


def _wait_for(file: Path) -> None:
    until = time.monotonic() + _DUMP_S_MAX
    while not file.exists():
        if time.monotonic() > until:
            raise LoadFailed("the server did not write its profile")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
