"""The small examples, as their first lines say that they are run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from coordinator_client import read
from tests.docs.fences import ROOT
from tests.harness import forked
from tests.harness.flights import require_flights
from tests.harness.patience import DEADLINE_SECONDS
from tests.ops.prometheus_process import free_port


def run_example(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = forked.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/[a-z]*.py")), ids=lambda path: path.name)
def test_every_example_says_how_it_is_called(path: Path) -> None:
    assert run_example(path.name, "--help")[0].startswith(f"usage: {path.name} ")


@pytest.mark.slow
def test_both_examples_book_the_good_transfer_and_hide_the_bad_one(endpoint: str) -> None:
    failed = "aborted: there is no account of nobody"
    # Each reads what the one before it wrote, so each encoding and each way of reading meets the other.
    assert [run_example(name, endpoint) for name in ("with_stubs.py", "with_sdk.py", "with_stubs.py")] == [
        [
            failed,
            f"read_uncommitted {{'alice': {-80 * runs}, 'bob': {30 * runs}}}",
            f"read_committed {{'alice': {-30 * runs}, 'bob': {30 * runs}}}",
        ]
        for runs in (1, 2, 3)
    ]


@pytest.mark.long
@pytest.mark.slow
def test_flights_are_copied_and_a_second_run_finds_nothing_left(endpoint: str) -> None:
    require_flights()
    assert run_example("copy_exactly_once.py", "--server", endpoint, "--flights", "300") == [
        "copied 300 records of flights-in to flights-out",
        "300 records, 0 missing, 0 too often, 0 wrong",
    ]
    assert run_example("copy_exactly_once.py", "--server", endpoint) == [
        "copied 0 records of flights-in to flights-out",
    ]


@pytest.mark.slow
def test_a_worker_does_each_job_once(endpoint: str) -> None:
    assert run_example("worker.py", endpoint, "--jobs", "20") == ["done: 20", "results: 20"]
    assert run_example("worker.py", endpoint, "--jobs", "5") == ["done: 5", "results: 25"]


@pytest.fixture(scope="module")
def fastapi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with FastAPI, which nothing else here needs."""
    folder = tmp_path_factory.mktemp("fastapi")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "fastapi", "uvicorn"]
    if find_spec("pip") is None:
        pytest.skip("the request handlers are not tried: there is no pip here to install FastAPI")
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the request handlers are not tried: FastAPI cannot be installed ({done.stderr[-200:]})")
    return folder


@pytest.mark.long
def test_request_handlers_write_transactions_at_the_same_time(endpoint: str, fastapi: Path) -> None:
    port = free_port()
    command = [sys.executable, str(ROOT / "examples/request_handlers.py"), endpoint, "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(fastapi), "TXN_SLOT": "test"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            assert any("Uvicorn running" in line for line in server.stderr)
            with ThreadPoolExecutor(20) as threads:
                answers = [*threads.map(lambda amount: transfer(port, amount), range(1, 41))]
        finally:
            server.send_signal(signal.SIGTERM)
    booked = {(row.partition, row.offset): int(row.value or b"") for row in read("transfers", endpoint) if row.key}
    assert len({answer["out"] for answer in answers}) == 40
    assert sum(booked.values()) == 0
    assert {-amount for amount in range(1, 41)} <= set(booked.values())


def transfer(port: int, amount: int) -> dict[str, int]:
    address = f"http://127.0.0.1:{port}/transfers?source=alice&target=bob&amount={amount}"
    with urlopen(Request(address, method="POST"), timeout=DEADLINE_SECONDS) as answer:
        return json.load(answer)
