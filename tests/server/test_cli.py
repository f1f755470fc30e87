"""`txnctl` as a user meets it: help, version, mistakes in words, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_runtime.running_version import running_version
from coordinator_server.exits import CommandFailed, ExitStatus
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ROOT
from txnctl import cli


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """`txnctl ARGUMENTS` in this process: exit status, stdout, stderr."""
    for name in list(os.environ):
        if name.startswith("TXN_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["txnctl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), said.out, said.err


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    return lambda *arguments: run(monkeypatch, capsys, *arguments)


def test_help_lists_the_commands(txnctl) -> None:
    status, out, _ = txnctl("--help")
    assert status == ExitStatus.OK
    assert "serve" in out
    assert "dev" in out


def test_without_a_command_the_help_is_shown(txnctl) -> None:
    status, out, err = txnctl()
    assert status == ExitStatus.USAGE
    assert "Commands" in out + err


def test_help_of_serve_explains_its_options_and_statuses(txnctl) -> None:
    status, out, _ = txnctl("serve", "--help")
    assert status == ExitStatus.OK
    for words in ("--data-dir", "--listen", "--two-phase", "--accept-data-loss", "--set", "--config", "70"):
        assert words in out


def test_version(txnctl) -> None:
    assert txnctl("--version") == (ExitStatus.OK, f"txnctl {running_version()}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], "txnctl: data_dir is not set: give --data-dir"),
        (["serve", "--data-dir", "d", "--listen", "here"], "txnctl: listen = 'here' (flag): 'here' is no HOST:PORT"),
        (
            ["serve", "--data-dir", "d", "--two-phase", "three"],
            "txnctl: two_phase = 'three' (flag): must be 'fused'",
        ),
        (["serve", "--data-dir", "d", "--set", "node_id"], "txnctl: --set node_id: write NAME=VALUE"),
        (["serve", "--data-dir", "d", "--set", "nodeid=1"], "txnctl: nodeid (flag) is unknown; did you mean node_id?"),
        (["serve", "--data-dir", "d", "--config", "gone.toml"], "the configuration file gone.toml cannot be read"),
        (["serve", "--data-dri", "d"], "No such option"),
        (["sevre"], "No such command 'sevre'"),
    ],
)
def test_a_mistake_is_said_in_words_and_nothing_is_done(
    txnctl, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = txnctl(*arguments)
    assert status == ExitStatus.USAGE
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failed_command_says_what_and_ends_with_its_status(txnctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_command_line: object) -> None:
        raise CommandFailed(ExitStatus.STORE_REFUSED, "first line\nsecond line")

    monkeypatch.setattr(cli, "place_options", fail)
    assert txnctl() == (ExitStatus.STORE_REFUSED, "", "txnctl: first line\ntxnctl: second line\n")


def test_a_defect_is_said_in_words_and_how_to_see_more(txnctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_command_line: object) -> None:
        raise KeyError("ours")

    monkeypatch.delenv(cli.TRACEBACK_VARIABLE, raising=False)
    monkeypatch.setattr(cli, "place_options", break_down)
    status, _, err = txnctl()
    assert status == ExitStatus.FAILED
    assert "a defect of txnctl, please report it: KeyError: 'ours'" in err
    assert "set TXNCTL_TRACEBACK=1" in err


@pytest.mark.slow
def test_help_needs_neither_the_network_nor_the_store() -> None:
    source = (
        "import sys; from txnctl import cli; sys.argv = ['txnctl', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'grpc', 'rocksdict', 'pydantic', 'structlog', 'uvloop', 'pyarrow', 'pyspark'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    _run_alone(source)


@pytest.mark.slow
def test_a_server_without_tls_does_not_load_what_reads_certificates() -> None:
    _run_alone(
        "import sys, coordinator_server.build, coordinator_server.process\n"
        "assert 'cryptography' not in sys.modules, 'it takes 9 MB of memory'"
    )


def _run_alone(source: str) -> None:
    subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"},
        check=True,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
