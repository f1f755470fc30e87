"""Runs a module like `python -m`, and ends with the process that started this one, however that ends.

    python leashed.py MODULE [ARGUMENT ...]

The starting process holds the other end of its standard input and never writes. The operating system closes that end
when its holder is gone, killed or not. Then this process ends at once, with the process group that it leads.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Final

STDIN: Final = 0


def leashed(module: str, *arguments: str) -> list[str]:
    """Return the command for a module. Start it with `stdin=PIPE` and a process group of its own."""
    # Without -P the modules in this folder could hide others of the same name.
    return [sys.executable, "-P", str(Path(__file__).resolve()), module, *arguments]


def _end_with_its_holder() -> None:
    while os.read(STDIN, 1):
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=_end_with_its_holder, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
