"""`txnctl doctor --server`: what it says about a server that is well, and about what can be wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import DiskDescription, Producer, ShardDescription, TransactionListing
from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess
from tests.harness.threaded_server import threaded_server
from txnctl.commands.server_findings import (
    judge_disk,
    judge_hanging,
    judge_shards,
    judge_transactions,
    judge_version,
)
from txnctl.machine import Finding


@pytest.fixture
def address() -> Iterator[str]:
    with threaded_server() as address:
        yield address


def verdicts(txnctl: Terminal, address: str) -> dict[str, tuple[str, str]]:
    """Verdict and finding by subject."""
    ended = txnctl("doctor", "--server", address, "-o", "json")
    found = {each["subject"]: (each["verdict"], each["found"]) for each in ended.document}
    assert ended.status == int("problem" in {verdict for verdict, _found in found.values()})
    return found


def test_a_server_that_is_well(txnctl: Terminal, address: str) -> None:
    found = verdicts(txnctl, address)
    assert list(found) == [
        "answer",
        "version",
        "shards",
        "room on disk",
        "hanging transactions",
        "open transactions",
        "committed readers",
    ]
    del found["answer"]
    assert {verdict for verdict, _found in found.values()} == {"ok"}
    assert found["open transactions"][1] == "none"


def test_open_transactions_are_told_with_the_partitions_that_they_hold_back(txnctl: Terminal, address: str) -> None:
    txnctl("topic", "create", "t", "--server", address).well()
    with Producer(address, transactional_id="a") as producer, producer.transaction() as txn:
        txn.send("t", b"x")
        txn.flush()
        found = verdicts(txnctl, address)
        assert found["open transactions"][1].startswith("1, the oldest for ")
        assert found["committed readers"] == (
            "ok",
            "1 partitions are held back by open transactions, t-0 most, by 1 offsets",
        )


@pytest.mark.slow
def test_a_shard_that_does_not_serve_is_told(txnctl: Terminal, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        txnctl("shard", "unload", "transactions", "7", "--server", server.address).well()
        assert verdicts(txnctl, server.address)["shards"][0] == "warning"


def listing(age_ms: int | None, *, two_phase: bool = False) -> TransactionListing:
    return TransactionListing(
        transactional_id="a",
        producer_id=1,
        producer_epoch=0,
        state="Empty" if age_ms is None else "Ongoing",
        start_ms=-1,
        age_ms=age_ms,
        two_phase=two_phase,
        prepared_ms=None,
    )


def disk(free: int, *, least: int, is_low: bool = False) -> DiskDescription:
    """Sizes in MiB."""
    return DiskDescription(free_bytes=free << 20, free_bytes_min=least << 20, is_low=is_low)


def shard(number: int, state: str) -> ShardDescription:
    return ShardDescription(coordinator="log", shard=number, state=state, coordinator_epoch=None, reason=None)


@pytest.mark.parametrize(
    ("finding", "verdict", "found", "advice"),
    [
        (judge_version("0.0.1"), "warning", "0.0.1, and txnctl is ", "install the same version"),
        (judge_disk(disk(100, least=0)), "warning", "not watched", "disk_free_min_bytes"),
        (judge_disk(disk(399, least=200)), "warning", "399 MiB are free", "below 200 MiB"),
        (
            judge_disk(disk(150, least=200, is_low=True)),
            "problem",
            "150 MiB are free, and no records are taken until 225 MiB are",
            "delete topics",
        ),
        (judge_disk(disk(224, least=200, is_low=True)), "problem", "224 MiB are free, and no records", "delete topics"),
        (judge_disk(disk(224, least=200)), "warning", "224 MiB are free", "below 200 MiB no records"),
        (judge_hanging(2), "problem", "2 that no coordinator will end", "txnctl hanging"),
        (judge_transactions([listing(None), listing(5_000)], 900_000), "ok", "1, the oldest for 5.0s", ""),
        (
            judge_transactions([listing(900_001)], 900_000),
            "problem",
            "the oldest for 15m",
            "a: longer than any timeout",
        ),
        (judge_transactions([listing(900_001, two_phase=True)], 900_000), "ok", "1, the oldest for 15m", ""),
        (
            judge_transactions([listing(3_600_001, two_phase=True)], 900_000),
            "warning",
            "1, the oldest",
            "ask its owner",
        ),
        (
            judge_shards(
                [shard(number, "failed" if number else "active") for number in range(6)],
            ),
            "problem",
            "1 active, 5 failed",
            "log 1, log 2, log 3 and 2 more: the log says why",
        ),
        (
            judge_shards([shard(1, "loading")]),
            "warning",
            "1 loading",
            "txnctl shard list",
        ),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(finding: Finding, verdict: str, found: str, advice: str) -> None:
    assert finding.verdict == verdict
    assert found in finding.found
    assert advice in finding.advice
    assert bool(finding.advice) is bool(advice)


def test_a_server_that_is_away_is_told_as_by_every_command(txnctl: Terminal) -> None:
    txnctl("doctor", "--server", "127.0.0.1:1").refused(5, "no server answers at 127.0.0.1:1")


def test_machine_and_server_are_two_questions(txnctl: Terminal, tmp_path: Path) -> None:
    txnctl("doctor", "--server", "127.0.0.1:1", "--data-dir", str(tmp_path)).refused(2, "give one")
