"""Completion of names from the server, in a real bash and in the words of the other shells."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer
from tests.cli.terminal import Ended, Terminal
from tests.harness.server_process import ROOT, ServerProcess
from txnctl.cli import command_tree
from txnctl.commands.completing import place_completion

NO_SERVER = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "position", "placed"),
    [
        ("txnctl --json topic describe or", 4, "txnctl topic describe --output json or"),
        ("txnctl --server a:1 topic describe ", 5, "txnctl topic describe --server a:1"),
        ("txnctl topic describe --wait 3s or", 5, "txnctl --wait 3s topic describe or"),
        ("txnctl topic describe --out", 3, "txnctl topic describe --out"),
        ("txnctl topic list --output ", 4, "txnctl topic list --output"),
        ("txnctl topic describe 'open", 3, "txnctl topic describe ''\"'\"'open'"),
    ],
)
def test_options_before_the_command_do_not_hide_it(words: str, position: int, placed: str) -> None:
    bash = {"_TXNCTL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    place_completion(command_tree(), bash)
    assert bash["COMP_WORDS"] == placed
    rest = shlex.split(placed)[int(bash["COMP_CWORD"]) :]
    assert rest == ([] if words.endswith(" ") else [words.rsplit(maxsplit=1)[-1]])
    for shell in ("zsh", "fish"):
        line = {"_TXNCTL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
        place_completion(command_tree(), line)
        assert line["_TYPER_COMPLETE_ARGS"] == placed + (" " if words.endswith(" ") else "")


def test_without_a_completion_nothing_is_placed() -> None:
    environment = {"COMP_WORDS": "txnctl --json topic", "COMP_CWORD": "2"}
    place_completion(command_tree(), environment)
    assert environment["COMP_WORDS"] == "txnctl --json topic"


def completed(txnctl: Terminal, monkeypatch: pytest.MonkeyPatch, line: str, shell: str = "fish") -> Ended:
    with monkeypatch.context() as patch:
        patch.setenv("_TXNCTL_COMPLETE", f"complete_{shell}")
        patch.setenv("_TYPER_COMPLETE_ARGS", f"txnctl {line}")
        patch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        return txnctl()


@pytest.mark.parametrize("line", ["topic describe ", "group members ", "describe ", "explain ", "--json consume o"])
def test_a_server_that_is_away_gives_no_names_and_no_message(
    txnctl: Terminal, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    done = completed(txnctl, monkeypatch, f"--server {NO_SERVER} {line}")
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        with Admin(process.address) as admin:
            for name in ("orders", "orders.retry", "payments"):
                admin.create_topic(name, 2)
        for name in ("billing-1", "billing-2", "b $(touch hurt); x", "shipping"):
            with Producer(process.address, transactional_id=name) as producer, producer.transaction() as transaction:
                transaction.send("orders", b"1", partition=0)
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_names_come_from_the_server(
    txnctl: Terminal, monkeypatch: pytest.MonkeyPatch, server: ServerProcess, shell: str
) -> None:
    def found(line: str) -> set[str]:
        stdout = completed(txnctl, monkeypatch, f"{line}", shell).well().stdout
        return {word.strip("\"'()") for word in stdout.replace("_arguments '*: :((", "").split()}

    monkeypatch.setenv("TXNCTL_SERVER", server.address)
    assert found("topic describe or") == {"orders", "orders.retry"}
    assert found("explain pay") == {"payments", "payments-0", "payments-1"}
    assert found("describe b") == {"billing-1", "billing-2"}
    assert found("--json describe ship") == {"shipping"}
    assert not found("topic create or") & {"orders", "orders.retry"}


@pytest.mark.slow
def test_a_real_bash_completes_names_and_runs_none(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "txnctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m txnctl "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_TXNCTL_COMPLETE=source_bash txnctl)"
        complete -p txnctl
        for line in 'topic describe or' '--json describe b' 'topic desc'; do
            COMP_WORDS=(txnctl); for word in $line; do COMP_WORDS+=("$word"); done
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            $(complete -p txnctl | sed 's/.*-F \\([^ ]*\\) .*/\\1/') txnctl
            echo "$line: ${COMPREPLY[*]}" | tr '\\n' ' '; echo
        done
    """
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": path,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
            "TXNCTL_SERVER": server.address,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert [line.strip() for line in done.stdout.splitlines()[1:]] == [
        "topic describe or: orders orders.retry",
        "--json describe b: billing-1 billing-2",
        "topic desc: describe",
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["txnctl"]
