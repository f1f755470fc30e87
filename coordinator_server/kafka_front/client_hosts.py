"""Hosts of clients, as Kafka shows them."""

from __future__ import annotations


def shown_host(host: str) -> str:
    """Return the text of a host in descriptions of groups. It is that of Java's addresses, with a slash in front."""
    return f"/{host}" if host else ""
