"""Programs that are run to their end for their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.results import LoadFailed, Run
from bench.server import HERE

READY: Final = "ready"
"""Line that a load program prints before it waits for a line on its standard input."""
_LOAD_S_MAX: Final = 900
_PROBE_S_MAX: Final = 300


def load_command(
    program: str, settings: Mapping[str, object], python: Path | None = None, tree: Path = HERE
) -> tuple[list[str], dict[str, str]]:
    """Return the command of a load program and its environment. `python` and `tree` choose another Python and working
    tree."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "proto")])}
    interpreter = sys.executable if python is None else str(python)
    return [interpreter, "-m", "bench.load", program, json.dumps(settings)], environment


def output_of(
    command: Sequence[str], what: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> str:
    """Run a program to its end and return its output. `folder` is its working directory. Raises LoadFailed with its
    last lines."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LOAD_S_MAX, env=environment, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{what} took longer than {_LOAD_S_MAX} s") from None
    if done.returncode:
        raise LoadFailed(f"{what} failed: {' / '.join((done.stderr or done.stdout).strip().splitlines()[-3:])}")
    return done.stdout


def run_of_output(printed: str) -> Run:
    """Return the run that a load program printed on its last line. Raises: LoadFailed."""
    lines = printed.strip().splitlines()
    try:
        return Run.from_fields(json.loads(lines[-1]))
    except (IndexError, ValueError):
        raise LoadFailed(f"a load program printed {lines[-1:]} instead of its figures") from None


def begin(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a load program that waits for a line on its standard input, and return once it does. Raises: LoadFailed."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None, "its output was asked for"
    said = process.stdout.readline().strip()
    if said != READY:
        process.kill()
        process.communicate()
        raise LoadFailed(f"a load program said {said!r} instead of being ready")
    return process


def finish(process: subprocess.Popen[str], line: str) -> Run:
    """Send a waiting load program its line, and return its figures. Raises: LoadFailed."""
    try:
        printed, _ = process.communicate(f"{line}\n", timeout=_PROBE_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LoadFailed(f"a load program took longer than {_PROBE_S_MAX} s") from None
    if process.returncode:
        raise LoadFailed(f"a load program ended with {process.returncode}: {printed.strip()[-200:]}")
    return run_of_output(printed)
