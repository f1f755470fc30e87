"""Callers of the secure demo's server, each with a token and TLS, and commands that run as one of them."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from examples.demo_parts.failures import CommandFailed

if TYPE_CHECKING:
    from coordinator_client import Tls

LASTS: Final = timedelta(hours=1)
"""Lifetime of the certificate: longer than any demo."""


class People:
    """A server's certificate and the tokens of its callers, as files in a directory."""

    def __init__(self, directory: Path, *names: str) -> None:
        """Create a token for each principal in `names`. Raises: CommandFailed."""
        self.ca_file = directory / "server.crt"
        self.key_file = directory / "server.key"
        self.tokens_file = directory / "tokens.toml"
        self._directory = directory
        _make_certificate(self.ca_file, self.key_file)
        for name in names:
            made = txnctl(
                "token", "create", str(self.tokens_file), "--id", name, "--principal", f"User:{name}", "--expires", "1h"
            )
            _write_secret(self._token_file(name), made.encode())

    def tls(self, name: str | None) -> Tls:
        """Return the TLS settings for the SDK of a principal; without a token for None, an unauthenticated caller."""
        from coordinator_client import Tls

        return Tls(ca_file=self.ca_file, token_file=None if name is None else self._token_file(name))

    def txnctl(self, name: str, *arguments: str, server: str) -> str:
        """Run txnctl as a principal; return its output. Raises: CommandFailed."""
        files = ("--tls-ca-file", str(self.ca_file), "--token-file", str(self._token_file(name)))
        return txnctl(*files, *arguments, "--server", server)

    def _token_file(self, name: str) -> Path:
        return self._directory / f"{name}.token"


def txnctl(*arguments: str) -> str:
    """Run txnctl; return its output. Raises: CommandFailed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TXN_", "TXNCTL_"))}
    command = [sys.executable, "-m", "txnctl", *arguments]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CommandFailed(f"txnctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _make_certificate(certificate_file: Path, key_file: Path) -> None:
    """Write a certificate for this machine that is its own CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "demo")])
    now = datetime.now(UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    # Clocks of containers are sometimes a little behind.
    builder = builder.not_valid_before(now - LASTS).not_valid_after(now + LASTS).add_extension(hosts, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate_file.write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    _write_secret(key_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write_secret(path: Path, content: bytes) -> None:
    """Make a file that other users can never read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
