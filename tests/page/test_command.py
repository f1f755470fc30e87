"""`txnctl page`, and the page beside `txnctl dev`: their refusals, and their messages."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from coordinator_server.exits import ExitStatus
from tests.cli.terminal import Terminal
from tests.harness import forked
from tests.harness.certificates import Authority
from txnctl.commands import page, serve
from txnctl.commands.page_process import MISSING


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "0.0.0.0:7080"], "other machines can reach"),
        (["--listen", "nowhere"], "no HOST:PORT"),
        (["--page-certificate-file", "x"], "go together"),
    ],
)
def test_a_place_that_is_not_safe_is_refused(txnctl: Terminal, arguments: list[str], words: str) -> None:
    done = txnctl("page", *arguments)
    assert (done.status, words in done.stderr) == (ExitStatus.USAGE, True)


def test_a_page_has_no_credentials_of_its_own(txnctl: Terminal, tmp_path: Path) -> None:
    ca_file = Authority(tmp_path, "ca").ca_file
    done = txnctl("--tls-ca-file", str(ca_file), "--token-file", "x", "page")
    assert done.status == ExitStatus.USAGE
    assert "log in on the page" in done.stderr


def test_without_its_packages_a_page_says_so(txnctl: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "is_page_installed", lambda: False)
    done = txnctl("page")
    assert (done.status, MISSING in done.stderr) == (ExitStatus.USAGE, True)


def beside(listen: str, credentials: object = None) -> Any:
    listener: Any = SimpleNamespace(address="127.0.0.1:7070", credentials=credentials)
    return serve._page_beside(listener, listen)


def test_a_server_without_a_page_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert beside("off") is None
    assert capsys.readouterr().out == ""
    assert beside("127.0.0.1:0", credentials=object()) is None
    assert "--tls-ca-file" in capsys.readouterr().out
    monkeypatch.setattr(serve, "is_page_installed", lambda: False)
    assert beside("127.0.0.1:0") is None
    assert capsys.readouterr().out == f"txnctl dev: no page for the browser: {MISSING}\n"


@pytest.mark.slow
def test_a_server_to_try_out_has_a_page_that_ends_with_it() -> None:
    command = [sys.executable, "-m", "txnctl", "dev", "--listen", "127.0.0.1:0", "--page", "127.0.0.1:0"]
    with forked.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert "gRPC on" in server.stdout.readline()
        address = None
        while address is None:
            line = server.stdout.readline()
            assert line, "it told no page"
            address = re.search(r"txnctl page: (http://\S+) shows the server on", line)
        with urlopen(address[1]) as answer:
            assert b"Overview" in answer.read()
        server.send_signal(signal.SIGTERM)
        # The page holds the same pipe: its end is there once both are gone.
        server.stdout.read()
    assert server.returncode == 0
