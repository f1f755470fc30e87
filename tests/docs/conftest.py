"""A server as the README starts one (`txnctl dev`), and what its commands may leave in a checkout."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from scripts.tree_files import is_ignored, patterns_in
from tests.docs.fences import PROGRAMS, ROOT


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """HOST:PORT of a fresh server on a free port."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
    command: list[str | Path] = [PROGRAMS / "txnctl", "dev", "--listen", "127.0.0.1:0", "--page", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            said = re.search(r"gRPC on (\S+),", server.stdout.readline())
            assert said is not None
            yield said[1]
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0


@pytest.fixture
def leaves_what_git_ignores(tmp_path: Path) -> Iterator[None]:
    """Readers of a page type its commands in a checkout, so git ignores what they make there, and no check reads
    it."""
    yield
    patterns = patterns_in((ROOT / ".gitignore").read_text())
    left = [
        path
        for path in tmp_path.iterdir()
        if not is_ignored(PurePosixPath(path.name), patterns, is_folder=path.is_dir())
    ]
    assert not left, f"name them in .gitignore, and below tool.ruff in pyproject.toml: {left}"
