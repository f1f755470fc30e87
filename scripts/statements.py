"""Counts the Python statements of the product: `python -m scripts.statements`.

Counts statements as Python's own parser sees them, per package. So neither comments nor line breaks count. Docstrings,
and the strings below constants and fields, do not count either, nor does generated code. `--at REV` counts a commit as
git stores it, without a checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from scripts.tree_files import KAFKA_MESSAGES, files_of

ROOT: Final = Path(__file__).resolve().parent.parent
_NOT_PRODUCT: Final = frozenset({"bench", "examples", "ops", "proto", "scripts", "tests"})
"""Top-level folders with Python that is generated or not part of the product. Any other folder is a package."""
_GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.statements", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at", metavar="REV", help="count this commit instead of the working tree")
    asked = parser.parse_args(arguments)
    counted = count_packages(sources_of_tree(ROOT) if asked.at is None else sources_of_commit(ROOT, asked.at))
    print("\n".join(table(counted)))
    return 0


def statements(source: str) -> int:
    """Return the number of statements of one module, without strings that only document."""
    return sum(isinstance(node, ast.stmt) and not _is_documentation(node) for node in ast.walk(ast.parse(source)))


def count_packages(sources: Iterable[tuple[PurePosixPath, str]]) -> Mapping[str, int]:
    """Return the number of statements by top-level package, the largest first."""
    counted: dict[str, int] = {}
    for path, source in sources:
        if is_product(path):
            counted[path.parts[0]] = counted.get(path.parts[0], 0) + statements(source)
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def is_product(path: PurePosixPath) -> bool:
    """Return True if a file is hand-written Python of the product. `path` is relative to the root of the tree."""
    is_packaged = len(path.parts) > 1 and path.parts[0] not in _NOT_PRODUCT and not path.parts[0].startswith(".")
    is_generated = path.name.endswith(_GENERATED) or path.is_relative_to(KAFKA_MESSAGES)
    return is_packaged and path.suffix == ".py" and not is_generated


def sources_of_tree(root: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the Python files of the working tree: those that git tracks, and new ones that it does not ignore."""
    for path in files_of(root):
        if path.suffix == ".py":
            yield path, (root / path).read_text()


def sources_of_commit(root: Path, revision: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the Python files of a commit. Ends the program with git's message if there is no such commit."""
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", revision))) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                yield PurePosixPath(member.name), file.read().decode()


def table(counted: Mapping[str, int]) -> list[str]:
    """Return the table in Markdown, with the sum."""
    lines = ["| package | statements |", "| --- | --- |"]
    lines += [f"| {package} | {count:,} |" for package, count in counted.items()]
    return [*lines, f"| all | {sum(counted.values()):,} |"]


def _is_documentation(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {words[0]} failed: {done.stderr.decode().strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
