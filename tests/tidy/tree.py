"""The files of the project as the tidiness tests see them: what people wrote, not what tools left or git ignores."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

from scripts.tree_files import files_of

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT_SUFFIXES = {".cfg", ".in", ".json", ".md", ".proto", ".py", ".rs", ".sh", ".toml", ".txt", ".yaml", ".yml"}
TEXT_NAMES = {"Makefile", "Dockerfile", "run", ".gitattributes", ".gitignore"}


@functools.cache
def text_files() -> tuple[Path, ...]:
    """Every text file that people maintain, generated code left out."""
    paths = (ROOT / path for path in files_of(ROOT))
    return tuple(path for path in paths if is_text(path) and not is_generated(path))


def python_files() -> tuple[Path, ...]:
    """Every Python module that people maintain."""
    return tuple(path for path in text_files() if path.suffix == ".py")


def files_of_tests() -> tuple[Path, ...]:
    """Every Python module below `tests`."""
    return tuple(path for path in python_files() if path.is_relative_to(ROOT / "tests"))


def requirement_files() -> tuple[Path, ...]:
    """The lock files and what they are resolved from."""
    return tuple(path for path in text_files() if path.parent == ROOT / "requirements")


def is_text(path: Path) -> bool:
    """Whether the file is source, prose or configuration."""
    return path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES


def is_generated(path: Path) -> bool:
    """Whether the protobuf compiler wrote the file."""
    return path.stem.endswith(("_pb2", "_pb2_grpc"))


def shown(path: Path) -> str:
    """The path as a reader of a failing test wants it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def project() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
