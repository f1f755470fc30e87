"""A program of the benchmarks that is ended takes its servers with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
"""A hang, not slowness."""
PROGRAM = """
import sys
from pathlib import Path
from bench.server import OwnServer

server = OwnServer(Path(sys.argv[1]))
server.start()
try:
    print("serving", flush=True)
    sys.stdin.read()
finally:
    server.stop()
    print("the server has ended", flush=True)
"""


@pytest.mark.slow
def test_sigterm_ends_it_with_its_servers(tmp_path: Path) -> None:
    """`timeout` left the servers of every benchmark that it ended."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "serving\n"
    program.send_signal(signal.SIGTERM)
    said, _ = program.communicate(timeout=LIMIT_S)
    assert said == "the server has ended\n"
