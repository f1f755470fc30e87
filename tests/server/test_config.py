"""Configuration: which source wins, what is said about a mistake, and that every setting is explained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator_protocol.limits import Limits
from coordinator_runtime.rocks import StoreOptions
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_server.addresses import Address, parse_address
from coordinator_server.settings.config import Config
from coordinator_server.settings.config_sources import ConfigRefused, LoadedConfig, load_config
from coordinator_server.traffic.admission import AdmissionLimits
from txn_coordinator.config import TwoPhase


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TXN_"):
            monkeypatch.delenv(name)


def load(tmp_path: Path, file: str | None = None, **flags: object) -> LoadedConfig:
    path = None
    if file is not None:
        path = tmp_path / "txn.toml"
        path.write_text(file)
    return load_config(path, {"data_dir": tmp_path, **flags})


def complaint(tmp_path: Path, file: str | None = None, **flags: object) -> str:
    with pytest.raises(ConfigRefused) as refusal:
        load(tmp_path, file, **flags)
    return str(refusal.value)


def test_the_file_wins_over_the_default_the_environment_over_the_file_and_a_flag_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXN_NODE_ID", "20")
    monkeypatch.setenv("TXN_TWO_PHASE", "split")
    file = "node_id = 10\nbatch_bytes_max = 1000\ntwo_phase = 'fused'\nreserved_calls = 1\n"
    loaded = load(tmp_path, file, node_id="30")
    config, origins = loaded.config, loaded.origins
    assert (config.node_id, origins["node_id"]) == (30, "flag")
    assert (config.two_phase, origins["two_phase"]) == (TwoPhase.SPLIT, "environment TXN_TWO_PHASE")
    assert (config.batch_bytes_max, origins["batch_bytes_max"]) == (1000, f"file {tmp_path / 'txn.toml'}")
    assert (config.shard_count, origins["shard_count"]) == (64, "default")
    assert set(origins) == set(Config.model_fields)


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named.toml").write_text("node_id = 7")
    monkeypatch.setenv("TXN_CONFIG", str(tmp_path / "named.toml"))
    assert load(tmp_path).config.node_id == 7


def test_an_unknown_name_in_the_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    said = complaint(tmp_path, "shard_cout = 3")
    assert said == f"shard_cout (file {tmp_path / 'txn.toml'}) is unknown; did you mean shard_count?"


def test_an_unknown_flag_is_an_error_with_a_hint(tmp_path: Path) -> None:
    assert complaint(tmp_path, two_phases="split") == "two_phases (flag) is unknown; did you mean two_phase?"
    assert complaint(tmp_path, qqq="1") == "qqq (flag) is unknown; `txnctl config show` lists all settings"


def test_an_unknown_variable_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXN_LISTN", "127.0.0.1:1")
    assert complaint(tmp_path) == "the environment variable TXN_LISTN is unknown; did you mean TXN_LISTEN?"


def test_every_mistake_is_said_at_once_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXN_NODE_ID", "first")
    said = complaint(tmp_path, "shard_count = 0", listen="nowhere").splitlines()
    assert said == [
        "listen = 'nowhere' (flag): 'nowhere' is no HOST:PORT with a port from 0 to 65535",
        "node_id = 'first' (environment TXN_NODE_ID): write a whole number",
        f"shard_count = 0 (file {tmp_path / 'txn.toml'}): must be at least 1",
    ]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("node_id = 1.5", "node_id = 1.5 (file {}): write a whole number"),
        ("insecure = 3", "insecure = 3 (file {}): write true or false"),
        ("listen = 7070", "listen = 7070 (file {}): write text, in quotes"),
        ("listen = true", "listen = True (file {}): write text, in quotes"),
        ("tokens_file = 3", "tokens_file = 3 (file {}): write a path, in quotes"),
        ("tokens_file = ''", "tokens_file = '' (file {}): is empty, which would be the working directory"),
        ("log_level = 'loud'", "log_level = 'loud' (file {}): must be 'debug', 'info', 'warning' or 'error'"),
        ("default_retention_ms = -5", "default_retention_ms = -5 (file {}): must be at least -1"),
        ("listeners = 3", "listeners = 3 (file {}): write a list"),
        ("listeners = [3]", "listeners.0 = 3 (file {}): write a table"),
        ("[[listeners]]\nlisten = 3", "listeners.0.listen = 3 (file {}): write text, in quotes"),
        ("[[listeners]]\nlisen = 'x'", "listeners.0.lisen (file {}) is unknown; did you mean listen?"),
        ("[[listeners]]\ninsecure = true", "listeners.0.insecure (file {}) is unknown; there are listen, tls_"),
        ("[[listeners]]", "listeners.0.listen (file {}) is not set"),
        ("group_session_timeout_ms_min = 9999999", "group_session_timeout_ms_min is 9999999 and must be at most"),
        ("group_consumer_session_timeout_ms = 1", "group_consumer_session_timeout_ms is 1 and must be from 45000 to"),
        (
            "group_consumer_heartbeat_interval_ms_max = 99999\ngroup_consumer_heartbeat_interval_ms = 60000",
            "group_consumer_heartbeat_interval_ms is 60000 and must be below group_consumer_session_timeout_ms, 45000",
        ),
    ],
)
def test_a_mistake_is_said_in_our_words_with_setting_value_and_place(tmp_path: Path, file: str, said: str) -> None:
    found = complaint(tmp_path, file)
    assert said.format(tmp_path / "txn.toml") in found.splitlines()[-1]
    assert "Input" not in found


def numbers() -> list[str]:
    return [name for name, field in Config.model_fields.items() if field.annotation is int]


@pytest.mark.parametrize("name", numbers())
@pytest.mark.parametrize("written", ["true", "false"])
def test_a_number_is_neither_true_nor_false(tmp_path: Path, name: str, written: str) -> None:
    """They are 1 and 0 for Python."""
    said = complaint(tmp_path, f"{name} = {written}")
    assert said == f"{name} = {written.title()} (file {tmp_path / 'txn.toml'}): must be a number"


def test_the_settings_that_are_numbers_are_known_and_those_of_every_part_are_among_them() -> None:
    assert {"node_id", "audit_file_max_bytes", "default_retention_ms", "reserved_calls"} <= set(numbers())
    for name, field in Config.model_fields.items():
        is_number = isinstance(field.default, int) and not isinstance(field.default, bool)
        assert (name in numbers()) == is_number, name


def test_true_and_false_stay_what_they_are_where_they_are_asked_for(tmp_path: Path) -> None:
    config = load(tmp_path, "lane = false\nreflection = true\nnode_id = 1\nreserved_calls = 0").config
    assert (config.lane, config.reflection) == (False, True)
    assert (config.node_id, config.reserved_calls) == (1, 0)


def test_no_shard_gets_the_number_that_stands_for_none(tmp_path: Path) -> None:
    """A row that names a coordinator shard has 16 bits for it, and the last number means that none is known."""
    assert "must be at most 65535" in complaint(tmp_path, "shard_count = 65_536")


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    assert "batch_bytes_max is 2000 and must be below message_bytes_max" in complaint(
        tmp_path, batch_bytes_max=2000, message_bytes_max=1000
    )


def test_a_missing_directory_says_how_to_give_one() -> None:
    with pytest.raises(ConfigRefused, match="data_dir is not set: give --data-dir, TXN_DATA_DIR or a line in the file"):
        load_config(None, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file or directory"), ("a =", "is no TOML"), (b"\xff", "is no TOML")],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | bytes | None, said: str) -> None:
    path = tmp_path / "txn.toml"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigRefused, match=said) as refusal:
        load_config(path, {"data_dir": tmp_path})
    assert str(path) in str(refusal.value)


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config = load(tmp_path).config
    with pytest.raises(ValueError, match="frozen"):
        config.node_id = 5


def test_the_defaults_are_those_of_the_parts(tmp_path: Path) -> None:
    config = load(tmp_path).config
    assert config.limits() == Limits()
    assert config.runtime_limits() == RuntimeLimits()
    assert config.admission_limits() == AdmissionLimits()
    assert config.store_options() == StoreOptions()


def test_every_setting_is_explained_and_carries_its_unit() -> None:
    for name, field in Config.model_fields.items():
        assert field.description, f"{name} has no docstring"
        if name.endswith(("timeout", "wait", "interval", "size", "bytes_ms")):
            pytest.fail(f"{name} has no unit in its name")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", Address("127.0.0.1", 7070)),
        ("[::1]:0", Address("::1", 0)),
        ("host.example:65535", Address("host.example", 65_535)),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "7070", "host", "host:", "host:-1", "host:65536", "host:http", "host:٣", "::1:7070"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        parse_address(text)


def test_a_port_without_a_host_says_which_hosts_there_are() -> None:
    with pytest.raises(ValueError, match=r"write 127\.0\.0\.1:7070 for this machine, 0\.0\.0\.0:7070 for all"):
        parse_address(":7070")
