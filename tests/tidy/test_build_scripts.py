"""The scripts of the build: their advice on a machine that lacks something, and their findings."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

from scripts.dist import build_native, stage
from scripts.generate import differences
from scripts.java import java_problem, java_version
from scripts.native import cargo_problem, check


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_the_java_version_is_read_from_old_and_new_banners(banner: str, version: int | None) -> None:
    assert java_version(banner) == version


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose search path holds an empty folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_machine_without_java_is_told_what_to_install_in_one_line(empty_path: Path) -> None:
    problem = java_problem()
    assert problem is not None
    assert "none was found: install a Java 17" in problem
    assert "\n" not in problem


def test_an_old_java_is_named_with_its_version(empty_path: Path) -> None:
    java = empty_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    problem = java_problem()
    assert problem is not None
    assert f"{java} is Java 11" in problem


def test_a_wrong_java_home_is_reported_and_not_passed_over(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(empty_path / "gone"))
    problem = java_problem()
    assert problem is not None
    assert "does not start" in problem


def test_generated_code_that_is_missing_stale_or_left_over_is_noticed(tmp_path: Path) -> None:
    tree, fresh = tmp_path / "tree", tmp_path / "fresh"
    for folder, files in {tree: {"a_pb2.py": "old", "b_pb2.py": "same", "gone_pb2_grpc.py": ""}, fresh: {}}.items():
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    for name, text in {"a_pb2.py": "new", "b_pb2.py": "same", "c_pb2.pyi": ""}.items():
        (fresh / name).write_text(text)
    assert differences(tree, fresh) == {
        Path("a_pb2.py"): "stale",
        Path("c_pb2.pyi"): "missing",
        Path("gone_pb2_grpc.py"): "left over",
    }


def test_a_machine_without_cargo_is_told_so_in_one_line(empty_path: Path) -> None:
    problem = cargo_problem()
    assert problem is not None
    assert "built by cargo, and none was found: install Rust 1." in problem
    assert "\n" not in problem


def test_an_old_cargo_is_named_with_its_version(empty_path: Path) -> None:
    cargo = empty_path / "cargo"
    cargo.write_text("#!/bin/sh\necho 'cargo 1.70.0 (ec8a8a0ca 2023-04-25)'\n")
    cargo.chmod(0o755)
    problem = cargo_problem()
    assert problem is not None
    assert f"{cargo} is 1.70" in problem


def noting_cargo(folder: Path, *, fails_at: str) -> Path:
    """A cargo that fails at one thing, and the file in which it notes what it is asked."""
    notes, cargo = folder / "asked", folder / "cargo"
    cargo.write_text(f'#!/bin/sh\necho "$*" >>{notes}\ncase "$*" in {fails_at}) exit 1;; esac\n')
    cargo.chmod(0o755)
    return notes


def test_the_crate_is_checked_by_clippy_and_its_own_tests(empty_path: Path) -> None:
    notes = noting_cargo(empty_path, fails_at="never")
    check()
    assert notes.read_text().splitlines() == [
        "clippy --version",
        "clippy --locked --all-targets -- -D warnings",
        "test --locked -- --quiet",
    ]


def test_no_wheel_is_made_of_a_crate_with_warnings(empty_path: Path) -> None:
    notes = noting_cargo(empty_path, fails_at="*warnings")
    with pytest.raises(subprocess.CalledProcessError):
        check()
    assert "test" not in notes.read_text()


def test_a_cargo_without_clippy_still_tests(empty_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notes = noting_cargo(empty_path, fails_at='"clippy --version"')
    check()
    assert notes.read_text().splitlines() == ["clippy --version", "test --locked -- --quiet"]
    assert "clippy is not installed" in capfd.readouterr().err


def test_the_wheel_of_the_transport_has_the_version_of_its_crate_and_commit(tmp_path: Path) -> None:
    version = stage(tmp_path / "crate")
    manifest = tomllib.loads((tmp_path / "crate" / "Cargo.toml").read_text())
    asked = tomllib.loads((tmp_path / "crate" / "pyproject.toml").read_text())["project"]
    assert asked["version"] == str(Version(version)) == version
    assert "dynamic" not in asked
    assert Version(version) > Version(manifest["package"]["version"])
    assert (tmp_path / "crate" / "Cargo.lock").is_file()
    assert not (tmp_path / "crate" / "target").exists()


def test_a_machine_without_cargo_builds_no_transport_and_says_why(
    empty_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (empty_path / "txn_native_transport-1.whl").touch()
    assert build_native(empty_path) == []
    assert "no wheel of the compiled transport" in capfd.readouterr().err
    assert (empty_path / "txn_native_transport-1.whl").exists(), "what is there stays, where nothing else comes"
