"""Numbers of connections and certificates, as a scrape asks for them, whichever front the connections belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CertificateNumbers:
    """The certificate of one listener, for a scrape."""

    ends_ms: int
    """When it expires, in Unix milliseconds."""
    is_refused: bool
    """Whether the files that lie there now cannot be used, so that older ones serve."""


@dataclass(frozen=True, slots=True)
class ConnectionNumbers:
    """The connections of one transport, or of all, for a scrape."""

    connections_max: int
    open_connections: int | None
    """None where the transport cannot tell."""
    harms: Mapping[str, int] = field(default_factory=dict)
    """Refused or cut connections and calls, by kind; empty where the transport cannot tell."""
    handshakes: int = 0
    """How many handshakes of TLS began, however they ended."""
    certificates: Mapping[str, CertificateNumbers] = field(default_factory=dict)
    """By address; of a server only."""
    insecure_listeners: int = 0
    """Listeners beyond this machine that `insecure` lets serve without what should protect them; of a server only."""
    unauthenticated: Mapping[str, int] = field(default_factory=dict)
    """Callers that were refused, by reason; of a server only."""
