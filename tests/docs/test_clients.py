"""docs/clients.md and the client it points to: what it says is what this server does, tried in another language."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from coordinator_client import read
from coordinator_protocol.errors import ErrorClass
from coordinator_protocol.hashing import murmur2, partition_for
from tests.docs.fences import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text()
INSTALL_SECONDS_MAX = 300
"""For an installation that hangs: packages come over a network."""


def test_the_vectors_of_the_partitioner_are_right() -> None:
    vectors = re.findall(r"^\| `(.+)` \| (-?\d+) \|$", PAGE, re.MULTILINE)
    assert len(vectors) == 6
    assert vectors == [(key, str(murmur2(key.encode()))) for key, _ in vectors]


def test_every_class_of_error_has_its_line() -> None:
    named = re.findall(r"^\| ([A-Z_]+) \|", PAGE, re.MULTILINE)
    assert named == [one.name for one in ErrorClass if one is not ErrorClass.NONE]


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its packages, in a tree of its own that has the .proto files where it looks for them."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"the client in Node.js is not tried: there is no {program} here")
    tree = tmp_path_factory.mktemp("node")
    shutil.copytree(
        ROOT / "examples" / "node", tree / "examples" / "node", ignore=shutil.ignore_patterns("node_modules")
    )
    shutil.copytree(ROOT / "proto", tree / "proto", ignore=shutil.ignore_patterns("*.py", "*.pyi", "__pycache__"))
    folder = tree / "examples" / "node"
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_client_in_another_language_commits_aborts_and_reads(node_client: Path, endpoint: str) -> None:
    command = ["node", "transfers.mjs", endpoint, "node-transfers"]
    done = subprocess.run(command, cwd=node_client, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = {(row.partition, row.offset, row.key, row.value) for row in read("node-transfers", endpoint)}
    # What it printed is what our own reader finds, so encodings, positions and hidden records agree; and each record is
    # where our partitioner looks for its key.
    assert set(done.stdout.splitlines()) == {f"{p} {o} {key.decode()} {value.decode()}" for p, o, key, value in seen}
    assert sorted((key, value) for _, _, key, value in seen) == [
        (b"alice", b"-30"),
        (b"alice", b"-5"),
        (b"bob", b"30"),
        (b"carol", b"5"),
    ]
    assert all(partition == partition_for(key, 2) for partition, _, key, _ in seen)
