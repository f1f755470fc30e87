"""Log lines: events with fields, as JSON for machines or readable in a terminal, always on stderr.

An event is logged once, where it is known, with its ids as fields. Stdout belongs to the output of commands.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import Queue
from typing import Final, TextIO

import structlog


class LogFormat(StrEnum):
    """Format of a line."""

    AUTO = "auto"
    """console in a terminal, json elsewhere."""
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """Least important level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


AUDIT_FILES_KEPT: Final = 10
"""Number of full audit log files that are kept, beside the current one."""
AUDIT_WAITING_MAX: Final = 10_000
"""Maximum number of audit log lines that wait for a slow disk. Further ones go to stderr alone."""


_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


def configure_logs(log_format: LogFormat, log_level: LogLevel, stream: TextIO | None = None) -> None:
    """Set up logging of the whole process, including libraries."""
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
    # Acts of administrators are logged at any level.
    logging.getLogger("audit").setLevel(logging.INFO)
    # Their debug lines, one per selector event and one per call, are of no use here.
    for library in ("asyncio", "_cygrpc"):
        logging.getLogger(library).setLevel(max(logging.WARNING, _LEVELS[log_level]))
    logging.getLogger("grpc._cython.cygrpc").addFilter(is_no_lost_caller)


def is_no_lost_caller(line: logging.LogRecord) -> bool:
    """Return False for a traceback of grpc.aio about a caller that left before its answer was sent. Any client could
    fill the log with those. Such calls are counted as CANCELLED."""
    return not line.getMessage().startswith("ExecuteBatchError raised in core by servicer method")


class _AuditFile(RotatingFileHandler):
    """A file for its owner alone, which becomes NAME.1 when it is full."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


@contextmanager
def audit_file(path: Path, *, bytes_max: int) -> Iterator[None]:
    """Write the audit log to its own file as JSON, instead of to the common log. A thread writes the lines, so that a
    slow disk does not block the server. Waiting lines are written before this ends.

    Raises OSError if the file cannot be written.
    """
    logger = logging.getLogger("audit")
    written = _AuditFile(path, maxBytes=bytes_max, backupCount=AUDIT_FILES_KEPT, encoding="utf-8")
    written.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()]
        )
    )
    waiting: Queue[logging.LogRecord] = Queue(AUDIT_WAITING_MAX)
    queued = _Unformatted(waiting)
    listener = QueueListener(waiting, written)
    listener.start()
    logger.handlers, logger.propagate = [queued], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = [], True
        listener.stop()
        written.close()


class _Unformatted(QueueHandler):
    """Hands lines over unformatted: the writing thread formats them."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record
