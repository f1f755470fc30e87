"""Exceptions at any line of the SDK, as signal handlers raise them, and the steps of a run at which they may come."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable, Collection
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self

import coordinator_client

SEED: Final = int(os.environ.get("TXN_TEST_SEED", "53"))
"""For steps that are drawn: the same in each run, unless another one is wanted."""

_SDK: Final = str(Path(coordinator_client.__file__).parent)
_LIBRARY: Final = ("contextlib.py", "queue.py")


_LOOKS: Final = {dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")}
_RETURN: Final = dis.opmap["RETURN_VALUE"]


class Interruption(Exception):
    """Raised by a signal handler. An ordinary exception, as a worker's soft time limit is."""


class Interrupter:
    """Counts the lines (or the instructions) that the SDK runs in this thread, and raises at some of them.

    What the network, the clock and the other threads do while a call waits is theirs: none of it is counted. Of the
    instructions only those count at which Python looks for signals: the first of a function, and those behind a call of
    a function in C, or behind a jump back. Of the lines all count but a return behind a line that calls nothing.
    """

    def __init__(self, at: Collection[int] = (), *, by_opcode: bool = False, with_events: bool = False) -> None:
        """`with_events`: what runs while a call waits is this thread's, too, as on an asyncio loop."""
        self.at = frozenset(at)
        self.places: list[tuple[str, int]] = []
        """File and line of each step."""
        self.raised: list[tuple[str, int]] = []
        self._by_opcode = by_opcode
        self._last: dict[FrameType, int] = {}
        """The instruction that each frame has run last; none behind a call of a function in Python."""
        self._with_events = with_events

    def __enter__(self) -> Self:
        """Count and raise within the block."""
        self._before = sys.gettrace()
        sys.settrace(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _entered(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not (name.startswith(_SDK) or name.endswith(_LIBRARY)) or (not self._with_events and _is_event(frame)):
            return None
        if self._by_opcode:
            frame.f_trace_opcodes = True
            if frame.f_back is not None:
                self._last.pop(frame.f_back, None)
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "return":
            self._last.pop(frame, None)
        if event == ("opcode" if self._by_opcode else "line") and self._is_counted(frame):
            place = Path(frame.f_code.co_filename).name, frame.f_lineno
            number = len(self.places)
            self.places.append(place)
            if number in self.at:
                self.raised.append(place)
                raise Interruption(f"step {number}, {place[0]}:{place[1]}")
        return self._stepped

    def _is_counted(self, frame: FrameType) -> bool:
        if not self._by_opcode:
            return frame.f_lasti not in _unseen_returns(frame.f_code)
        opcode = frame.f_code.co_code[frame.f_lasti]
        last, self._last[frame] = self._last.get(frame), opcode
        return last in _LOOKS and opcode != _RETURN


@cache
def _unseen_returns(code: CodeType) -> frozenset[int]:
    """Beginnings of lines that only return a variable, behind a line that calls nothing: a signal cannot come between
    the two."""
    found, called = set(), False
    instructions = list(dis.get_instructions(code))
    for instruction, following in pairwise(instructions):
        if instruction.starts_line is not None:
            if not called and (instruction.opname, following.opname) == ("LOAD_FAST", "RETURN_VALUE"):
                found.add(instruction.offset)
            called = False
        called |= instruction.opcode in _LOOKS
    return frozenset(found)


def _is_event(frame: FrameType) -> bool:
    """Return whether the frame belongs to events of the world while a call waits, not to the caller's lines."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "_next_event":
            return True
        above = above.f_back
    return False


def one_of_each(
    places: list[tuple[str, int]], *, last: bool = False, seen: Collection[tuple[str, int]] = ()
) -> list[int]:
    """Return the first step at each line, or the last one: by then there is more that could be lost. Of the lines that
    were `seen` in another way, every fourth has to do."""
    steps = list(enumerate(places))
    found = {place: number for number, place in (steps if last else reversed(steps))}
    new = [number for place, number in found.items() if place not in seen]
    known = sorted(number for place, number in found.items() if place in seen)
    return sorted([*new, *known[::4]])
