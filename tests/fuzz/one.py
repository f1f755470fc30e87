"""Targets under atheris, one after the other: `python -m tests.fuzz.one DIRECTORY TARGET... [options of libFuzzer]`.

`python -m tests.fuzz` starts it. Instrumenting the product takes longer than a short run, so it is done once, and each
target has a fork of what came of it: a target that breaks or hangs is alone. Its corpus is in `DIRECTORY/TARGET/`, what
it says comes to be in `DIRECTORY/TARGET.said`. For each a line says that it ended, and with what status.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import atheris
import structlog

from tests.fuzz.kept import keep_crash

with atheris.instrument_imports(
    include=[
        "coordinator_client",
        "coordinator_core",
        "coordinator_protocol",
        "coordinator_runtime",
        "coordinator_server",
        "group_coordinator",
        "partition_log",
        "txn_coordinator",
        "txnctl",
    ],
):
    from tests.fuzz.targets import BY_NAME, Story


def main() -> None:
    """Fuzz each target until libFuzzer has had enough, or the target breaks."""
    # Refusals are logged, and every input is refused for something.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    directory, *words = sys.argv[1:]
    options = [word for word in words if word.startswith("-")]
    for name in words:
        if name not in options:
            print(name, _in_a_fork(name, Path(directory), options), flush=True)


def _in_a_fork(name: str, directory: Path, options: Sequence[str]) -> int:
    """Fuzz one target; return the status that it ended with."""
    process_id = os.fork()
    if process_id:
        return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
    said = os.open(directory / f"{name}.said", os.O_WRONLY | os.O_CREAT)
    for each in (1, 2):
        os.dup2(said, each)
    _fuzz(name, [sys.argv[0], str(directory / name), *options])
    os._exit(0)


def _fuzz(name: str, arguments: list[str]) -> None:
    story = Story(BY_NAME[name])

    def attempt(data: bytes) -> None:
        try:
            story.tell(data)
        except BaseException:
            print(f"what broke {name} is kept in {keep_crash(name, story.inputs)}", flush=True)
            raise

    atheris.Setup(arguments, attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
