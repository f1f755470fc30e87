"""`txnctl top`: frames fit any terminal, keys end it, and the terminal is given back as it was."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from coordinator_client import Producer
from coordinator_client.admin.observing import PartitionBlocker, PartitionListing, RateHistory, TransactionPage
from coordinator_client.admin.transaction_admin import TransactionListing
from coordinator_server.exits import CommandFailed, ExitStatus
from tests.cli.terminal import Terminal
from tests.harness import forked
from tests.harness.server_process import ROOT, ServerProcess
from txnctl.live_screen import LiveScreen, ScreenSize
from txnctl.top.facts import GroupStanding, ThrottledCaller, TopFacts
from txnctl.top.live import show_live
from txnctl.top.view import top_lines

HOSTILE = "evil\x1b[2J" + "日本" * 40


def listed(number: int, name: str = "") -> TransactionListing:
    return TransactionListing(
        transactional_id=name or f"billing-{number}",
        producer_id=number,
        producer_epoch=0,
        state="Ongoing",
        start_ms=0,
        age_ms=30_000 * number,
        two_phase=False,
        prepared_ms=None,
    )


def blocked(number: int) -> PartitionListing:
    return PartitionListing(
        topic="orders",
        topic_id=bytes(16),
        partition=number,
        is_served=True,
        log_start_offset=0,
        last_stable_offset=5,
        high_watermark=7 + number,
        open_transactions=1,
        records=7,
        size_bytes=100,
        blocker=PartitionBlocker(
            start_offset=5,
            start_ms=0,
            age_ms=90_000,
            transactional_id="billing-3",
            owner_hidden=False,
            state="Ongoing",
        ),
    )


def facts(count: int = 3, name: str = "") -> TopFacts:
    return TopFacts(
        at_ms=0,
        rates=RateHistory(interval_ms=10_000, end_ms=0, series={"commits": (1.0, 12.0), "aborts": (0.0,)}),
        open=TransactionPage(transactions=tuple(listed(at, name) for at in range(count)), matching=count),
        blocked=[blocked(at) for at in range(count)],
        groups=[
            GroupStanding(
                group_id=name or f"group-{at}", kind="consumer", state="Stable", lag=5, lag_to_end=7, pending=at
            )
            for at in range(count)
        ],
        throttled=[ThrottledCaller(principal="User:alice", quota="produce", pause_ms=1_500)][:count],
    )


def test_a_frame_shows_all_sections() -> None:
    assert top_lines(facts(), ScreenSize(100, 40), server="a:1") == [
        "a:1  1970-01-01 00:00:00.000Z  q ends it",
        "Commits 12/s   Aborts 0/s",
        "",
        "Open transactions (3)",
        "AGE    STATE    PRODUCER ID  TRANSACTIONAL ID",
        "0ms    Ongoing  0            billing-0",
        "30.0s  Ongoing  1            billing-1",
        "1m00s  Ongoing  2            billing-2",
        "",
        "Partitions whose readers wait (3)",
        "AGE    UNDECIDED  PARTITION  FOR",
        "1m30s  2          orders-0   billing-3",
        "1m30s  3          orders-1   billing-3",
        "1m30s  4          orders-2   billing-3",
        "",
        "Groups (3)",
        "LAG  LAG TO END  WAITING  STATE   TYPE      GROUP",
        "5    7           0        Stable  consumer  group-0",
        "5    7           1        Stable  consumer  group-1",
        "5    7           2        Stable  consumer  group-2",
        "",
        "Throttled callers (1)",
        "PAUSE  QUOTA    CALLER",
        "1.5s   produce  User:alice",
    ]


def test_a_small_terminal_shows_something_of_each_section() -> None:
    shown = top_lines(facts(50), ScreenSize(80, 24), server="a:1")
    assert len(shown) == 24
    for title in (
        "Open transactions (50)",
        "Partitions whose readers wait (50)",
        "Groups (50)",
        "Throttled callers (1)",
    ):
        assert title in shown
    assert sum(line.endswith("more") for line in shown) == 3


def test_what_the_caller_may_not_see_is_said() -> None:
    refused = TopFacts(at_ms=0, refusals={"rates": "not allowed", "groups": "no DESCRIBE"})
    shown = top_lines(refused, ScreenSize(80, 24), server="a:1")
    assert "Rates: not allowed" in shown
    assert "Groups (0): no DESCRIBE" in shown


def test_what_is_old_has_a_colour_and_foreign_text_has_no_power() -> None:
    shown = "\n".join(top_lines(facts(3, HOSTILE), ScreenSize(200, 40), server="a:1", is_coloured=True))
    assert "\x1b[33m1m00s" in shown
    assert set(re.findall(r"\x1b\[\d*[A-Za-z]", shown)) == {"\x1b[33m", "\x1b[0m"}


@given(st.integers(0, 60), st.integers(1, 120), st.integers(1, 60), st.booleans())
def test_no_frame_is_larger_than_the_terminal(count: int, columns: int, lines: int, is_away: bool) -> None:
    away = "no server answers" if is_away else ""
    shown = top_lines(facts(count, HOSTILE), ScreenSize(columns, lines), server="server:7070", away=away)
    assert len(shown) <= lines
    assert max(map(cell_len, shown)) <= columns


class PressedKeys:
    """Keys that are pressed one after the other, each in the pause after a frame."""

    def __init__(self, *keys: str) -> None:
        self._keys = iter(keys)
        self.pauses: list[int] = []

    def wait(self, wait_ms: int) -> str:
        self.pauses.append(wait_ms)
        return next(self._keys)


def live(*answers: TopFacts | CommandFailed, keys: tuple[str, ...], sizes: tuple[ScreenSize, ...]) -> list[list[str]]:
    """The frames that are shown."""
    stream, left, left_sizes = io.StringIO(), iter(answers), iter(sizes)

    def look() -> TopFacts:
        found = next(left)
        if isinstance(found, CommandFailed):
            raise found
        return found

    pressed = PressedKeys(*keys)
    screen = LiveScreen(stream, lambda: next(left_sizes))
    show_live(look, screen, pressed, server="a:1", every_ms=2_000, is_coloured=False)
    assert pressed.pauses == [2_000] * len(keys)
    frames = stream.getvalue().split("\x1b[H")[1:]
    return [frame.replace("\x1b[K", "").replace("\x1b[J", "").splitlines() for frame in frames]


def test_each_frame_fits_the_size_that_the_terminal_has_then() -> None:
    sizes = (ScreenSize(80, 40), ScreenSize(30, 5), ScreenSize(200, 60))
    shown = live(*(facts(20) for _ in sizes), keys=("", "x", "q"), sizes=sizes)
    assert [len(frame) <= size.lines for frame, size in zip(shown, sizes, strict=True)] == [True] * 3
    assert max(map(cell_len, shown[1])) <= 30


def test_a_server_that_goes_away_is_named_and_its_last_state_stays() -> None:
    away = CommandFailed(ExitStatus.UNREACHABLE, "no server answers at a:1\nadvice")
    shown = live(facts(), away, facts(), keys=("", "", "q"), sizes=(ScreenSize(100, 40),) * 3)
    assert shown[1][1] == "no answer: no server answers at a:1; the state below is the last one known"
    assert "Open transactions (3)" in shown[1]
    assert shown[2] == shown[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


class TerminalWindow:
    """`txnctl top` in a terminal of its own."""

    def __init__(self, address: str) -> None:
        self._descriptor, inner = pty.openpty()
        self.resize(ScreenSize(80, 24))
        self.before = termios.tcgetattr(inner)
        path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
        self.process = forked.Popen(
            [sys.executable, "-m", "txnctl", "top", "--interval", "0.1", "-s", address],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "PYTHONPATH": path, "TERM": "xterm"},
            start_new_session=True,
        )
        self._inner = inner
        self._seen = ""

    def resize(self, size: ScreenSize) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))

    def until(self, text: str) -> str:
        """Return the output since the last call, up to this text."""
        while text not in self._seen:
            self._seen += os.read(self._descriptor, 65536).decode()
        found, _, self._seen = self._seen.partition(text)
        return found

    def press(self, key: str) -> None:
        os.write(self._descriptor, key.encode())

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._inner) == self.before

    def close(self) -> None:
        os.close(self._inner)
        os.close(self._descriptor)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["q", "Ctrl-C", "SIGTERM"])
def test_a_real_terminal_is_given_back_as_it_was(server: ServerProcess, end: str) -> None:
    window = TerminalWindow(server.address)
    window.until("Open transactions (0): none")
    assert not window.is_as_before()
    window.resize(ScreenSize(40, 6))
    window.until("\x1b[H")
    # Frames that were drawn before may still be on their way.
    while window.until("\x1b[J").count("\n") > 5:
        window.until("\x1b[H")
    if end == "q":
        window.press("q")
    else:
        window.process.send_signal(signal.SIGINT if end == "Ctrl-C" else signal.SIGTERM)
    window.until("\x1b[?1049l")
    assert window.process.wait() == (143 if end == "SIGTERM" else 0)
    assert window.is_as_before()
    window.close()


@pytest.mark.slow
def test_a_pipe_gets_the_state_once_as_text_and_as_json(txnctl: Terminal, server: ServerProcess) -> None:
    txnctl("topic", "create", "orders", "-s", server.address).well()
    with Producer(server.address, transactional_id="till-1") as producer, producer.transaction() as transaction:
        transaction.send("orders", b"1")
        transaction.flush()
        shown = txnctl("top", "--once", "-s", server.address).well()
        found = txnctl("top", "--once", "--json", "-s", server.address).well().document
    assert "Open transactions (1)" in shown.lines
    assert "\x1b" not in shown.stdout
    assert [each["transactional_id"] for each in found["oldest_transactions"]] == ["till-1"]
    assert [each["topic"] for each in found["blocked_partitions"]] == ["orders"]
    assert json.dumps(found["refused"]) == "{}"
