"""Metrics of connections and certificates, for the listeners of every front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CertificateNumbers:
    """State of the certificate of one listener."""

    ends_ms: int
    """Expiry of the certificate (Unix ms)."""
    is_refused: bool
    """True if the files on disk cannot be used, so that the earlier certificate still serves."""


@dataclass(frozen=True, slots=True)
class ConnectionNumbers:
    """Counts of the connections of one transport, or of all."""

    connections_max: int
    open_connections: int | None
    """Connections that are open now; None if the transport cannot tell."""
    abuses: Mapping[str, int] = field(default_factory=dict)
    """Refused or cut connections and calls, by kind; empty if the transport cannot tell."""
    handshakes: int = 0
    """Number of TLS handshakes that began, whatever their result."""
    certificates: Mapping[str, CertificateNumbers] = field(default_factory=dict)
    """Certificates by address of the listener; for a server only."""
    insecure_listeners: int = 0
    """Number of listeners open to other machines without protection, as `insecure` permits; for a server only."""
    unauthenticated: Mapping[str, int] = field(default_factory=dict)
    """Number of refused callers by reason; for a server only."""
