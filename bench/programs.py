"""Programs that are run to their end for what they print."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from bench.results import LoadFailed, Run

_LOAD_S_MAX: Final = 900


def output_of(command: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return what it printed. Raises: LoadFailed with its last words."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LOAD_S_MAX, env=environment
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
