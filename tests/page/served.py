"""The page as a process that serves it, for a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness import forked


@contextmanager
def served_page(server: str, *options: str) -> Iterator[str]:
    """The address of a page of the server, until the end of the block. `options` are those of `txnctl` itself."""
    command = [sys.executable, "-m", "txnctl", *options, "page", "--listen", "127.0.0.1:0", "--server", server]
    with forked.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+/", process.stdout.readline())
            assert found is not None, "it told no address"
            yield found[0].rstrip("/")
        finally:
            process.terminate()
