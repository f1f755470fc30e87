"""The certificates and keys of a server, checked before they are used.

The one importer of the library that reads them. It takes 9 MB of memory, so this module is loaded where a listener has
TLS, and not before.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator_server.tls import Credentials, TlsFiles, TlsRefused


def read_credentials(files: TlsFiles, now_ms: int) -> Credentials:
    """Read the files and check that they can serve. Raises TlsRefused."""
    certificate, key = _content(files.certificate_file), _content(files.key_file)
    leaf = _certificates(files.certificate_file, certificate)[0]
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    _check_time(files.certificate_file, leaf, now)
    _check_usage(files.certificate_file, leaf)
    _check_key(files, leaf, key)
    client_ca = None
    if files.client_ca_file is not None:
        client_ca = _content(files.client_ca_file)
        authorities = _certificates(files.client_ca_file, client_ca)
        if all(each.not_valid_after_utc <= now for each in authorities):
            raise TlsRefused(f"every certificate in {files.client_ca_file} has expired: replace them")
    ends_ms = int(leaf.not_valid_after_utc.timestamp() * 1000)
    return Credentials(certificate, key, client_ca, files.client_auth, ends_ms)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TlsRefused(f"{file} cannot be read: {error.strerror}") from error


def _certificates(file: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise TlsRefused(f"{file} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)") from error


def _check_time(file: Path, certificate: x509.Certificate, now: datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        raise TlsRefused(f"the certificate in {file} expired at {end:%Y-%m-%d %H:%M} UTC: replace it")
    if now < begin:
        raise TlsRefused(
            f"the certificate in {file} is not valid before {begin:%Y-%m-%d %H:%M} UTC:"
            " wait, or set the clock of this machine"
        )


def _check_usage(file: Path, certificate: x509.Certificate) -> None:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage):
        raise TlsRefused(f"the certificate in {file} is not one of a server (its extended key usage lacks serverAuth)")


def _check_key(files: TlsFiles, leaf: x509.Certificate, key: bytes) -> None:
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError as error:
        raise TlsRefused(
            f"the key in {files.key_file} is encrypted: write it without a passphrase, readable by this user alone"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsRefused(f"{files.key_file} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)") from error
    ours = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if ours != leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        raise TlsRefused(
            f"the key in {files.key_file} is not that of the certificate in {files.certificate_file},"
            " whose first certificate must be the server's"
        )
