"""Certificates: those of a server, checked before they are used, and those of callers, which identify them.

Only this module imports the library that reads them. The library takes 9 MB of memory, so this module is only loaded if
a listener has TLS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coordinator_protocol.acls import principal_named
from coordinator_protocol.errors import Refused
from coordinator_runtime.clock import Clock
from coordinator_server.security.authentication import NameRule, NameSource, Reason, Unauthenticated
from coordinator_server.security.tls import (
    CERTIFICATE_SETTING,
    CLIENT_CA_SETTING,
    KEY_SETTING,
    Credentials,
    TlsFiles,
    TlsRefused,
)

_CALLERS_KEPT: Final = 10_000
"""Size of the cache of parsed certificates of callers."""
_PEM: Final = b"-----BEGIN"
_GENERAL_NAMES: Final[Mapping[NameSource, Any]] = {
    NameSource.URI: x509.UniformResourceIdentifier,
    NameSource.DNS: x509.DNSName,
    NameSource.EMAIL: x509.RFC822Name,
}


def read_credentials(files: TlsFiles, now_ms: int) -> Credentials:
    """Read the files and check that they can serve. Raises TlsRefused."""
    certificate = _content(files.certificate_file, CERTIFICATE_SETTING)
    key = _content(files.key_file, KEY_SETTING)
    leaf = _certificates(files.certificate_file, certificate, CERTIFICATE_SETTING)[0]
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    _check_time(files.certificate_file, leaf, now)
    _check_usage(files.certificate_file, leaf)
    _check_key(files, leaf, key)
    client_ca = None
    if files.client_ca_file is not None:
        client_ca = _content(files.client_ca_file, CLIENT_CA_SETTING)
        authorities = _certificates(files.client_ca_file, client_ca, CLIENT_CA_SETTING)
        if all(each.not_valid_after_utc <= now for each in authorities):
            raise TlsRefused(
                f"every certificate in {files.client_ca_file} has expired: replace them", CLIENT_CA_SETTING
            )
    ends_ms = int(leaf.not_valid_after_utc.timestamp() * 1000)
    return Credentials(
        certificate=certificate, key=key, client_ca=client_ca, client_auth=files.client_auth, ends_ms=ends_ms
    )


def _content(file: Path, setting: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TlsRefused(f"{file} cannot be read: {error.strerror}", setting) from error


def _certificates(file: Path, content: bytes, setting: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise TlsRefused(f"{file} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)", setting) from error


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
            f"the key in {files.key_file} is encrypted: write it without a passphrase, readable by this user alone",
            KEY_SETTING,
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsRefused(
            f"{files.key_file} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", KEY_SETTING
        ) from error
    ours = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if ours != leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        raise TlsRefused(
            f"the key in {files.key_file} is not that of the certificate in {files.certificate_file},"
            " whose first certificate must be the server's",
            KEY_SETTING,
        )


class CertificateNames:
    """Maps the certificates of callers to principals, on one listener. Implements
    `authentication.CertificatePrincipals`.

    The handshake verified them when the connection was made. Their issuer may have been removed from the CA file since,
    so that is checked again, and so is their expiry.
    """

    def __init__(self, client_ca: Callable[[], bytes | None], rule: NameRule, clock: Clock) -> None:
        """Set up the rule of one listener. `client_ca` returns the current content of its CA file."""
        self._client_ca = client_ca
        self._rule = rule
        self._pattern = None if rule.pattern is None else re.compile(rule.pattern)
        self._clock = clock
        self._known = lru_cache(_CALLERS_KEPT)(self._look_into)

    def of_certificates(self, certificates: tuple[bytes, ...]) -> str:
        principal, ends_ms = self._known(certificates, self._client_ca() or b"")
        if ends_ms <= self._clock.wall_ms():
            raise Unauthenticated(Reason.EXPIRED_CERTIFICATE, principal)
        return principal

    def _look_into(self, certificates: tuple[bytes, ...], client_ca: bytes) -> tuple[str, int]:
        chain = [_certificate(each) for each in certificates]
        authorities = x509.load_pem_x509_certificates(client_ca)
        if not any(_leads_to(each, chain[1:], authorities) for each in chain[:1]):
            raise Unauthenticated(Reason.UNKNOWN_CA, chain[0].subject.rfc4514_string())
        return self._principal(chain[0]), int(chain[0].not_valid_after_utc.timestamp() * 1000)

    def _principal(self, certificate: x509.Certificate) -> str:
        found = []
        for name in _names(certificate, self._rule.source):
            if self._pattern is None:
                found.append(name)
            elif (match := self._pattern.fullmatch(name)) is not None:
                found.append(match[1] if self._pattern.groups else name)
        subject = certificate.subject.rfc4514_string()
        if len(found) != 1:
            raise Unauthenticated(Reason.NO_PRINCIPAL, f"{len(found)} names by the rule: {subject}")
        try:
            return principal_named(found[0])
        except Refused as refusal:
            raise Unauthenticated(Reason.NO_PRINCIPAL, f"{subject}: {refusal.message}") from refusal


def _certificate(content: bytes) -> x509.Certificate:
    """Load a certificate in PEM or DER, as the transports have it."""
    return (x509.load_pem_x509_certificate if content.startswith(_PEM) else x509.load_der_x509_certificate)(content)


def _leads_to(
    certificate: x509.Certificate, between: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]
) -> bool:
    """Return True if one of the authorities signed it, directly or through the certificates in between."""
    if certificate in authorities or any(_is_signed_by(certificate, each) for each in authorities):
        return True
    return any(
        _is_signed_by(certificate, each) and _leads_to(each, [other for other in between if other != each], authorities)
        for each in between
    )


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate, source: NameSource) -> list[str]:
    if source is NameSource.SUBJECT:
        return [certificate.subject.rfc4514_string()]
    if source is NameSource.CN:
        return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name) for name in alternatives.get_values_for_type(_GENERAL_NAMES[source])]
