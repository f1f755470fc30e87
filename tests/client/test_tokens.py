"""Clients that show a token: to a real server, whose tokens file and theirs change under them."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from coordinator_client import Admin, AsyncProducer, Connection, Misconfigured, Tls, read
from coordinator_client.transport.transport import SESSION, UNARY
from coordinator_server.security.tokens import new_token
from tests.harness.certificates import Authority
from tests.harness.in_process import InProcessServer, in_process_server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


class Files:
    """The tokens file of the server and the token file of one client."""

    def __init__(self, directory: Path) -> None:
        self.server, self.client = directory / "tokens.toml", directory / "token"
        self._given = 0
        self.replace_token()

    def replace_token(self) -> None:
        """Only a new token counts, and the client has it."""
        self._given += 1
        token, table = new_token(f"t{self._given}", bytes([self._given]) * 32, "User:etl", None)
        self.server.write_text(table)
        self.client.write_text(f"{token}\n")

    def withdraw(self) -> None:
        self.server.write_text("# nobody\n")


def settings(authority: Authority, files: Files) -> dict[str, object]:
    pair = authority.issue("server")
    return {
        "tls_certificate_file": pair.certificate,
        "tls_key_file": pair.key,
        "authentication": "token",
        "tokens_file": files.server,
        "super_users": "User:etl",
    }


def take_up(server: InProcessServer) -> None:
    """Do the server's work of every second and of every few seconds."""
    for kept in server.listeners.identities.reloading:
        kept.look()
    server.listeners.check_credentials()


@pytest.mark.parametrize("transport", [SESSION, UNARY])
async def test_a_producer_goes_on_with_a_new_token_and_stops_without_one(
    authority: Authority, tmp_path: Path, transport: str
) -> None:
    files = Files(tmp_path)
    async with in_process_server(**settings(authority, files)) as server:
        tls = Tls(ca_file=authority.ca_file, token_file=files.client)
        connection = Connection(str(server.address), transport=transport, tls=tls)
        await asyncio.to_thread(Admin(connection).create_topic, "t")
        async with AsyncProducer(connection, transactional_id="p") as producer:
            for number in range(3):
                async with producer.transaction() as txn:
                    await txn.send("t", b"%d" % number)
                files.replace_token()
                take_up(server)
            files.withdraw()
            take_up(server)
            with pytest.raises(Misconfigured, match="authentication required"):
                async with producer.transaction() as txn:
                    await txn.send("t", b"3")
        files.replace_token()
        take_up(server)
        records = await asyncio.to_thread(lambda: [record.value for record in read("t", connection)])
        assert records == [b"0", b"1", b"2"]
        connection.close()


def test_a_token_file_is_checked_and_its_content_never_shown(authority: Authority, tmp_path: Path) -> None:
    secret, file = "txl_a_verysecret", tmp_path / "token"
    for content in ("", "\n", "two words\n", f"{secret}\n{secret}\n", "b\xe4h"):
        file.write_text(content)
        with pytest.raises(Misconfigured, match="token holds no token: a token is one word, on one line") as refused:
            Tls(ca_file=authority.ca_file, token_file=file)
        assert secret not in str(refused.value)
    with pytest.raises(Misconfigured, match="gone cannot be read: No such file"):
        Tls(ca_file=authority.ca_file, token_file=tmp_path / "gone")
    file.write_text(secret)
    tls = Tls(ca_file=authority.ca_file, token_file=file)
    assert secret.encode() not in pickle.dumps(tls) + repr(tls).encode()
