"""Why a demo ends badly: each with a message for people."""

from __future__ import annotations


class DemoFailed(Exception):
    """The demo cannot show what it promises."""


class NoFlights(DemoFailed):
    """The data set is not there, or is not the one that this demo knows. The message says what to do."""


class ServerFailed(DemoFailed):
    """The server did not start, or ended on its own."""


class ProducerFailed(DemoFailed):
    """A producer did not do what it should. Its traceback is on stderr."""


class StreamFailed(DemoFailed):
    """The Spark job did not do what it should."""


class LoadFailed(DemoFailed):
    """The load did not go as the demo promises."""


class CommandFailed(DemoFailed):
    """A command of txnctl was refused. The message has the command and the reason."""


class Differs(DemoFailed):
    """What was read is not what was loaded; the message says how, line by line."""
