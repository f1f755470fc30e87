"""Numbers of connections and certificates, as a scrape asks for them, whichever front the connections belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CertificateNumbers:
    """What a scrape asks of the certificate of one listener."""

    ends_ms: int
    """When it expires, in Unix milliseconds."""
    is_refused: bool
    """Whether the files that lie there now cannot be used, so that older ones serve."""


@dataclass(frozen=True, slots=True)
class ConnectionNumbers:
    """What a scrape asks a transport, or all of them."""

    connections_max: int
    open_connections: int | None
    """None where nobody can say."""
    harms: Mapping[str, int] = field(default_factory=dict)
    """What was refused or cut so that the others are served, by kind; empty where nobody can say."""
    handshakes: int = 0
    """How many handshakes of TLS began, however they ended."""
    certificates: Mapping[str, CertificateNumbers] = field(default_factory=dict)
    """By address; of a server only."""
    insecure_listeners: int = 0
    """Listeners beyond this machine that `insecure` lets serve without what should protect them; of a server only."""
    unauthenticated: Mapping[str, int] = field(default_factory=dict)
    """Callers that were refused, by reason; of a server only."""
