"""Files that are looked at: in a checkout, and in an archive without git, the same ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from scripts.tree_files import files_of, is_ignored, patterns_in
from tests.harness.tools import require_tool
from tests.tidy.tree import ROOT

LEFT = {
    "venv/lib/python3.11/site-packages/bad.py": "import time; time.sleep(1)\ndef f(x=[]): return eval(x)  # "
    + "x" * 200,
    "venv/lib/python3.11/site-packages/broken.py": "def f(:\n",
    "venv/lib/python3.11/site-packages/bad-1.dist-info/README.md": "[nowhere](nowhere.md), /" + "home/x/y\n",
    "venv/lib/python3.11/site-packages/tests/test_bad.py": "def test_bad(): assert False\n",
    ".venv-lowest/lib/python3.11/site-packages/bad.py": "def f(:\n",
    "dist/unpacked/bad.py": "def f(:\n",
    "data/bad.py": "def f(:\n",
    "orders.copy/bad.py": "def f(:\n",
    "orders.lake.checkpoint/bad.md": "/" + "home/x/y\n",
    "tls/bad.toml": "/" + "home/x/y\n",
    "scripts/__pycache__/bad.py": "def f(:\n",
    "native_transport/target/debug/bad.rs": "unsafe { unsafe {",
    "examples/node/node_modules/bad.md": "/" + "home/x/y\n",
}
"""Leftovers of commands of README and of tools in a checkout, as bad as they may be."""


def leave(root: Path) -> None:
    for name, text in LEFT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(root: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, env=environment)


@pytest.fixture(params=["checkout", "archive"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty tree with the `.gitignore` of this one, of git or without."""
    root = tmp_path / "tree"
    root.mkdir()
    if request.param == "checkout":
        require_tool("git")
        git(root, "init", "--quiet")
    shutil.copy(ROOT / ".gitignore", root)
    return root


def test_what_git_ignores_is_not_looked_at(tree: Path) -> None:
    leave(tree)
    kept = ["Makefile", "coordinator_core/data/here.py", "docs/venv.md", "tests/dist/test_install.py"]
    for name in kept:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    assert files_of(tree) == [PurePosixPath(name) for name in sorted([".gitignore", *kept])]


def test_an_archive_is_read_as_the_checkout_is() -> None:
    patterns = patterns_in((ROOT / ".gitignore").read_text())
    assert [path for path in files_of(ROOT) if is_ignored(path, patterns, is_folder=False)] == []
    assert all(is_ignored(PurePosixPath(name), patterns, is_folder=False) for name in LEFT)


@pytest.mark.parametrize(
    ("line", "path", "is_folder", "ignored"),
    [
        ("/venv/", "venv", True, True),
        ("/venv/", "venv", False, False),
        ("/venv/", "venv/lib/x.py", False, True),
        ("/venv/", "docs/venv/x.py", False, False),
        ("__pycache__/", "a/b/__pycache__/x.pyc", False, True),
        ("*.py[cod]", "a/x.pyc", False, True),
        ("*.py[cod]", "a/x.py", False, False),
        ("/orders.*/", "orders.lake/part-0/x.parquet", False, True),
        ("/a/*/c", "a/b/c", False, True),
        ("/a/*/c", "a/b/b/c", False, False),
        ("# venv", "venv", True, False),
    ],
)
def test_a_line_of_gitignore_is_read_as_git_reads_it(line: str, path: str, is_folder: bool, ignored: bool) -> None:
    assert is_ignored(PurePosixPath(path), patterns_in(f"\n{line}\n"), is_folder=is_folder) is ignored


@pytest.mark.parametrize("line", ["!/venv/keep", "a/**/b", "a\\#"])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(line))):
        patterns_in(line)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["checkout", "archive"])
def test_every_check_is_content_with_a_tree_in_which_the_readme_was_followed(kind: str, tmp_path: Path) -> None:
    for path in files_of(ROOT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    if kind == "checkout":
        require_tool("git")
        git(tmp_path, "init", "--quiet")
        git(tmp_path, "add", ".")
    leave(tmp_path)
    python = [sys.executable, "-m"]
    reading = ["tests/tidy", *(f"tests/docs/test_{each}.py" for each in ("citations", "log_lines", "references"))]
    # Of the tests those that read the tree. They ask one function which files there are, so once is enough.
    tests = [*python, "pytest", "-q", "-m", "not slow and not spark", "-p", "no:cacheprovider", *reading]
    for command in (
        *([tests] if kind == "checkout" else []),
        [*python, "ruff", "check", "--no-cache", "."],
        [*python, "ruff", "format", "--check", "--no-cache", "."],
        [*python, "scripts.statements"],
        [*python, "scripts.cycles"],
        [*python, "scripts.dead_code"],
        [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        assert not re.search("site-packages/bad|broken.py", done.stdout), command
