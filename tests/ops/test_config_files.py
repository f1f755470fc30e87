"""The example configurations start a server, and what they leave out has its default."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from coordinator_server.exits import ExitStatus
from coordinator_server.settings.config import Config
from tests.harness import forked
from tests.harness.long_cases import long_but
from tests.harness.server_process import DEADLINE_SECONDS, ServerProcess
from tests.ops.files import OPS

FILES = ("config/dev.toml", "config/prod.toml", "docker/server.toml", "kubernetes/base/server.toml")
RUN_ON_A_HOST = ("config/dev.toml", "config/prod.toml")


@pytest.mark.parametrize("name", FILES)
def test_it_is_a_configuration_without_a_word_too_many(name: str) -> None:
    settings = tomllib.loads((OPS / name).read_text())
    config = Config.model_validate(settings | {"insecure": name not in RUN_ON_A_HOST})
    assert config.metrics_listen is not None
    told = {"listen", "transaction_max_timeout_ms", "log_level"}
    """Named although they are the defaults, because an operator will look for them."""
    for setting, value in settings.items():
        assert setting in told or Config.model_fields[setting].default != value, f"{setting} is the default"


@pytest.mark.parametrize("name", FILES)
def test_the_lines_for_kafkas_clients_make_a_listener(name: str) -> None:
    lines = (OPS / name).read_text().splitlines()
    used = (line.removeprefix("# ") if line.startswith("# kafka_") else line for line in lines)
    settings = tomllib.loads("\n".join(used))
    config = Config.model_validate(settings | {"insecure": name not in RUN_ON_A_HOST})
    (listener,) = config.all_kafka_listeners()
    assert listener.address.port == 9092


@pytest.mark.parametrize("name", RUN_ON_A_HOST)
def test_on_a_host_no_other_user_gets_in_by_the_example(name: str) -> None:
    settings = tomllib.loads((OPS / name).read_text())
    for setting in ("listen", "metrics_listen"):
        assert settings[setting].startswith("127.0.0.1:"), setting


@pytest.mark.slow
@pytest.mark.parametrize("name", long_but({"config/prod.toml", "kubernetes/base/server.toml"}.__contains__, FILES))
def test_a_server_starts_with_it(name: str, tmp_path: Path) -> None:
    # Directories and ports are the test's own; everything else is the file's.
    socket = json.dumps([{"listen": f"unix:{tmp_path / 'socket'}"}])
    arguments = ("--config", str(OPS / name), "--set", "metrics_listen=127.0.0.1:0", "--set", f"listeners={socket}")
    arguments += ("--set", f"backup_directory={tmp_path / 'backups'}")
    with ServerProcess(tmp_path / "data", *arguments) as server:
        for address in (server.address, f"unix:{tmp_path / 'socket'}"):
            health = [sys.executable, "-m", "txnctl", "health", "--server", address]
            forked.run(health, check=True, capture_output=True, timeout=DEADLINE_SECONDS)
        assert server.terminate() == ExitStatus.OK
