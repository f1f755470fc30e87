"""Certificates and tokens of one measurement, as files in a directory of its own."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def new_tokens(directory: Path, *names: str) -> tuple[Path, list[Path]]:
    """Create a token of `User:NAME` for each name. Returns the tokens file of the server, and a token file for each
    name."""
    tokens_file, files = directory / "tokens.toml", []
    for name in names:
        command = [sys.executable, "-m", "txnctl", "token", "create", str(tokens_file)]
        command += ["--principal", f"User:{name}", "--id", name]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        file = directory / f"{name}.token"
        file.touch(mode=0o600)
        file.write_text(made.stdout)
        files.append(file)
    return tokens_file, files


def new_authority(directory: Path) -> tuple[Path, Callable[[str], Path]]:
    """Create a CA. Returns its certificate, and a function that creates NAME.crt and NAME.key."""
    ca_key, ca_file = ec.generate_private_key(ec.SECP256R1()), directory / "ca.pem"
    ca = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> bytes:
        now = datetime.now(UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(ca_key, SHA256()).public_bytes(Encoding.PEM)

    def issue(name: str) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        (directory / f"{name}.crt").write_bytes(certificate(subject, key, is_ca=False))
        key_file = directory / f"{name}.key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return directory / name

    ca_file.write_bytes(certificate(ca, ca_key, is_ca=True))
    return ca_file, issue
