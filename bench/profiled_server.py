"""Our server with a sampler in its loop thread: `python -m bench.profiled_server serve ...`.

SIGUSR1 starts sampling. SIGUSR2 ends it and writes the stacks to the file that BENCH_PROFILE names.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

from bench.thread_timer import ThreadTimer
from txnctl.cli import main

FILE_VARIABLE: Final = "BENCH_PROFILE"
_INTERVAL_US: Final = 1_000

Stack = tuple[str, ...]


class Sampler:
    """Counts the stacks of the main thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stacks: Counter[Stack] = Counter()
        self._timer = ThreadTimer(signal.SIGPROF)
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, lambda *_: self._timer.start(_INTERVAL_US))
        signal.signal(signal.SIGUSR2, lambda *_: self._end())

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            # Generated constructors have a namespace of their own.
            module = frame.f_globals.get("__name__") or "generated"
            stack.append(f"{module}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        self._stacks[tuple(stack)] += 1

    def _end(self) -> None:
        self._timer.start(0)
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        stacks = [[count, list(stack)] for stack, count in self._stacks.items()]
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(
            json.dumps({"threads": names, "loop": threading.main_thread().native_id, "stacks": stacks})
        )
        unfinished.rename(self._file)


if __name__ == "__main__":
    Sampler(Path(os.environ[FILE_VARIABLE]))
    main()
