"""`--watch` shows a list again and again, on a clock that only its pauses move, until Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator

import pytest
import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from tests.cli.terminal import Terminal
from tests.harness.manual_clock import ManualClock
from txnctl.cli import command_tree
from txnctl.commands.placing import place_options
from txnctl.commands.watching import parse_interval_ms, watch
from txnctl.live_screen import LiveScreen, ScreenSize
from txnctl.output import Column, OutputFormat, print_list, print_note

AWAY = CommandFailed(ExitStatus.UNREACHABLE, "no server answers at a:1\nadvice")


class StoppingClock(ManualClock):
    """Time passes in pauses only, and the last pause is interrupted by Ctrl-C."""

    __slots__ = ("left", "pauses")

    def __init__(self, pauses: int) -> None:
        super().__init__(wall_ms=0)
        self.left = pauses
        self.pauses: list[int] = []

    def pause(self, wait_ms: int) -> None:
        self.pauses.append(wait_ms)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        self.advance(wait_ms)

    def take(self, *_unused: object) -> None:
        raise AssertionError("nothing is taken from an inbox")


class WatchedTerminal(io.StringIO):
    """A terminal, or a pipe."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, *, is_terminal: bool = False) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def looked(form: OutputFormat, *found: object, is_terminal: bool = False) -> tuple[str, str, StoppingClock]:
    """Watch these findings; return the output on stdout, that on stderr, and the clock."""
    clock, stdout, stderr = StoppingClock(len(found)), WatchedTerminal(is_terminal=is_terminal), WatchedTerminal()
    left = iter(found)

    def show() -> None:
        number = next(left)
        if isinstance(number, Exception):
            raise number
        if number == 0:
            print_note("no topics")
        print_list([{"topics": number}], (Column("TOPICS", "topics"),), form, empty="")

    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        watch(show, form, every_ms=2_000, clock=clock)
    return stdout.getvalue(), stderr.getvalue(), clock


def test_json_has_a_line_for_each_look_and_ctrl_c_ends_it() -> None:
    stdout, stderr, clock = looked(OutputFormat.JSON, 1, 2, 3)
    assert [json.loads(line) for line in stdout.splitlines()] == [[{"topics": 1}], [{"topics": 2}], [{"topics": 3}]]
    assert (stderr, clock.pauses) == ("", [2_000, 2_000, 2_000])


def test_yaml_has_a_document_for_each_look() -> None:
    assert looked(OutputFormat.YAML, 1, 2)[0] == "---\n- topics: 1\n---\n- topics: 2\n"


def test_a_pipe_gets_one_table_below_the_other_with_the_time() -> None:
    stdout, _, _ = looked(OutputFormat.TABLE, 1, 2)
    assert stdout.splitlines() == [
        *("1970-01-01 00:00:00.000Z", "TOPICS", "──────", "1", ""),
        *("1970-01-01 00:00:02.000Z", "TOPICS", "──────", "2", ""),
    ]


def test_a_server_that_is_away_is_named_once_and_asked_again() -> None:
    stdout, stderr, _ = looked(OutputFormat.JSON, 1, AWAY, AWAY, 2)
    assert [json.loads(line) for line in stdout.splitlines()] == [[{"topics": 1}], [{"topics": 2}]]
    assert stderr.splitlines() == [
        "txnctl: no server answers at a:1",
        "txnctl: asking again every 2s",
        "txnctl: the server answers again",
    ]


def test_a_terminal_shows_the_last_known_state_of_a_server_that_is_away() -> None:
    stdout, _, _ = looked(OutputFormat.TABLE, 1, AWAY, is_terminal=True)
    last = stdout.split("\x1b[H")[-1].replace("\x1b[K", "").splitlines()
    assert last[1:6] == [
        "no answer: no server answers at a:1",
        "The state below is the last one known.",
        "",
        "TOPICS",
        "──────",
    ]
    assert stdout.endswith("\x1b[?1049l")


def test_notes_of_the_command_are_shown_with_its_list() -> None:
    assert "txnctl: no topics" in looked(OutputFormat.TABLE, 0, is_terminal=True)[0]
    assert looked(OutputFormat.TABLE, 0)[1] == "txnctl: no topics\n"


def test_another_failure_ends_it() -> None:
    with pytest.raises(CommandFailed, match="no topic"):
        looked(OutputFormat.JSON, 1, CommandFailed(ExitStatus.PROBLEM, "there is no topic"), 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--watch topic list", "topic list --watch 2"),
        ("topic list --watch", "topic list --watch 2"),
        ("group --watch members billing", "group members --watch 2 billing"),
        ("group members --watch billing", "group members --watch 2 billing"),
        ("topic list --watch 500ms --json", "topic list --watch 500ms --output json"),
        ("topic list --watch=5", "topic list --watch=5"),
        ("topic list --watch -s a:1", "topic list --watch 2 -s a:1"),
    ],
)
def test_the_seconds_may_be_left_out(line: str, expected: str) -> None:
    assert place_options(command_tree(), line.split()) == expected.split()


def test_intervals_are_seconds_or_spans() -> None:
    assert [parse_interval_ms(text) for text in ("2", "0.5", "500ms", "1m")] == [2_000, 500, 500, 60_000]
    for text in ("0", "50ms", "soon"):
        with pytest.raises(typer.BadParameter):
            parse_interval_ms(text)


def test_a_command_that_changes_something_is_not_watched(txnctl: Terminal) -> None:
    txnctl("topic", "create", "orders", "--watch").refused(2, "No such option")


def frames(*sizes: ScreenSize) -> Iterator[str]:
    """A frame of five lines on terminals of these sizes."""
    stream, left = io.StringIO(), iter(sizes)
    screen = LiveScreen(stream, lambda: next(left))
    for _ in sizes:
        screen.draw(list("abcde"), screen.size())
    yield from stream.getvalue().split("\x1b[H")[1:]


def test_a_frame_has_no_more_lines_than_the_terminal_also_after_a_resize() -> None:
    shown = [frame.count("\n") + 1 for frame in frames(*(ScreenSize(80, lines) for lines in (9, 5, 3, 1)))]
    assert shown == [5, 5, 3, 1]
    assert "... 3 more lines" in next(frames(ScreenSize(80, 3)))
