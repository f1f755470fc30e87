"""Secrets are planted wherever a server and its clients meet them, and then looked for in all output and all that is
kept: logs, metrics, settings, answers, errors, the words of txnctl, the crash, the store."""

from __future__ import annotations

import json
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm

from coordinator_api.v1 import transaction_pb2
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_client import Admin, Producer, Tls, TransactionError
from coordinator_runtime.clock import SystemClock
from coordinator_server.grpc_front.transports import TransportName
from coordinator_server.security.tokens import new_token
from tests.cli.terminal import Terminal
from tests.harness.certificates import Authority, Pair
from tests.harness.failing_server import ERROR_VARIABLE, POISON, STEP_VARIABLE
from tests.harness.patience import DEADLINE_SECONDS, looks
from tests.harness.server_process import ServerProcess
from tests.harness.special_server import LOOK_VARIABLE
from tests.harness.transports import VARIABLE, skip_what_is_missing
from tests.harness.web_tokens import Issuer
from tests.server.fake_servicer import FIND_COORDINATOR

pytestmark = pytest.mark.slow
PASSPHRASE = "PLANTED-PASSPHRASE"


@dataclass
class Planted:
    """All secrets, and all output."""

    secrets: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def token(self, name: str, secret: str) -> str:
        """Plant a token of either kind. Its last part is the secret that only its owner can know."""
        self.secrets[name] = secret.rpartition("." if secret.startswith("ey") else "_")[2]
        return secret

    def key(self, name: str, file: Path) -> None:
        self.secrets |= {f"{name}, line {number}": line for number, line in enumerate(_inside(file.read_text()))}

    def found(self, text: str) -> list[str]:
        return [name for name, secret in self.secrets.items() if secret in text]


def _inside(pem: str) -> Iterator[str]:
    """The lines that only this key has: not the first, which names the kind of key."""
    yield from (line for line in pem.splitlines()[2:] if not line.startswith("-----") and len(line) > 20)


class Place:
    """The files of a server that takes certificates and tokens of both kinds, and of its clients."""

    def __init__(self, directory: Path, planted: Planted) -> None:
        self.directory, self.planted = directory, planted
        self.authority, self.issuer = Authority(directory, "ca"), Issuer(directory, SystemClock())
        self.server, self.client = self.authority.issue("server"), self.authority.issue("client")
        for pair in (self.server, self.client):
            planted.key(pair.key.name, pair.key)
        self.tokens_file = directory / "tokens.toml"
        self.shown = self._tokens()

    def _tokens(self) -> dict[str, Path]:
        """Write the tokens that callers show, right and wrong; return their files by name."""
        tables, made = [], {}
        for number, name in enumerate(("admin", "withdrawn")):
            made[name], table = new_token(name, bytes([number + 1]) * 32, f"User:{name}", None)
            tables.append(table)
        self.tokens_file.write_text(tables[0])
        for kid in ("kept", "removed"):
            self.issuer.add_key(kid)
            made[kid] = self.issuer.token(kid, "jane")
        self.issuer.remove_key("removed")
        made["forged"] = f"{made['kept'].rpartition('.')[0]}.{made['removed'].rpartition('.')[2]}"
        made["wrong"] = f"{made['admin'][:-20]}{'w' * 20}"
        made["no bearer"] = "PLANTED-no-bearer_at-all-nothing-like-a-token"
        files = {}
        for name, secret in made.items():
            files[name] = self.directory / f"{name}.token"
            files[name].write_text(self.planted.token(name, secret))
        return files

    @property
    def settings(self) -> dict[str, object]:
        return self.issuer.settings | {
            "tls_certificate_file": self.server.certificate,
            "tls_key_file": self.server.key,
            "tls_client_ca_file": self.authority.ca_file,
            "tls_client_auth": "required",
            "authentication": "certificate,token,jwt",
            "tokens_file": self.tokens_file,
            "super_users": "User:admin",
            "metrics_listen": "127.0.0.1:0",
            "log_level": "debug",
        }

    def tls(self, token: str) -> Tls:
        pair = self.client
        return Tls(
            ca_file=self.authority.ca_file,
            certificate_file=pair.certificate,
            key_file=pair.key,
            token_file=self.shown[token],
        )

    def flags(self, token: str) -> list[str]:
        named = {
            "--tls-ca-file": self.authority.ca_file,
            "--tls-certificate-file": self.client.certificate,
            "--tls-key-file": self.client.key,
            "--token-file": self.shown[token],
        }
        return [word for flag, file in named.items() for word in (flag, str(file))]


def _ask_as_everybody(place: Place, server: ServerProcess, txnctl: Terminal) -> None:
    told = place.planted.told
    for name in place.shown:
        for words in (("topic", "list"), ("acl", "list"), ("list",), ("health",), ("probe", "--count", "1")):
            ended = txnctl(*place.flags(name), *words, "--server", server.address)
            told += [ended.stdout, ended.stderr]
        try:
            told.append(repr(place.tls(name)))
            with Admin(server.address, tls=place.tls(name)) as admin:
                told.append(repr((admin, admin.create_topic(f"of-{name.replace(' ', '-')}"))))
        except TransactionError:
            told.append(traceback.format_exc())
        told += _asked_raw(place, server, place.shown[name].read_text())
    with (
        Producer(server.address, transactional_id="p", tls=place.tls("admin")) as producer,
        producer.transaction() as txn,
    ):
        txn.send("of-admin", b"value")
    told += [repr(producer), repr(txn)]


