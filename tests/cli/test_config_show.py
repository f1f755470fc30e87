"""`txnctl config show`: every value, and where it came from."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from coordinator_server.settings.config import Config
from tests.cli.terminal import Ended, Terminal
from txnctl.commands.serve import serve, show


def by_name(shown: Ended) -> dict[str, Any]:
    return {setting["name"]: setting for setting in shown.well().document}


def test_every_setting_is_shown_with_its_origin(
    txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "txn.toml"
    file.write_text('listen = "127.0.0.1:1"\nnode_id = 3\nlog_level = "debug"\n')
    monkeypatch.setenv("TXN_NODE_ID", "4")
    monkeypatch.setenv("TXN_LOG_LEVEL", "error")
    settings = by_name(
        txnctl("config", "show", "--config", str(file), "--data-dir", "d", "--set", "log-level=warning", "-o", "json")
    )
    assert list(settings) == list(Config.model_fields)
    assert settings["data_dir"] == {"name": "data_dir", "value": "d", "origin": "flag"}
    assert settings["listen"] == {"name": "listen", "value": "127.0.0.1:1", "origin": f"file {file}"}
    assert settings["node_id"] == {"name": "node_id", "value": 4, "origin": "environment TXN_NODE_ID"}
    assert settings["log_level"] == {"name": "log_level", "value": "warning", "origin": "flag"}
    assert settings["shard_count"] == {"name": "shard_count", "value": 64, "origin": "default"}


def test_a_directory_is_not_needed_to_see_the_rest(txnctl: Terminal) -> None:
    settings = by_name(txnctl("config", "show", "-o", "json"))
    assert settings["data_dir"] == {"name": "data_dir", "value": None, "origin": "not set"}
    (line,) = (each for each in txnctl("config", "show").well().lines if each.startswith("data_dir "))
    assert "not set" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "shard_cuont=3"], "shard_cuont (flag) is unknown; did you mean shard_count?"),
        (["--set", "node_id=x", "--data-dir", "d"], "node_id = 'x' (flag)"),
        (["--set", "node_id=x"], "node_id = 'x' (flag)"),
        (["--config", "gone.toml"], "gone.toml cannot be read"),
        (["--set", "node_id"], "write NAME=VALUE"),
    ],
)
def test_what_serve_would_refuse_is_refused(txnctl: Terminal, words: list[str], said: str) -> None:
    txnctl("config", "show", *words).refused(2, said)


def test_it_takes_the_flags_of_serve() -> None:
    assert signature(serve).parameters.keys() == signature(show).parameters.keys() - {"output"}


def test_a_misspelt_variable_is_refused(txnctl: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXN_LISTE", "x")
    txnctl("config", "show").refused(2, "TXN_LISTE is unknown; did you mean TXN_LISTEN?")
