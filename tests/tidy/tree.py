"""The files of the project as the tidiness tests see them: what people wrote, not what tools left or git ignores."""

from __future__ import annotations

import ast
import functools
import gc
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from scripts.tree_files import KAFKA_MESSAGES, files_of

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT_SUFFIXES = {".cfg", ".in", ".json", ".md", ".proto", ".py", ".rs", ".sh", ".toml", ".txt", ".yaml", ".yml"}
Finding = TypeVar("Finding")
TEXT_NAMES = {"Makefile", "Dockerfile", "run", ".gitattributes", ".gitignore"}


@functools.cache
def text_files() -> tuple[Path, ...]:
    """Every text file that people maintain, generated code left out."""
    paths = (ROOT / path for path in files_of(ROOT))
    return tuple(path for path in paths if is_text(path) and not is_generated(path))


def python_files() -> tuple[Path, ...]:
    """Every Python module that people maintain."""
    return tuple(path for path in text_files() if path.suffix == ".py")


Judge = Callable[[ast.Module], list[Finding]]


def judges_modules(judge: Judge[Finding]) -> Judge[Finding]:
    """Have every Python module shown to a function that finds something in it; `found_by` tells what that was."""
    _JUDGES.append(judge)
    return judge


def found_by(judge: Judge[Finding]) -> dict[Path, list[Finding]]:
    """Return what a judge of modules found, by module, those without a finding left out."""
    return {path: found for path, found in _found()[judge].items() if found}


@functools.lru_cache(maxsize=1)
def nodes_of(module: ast.Module) -> list[ast.AST]:
    """Return what `ast.walk` yields, found once for the judges that see the same module one after the other."""
    return [*ast.walk(module)]


_JUDGES: Final[list[Judge[Any]]] = []


@functools.cache
def _found() -> dict[Judge[Any], dict[Path, list[Any]]]:
    """Parse every module once for all judges, and keep nothing of it but what they found."""
    found: dict[Judge[Any], dict[Path, list[Any]]] = {judge: {} for judge in _JUDGES}
    # The collector would look at every tree again and again, and find nothing: a tree has no cycles.
    gc.disable()
    try:
        _judge_all(found)
    finally:
        gc.enable()
    return found


def _judge_all(found: dict[Judge[Any], dict[Path, list[Any]]]) -> None:
    for path in python_files():
        module = ast.parse(path.read_text(), filename=str(path))
        for judge in _JUDGES:
            found[judge][path] = judge(module)


def files_of_tests() -> tuple[Path, ...]:
    """Every Python module below `tests`."""
    return tuple(path for path in python_files() if path.is_relative_to(ROOT / "tests"))


def requirement_files() -> tuple[Path, ...]:
    """The lock files and what they are resolved from."""
    return tuple(path for path in text_files() if path.parent == ROOT / "requirements")


def is_text(path: Path) -> bool:
    """Return whether the file is source, prose or configuration."""
    return path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES


def is_generated(path: Path) -> bool:
    """Return whether the protobuf compiler wrote the file, or the generator of Kafka's messages."""
    return path.stem.endswith(("_pb2", "_pb2_grpc")) or path.is_relative_to(ROOT / KAFKA_MESSAGES)


def shown(path: Path) -> str:
    """The path as a reader of a failing test wants it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def project() -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
