"""Transcripts: command lines, a ruler, and what was seen. After etcd-raft's interaction tests.

A file starts with settings, one `name: value` a line:

    modes: fused split          commit modes in which the story is the same (default: both)
    producer_epoch_max: 3       so that producer ids rotate soon
    expiration_ms: 1000         idle transactional ids are forgotten so soon
    producer_expiration_ms: 1000  idle producers are forgotten by partitions so soon
    group_bytes_max: 1          every operation becomes a group of its own, so that a crash can come between any two

Comments start with `#`. Blocks are separated by blank lines. A run is compared with what the file says, and the file
can be rewritten from the run (`pytest --rewrite`). A test that fails shows the difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Final

import pytest

from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.runtime import RuntimeLimits
from partition_log.state import PRODUCER_EXPIRATION_MS
from tests.harness.inside import WorldOptions
from tests.harness.script import Script
from tests.harness.shelf import MemoryShelf, Shelf
from tests.harness.world import World
from txn_coordinator.config import EXPIRATION_MS, TwoPhase

_RULER: Final = "----"
_SETTING: Final = re.compile(r"(modes|producer_epoch_max|expiration_ms|producer_expiration_ms|group_bytes_max): (.*)")


@dataclass(slots=True)
class Block:
    """Commands with what they showed, and the comment above them."""

    comment: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Transcript:
    """One story."""

    settings: dict[str, str]
    head: list[str]
    """Lines before the first block, as they are."""
    blocks: list[Block]

    @property
    def modes(self) -> list[TwoPhase]:
        return [TwoPhase(mode) for mode in self.settings.get("modes", "fused split").split()]

    def options(self, mode: TwoPhase) -> WorldOptions:
        settings = self.settings
        return WorldOptions(
            two_phase=mode,
            producer_epoch_max=int(settings.get("producer_epoch_max", EPOCH_MAX)),
            expiration_ms=int(settings.get("expiration_ms", EXPIRATION_MS)),
            producer_expiration_ms=int(settings.get("producer_expiration_ms", PRODUCER_EXPIRATION_MS)),
            runtime_limits=RuntimeLimits(
                group_bytes_max=int(settings.get("group_bytes_max", RuntimeLimits().group_bytes_max))
            ),
        )


def read_transcript(text: str) -> Transcript:
    settings: dict[str, str] = {}
    head: list[str] = []
    lines = text.splitlines()
    while lines and (_SETTING.match(lines[0]) or not lines[0].strip() or lines[0].startswith("#")):
        line = lines.pop(0)
        head.append(line)
        if setting := _SETTING.match(line):
            settings[setting[1]] = setting[2]
    return Transcript(settings, head, [_block(chunk) for chunk in _chunks(lines)])


def _chunks(lines: list[str]) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            chunks[-1].append(line)
        elif chunks[-1]:
            chunks.append([])
    return [chunk for chunk in chunks if chunk]


def _block(lines: list[str]) -> Block:
    block = Block()
    while lines and lines[0].startswith("#"):
        block.comment.append(lines.pop(0))
    if _RULER in lines:
        ruler = lines.index(_RULER)
        block.commands, block.seen = lines[:ruler], lines[ruler + 1 :]
    else:
        block.commands = lines
    return block


def play(transcript: Transcript, mode: TwoPhase, shelf: Shelf | None = None) -> list[list[str]]:
    """Return what every block shows, after checking what must always hold: the store rebuilds the state, and its rows
    agree."""
    world = World(transcript.options(mode), shelf if shelf is not None else MemoryShelf())
    script = Script(world)
    seen = [[said for command in block.commands for said in script.run(command)] for block in transcript.blocks]
    world.check_replay()
    world.settle()
    world.check_replay()
    world.check_stored()
    return seen


def written(transcript: Transcript, seen: list[list[str]]) -> str:
    """The transcript as text, with what was seen."""
    parts = []
    for block, said in zip(transcript.blocks, seen, strict=True):
        ruled = [_RULER, *(said or ["ok"])] if block.commands else []
        parts.append("\n".join([*block.comment, *block.commands, *ruled]))
    head = "\n".join(transcript.head).strip()
    return "\n\n".join([head, *parts] if head else parts) + "\n"


def check(path: Path, *, rewrite: bool, shelf: Shelf | None = None) -> None:
    """Play a file in all its modes, and compare the stories with each other and with the file, or rewrite it."""
    text = path.read_text()
    transcript = read_transcript(text)
    first, *others = (written(transcript, play(transcript, mode, shelf)) for mode in transcript.modes)
    for mode, other in zip(transcript.modes[1:], others, strict=True):
        same_story(
            first,
            other,
            (transcript.modes[0].value, mode.value),
            f"{path.name} tells another story in {mode.value}: settle before looking, or write two files",
        )
    if rewrite:
        path.write_text(first)
    else:
        file_says(path, first)


def file_says(path: Path, played: str) -> None:
    """Fail with the difference where a file tells another story than the one that was played."""
    same_story(
        path.read_text(),
        played,
        (path.name, "played now"),
        f"{path.name} tells another story. If the new one is right, write it into the file, and commit that:\n"
        f"    python -m pytest 'tests/scenarios/test_scenarios.py::test_scenario[{path.stem}-lane]' --rewrite",
    )


def same_story(one: str, other: str, names: tuple[str, str], problem: str) -> None:
    """Fail with the lines in which two stories differ, and those around them."""
    __tracebackhide__ = True
    if one != other:
        lines = unified_diff(one.splitlines(), other.splitlines(), *names, lineterm="")
        pytest.fail("\n".join([problem, *lines]), pytrace=False)
