"""TLS of a listener: the configured files, and their content when they were read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

CERTIFICATE_SETTING: Final = "tls_certificate_file"
KEY_SETTING: Final = "tls_key_file"
CLIENT_CA_SETTING: Final = "tls_client_ca_file"


class ClientAuth(StrEnum):
    """Policy on the certificates of callers. Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    """A certificate is optional; one that is shown must be valid."""
    REQUIRED = "required"


class TlsRefused(Exception):
    """A certificate, key or CA file cannot be used. The message has the file, the reason and the remedy; `setting` is
    the setting that names the file."""

    def __init__(self, message: str, setting: str = CERTIFICATE_SETTING) -> None:
        super().__init__(message)
        self.setting = setting

    def of(self, listen: str, prefix: str = "") -> TlsRefused:
        """Return the same error with the listener. `prefix` is the prefix of its setting names."""
        return TlsRefused(f"{prefix}listen = {listen}: {prefix}{self.setting}: {self}", self.setting)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of one listener."""

    certificate_file: Path
    """PEM: the certificate of the server first, then those between it and the CA."""
    key_file: Path
    client_ca_file: Path | None = None
    """PEM: the CAs that sign the certificates of callers. Set unless callers show none."""
    client_auth: ClientAuth = ClientAuth.NONE


@dataclass(frozen=True, slots=True)
class Credentials:
    """Content of the files at one moment, checked."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    client_auth: ClientAuth
    ends_ms: int
    """Expiry of the certificate (Unix ms)."""
