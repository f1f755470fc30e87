"""Log lines: JSON, or words in a terminal."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from coordinator_server.logs import LogFormat, LogLevel, configure_logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(log_format: LogFormat, log_level: LogLevel = LogLevel.INFO) -> str:
    stream = io.StringIO()
    configure_logs(log_format, log_level, stream)
    structlog.get_logger("server").info("serving", listen="127.0.0.1:7070")
    logging.getLogger("library").warning("something %s", "odd")
    try:
        raise KeyError("ours")
    except KeyError as error:
        structlog.get_logger("server").error("defect", exc_info=error)
    return stream.getvalue()


def test_json_lines_hold_the_event_its_fields_and_its_time() -> None:
    serving, library, defect = (json.loads(line) for line in lines(LogFormat.JSON).splitlines())
    assert (serving["event"], serving["listen"], serving["level"], serving["logger"]) == (
        "serving",
        "127.0.0.1:7070",
        "info",
        "server",
    )
    assert serving["timestamp"].endswith("Z")
    assert (library["event"], library["logger"]) == ("something odd", "library")
    assert "KeyError: 'ours'" in defect["exception"]


def test_without_a_terminal_auto_means_json() -> None:
    assert json.loads(lines(LogFormat.AUTO).splitlines()[0])["event"] == "serving"


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_a_defect_is_told_without_what_was_in_the_variables(log_format: LogFormat) -> None:
    def fail(token: str) -> None:
        raise KeyError(len(token))

    stream, secret = io.StringIO(), "-".join(("a", "secret"))
    configure_logs(log_format, LogLevel.INFO, stream)
    try:
        fail(secret)
    except KeyError as error:
        structlog.get_logger("server").error("defect", exc_info=error)
    assert "KeyError: 8" in stream.getvalue()
    assert secret not in stream.getvalue()


def test_in_a_terminal_lines_are_readable() -> None:
    text = lines(LogFormat.CONSOLE)
    assert "serving" in text
    assert "listen=127.0.0.1:7070" in text
    assert not text.startswith("{")


@pytest.mark.parametrize("library", ["asyncio", "_cygrpc"])
def test_the_debug_lines_of_libraries_are_left_out(library: str) -> None:
    """A debug log is to show the states of transactions, not each call that a library takes."""
    stream = io.StringIO()
    configure_logs(LogFormat.JSON, LogLevel.DEBUG, stream)
    logging.getLogger(library).debug("Loaded running loop")
    logging.getLogger(library).warning("something odd")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["something odd"]


def test_a_caller_that_leaves_before_the_answer_puts_nothing_into_the_log() -> None:
    """grpc.aio would write a traceback for each, without a limit."""
    stream, log = io.StringIO(), logging.getLogger("grpc._cython.cygrpc")
    configure_logs(LogFormat.JSON, LogLevel.INFO, stream)
    log.error("ExecuteBatchError raised in core by servicer method [%s]", "/a/B")
    log.error("Unexpected [%s] raised by servicer method [%s]", "KeyError", "/a/B")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "Unexpected [KeyError] raised by servicer method [/a/B]"
    ]


def test_less_important_lines_are_left_out() -> None:
    assert "serving" not in lines(LogFormat.JSON, LogLevel.WARNING)
