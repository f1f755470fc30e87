"""`--watch` of the commands that list something: they show it again and again until Ctrl-C.

A terminal shows each state in place of the one before. JSON has a line for each look, YAML a document, and a pipe one
table below the other. A server that is away is named, and asked again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import parse_duration_ms
from txnctl.live_screen import LiveScreen
from txnctl.output import ON_ONE_LINE, OutputFormat, moment, print_note, write

if TYPE_CHECKING:
    from coordinator_client.clock import Clock

WATCH: Final = "--watch"
WATCH_SECONDS: Final = "2"
"""Interval of a `--watch` without a value."""
_INTERVAL_MS_MIN: Final = 100
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?")
_INTERVAL: Final = re.compile(r"\d+(?:\.\d+)?(?:ms|s|m|h|d)?")


def is_interval(word: str) -> bool:
    """True if a word behind --watch is its value."""
    return _INTERVAL.fullmatch(word) is not None


def parse_interval_ms(text: str | int) -> int:
    """Return seconds, or a time span such as 500ms, in milliseconds. Raises BadParameter."""
    if isinstance(text, int):
        return text
    span_ms = round(float(text) * 1_000) if _SECONDS.fullmatch(text) else parse_duration_ms(text)
    if span_ms < _INTERVAL_MS_MIN:
        raise typer.BadParameter(f"at least {_INTERVAL_MS_MIN} ms")
    return span_ms


Watch = Annotated[
    int | None,
    typer.Option(
        WATCH,
        metavar="[SECONDS]",
        parser=parse_interval_ms,
        show_default=False,
        help=f"Show it again every {WATCH_SECONDS} seconds, or as given, until Ctrl-C.",
    ),
]


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that also has the option --watch."""

    @functools.wraps(command)
    def run(*, watch_ms: int | None = None, **options: object) -> None:
        show = functools.partial(command, **options)
        if watch_ms is None:
            show()
        else:
            form = options["output"]
            assert isinstance(form, OutputFormat)
            from coordinator_client.clock import SystemClock

            watch(show, form, every_ms=watch_ms, clock=SystemClock())

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("watch_ms", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Watch)
    extended = signature.replace(parameters=[*signature.parameters.values(), option])
    # typer reads both.
    run.__signature__ = extended  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in extended.parameters.items()}
    return run


@dataclass(frozen=True, slots=True)
class WatchedLook:
    """Output of one call, or the message of its failure."""

    text: str = ""
    note: str = ""
    away: str = ""
    """The message about a server that does not answer."""


def watch(show: Callable[[], None], form: OutputFormat, *, every_ms: int, clock: Clock) -> None:
    """Call `show` at each interval until Ctrl-C, and print what it prints. Raises CommandFailed, but not for a server
    that is away."""
    on_one_line = ON_ONE_LINE.set(True)
    is_live = form is OutputFormat.TABLE and sys.stdout.isatty()
    shown = _in_place if is_live else _one_below_the_other
    try:
        shown(show, form, every_ms, clock)
    except KeyboardInterrupt:
        return
    finally:
        ON_ONE_LINE.reset(on_one_line)


def _in_place(show: Callable[[], None], _form: OutputFormat, every_ms: int, clock: Clock) -> None:
    last = WatchedLook()
    with LiveScreen(sys.stdout) as screen:
        while True:
            began_ms, began = clock.monotonic_ms(), moment(clock.wall_ms())
            look = look_at(show)
            head = [f"{began}  every {every_ms / 1_000:g}s, Ctrl-C ends it"]
            if look.away:
                look = WatchedLook(last.text, last.note, look.away)
                head += [f"no answer: {look.away}", "The state below is the last one known."]
            last = look
            screen.draw([*head, "", *look.text.splitlines(), *look.note.splitlines()], screen.size())
            clock.pause(max(0, began_ms + every_ms - clock.monotonic_ms()))


def _one_below_the_other(show: Callable[[], None], form: OutputFormat, every_ms: int, clock: Clock) -> None:
    away = ""
    while True:
        began_ms, began = clock.monotonic_ms(), moment(clock.wall_ms())
        look = look_at(show)
        if look.away and not away:
            print_note(f"{look.away}\nasking again every {every_ms / 1_000:g}s")
        elif away and not look.away:
            print_note("the server answers again")
        away = look.away
        if look.text and form is OutputFormat.YAML:
            write(f"---\n{look.text}")
        elif form is OutputFormat.TABLE and not away:
            write(f"{began}\n{look.text}\n")
        else:
            write(look.text)
        sys.stderr.write(look.note)
        clock.pause(max(0, began_ms + every_ms - clock.monotonic_ms()))


class _Captured(io.StringIO):
    """Text in the form that a stream would get: with its width and its colours."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()


def look_at(show: Callable[[], None]) -> WatchedLook:
    """Return what one call prints. Raises CommandFailed if it fails without a result, as for a topic that is gone."""
    text, note = _Captured(sys.stdout), _Captured(sys.stderr)
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(note):
            show()
    except typer.Exit:
        # The status of a finding, as of `health`. The finding has been printed.
        return WatchedLook(text.getvalue(), note.getvalue())
    except CommandFailed as failure:
        if failure.status is ExitStatus.UNREACHABLE:
            return WatchedLook(away=failure.message.splitlines()[0])
        if not text.getvalue():
            raise
        return WatchedLook(text.getvalue(), f"{note.getvalue()}txnctl: {failure.message}\n")
    return WatchedLook(text.getvalue(), note.getvalue())
