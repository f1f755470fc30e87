"""The files that the image would be built from are enough: the wheel of those that the Dockerfile copies is that of the
source tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.tree_files import files_of
from tests.docs.fences import ROOT
from tests.ops.files import OPS


def context(target: Path) -> None:
    """Copy what Dockerfile.dockerignore lets through: everything is out but the lines with a `!`."""
    lines = (OPS / "docker/Dockerfile.dockerignore").read_text().splitlines()
    for name in (line[1:] for line in lines if line.startswith("!")):
        source, copy = ROOT / name, target / name
        if name == ".git" and not source.exists():
            continue  # An archive, which says otherwise what it is of.
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "target"))
        else:
            shutil.copy(source, copy)


def wheel_of(tree: Path, target: Path) -> set[str]:
    """The names of the files in the wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


@pytest.mark.slow
def test_the_image_gets_the_whole_product(tmp_path: Path) -> None:
    context(tmp_path / "context")
    copied = wheel_of(tmp_path / "context", tmp_path / "copied")
    assert copied == wheel_of(ROOT, tmp_path / "whole")
    assert any(name.endswith("entry_points.txt") for name in copied)


def test_the_image_gets_the_whole_crate_and_nothing_that_was_built_of_it(tmp_path: Path) -> None:
    context(tmp_path)
    kept = [path for path in files_of(ROOT) if path.parts[0] == "native_transport"]
    assert kept
    assert all((tmp_path / name).is_file() for name in kept)
    ignored = (OPS / "docker/Dockerfile.dockerignore").read_text().splitlines()
    assert ignored.index("native_transport/target") > ignored.index("!native_transport")
