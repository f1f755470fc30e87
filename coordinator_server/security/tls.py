"""What TLS of a listener is made of: the files it is configured with, and what they held when they were read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

CERTIFICATE_SETTING: Final = "tls_certificate_file"
KEY_SETTING: Final = "tls_key_file"
CLIENT_CA_SETTING: Final = "tls_client_ca_file"


class ClientAuth(StrEnum):
    """Whether callers must show a certificate. Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    """One that is shown must be right; none may be shown."""
    REQUIRED = "required"


class TlsRefused(Exception):
    """A certificate, key or CA file cannot be used. The message says which, why, and what to do; `setting`, which
    setting of its listener names the file."""

    def __init__(self, message: str, setting: str = CERTIFICATE_SETTING) -> None:
        super().__init__(message)
        self.setting = setting

    def of(self, listen: str, prefix: str = "") -> TlsRefused:
        """The same, with the listener; `prefix` is how the names of its settings begin."""
        return TlsRefused(f"{prefix}listen = {listen}: {prefix}{self.setting}: {self}", self.setting)


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
