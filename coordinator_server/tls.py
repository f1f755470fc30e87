"""What TLS of a listener is made of: the files it is configured with, and what they held when they were read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


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
