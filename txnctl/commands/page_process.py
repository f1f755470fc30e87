"""The page beside a server for trying things out: a process that ends with the one that started it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import IO, Final

MISSING: Final = "the page needs the extra `page`: pip install 'txn-coordinator[server,page]'"
_PACKAGES: Final = ("jinja2", "starlette", "uvicorn")
_STOP_SECONDS_MAX: Final = 5
DEFAULT_LISTEN: Final = "127.0.0.1:7080"
OFF: Final = "off"
"""Address that stands for no page."""


def is_page_installed() -> bool:
    """Return True if the packages of the extra `page` are there."""
    return all(find_spec(name) is not None for name in _PACKAGES)


class PageProcess:
    """A running `txnctl page`. It tells its address itself."""

    def __init__(self, server: str, listen: str, out: IO[str] | None = None) -> None:
        """`out` is the file to which the page writes its address; None = stdout of this process."""
        command = [sys.executable, "-m", "txnctl", "page", "--listen", listen, "--server", server, "--leash"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, process_group=0)

    def stop(self) -> None:
        """End the page."""
        assert self._process.stdin is not None, "a pipe was asked for"
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
