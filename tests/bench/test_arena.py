"""Missing requirements of a machine are found once, and reported in words that help."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from bench.kafka.settings import PROFILES
from bench.registry import CASES
from bench.results import CannotRun, Side
from bench.runner import measure
from bench.scale import FULL
from bench.server import OwnServer
from tests.bench.fakes import arena
from tests.harness.patience import looks


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose search path holds one folder, still empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return folder


class Sleeper(OwnServer):
    """A process in place of a server."""

    def launch(self) -> int:
        self._process = subprocess.Popen(["sleep", "600"], process_group=0)
        return 0


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[list[OwnServer]]:
    """Two processes in place of the shared servers."""
    made: list[OwnServer] = [Sleeper(tmp_path), Sleeper(tmp_path)]
    for server in made:
        server.launch()
    yield made
    for server in made:
        server.kill()


def is_paused(server: OwnServer) -> bool:
    """Return whether a signal has stopped the server's process."""
    state = Path(f"/proc/{server.process_id}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def await_states(servers: list[OwnServer], expected: list[bool]) -> None:
    """Return once exactly these are paused: the kernel stops a process a moment after the signal."""
    for _ in looks("the states of the servers"):
        if [is_paused(server) for server in servers] == expected:
            return


@pytest.mark.usefixtures("bare")
def test_without_maven_kafka_cannot_take_part(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="no Maven"):
        arena(tmp_path).new_broker(PROFILES["stock"])


def test_without_a_compiler_kafka_cannot_take_part(bare: Path, tmp_path: Path) -> None:
    program(bare, "mvn", "exit 0")
    with pytest.raises(CannotRun, match="no JDK"):
        arena(tmp_path).new_broker(PROFILES["stock"])


def test_a_build_that_fails_is_not_tried_again_for_the_next_contender(bare: Path, tmp_path: Path) -> None:
    program(bare, "javac", "exit 0")
    program(bare, "mvn", f"echo again >> {tmp_path}/tries; echo cannot resolve; exit 1")
    made = arena(tmp_path)
    for profile in made.profiles:
        with pytest.raises(CannotRun, match="cannot resolve"):
            made.broker(profile)
    assert (tmp_path / "tries").read_text() == "again\n"
    assert made.versions() == {}


def test_what_both_sides_need_once_is_prepared_once(tmp_path: Path) -> None:
    made, numbers = arena(tmp_path), count()
    assert [made.once("ours", "a topic", lambda: next(numbers)) for _ in range(2)] == [0, 0]
    assert made.once("ours", "another", lambda: next(numbers)) == 1


def test_only_the_server_that_is_measured_runs(tmp_path: Path, sleepers: list[OwnServer]) -> None:
    made = arena(tmp_path)
    made._own, made._own_with_front = sleepers  # the shared servers, already started
    made.own()
    await_states(sleepers, [False, True])
    made.own_with_front()
    await_states(sleepers, [True, False])
    made.close()
    for server in sleepers:
        with pytest.raises(AssertionError, match="started"):
            assert server.process_id


@pytest.mark.usefixtures("bare")
def test_kafka_in_every_profile_says_why_it_could_not_run(tmp_path: Path) -> None:
    (row,) = CASES["disk"].rows(arena(tmp_path, FULL))
    theirs = replace(row, contenders=[each for each in row.contenders if each.side is Side.KAFKA])
    results = list(measure({"disk": [theirs]}, 1, lambda _: None))
    assert [result.contender for result in results] == ["raw, stock", "raw, tuned"]
    assert all(result.problem.startswith("no Maven") and not result.is_failure for result in results)
