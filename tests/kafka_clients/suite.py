"""A suite, and the place where it runs: a server of this tree, a cache, and a way to start programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from tests.kafka_clients.cache import Cache
from tests.kafka_clients.results import Case, Outcome

STEP: Final = "ok "
"""A line of a story that begins so names a step that succeeded."""


class Finished(msgspec.Struct, frozen=True):
    """A program that ended, or was ended at its time limit (status None)."""

    status: int | None
    output: str

    def last_line(self) -> str:
        """Return the last line with text, shortened to fit a table."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:200] if lines else "no output"


class Place(msgspec.Struct, frozen=True):
    """What a suite gets: the address of a server of its own, the cache, and a directory for its files."""

    address: str
    """HOST:PORT of the listener for Kafka's protocol."""
    cache: Cache
    directory: Path
    another_server: Callable[[Sequence[str]], AbstractContextManager[str]]
    """Starts one more server, with the settings of the suite and these, and gives its address."""

    def run(
        self,
        command: Sequence[str | Path],
        *,
        timeout_s: int,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Finished:
        """Run a program to its end, with stdout and stderr in one text."""
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=folder or self.directory,
            env=os.environ | dict(environment or {}),
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return Finished(None, f"{output}\nended after {timeout_s} s")
        return Finished(process.returncode, output)


class Suite(msgspec.Struct, frozen=True):
    """Tests of one client, and the way to run them."""

    name: str
    client: str
    version: str
    content: str
    """What of the client runs, as a noun phrase for the table."""
    run: Callable[[Place], list[Case]]
    settings: tuple[str, ...] = ()
    """Further settings of the server, as NAME=VALUE."""


def story_cases(finished: Finished) -> list[Case]:
    """Return a case for each step of a story, and a failed one for the step at which it ended early."""
    steps = [
        Case(line.removeprefix(STEP), Outcome.PASSED) for line in finished.output.splitlines() if line.startswith(STEP)
    ]
    if finished.status != 0:
        steps.append(Case(f"step {len(steps) + 1}", Outcome.FAILED, finished.last_line()))
    return steps
