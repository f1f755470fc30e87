"""Failures of a demo, each with a message for people."""

from __future__ import annotations


class DemoFailed(Exception):
    """The demo cannot show what it promises."""


class NoFlights(DemoFailed):
    """The data set is missing, or is not the expected one. The message says what to do."""


class ServerFailed(DemoFailed):
    """The server did not start, or ended on its own."""


class ProducerFailed(DemoFailed):
    """A producer did not do its work. Its traceback is on stderr."""


class StreamFailed(DemoFailed):
    """The Spark job did not do its work."""


class LoadFailed(DemoFailed):
    """The load did not go as the demo promises."""


class CommandFailed(DemoFailed):
    """A command of txnctl was refused. The message has the command and the reason."""


class Differs(DemoFailed):
    """The rows that were read differ from the loaded ones. The message lists the differences, one per line."""
