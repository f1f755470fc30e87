"""Certificates rotate under load: every call is answered, and connections made afterwards get what is new."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator_client import Admin, Producer, Tls, read
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front.transports import TransportName
from tests.harness.certificates import Authority, Pair
from tests.harness.server_process import ServerProcess
from tests.harness.transports import BOTH, VARIABLE, skip_what_is_missing

CALLERS = 4

pytestmark = pytest.mark.slow


class Callers:
    """Threads that connect anew for every call, one after the other, without trying again."""

    def __init__(self, address: str, bundle: Path, client: Pair) -> None:
        self._address, self._bundle, self._client = address, bundle, client
        self._is_over = threading.Event()
        self.answered = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._call_again_and_again) for _ in range(CALLERS)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for each in self._threads:
            each.start()
        try:
            yield
        finally:
            self._is_over.set()
            for each in self._threads:
                each.join()

    def _call_again_and_again(self) -> None:
        shown = (self._client.key.read_bytes(), self._client.certificate.read_bytes())
        credentials = grpc.ssl_channel_credentials(self._bundle.read_bytes(), *shown)
        while not self._is_over.is_set():
            with grpc.secure_channel(self._address, credentials, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                try:
                    health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                    self.answered += 1
                except grpc.RpcError as error:
                    self.failures.append(f"{error.code()}: {error.details()}")


def serial_served(server: ServerProcess, bundle: Path, client: Pair) -> int:
    """The number of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=bundle)
    context.load_cert_chain(client.certificate, client.key)
    context.set_alpn_protocols(["h2"])
    plug = socket.create_connection((server.host, server.port))
    with context.wrap_socket(plug, server_hostname=server.host) as spoken:
        found = spoken.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found).serial_number


def serial_of(pair: Pair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes()).serial_number


@pytest.mark.parametrize("rotations", [2, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize("transport", BOTH)
def test_no_call_fails_while_certificates_rotate(tmp_path: Path, transport: TransportName, rotations: int) -> None:
    skip_what_is_missing(transport)
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(old.ca_file.read_bytes() + new.ca_file.read_bytes())
    pair, client, own = old.issue("server"), old.issue("client"), old.issue("own")
    settings = (
        *("--set", f"tls_certificate_file={pair.certificate}", "--set", f"tls_key_file={pair.key}"),
        *("--set", f"tls_client_ca_file={bundle}", "--set", "tls_client_auth=required"),
    )
    with ServerProcess(tmp_path / "data", *settings, environment={VARIABLE: transport}) as server:
        tls = Tls(ca_file=bundle, certificate_file=own.certificate, key_file=own.key)
        with Admin(server.address, tls=tls) as admin:
            admin.create_topic("t")
        callers = Callers(server.address, bundle, client)
        with callers.at_work(), Producer(server.address, transactional_id="p", tls=tls) as producer:
            for number in range(rotations):
                # From one CA to the other, as a change of the CA is done: both are trusted meanwhile.
                authority = new if number % 2 else old
                pair.replace_by(authority.issue("next"))
                own.replace_by(authority.issue("own-next"))
                while serial_served(server, bundle, client) != serial_of(pair):
                    with producer.transaction() as transaction:
                        transaction.send("t", b"meanwhile")
                with producer.transaction() as transaction:
                    transaction.send("t", b"%d" % number)
        assert callers.failures == []
        assert callers.answered > CALLERS * rotations
        values = [record.value for record in read("t", server.address, tls=tls) if record.value != b"meanwhile"]
        assert values == [b"%d" % number for number in range(rotations)]
        assert server.terminate() == ExitStatus.OK
    assert server.output.count("credentials_changed") == rotations
