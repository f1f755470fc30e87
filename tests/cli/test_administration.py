"""`txnctl describe`, `explain`, `abort` and `hanging` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_client import Producer
from tests.cli.terminal import Terminal
from tests.harness.patience import TRANSACTION_TIMEOUT_MS
from tests.harness.rocks_shelf import RocksShelf
from tests.harness.server_process import ServerProcess
from tests.transactions.administered import CLIENT, Administered
from txn_coordinator.state import Identity
from txnctl.commands.options import PartitionPlace, parse_partition
from txnctl.commands.transactions import actor


@pytest.mark.parametrize(
    ("text", "place"), [("orders-0", ("orders", 0)), ("a-b-12", ("a-b", 12)), ("a.b_c-3", ("a.b_c", 3))]
)
def test_a_partition_is_written_as_topic_and_number(text: str, place: tuple[str, int]) -> None:
    assert parse_partition(text) == place
    assert str(PartitionPlace(*place)) == text
    assert parse_partition(PartitionPlace(*place)) == place


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["abort"], "say what to abort"),
        (["abort", "a", "--prefix", "b"], "ids or --prefix, not both"),
        (["abort", "a", "--partition", "t-0"], "--partition is for what no transactional id owns"),
        (["abort", "--partition", "t-0", "--fence"], "--partition is for what no transactional id owns"),
        (["abort", "a", "--producer-id", "4"], "--producer-id belongs to --partition"),
        (["abort", "--partition", "t"], "write TOPIC-NUMBER"),
        (["abort", "--older-than", "5"], "write 500ms, 30s"),
    ],
)
def test_what_makes_no_sense_is_told_before_any_server_is_asked(txnctl: Terminal, words: list[str], said: str) -> None:
    ended = txnctl(*words)
    assert (ended.status, ended.stdout) == (2, "")
    assert said in " ".join(ended.stderr.split())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture
def ask(txnctl: Terminal, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TXNCTL_SERVER", server.address)
    return txnctl


@pytest.mark.parametrize(
    ("client_id", "host", "shown"),
    [("app", "10.0.0.1", "app"), ("", "10.0.0.1", "(unnamed)"), ("", "", "(server)"), ("", "unix:", "(unnamed)")],
)
def test_only_a_step_without_a_caller_is_the_servers_own(client_id: str, host: str, shown: str) -> None:
    assert actor(client_id, host) == shown


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["session", "unary"])
def test_every_step_names_who_took_it(tmp_path: Path, txnctl: Terminal, transport: str) -> None:
    with ServerProcess(tmp_path / "data", "--two-phase", "split") as server:
        at = ["--server", server.address]
        txnctl("topic", "create", "t", *at).well()
        with (
            Producer(server.address, transactional_id="p", transact_bytes=0, transport=transport) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("t", b"x")
        with grpc.insecure_channel(server.address) as channel:
            stub = transaction_pb2_grpc.TransactionServiceStub(channel)
            stub.InitProducerId(
                transaction_pb2.InitProducerIdRequest(
                    transactional_id="p", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
                )
            )
        (described,) = txnctl("describe", "p", "-o", "json", *at).well().document
        steps = [(step["cause"], step["state"], step["client_id"]) for step in reversed(described["history"])]
        assert steps == [
            ("init", "Empty", "producer-p"),
            ("add", "Ongoing", "producer-p"),
            ("client", "PrepareCommit", "producer-p"),
            ("client", "CompleteCommit", ""),
            ("init", "Empty", ""),
        ]
        shown = [line.split() for line in txnctl("describe", "p", *at).well().lines if "CompleteCommit" in line]
        assert "(server)" in shown[-1]
        assert txnctl("describe", "p", *at).stdout.count("(server)") == 1
        assert txnctl("describe", "p", *at).stdout.count("(unnamed)") == 1


@pytest.mark.slow
def test_a_reader_that_stands_still_is_explained_and_the_history_says_who_did_what(
    ask: Terminal, server: ServerProcess
) -> None:
    ask("topic", "create", "orders", "-p", "2").well()
    for _instance in range(2):
        with Producer(server.address, transactional_id="billing", client_id="billing-app") as producer:
            transaction = producer.transaction()
            transaction.__enter__()
            transaction.send("orders", value=b"x", partition=0)
            transaction.flush()

            explained = ask("explain", "orders-0", "-o", "json").well().document
            assert (explained["last_stable_offset"] < explained["high_watermark"]) is True
            blocking = explained["blocking"]
            assert (blocking["transactional_id"], blocking["state"]) == ("billing", "Ongoing")
            assert blocking["start_offset"] == explained["last_stable_offset"]
            assert 0 < blocking["time_left_ms"] <= blocking["transaction_timeout_ms"]
            last = blocking["last_step"]
            assert (last["cause"], last["client_id"]) == ("add", "billing-app")
            assert last["host"]
            text = ask("explain", "orders-0").well().stdout
            assert "add by billing-app at" in text
            assert "txnctl abort billing" in text
            assert ask("explain", "orders-1", "-o", "json").well().document["blocking"] is None

            would = ask("abort", "--prefix", "bill", "--dry-run", "-o", "json").well().document
            assert [(row["transactional_id"], row["result"]) for row in would] == [("billing", "would be aborted")]
            assert ask("abort", "--older-than", "1h", "-o", "json").well().document == []
            acted = ask("abort", "billing", "-o", "json").well().document
            assert (acted[0]["result"], acted[0]["state"], acted[0]["partitions"]) == ("aborted", "Ongoing", 1)
            with pytest.raises(Exception, match=r"."):
                transaction.__exit__(None, None, None)
    assert "nothing is in the way" in ask("explain", "orders-0").well().stdout

    (described,) = ask("describe", "billing", "--history", "4", "-o", "json").well().document
    assert (described["age_ms"], described["time_left_ms"], described["history_complete"]) == (None, None, False)
    fencing = next(step for step in described["history"] if step["state"] == "PrepareAbort")
    assert (fencing["cause"], fencing["client_id"]) == ("admin", "txnctl")
    assert fencing["fenced"]["producer_id"] == described["producer_id"]
    shown = ask("describe", "billing").well()
    assert "FENCED" in shown.stdout
    assert "billing-app" in shown.stdout
    assert "FENCED" not in ask("describe", "billing", "--history", "0").well().stdout

    fenced = ask("abort", "billing", "--fence", "-o", "json").well().document
    assert [row["result"] for row in fenced] == ["fenced"]
    partly = ask("abort", "billing", "ghost", "-o", "json")
    assert (partly.status, partly.stderr) == (1, "txnctl: 2 of 2 were refused\n")
    assert [row["error"]["code"] for row in partly.document] == ["INVALID_TXN_STATE", "TRANSACTIONAL_ID_NOT_FOUND"]
    assert ask("hanging", "-o", "json").well().document == []
    assert "nothing hangs" in ask("hanging").well().stderr
    ask("abort", "--partition", "orders-0").refused(1, "no such transaction is open")
    ask("explain", "order-0").refused(1, "did you mean orders?")
    ask("explain", "orders-7").refused(1, "has the partitions 0 to 1")


@pytest.mark.slow
def test_what_hangs_is_found_counted_told_and_ended(txnctl: Terminal, tmp_path: Path) -> None:
    shelf = RocksShelf(tmp_path / "data")
    world = Administered(shelf=shelf)
    given = world.init_plain(CLIENT)
    world.settle()
    orphan: Identity = given.result()
    world.leave_hanging("t-1", orphan)
    shelf.close()

    settings = {"TXN_SHARD_COUNT": "2", "TXN_METRICS_LISTEN": "127.0.0.1:0", "TXN_LOG_FORMAT": "json"}
    with ServerProcess(tmp_path / "data", environment=settings) as server:
        at = ["--server", server.address]
        events = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
        (told,) = [event for event in events if event["event"] == "hanging_transaction"]
        assert (told["topic"], told["partition"], told["reason"]) == ("t", 1, "unknown_producer")
        (metrics,) = [event["listen"] for event in events if event["event"] == "serving_metrics"]
        assert "txn_coordinator_hanging 1.0" in scraped(metrics)

        found = txnctl("hanging", "-o", "json", *at)
        assert (found.status, found.stderr) == (1, "txnctl: 1 transactions hang: please report it\n")
        (row,) = found.document
        assert (row["topic"], row["partition"], row["producer_id"]) == ("t", 1, orphan.producer_id)
        command = f"txnctl abort --partition t-1 --producer-id {orphan.producer_id}"
        assert row["command"] == command
        assert command in txnctl("hanging", *at).stdout
        explained = txnctl("explain", "t-1", "-o", "json", *at).well().document
        assert explained["blocking"]["state"] == "hanging"
        assert command in explained["next_event"]
        assert "hanging" in txnctl("explain", "t-1", *at).well().stdout

        words = command.removeprefix("txnctl ").split()
        (would,) = txnctl(*words, "--dry-run", "-o", "json", *at).well().document
        assert would["result"] == "would be aborted"
        (done,) = txnctl(*words, "-o", "json", *at).well().document
        assert (done["result"], done["start_offset"]) == ("aborted", 0)
        assert txnctl("hanging", "-o", "json", *at).well().document == []
        assert "nothing is in the way" in txnctl("explain", "t-1", *at).well().stdout
        server.terminate()
    assert txnctl("store", "verify", str(tmp_path / "data")).well()


def scraped(address: str) -> str:
    with urlopen(f"http://{address}/metrics") as answer:
        text: str = answer.read().decode()
        return text
