"""Listeners for Kafka's protocol of a real server process, and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from coordinator_server.exits import ExitStatus
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.security.tokens import new_token
from coordinator_server.settings.config import Config
from tests.harness.certificates import Authority
from tests.harness.kafka_line import frame
from tests.harness.kafka_socket import KafkaSocket, kafka_address
from tests.harness.server_process import ServerProcess

API_VERSIONS = frame(ApiKey.API_VERSIONS, 0, 7)


def handshake(mechanism: str) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, 1, 1, len(mechanism).to_bytes(2, "big") + mechanism.encode())


def plain(password: str) -> bytes:
    message = b"\0user\0" + password.encode()
    return frame(ApiKey.SASL_AUTHENTICATE, 0, 2, len(message).to_bytes(4, "big") + message)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--set", "kafka_listen=127.0.0.1:0") as running:
        yield running


@pytest.mark.slow
def test_a_server_speaks_kafka_beside_grpc_and_ends_cleanly(server: ServerProcess) -> None:
    address = kafka_address(server)
    with KafkaSocket(address) as client, KafkaSocket(address) as idle:
        answer = client.ask(API_VERSIONS)
        assert answer[:6] == b"\0\0\0\7\0\0"
        with KafkaSocket(address) as browser:
            assert browser.ask(b"GET / HTTP/1.1\r\n\r\n") == b""
        assert client.ask(API_VERSIONS) == answer, "another connection is not disturbed"
        assert server.terminate() == ExitStatus.OK
        assert idle.is_closed_by_server()
    assert server.output.count("kind=not_kafka") + server.output.count('"kind": "not_kafka"') == 1


@pytest.mark.slow
def test_tls_and_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("server")
    tokens = tmp_path / "tokens.toml"
    token, table = new_token("etl", bytes(range(32)), "User:etl", None, scram_salt=b"salt")
    tokens.write_text(table, encoding="utf-8")
    settings = {
        "kafka_listen": "127.0.0.1:0",
        "kafka_tls_certificate_file": pair.certificate,
        "kafka_tls_key_file": pair.key,
        "kafka_authentication": "token,scram",
        "tokens_file": tokens,
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with ServerProcess(tmp_path / "data", *arguments) as server:
        address = kafka_address(server)
        with KafkaSocket(address, authority.ca_file) as client:
            assert client.ask(handshake("PLAIN"))[4:6] == b"\0\0"
            assert client.ask(plain(token))[4:6] == b"\0\0"
            assert client.ask(API_VERSIONS)[4:6] == b"\0\0"
        with KafkaSocket(address, authority.ca_file) as thief:
            thief.ask(handshake("PLAIN"))
            assert thief.ask(plain(token[:-1] + "x"))[4:6] == b"\0\x3a"
            assert thief.is_closed_by_server()
        with KafkaSocket(address) as plaintext:
            assert plaintext.ask(API_VERSIONS) == b""
        assert server.terminate() == ExitStatus.OK


def config(**settings: object) -> Config:
    return Config.model_validate({"data_dir": Path("d"), **settings})


def test_nothing_listens_unless_it_is_set() -> None:
    assert config().all_kafka_listeners() == ()


def test_each_listener_advertises_its_own_address() -> None:
    more = [{"listen": "127.0.0.1:9094", "advertised": "kafka.example:9094"}]
    found = config(kafka_listen="127.0.0.1:9092", kafka_listeners=more).all_kafka_listeners()
    assert [(each.listen, each.advertised) for each in found] == [
        ("127.0.0.1:9092", None),
        ("127.0.0.1:9094", "kafka.example:9094"),
    ]


def test_a_token_may_travel_without_tls_on_this_machine_alone() -> None:
    tokens = {"kafka_authentication": "token", "tokens_file": Path("t")}
    assert config(kafka_listen="127.0.0.1:9092", **tokens).all_kafka_listeners()[0].methods
    with pytest.raises(ValidationError, match="a token that travels without TLS"):
        config(kafka_listen="0.0.0.0:9092", insecure=True, **tokens)


def test_a_listener_that_others_reach_needs_protection() -> None:
    with pytest.raises(ValidationError, match=r"kafka_listen = 0\.0\.0\.0:9092: others can reach it"):
        config(kafka_listen="0.0.0.0:9092")
    assert len(config(kafka_listen="0.0.0.0:9092", insecure=True).insecure_listeners()) == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"kafka_advertised": "kafka.example:9092"},
        {"kafka_authentication": "token", "tokens_file": Path("t")},
        {"kafka_tls_certificate_file": Path("c"), "kafka_tls_key_file": Path("k")},
    ],
)
def test_a_setting_of_a_listener_that_is_not_there_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=f"{next(iter(setting))} is set, and kafka_listen is not"):
        config(**setting)


def test_scram_is_of_kafka_alone() -> None:
    with pytest.raises(ValidationError, match="scram is for listeners of Kafka's protocol"):
        config(authentication="scram", tokens_file=Path("t"))
    with pytest.raises(ValidationError, match="needs tokens_file"):
        config(kafka_listen="127.0.0.1:9092", kafka_authentication="scram")


def test_authentication_of_kafka_alone_enforces_acls() -> None:
    asking = config(kafka_listen="127.0.0.1:9092", kafka_authentication="scram", tokens_file=Path("t"))
    assert asking.core_config().enforces_acls


def test_a_setting_of_a_further_listener_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValidationError, match="advertized"):
        config(kafka_listeners=[{"listen": "127.0.0.1:9094", "advertized": "x:1"}])
