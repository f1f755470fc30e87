"""The fenced blocks of a Markdown file, as what a reader would type, and where the programs are that they name."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(sys.executable).parent
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """One block."""

    place: str
    """File and line, as an editor takes them."""
    language: str
    text: str


def fences(name: str) -> list[Fence]:
    """Return all blocks of a file of the project, in order."""
    text = (ROOT / name).read_text()
    lines = ((text.count("\n", 0, found.start()) + 1, found) for found in _FENCE.finditer(text))
    return [Fence(f"{name}:{line}", found["language"], found["text"]) for line, found in lines]


def programs(name: str) -> list[tuple[Fence, str]]:
    """Return the Python blocks of a file, each with the output that the block after it promises."""
    blocks = fences(name)
    return [
        (block, following.text)
        for block, following in zip(blocks, [*blocks[1:], Fence("", "", "")], strict=True)
        if block.language == "python"
    ]


def commands(name: str) -> list[str]:
    """Return every line of the shell blocks of a file."""
    return [line for block in fences(name) if block.language == "sh" for line in block.text.splitlines()]
