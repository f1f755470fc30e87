"""Inputs that are kept: a corpus for each target, and the stories that broke one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
CRASHES: Final = HERE / "crashes"
CORPUS: Final = HERE / "corpus"
CORPUS_BYTES_MAX: Final = 60_000
"""Bound on one target: all of them together stay below 1 MiB."""


def packed(inputs: Iterable[bytes]) -> bytes:
    """Inputs as the contents of one file."""
    return b"".join(len(each).to_bytes(4, "big") + each for each in inputs)


def unpacked(content: bytes) -> Iterator[bytes]:
    """The inputs of a file."""
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        yield content[at + 4 : at + 4 + size]
        at += 4 + size


def corpus_of(name: str) -> list[bytes]:
    """Return the inputs in the corpus of a target."""
    file = CORPUS / name
    return list(unpacked(file.read_bytes())) if file.exists() else []


def add_to_corpus(name: str, inputs: Iterable[bytes]) -> None:
    """Keep these too, the shortest ones if there is not room for all."""
    kept: list[bytes] = []
    size = 0
    for each in sorted({*corpus_of(name), *inputs}, key=lambda found: (len(found), found)):
        size += len(each) + 4
        if size > CORPUS_BYTES_MAX:
            break
        kept.append(each)
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / name).write_bytes(packed(kept))


def keep_crash(name: str, inputs: Iterable[bytes]) -> Path:
    """Keep the story that broke a target."""
    content = packed(inputs)
    CRASHES.mkdir(exist_ok=True)
    file = CRASHES / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    file.write_bytes(content)
    return file


def crashes_of(name: str) -> Iterator[list[bytes]]:
    """The stories that once broke a target."""
    for file in sorted(CRASHES.glob(f"{name}-*")):
        yield list(unpacked(file.read_bytes()))
