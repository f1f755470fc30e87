"""Certificates of listeners: read from files, checked before they are used, and taken up again when the files change.

What is wrong with a file is told to the operator, precisely; a caller only sees a handshake that fails. Files that
change while the server runs are used for connections made from then on, if they are whole: until then, and so between
the two steps of a rotation that replaces key and certificate one after the other, the old ones serve.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator_runtime.clock import Clock

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at. A look that finds nothing new costs a few microseconds."""

_log = structlog.get_logger("tls")


class ClientAuth(StrEnum):
    """Whether callers must show a certificate. Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    """One that is shown must be right; none may be shown."""
    REQUIRED = "required"


class TlsRefused(Exception):
    """A certificate, key or CA file cannot be used. The message says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one listener."""

    certificate_file: Path
    """PEM: the certificate of the server first, then those between it and the CA."""
    key_file: Path
    client_ca_file: Path | None = None
    """PEM: who signs the certificates of callers. Set unless callers show none."""
    client_auth: ClientAuth = ClientAuth.NONE


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the files held at one moment, checked."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    client_auth: ClientAuth
    ends_ms: int
    """When the certificate expires, in Unix milliseconds."""


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


_Signature = tuple[tuple[int, int, int] | None, ...]
"""What changes when a file is replaced, or written again."""


class KeptCredentials:
    """The credentials of one listener: the newest that were right."""

    def __init__(self, files: TlsFiles, clock: Clock) -> None:
        """Raises TlsRefused."""
        self._files = files
        self._clock = clock
        self._seen = _signature(files)
        self._lock = threading.Lock()
        self._is_new = False
        self._has_expired = False
        self.current = read_credentials(files, clock.wall_ms())
        self.on_changed: Callable[[Credentials], None] = lambda _new: None
        """Called with what is about to be used, on the thread that looks; what it refuses with ValueError is not."""
        self.refusal: str | None = None
        """Why the files that lie there now are not used; None if they are."""

    @property
    def files(self) -> TlsFiles:
        return self._files

    @property
    def client_auth(self) -> ClientAuth:
        return self._files.client_auth

    def take_new(self) -> Credentials | None:
        """The credentials, if they have changed since the last call. On any thread, without waiting for a disk."""
        with self._lock:
            if not self._is_new:
                return None
            self._is_new = False
            return self.current

    def look(self) -> None:
        """Take up what the files hold now, if they have changed and are right. Reads files."""
        now_ms = self._clock.wall_ms()
        signature = _signature(self._files)
        # Refused files are tried again: a certificate that is not valid yet becomes so without a change.
        if signature != self._seen or self.refusal is not None:
            self._seen = signature
            self._read_again(now_ms)
        if self.current.ends_ms <= now_ms and not self._has_expired:
            self._has_expired = True
            _log.error(
                "certificate_expired",
                file=str(self._files.certificate_file),
                advice="callers refuse it: replace the file, and it is used at once",
            )

    def _read_again(self, now_ms: int) -> None:
        try:
            found = read_credentials(self._files, now_ms)
        except TlsRefused as refusal:
            self._refuse(str(refusal))
            return
        if found == self.current:
            self.refusal = None
            return
        try:
            self.on_changed(found)
        except ValueError as error:
            self._refuse(str(error))
            return
        self.refusal = None
        with self._lock:
            self.current, self._is_new = found, True
        self._has_expired = False
        _log.info(
            "credentials_changed",
            file=str(self._files.certificate_file),
            expires=datetime.fromtimestamp(found.ends_ms / 1000, UTC).isoformat(),
        )

    def _refuse(self, reason: str) -> None:
        if reason != self.refusal:
            self.refusal = reason
            _log.warning("credentials_refused", reason=reason, advice="the old ones serve until these are right")


def _signature(files: TlsFiles) -> _Signature:
    return tuple(
        _signature_of(file)
        for file in (files.certificate_file, files.key_file, files.client_ca_file)
        if file is not None
    )


def _signature_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


class CredentialsWatch:
    """Looks at the files of all listeners, again and again, on a thread of the loop's pool: a disk may be slow."""

    def __init__(self, kept: Sequence[KeptCredentials]) -> None:
        self._kept = kept

    def start(self) -> None:
        """Look from now on, for as long as the running loop runs."""
        if self._kept:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._look_at_all).add_done_callback(self._on_looked)

    def _look_at_all(self) -> None:
        for each in self._kept:
            each.look()

    def _on_looked(self, looked: asyncio.Future[None]) -> None:
        self.start()
        looked.result()
