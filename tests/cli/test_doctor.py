"""`txnctl doctor`: what it says about good and bad machines."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from coordinator_runtime.clock import SystemClock
from tests.cli.terminal import Terminal
from txnctl import machine
from txnctl.machine import Finding, Severity


class ClockOfADisk:
    """A clock on which every sync takes as long as the test says."""

    def __init__(self, sync_us: int, ahead_ms: int = 0) -> None:
        self._sync_us = sync_us
        self._now_us = 0
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return SystemClock().wall_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._now_us // 1000

    def monotonic_us(self) -> int:
        self._now_us += self._sync_us
        return self._now_us


def test_a_machine_is_looked_at_from_all_sides(txnctl: Terminal, tmp_path: Path) -> None:
    findings = txnctl("doctor", "--data-dir", str(tmp_path / "later"), "-o", "json").well().document
    subjects = {finding["subject"] for finding in findings}
    assert {
        "python",
        "grpcio",
        "protobuf",
        "rocksdict",
        "txn-native-transport",
        "clock",
        "data directory",
        "disk sync",
        "limits",
        "java",
    } <= subjects
    assert list(tmp_path.iterdir()) == []


def test_the_directory_can_come_from_the_environment(
    txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXN_DATA_DIR", str(tmp_path))
    assert str(tmp_path) in txnctl("doctor").well().stdout


def test_a_file_in_place_of_the_directory_is_a_problem(txnctl: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    ended = txnctl("doctor", "--data-dir", str(file))
    assert ended.status == 1
    assert f"{file} is a file" in ended.stdout


@pytest.mark.parametrize(
    ("sync_us", "verdict", "advice"),
    [
        (5, Severity.WARNING, "too fast for a disk"),
        (2_000, Severity.OK, ""),
        (20_000, Severity.WARNING, "use a faster disk"),
        (200_000, Severity.PROBLEM, "use another disk"),
    ],
)
def test_a_disk_is_judged_by_the_median_of_its_syncs(
    tmp_path: Path, sync_us: int, verdict: Severity, advice: str
) -> None:
    (finding,) = machine.disk(tmp_path, ClockOfADisk(sync_us))
    assert finding.verdict is verdict
    assert advice in finding.advice
    assert f"median {sync_us / 1000:.2f} ms" in finding.found


def test_files_of_another_time_are_noticed(tmp_path: Path) -> None:
    _, finding = machine.disk(tmp_path, ClockOfADisk(2_000, ahead_ms=60_000))
    assert (finding.subject, finding.verdict) == ("clock of the disk", Severity.WARNING)


def test_a_disk_that_fails_to_sync_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", fail)
    (finding,) = machine.disk(tmp_path, SystemClock())
    assert finding.verdict is Severity.PROBLEM
    assert "No space left" in finding.found


def test_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, 4_096))
    assert machine.open_files().verdict is Severity.WARNING
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert machine.open_files() == Finding("limits", Severity.OK, "unlimited open files (at most unlimited)")


def test_a_clock_that_the_kernel_does_not_trust_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = []
    for state in (None, 0, 5):
        monkeypatch.setattr(machine, "_kernel_clock_state", lambda state=state: state)
        verdicts.append(machine.clock_synchronisation().verdict)
    assert verdicts == [Severity.OK, Severity.OK, Severity.WARNING]


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return program


@pytest.mark.parametrize(
    ("banner", "verdict", "found"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Severity.OK, "17.0.15 ("),
        ('java version "1.8.0_402"', Severity.WARNING, "is Java 8"),
        ("something else", Severity.WARNING, "does not tell its version"),
    ],
)
def test_java_is_asked_for_its_version(java_home: Path, banner: str, verdict: Severity, found: str) -> None:
    java_home.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java_home.chmod(0o755)
    finding = machine.java()
    assert finding.verdict is verdict
    assert found in finding.found


def test_a_java_that_is_not_there_is_a_warning(java_home: Path) -> None:
    finding = machine.java()
    assert finding.verdict is Severity.WARNING
    assert "does not start" in finding.found


def test_an_old_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.metadata, "requires", lambda name: ["grpcio<2,>=99.1", "rocksdict>=0.1"])
    found = {finding.subject: finding for finding in machine.versions()}
    assert found["grpcio"].verdict is Severity.PROBLEM
    assert "older than 99.1" in found["grpcio"].found
    assert found["rocksdict"].verdict is Severity.OK
