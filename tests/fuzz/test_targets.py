"""Every target takes what is kept, and what broke one once; and one that breaks is found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.fast_path import FastPath
from tests.fuzz.__main__ import ROOT
from tests.fuzz.kept import CORPUS, CORPUS_BYTES_MAX, CRASHES, corpus_of, crashes_of, keep_crash, packed, unpacked
from tests.fuzz.targets import BY_NAME, TARGETS, Run, Story, Target
from tests.harness.long_cases import long_but
from tests.permissions.cases import CASES
from txn_coordinator.service import TransactionService

INPUTS_MAX = 150
"""Number of inputs tried of a target's corpus, so that all targets take a few seconds."""

LONG = {"stored_rows_started", "stored_rows_verified"}
"""Targets that open a store for each input. The tests of `store verify` damage rows, too."""

BY_TARGET = pytest.mark.parametrize("target", TARGETS, ids=list(BY_NAME))


@pytest.mark.parametrize("target", long_but(lambda target: target.name not in LONG, TARGETS), ids=list(BY_NAME))
def test_a_target_takes_its_seeds_and_its_corpus(target: Target) -> None:
    story = Story(target)
    seeds, corpus = list(target.seeds()), corpus_of(target.name)
    step = max(1, len(corpus) // INPUTS_MAX)
    for each in (b"", *seeds[:INPUTS_MAX], *corpus[::step]):
        story.tell(each)
    story.end()


@BY_TARGET
def test_what_broke_a_target_once_breaks_it_no_more(target: Target) -> None:
    for inputs in crashes_of(target.name):
        story = Story(target)
        for each in inputs:
            story.tell(each)
        story.end()


def test_everything_that_is_kept_belongs_to_a_target() -> None:
    assert {file.name for file in CORPUS.iterdir()} <= BY_NAME.keys()
    assert {file.name.rpartition("-")[0] for file in CRASHES.glob("*")} <= BY_NAME.keys()
    assert all(file.stat().st_size <= CORPUS_BYTES_MAX for file in CORPUS.iterdir())


def test_inputs_come_back_as_they_were_kept() -> None:
    inputs = [b"", b"a", bytes(300)]
    assert list(unpacked(packed(inputs))) == inputs


def test_a_defect_of_the_server_breaks_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def met(*_arguments: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(FastPath, "commit", met)
    monkeypatch.setattr(TransactionService, "end_txn", met)
    story = Story(BY_NAME["requests"])
    ends = next(each for each in BY_NAME["requests"].seeds() if CASES[each[1]].method == "EndTxn")
    with pytest.raises(AssertionError, match="met a defect"):
        story.tell(ends)
    assert story.inputs == [ends]


def test_the_story_of_a_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(data: bytes) -> None:
        assert data != b"b"

    monkeypatch.setattr("tests.fuzz.kept.CRASHES", tmp_path)
    story = Story(Target("broken", lambda: Run(attempt)))
    story.tell(b"a")
    with pytest.raises(AssertionError):
        story.tell(b"b")
    keep_crash("broken", story.inputs)
    assert list(crashes_of("broken")) == [[b"a", b"b"]]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has wheels for Linux on x86-64 only")
def test_no_target_breaks_in_a_short_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", "1"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count(": Done ") == len(TARGETS)
