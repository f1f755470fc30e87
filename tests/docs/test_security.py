"""docs/security.md goes from nothing to mTLS and ACLs as it says, line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coordinator_server.settings.config import Config
from tests.docs.fences import PROGRAMS, commands, fences, programs
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.tools import require_tool
from tests.ops.prometheus_process import free_port

pytestmark = pytest.mark.usefixtures("leaves_what_git_ignores")

PAGE = "docs/security.md"


def test_its_listeners_are_a_configuration() -> None:
    (block,) = (block for block in fences(PAGE) if block.language == "toml")
    config = Config.model_validate({"data_dir": Path("d")} | tomllib.loads(block.text))
    addresses = [str(each.address) for each in config.all_listeners()]
    assert addresses == ["0.0.0.0:7070", "unix:/run/txn-coordinator/server.sock"]
    assert config.insecure_listeners() == ()


@pytest.mark.long
@pytest.mark.slow
def test_from_nothing_to_mtls_and_acls(tmp_path: Path) -> None:
    require_tool("openssl")
    ((program, promised),) = programs(PAGE)
    port = free_port()
    lines = "\n".join(commands(PAGE)).replace("7070", str(port))
    # The last lines are those of a reader who tries what the page says of others.
    tried = "\n".join(
        [
            "set -eu",
            "trap 'kill %1; wait' EXIT",
            lines,
            f"{sys.executable} -c '{program.text.replace('7070', str(port))}'",
            "as till-1 topic delete orders --yes || echo refused $?",
            "as till-1 produce payments < /dev/null || echo refused $?",
            "as till-1 acl list || echo refused $?",
            "as till-1 acl check User:till-1 write --topic orders",
            "txnctl topic list || echo status $?",
            "TXNCTL_TLS_CA_FILE=tls/ca.pem txnctl topic list || echo status $?",
        ]
    )
    environment = os.environ | {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "TXNCTL_SERVER": f"127.0.0.1:{port}",
        "TXN_TRANSPORT": "grpc",
    }
    shell = subprocess.Popen(
        ["bash", "-m", "-c", tried],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=4 * DEADLINE_SECONDS)
    except BaseException:
        os.killpg(shell.pid, signal.SIGKILL)
        raise
    assert shell.returncode == 0, said
    assert promised in said
    assert said.count("status 5") == 2
    assert said.count("refused 1") == 3
    assert "User:till-1 may not delete topic 'orders'" in said
    assert "allow User:till-1 write topic 'orders'" in said
    assert "it demands a certificate of its clients" in said
    assert "it may want TLS (name a CA file)" in said


def test_it_takes_ten_lines() -> None:
    assert len(commands(PAGE)) == 10
