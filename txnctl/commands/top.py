"""`txnctl top`: a live view of a running server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from txnctl.commands.watching import parse_interval_ms
from txnctl.output import ON_ONE_LINE, OutputFormat, is_coloured, print_document, print_note, write

if TYPE_CHECKING:
    from txnctl.top.facts import TopFacts

_EVERY_MS: Final = 2_000
_UNLIMITED: Final = 10_000
"""Width and height of a frame in a pipe."""


def top(
    every_ms: Annotated[
        int,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            parser=parse_interval_ms,
            show_default=False,
            help="Time between two frames. [default: 2]",
        ),
    ] = _EVERY_MS,
    once: Annotated[bool, typer.Option("--once", help="Show the present state, and end.")] = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show live what a server does.

    Shows rates, open transactions by age, partitions whose readers wait, the lag of groups, and throttled callers.
    q and Ctrl-C end it. In a pipe the states follow each other; JSON has a line for each.
    """

    def look() -> TopFacts:
        from coordinator_client.clock import SystemClock
        from txnctl.top.facts import ask_facts

        with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
            return ask_facts(admin, SystemClock().wall_ms())

    if once:
        _print(look(), server, output)
        return
    on_one_line = ON_ONE_LINE.set(True)
    try:
        if output is OutputFormat.TABLE and sys.stdout.isatty():
            _live(look, server, every_ms)
        else:
            _follow(look, server, every_ms, output)
    except KeyboardInterrupt:
        return
    finally:
        ON_ONE_LINE.reset(on_one_line)


def _live(look: Callable[[], TopFacts], server: str, every_ms: int) -> None:
    from coordinator_client.clock import SystemClock
    from txnctl.live_screen import LiveScreen
    from txnctl.top.live import Keyboard, show_live

    # A server that was never there is an error, and no frame.
    look()
    with Keyboard(SystemClock()) as keys, LiveScreen(sys.stdout) as screen:
        show_live(look, screen, keys, server=server, every_ms=every_ms, is_coloured=is_coloured(sys.stdout))


def _follow(look: Callable[[], TopFacts], server: str, every_ms: int, output: OutputFormat) -> None:
    from coordinator_client.clock import SystemClock

    away = ""
    while True:
        try:
            _print(look(), server, output)
            away = ""
        except CommandFailed as failure:
            if failure.status is not ExitStatus.UNREACHABLE:
                raise
            if not away:
                print_note(failure.message.splitlines()[0])
            away = failure.message
        SystemClock().pause(every_ms)


def _print(facts: TopFacts, server: str, output: OutputFormat) -> None:
    from txnctl.live_screen import ScreenSize
    from txnctl.top.view import top_lines

    if output is not OutputFormat.TABLE:
        print_document(facts.row(), output)
        return
    size = ScreenSize(_UNLIMITED, _UNLIMITED)
    lines = top_lines(facts, size, server=server, is_coloured=is_coloured(sys.stdout), keys="")
    write("".join(f"{line}\n" for line in lines))
