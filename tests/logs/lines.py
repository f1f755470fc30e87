"""The log lines of a test."""

from __future__ import annotations

import io
import json
from typing import Any

from coordinator_server.logs import LogFormat, LogLevel, configure_logs


def partition(ordinal: int) -> dict[str, object]:
    """Fields of a line that name a partition, as if one topic had them all."""
    return {"topic": "topic", "partition": ordinal}


class Lines:
    """Lines that were logged since they were last taken."""

    def __init__(self) -> None:
        self._stream = io.StringIO()

    def configure(self, log_format: LogFormat, log_level: LogLevel = LogLevel.INFO) -> None:
        configure_logs(log_format, log_level, self._stream)

    def text(self) -> str:
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        return text

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def only(self) -> dict[str, Any]:
        """The one event there is, without what every line has."""
        (event,) = self.events()
        del event["timestamp"], event["logger"]
        return event
