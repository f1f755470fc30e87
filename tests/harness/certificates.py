"""Certificates for tests: an authority of the test's own, and what it signs, as PEM files in a directory.

authority = Authority(tmp_path, "ca")
server = authority.issue("server")                      # server.crt, server.key, for localhost and 127.0.0.1
authority.issue("server", name="next")                  # other files, for a rotation
server.replace_by(authority.issue("next"))              # the same paths, other contents
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as two files."""

    certificate: Path
    key: Path

    def replace_by(self, other: Pair) -> None:
        """Give these paths the contents of the other pair, each file in one step."""
        other.key.replace(self.key)
        other.certificate.replace(self.certificate)


class Authority:
    """Signs certificates; its own lies in `ca_file`."""

    def __init__(self, directory: Path, name: str, lasts: timedelta = 10 * DAY) -> None:
        self.directory = directory
        self.ca_file = directory / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key.public_key(), timedelta(), lasts)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = builder.sign(self._key, SHA256())
        self.ca_file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *hosts: str,
        since: timedelta = timedelta(),
        lasts: timedelta = DAY,
        is_server: bool = True,
    ) -> Pair:
        """NAME.crt and NAME.key, for these hosts (localhost and 127.0.0.1 if none are named), for clients and, by
        default, servers. Valid from `since` from now, for as long as it `lasts`, which negative numbers put into the
        past."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key.public_key(), since, lasts)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts or ("localhost", "127.0.0.1")]),
            critical=False,
        )
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_server else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        certificate = builder.sign(self._key, SHA256())
        pair = Pair(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        pair.key.chmod(0o600)
        return pair


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, since: timedelta, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin, end = sorted((now + since - timedelta(minutes=1), now + since + lasts))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
