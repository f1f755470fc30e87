"""Log lines: events with fields, JSON for machines and readable in a terminal, always on stderr.

An event is logged where it is known, once, with the ids that belong to it as fields; stdout belongs to what commands
print.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Final, TextIO

import structlog


class LogFormat(StrEnum):
    """How a line looks."""

    AUTO = "auto"
    """console in a terminal, json elsewhere."""
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


def configure_logs(log_format: LogFormat, log_level: LogLevel, stream: TextIO | None = None) -> None:
    """Set up logging of the whole process, that of libraries included."""
    stream = sys.stderr if stream is None else stream
    is_console = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[structlog.typing.Processor] = (
        # The default shows the local variables of a defect, and any of them may be a secret.
        [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if is_console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[log_level])
    # Their debug lines are one per selector event and one per call, of no use to anybody here.
    for library in ("asyncio", "_cygrpc"):
        logging.getLogger(library).setLevel(max(logging.WARNING, _LEVELS[log_level]))