def _asked_raw(place: Place, server: ServerProcess, secret: str) -> Iterator[str]:
    """Yield the answers to requests of other clients, right or not."""
    with _raw_channel(place, server) as channel:
        for said in (f"Bearer {secret}", f"Basic {secret}", secret, f"Bearer  {secret}", f"Bearer {secret},{secret}"):
            for body in (b"", secret.encode()):
                call = channel.unary_unary(FIND_COORDINATOR)
                try:
                    yield repr(call(body, metadata=(("authorization", said),), timeout=DEADLINE_SECONDS))
                except grpc.RpcError:
                    yield traceback.format_exc()


def _raw_channel(place: Place, server: ServerProcess) -> grpc.Channel:
    files = (place.authority.ca_file, place.client.key, place.client.certificate)
    return grpc.secure_channel(server.address, grpc.ssl_channel_credentials(*(file.read_bytes() for file in files)))


def _break_the_files(place: Place, log: Log) -> None:
    """Mistakes of operators, each of which the server tells in its log while it serves on."""
    secret = place.shown["admin"].read_text()
    whole = place.tokens_file.read_text()
    for broken in (
        f'[[tokens]]\nid = "x"\nprincipal = "User:x"\nsha256 = "{secret}"\n',
        f"[[tokens]\n{secret}\n",
        secret,
    ):
        place.tokens_file.write_text(broken)
        log.see("tokens_refused")
        place.tokens_file.write_text(whole)
        log.see("tokens_changed")
    own = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)
    place.planted.secrets["private JWK"] = own["d"]
    place.issuer.rules.key_set_file.write_text(json.dumps({"keys": [own | {"kid": "own"}]}))
    log.see("key_set_refused")
    _see_with_key(place, log, _with_passphrase(place.server))
    _see_with_key(place, log, place.server.key.read_bytes()[:-60])
    # The key where the certificate belongs.
    place.server.certificate.write_bytes(place.server.key.read_bytes())
    log.see("credentials_refused")


def _with_passphrase(pair: Pair) -> bytes:
    key = load_pem_private_key(pair.key.read_bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE.encode()))


def _see_with_key(place: Place, log: Log, content: bytes) -> None:
    whole = place.server.key.read_bytes()
    place.server.key.write_bytes(content)
    place.planted.key(f"broken key {len(content)}", place.server.key)
    log.see("credentials_refused")
    place.server.key.write_bytes(whole)


class Log:
    """Log of a server, event by event."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._seen: Counter[str] = Counter()

    def see(self, event: str) -> None:
        """Wait until it tells one more of these."""
        for _ in looks(f"a line {event}"):
            if (number := self._server.output.count(event)) > self._seen[event]:
                self._seen[event] = number
                return

    def metrics_address(self) -> str:
        line = next(line for line in self._server.output.splitlines() if "serving_metrics" in line)
        return re.findall(r"127\.0\.0\.1:\d+", line)[0]


@pytest.mark.parametrize(("name", "log_format"), [(TransportName.GRPC, "json"), (TransportName.NATIVE, "console")])
def test_no_secret_is_told_or_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: TransportName,
    log_format: str,
) -> None:
    skip_what_is_missing(name)
    txnctl, planted = Terminal(monkeypatch), Planted({"passphrase": PASSPHRASE})
    place, told = Place(tmp_path, planted), planted.told
    environment = {
        VARIABLE: name,
        LOOK_VARIABLE: "0.1",
        "TXN_LOG_FORMAT": log_format,
        ERROR_VARIABLE: "EIO",
        STEP_VARIABLE: "write",
    }
    environment |= {f"TXN_{name.upper()}": str(value) for name, value in place.settings.items()}
    data_dir = tmp_path / "data"
    server = ServerProcess(data_dir, module="tests.harness.failing_server", environment=environment)
    log = Log(server)
    with server:
        _ask_as_everybody(place, server, txnctl)
        flags = [word for name, value in place.settings.items() for word in ("--set", f"{name}={value}")]
        told.append(txnctl("config", "show", "--data-dir", str(data_dir), *flags).well().stdout)
        told.append(txnctl("token", "list", str(place.tokens_file)).well().stdout)
        _break_the_files(place, log)
        with urlopen(f"http://{log.metrics_address()}/metrics", timeout=DEADLINE_SECONDS) as page:
            told.append(page.read().decode())
        with _raw_channel(place, server) as channel:
            poison = transaction_pb2.InitProducerIdRequest(transactional_id=POISON, transaction_timeout_ms=60_000)
            shown = (("authorization", f"Bearer {place.shown['admin'].read_text()}"),)
            told.append(repr(TransactionServiceStub(channel).InitProducerId(poison, metadata=shown)))
        server.wait()
    told.append(server.output)
    whole = "\n".join([*told, caplog.text])
    # Values that are no secrets are there, so secrets were looked for in the right places.
    for public in (
        "User:jane",
        "bad_signature",
        "unknown_token",
        "unknown_key",
        "no_bearer",
        "fail_stop",
        "tokens.toml",
    ):
        assert public in whole, public
    assert not planted.found(whole)
    for file in data_dir.rglob("*"):
        if file.is_file():
            assert not planted.found(file.read_bytes().decode("latin-1")), file
