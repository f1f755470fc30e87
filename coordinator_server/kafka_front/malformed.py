"""The error of bytes that break the protocol."""

from __future__ import annotations


class Malformed(Exception):
    """Bytes that are no frame, header or body of Kafka's protocol; the message names the field.

    Nothing behind them can be read, so the connection is closed.
    """


class TooLarge(Malformed):
    """A frame that is larger than the server takes for its API."""
