"""The commands against a real server, and against its directory once it was stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_client import Producer, progress
from tests.cli.terminal import Ended, Terminal
from tests.harness import forked
from tests.harness.patience import looks
from tests.harness.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture
def ask(txnctl: Terminal, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TXNCTL_SERVER", server.address)
    return txnctl


@pytest.fixture
def topic(ask: Terminal, request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test, with two partitions."""
    name = request.node.name.partition("[")[0][:200]
    ask("topic", "create", name, "-p", "2").well()
    return name


class Program:
    """txnctl as a process of its own, for what only a process can show."""

    def __init__(self, address: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TXN_", "TXNCTL_"))}
        path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
        self._environment = environment | {"PYTHONPATH": path, "TXNCTL_SERVER": address}

    def __call__(self, *words: str) -> forked.Popen:
        return self._start([sys.executable, "-m", "txnctl", *words])

    def without_stdin(self, *words: str) -> forked.Popen:
        line = shlex.join([sys.executable, "-m", "txnctl", *words])
        return self._start(["/bin/sh", "-c", f"exec {line} <&-"])

    def _start(self, words: list[str]) -> forked.Popen:
        pipe = subprocess.PIPE
        return forked.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment)


@pytest.fixture
def program(server: ServerProcess) -> Program:
    return Program(server.address)


def values(ended: Ended) -> list[Any]:
    return [record["value"] for record in ended.well().objects]


# Topics


def test_a_topic_lives_and_dies(ask: Terminal) -> None:
    created = ask("topic", "create", "life", "--partitions", "3", "-o", "json").well().document
    assert [(row["topic"], row["result"], row["partitions"]) for row in created] == [("life", "ready", 3)]
    listed = {row["topic"]: row for row in ask("topic", "list", "-o", "json").well().document}
    assert listed["life"]["topic_id"] == created[0]["topic_id"]
    assert len(ask("topic", "describe", "life", "-o", "json").well().document) == 3
    assert "would be deleted" in ask("topic", "delete", "life", "--dry-run").well().stdout
    assert "life" in ask("topic", "list").well().stdout
    assert "deleted" in ask("topic", "delete", "life", "--yes").well().stdout
    ask("topic", "describe", "life").refused(1, "there is no topic 'life'")


def test_the_oldest_records_are_deleted(ask: Terminal) -> None:
    topic = "oldest"
    ask("topic", "create", topic).well()
    ask("produce", topic, stdin="a\nb\nc\n").well()
    delete = ("topic", "delete-records", f"{topic}-0")
    ask(*delete, "--yes").refused(2, "say once where to stop: --before OFFSET")
    ask(*delete, "--before", "1", "--all", "--yes").refused(2, "not both")
    (planned,) = ask(*delete, "--before", "2", "--dry-run", "-o", "json").well().document
    assert (planned["result"], planned["log_start_offset"], planned["offsets"]) == ("would be deleted", 2, 2)
    assert ask(*delete, "--before", "2", stdin="n\n").status == 2
    assert values(ask("consume", topic, "-o", "json")) == ["a", "b", "c"]
    (done,) = ask(*delete, "--before", "2", "--yes", "-o", "json").well().document
    assert (done["result"], done["log_start_offset"], done["held_back"]) == ("deleted", 2, "")
    assert values(ask("consume", topic, "-o", "json")) == ["c"]
    ask(*delete, "--before", "99", "--yes").refused(1, "ends at offset")
    ask("topic", "delete-records", f"{topic}-7", "--all", "--yes").refused(1, "has 1 partitions, from 0")
    ask("topic", "delete-records", "nowhere-0", "--all", "--yes").refused(1, "there is no topic 'nowhere'")
    ask(*delete, "--all", "--yes").well()
    assert values(ask("consume", topic, "-o", "json")) == []


def test_the_limits_of_retention_of_a_topic_are_set_and_shown(ask: Terminal) -> None:
    ask("topic", "create", "kept", "--retention-ms", "0").refused(1, "retention_ms", "from 1 to")
    ask("topic", "create", "kept", "--retention-ms", "5000", "--retention-bytes", "-1").well()
    (shown,) = ask("topic", "describe", "kept", "-o", "json").well().document
    assert (shown["retention_ms"], shown["retention_bytes"]) == ("5000", "-1")


def test_nothing_is_created_by_a_dry_run(ask: Terminal) -> None:
    assert "would be created" in ask("topic", "create", "dry", "--dry-run").well().stdout
    ask("topic", "describe", "dry").refused(1, "there is no topic 'dry'")


def test_an_existing_topic_is_refused_or_taken(ask: Terminal, topic: str) -> None:
    ask("topic", "create", topic).refused(1, "there is a topic", "--if-not-exists")
    ask("topic", "create", topic, "--dry-run").refused(1, "there is a topic")
    ask("topic", "create", topic, "-p", "2", "--if-not-exists").well()
    assert "exists" in ask("topic", "create", topic, "-p", "2", "--if-not-exists", "--dry-run").well().stdout
    for words in ([], ["--dry-run"]):
        ask("topic", "create", topic, "-p", "3", "--if-not-exists", *words).refused(1, "it has 2 partitions, 3 were")


def test_a_topic_that_cannot_be_is_refused(ask: Terminal) -> None:
    ask("topic", "create", "__system").refused(1, "is reserved")
    ask("topic", "create", "a b").refused(1, "is no topic name")
    ask("topic", "create", "large", "-p", "20000").refused(1, "cannot have 20000 partitions")


def test_a_deletion_asks_first(ask: Terminal, topic: str) -> None:
    refused = ask("topic", "delete", topic, stdin="n\n")
    assert refused.status == 2
    assert "nothing was deleted" in refused.stderr
    unanswered = ask("topic", "delete", topic)
    assert unanswered.status == 2
    assert "say --yes" in unanswered.stderr
    ask("topic", "describe", topic).well()
    ask("topic", "delete", topic, stdin="y\n").well()
    ask("topic", "describe", topic).refused(1, "there is no topic")


def test_a_command_waits_for_a_server_that_is_starting(txnctl: Terminal, tmp_path: Path) -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port = plug.getsockname()[1]
    starting = ServerProcess(tmp_path / "data")
    starting.port = port
    starting.launch()
    try:
        # It answers before it has loaded everything, and is waited for until it has: each asks once.
        assert "SERVING" in txnctl("--wait", "100s", "health", "--server", starting.address).well().stdout
        txnctl("--wait", "100s", "topic", "list", "--server", starting.address).well()
    finally:
        starting.kill()


# Records


def test_lines_go_in_and_come_out(ask: Terminal, topic: str) -> None:
    sent = ask("produce", topic, "--key-separator", ":", "-o", "json", stdin="a:1\nb:2\n").well().document
    assert (sent["outcome"], sent["records"], sent["transactions"]) == ("committed", 2, 1)
    assert sent["csn"] > 0
    records = ask("consume", topic, "-o", "json").well().objects
    assert sorted((record["key"], record["value"]) for record in records) == [("a", "1"), ("b", "2")]
    shown = ask("consume", topic).well()
    assert len(shown.lines) == 2
    assert "2 shown; hidden: 0 aborted records" in shown.stderr


def test_a_timeout_that_the_server_does_not_allow_is_told_before_input_is_read(ask: Terminal, topic: str) -> None:
    ended = ask("produce", topic, "--transaction-timeout", "2h", stdin="a\n")
    ended.refused(1, "transaction_timeout_ms is 7200000; it must be 1 to 900000", "INVALID_TRANSACTION_TIMEOUT")
    assert values(ask("consume", topic, "-o", "json")) == []


def test_only_an_auditor_sees_an_aborted_transaction(ask: Terminal, topic: str) -> None:
    assert ask("produce", topic, "--abort", "-o", "json", stdin="x\n").well().document["outcome"] == "aborted"
    ask("produce", topic, stdin="y\n").well()
    assert values(ask("consume", topic, "-o", "json")) == ["y"]
    raw = ask("consume", topic, "--raw", "-o", "json").well().objects
    assert {(record["value"], record["fate"]) for record in raw if "value" in record} == {
        ("x", "aborted"),
        ("y", "committed"),
    }
    assert sorted(record["marker"]["outcome"] for record in raw if "marker" in record) == ["abort", "commit"]
    assert "=== ABORT producer" in ask("consume", topic, "--raw").well().stdout


def test_a_topic_is_copied_without_loss(ask: Terminal, topic: str) -> None:
    lines = [
        {"key": None, "value": {"base64": "/wA="}, "partition": 0, "headers": [{"key": "h", "value": None}]},
        {"key": "", "value": None, "partition": 1, "headers": [{"key": "ü", "value": "1"}]},
        {"key": "k", "value": "\u2028\n", "partition": 0, "headers": []},
    ]
    ask("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, lines))).well()
    ask("topic", "create", f"{topic}-copy", "-p", "2").well()
    first = ask("consume", topic, "-o", "json").well()
    ask("produce", f"{topic}-copy", "--format", "json", stdin=first.stdout).well()
    second = ask("consume", f"{topic}-copy", "-o", "json").well()

    def content(ended: Ended) -> list[Any]:
        return [{name: record[name] for name in record if name != "topic"} for record in ended.objects]

    assert len(first.lines) == 3
    assert content(first) == content(second)


def test_a_bad_line_takes_its_transaction_with_it(ask: Terminal, topic: str) -> None:
    lines = '{"value": "1"}\n{"value": "2"}\n{"valu": "3"}\n'
    ask("produce", topic, "--format", "json", stdin=lines).refused(2, "line 3: 'valu'", "nothing of it is visible")
    ask("consume", topic, "-o", "json").refused(0)
    every = ask("produce", topic, "--format", "json", "--commit-every", "1", stdin=lines)
    assert every.status == 2
    assert "2 records in 2 transactions were committed before this" in every.stderr
    assert sorted(values(ask("consume", topic, "-o", "json"))) == ["1", "2"]


def test_a_transaction_for_every_few_records(ask: Terminal, topic: str) -> None:
    sent = ask("produce", topic, "--commit-every", "2", "-o", "json", stdin="1\n2\n3\n4\n5\n").well().document
    assert (sent["records"], sent["transactions"]) == (5, 3)
    markers = ask("log", "dump", topic, "--show", "markers", "-o", "json").well().objects
    assert len({row["marker"]["csn"] for row in markers}) == 3


def test_nothing_is_sent_by_a_dry_run(ask: Terminal, topic: str) -> None:
    counted = ask("produce", topic, "--dry-run", "-o", "json", stdin="1\n2\n").well().document
    assert (counted["outcome"], counted["records"]) == ("would be committed", 2)
    assert ask("log", "dump", topic, "-o", "json").well().objects == []


def test_nothing_on_stdin_is_nothing_to_send(ask: Terminal, topic: str) -> None:
    assert ask("produce", topic, "-o", "json").well().document["outcome"] == "nothing to send"


def test_a_partition_that_is_not_there_is_refused(ask: Terminal, topic: str) -> None:
    ask("produce", topic, "--format", "json", stdin='{"value": "1", "partition": 9}').refused(1, "and 9 was named")
    ask("consume", topic, "-p", "9").refused(1, "and 9 was asked for")
    ask("log", "dump", topic, "-p", "9").refused(1, "and 9 was asked for")


def test_a_topic_that_is_not_there_is_refused_with_what_may_have_been_meant(ask: Terminal, topic: str) -> None:
    for words in (["consume"], ["produce"], ["log", "dump"], ["topic", "describe"], ["topic", "delete", "--yes"]):
        ask(*words, f"{topic}x").refused(1, f"there is no topic '{topic}x'", f"did you mean {topic}?")


def test_a_read_begins_where_it_is_told_to(ask: Terminal, topic: str) -> None:
    lines = [json.dumps({"value": str(at), "partition": 0, "timestamp_ms": 1_000_000 + at * 1_000}) for at in range(5)]
    ask("produce", topic, "--format", "json", "--commit-every", "1", stdin="\n".join(lines)).well()

    def start(position: str, *words: str) -> list[Any]:
        return values(ask("consume", topic, "--from", position, "-o", "json", *words))

    assert start("earliest") == ["0", "1", "2", "3", "4"]
    assert start("latest") == []
    assert start("4") == ["2", "3", "4"]
    assert start("4", "--max", "2") == ["2", "3"]
    assert start("1970-01-01T00:16:43") == ["3", "4"]
    assert start("2100-01-01") == []
    assert start("0", "-p", "1") == []
    ask("consume", topic, "--from", "11").refused(1, "--from 11 lies beyond the end")


def test_what_is_open_is_shown_as_undecided(ask: Terminal, topic: str, server: ServerProcess) -> None:
    with Producer(server.address, transactional_id="still-open") as producer, producer.transaction() as transaction:
        transaction.send(topic, b"o", partition=0)
        transaction.flush()
        assert ask("consume", topic, "-o", "json").well().objects == []
        assert values(ask("consume", topic, "--isolation", "read_uncommitted", "-o", "json")) == ["o"]
        (batch,) = ask("log", "dump", topic, "-o", "json").well().objects
        assert batch["fate"] == "undecided"
        (row,) = ask("topic", "describe", topic, "-o", "json").well().document[:1]
        assert (row["open_transactions"], row["last_stable_offset"], row["high_watermark"]) == (1, 0, 1)

        listed = ask("list", "--state", "Ongoing", "--pattern", "still-.*", "-o", "json").well().document
        assert [(found["transactional_id"], found["state"]) for found in listed] == [("still-open", "Ongoing")]
        producer_id = str(listed[0]["producer_id"])
        assert len(ask("list", "--producer-id", producer_id, "-o", "json").well().document) == 1
        assert ask("list", "--older-than", "1h", "-o", "json").well().document == []
        (described,) = ask("describe", "still-open", "-o", "json").well().document
        assert described["partitions"] == [{"topic": topic, "partition": 0}]
        assert f"{topic}-0" in ask("describe", "still-open").well().stdout
        transaction.abort()
    (described,) = ask("describe", "still-open", "-o", "json").well().document
    assert (described["state"], described["age_ms"]) == ("CompleteAbort", None)


def test_wrong_questions_about_transactions_are_refused(ask: Terminal) -> None:
    ask("describe", "never-seen").refused(1, "'never-seen'", "`txnctl list` shows")
    ask("describe", "").refused(2, "ID is empty")
    ask("list", "--state", "Open").refused(2, "there is no state Open: the states are Empty, Ongoing")
    ask("list", "--pattern", "(").refused(1, "regular expression")


def test_every_command_speaks_every_format(ask: Terminal, topic: str) -> None:
    ask("produce", topic, "--transactional-id", "formats", stdin="1\n").well()
    for words in (["topic", "list"], ["topic", "describe", topic], ["list"], ["describe", "formats"],
                  ["consume", topic], ["log", "dump", topic], ["log", "dump", topic, "--show", "records"]):  # fmt: skip
        for form in ("table", "json", "yaml"):
            assert ask(*words, "-o", form).well().stdout, (words, form)


# Effects that only a process shows


def test_a_reader_that_leaves_early_ends_it_quietly(ask: Terminal, topic: str, program: Program) -> None:
    ask("produce", topic, stdin="".join(f"{at}\n" for at in range(20_000))).well()
    for words in (["consume", topic], ["consume", topic, "--follow"], ["log", "dump", topic, "--show", "records"]):
        with program(*words) as process:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait() == 0, words
            assert b"Traceback" not in process.stderr.read()


def test_a_follower_shows_what_comes_until_it_is_interrupted(ask: Terminal, topic: str, program: Program) -> None:
    with program("consume", topic, "--follow", "-o", "json") as process:
        for value in ("first", "second"):
            ask("produce", topic, stdin=value).well()
            assert json.loads(process.stdout.readline())["value"] == value
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert b"Traceback" not in process.stderr.read()


def test_an_interrupted_producer_leaves_nothing_open(ask: Terminal, topic: str, program: Program) -> None:
    with program("produce", topic, "--transactional-id", "interrupted", "--format", "json") as process:
        process.stdin.write(b'{"value": "1", "partition": 0}\n' * 20_000)
        process.stdin.flush()
        with program("consume", topic, "-f", "-n", "1", "--isolation", "read_uncommitted") as seen:
            assert seen.wait() == 0
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    (described,) = ask("describe", "interrupted", "-o", "json").well().document
    assert described["state"] == "CompleteAbort"


def test_a_server_that_goes_away_is_missed_in_words(txnctl: Terminal, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        at = ["--server", server.address]
        txnctl("topic", "create", "t", *at).well()
        txnctl("produce", "t", *at, stdin="1\n").well()
        with Program(server.address)("consume", "t", "--follow", "--timeout", "500ms") as process:
            assert process.stdout.readline().endswith(b"  1\n")
            server.kill()
            assert process.wait() == 5
            said = process.stderr.read()
    assert b"no definite answer within" in said
    assert b"Traceback" not in said


def test_a_program_without_stdin_says_so(program: Program, topic: str) -> None:
    with program.without_stdin("produce", topic) as process:
        assert process.wait() == 2
        assert b"stdin is closed" in process.stderr.read()


# The directory of a stopped server


def test_a_stopped_directory_tells_the_same_story(txnctl: Terminal, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--two-phase", "split") as server:
        at = ["--server", server.address]
        txnctl("topic", "create", "t", "-p", "2", *at).well()
        for number in range(4):
            lines = "".join(json.dumps({"value": f"{number}{at}", "partition": at % 2}) + "\n" for at in range(3))
            outcome = ["--abort"] if number % 2 else []
            txnctl("produce", "t", "--format", "json", "--transactional-id", "p", *outcome, *at, stdin=lines).well()
        # In split mode the answer comes before the markers.
        for _ in looks("the last transaction"):
            if txnctl("describe", "p", "-o", "json", *at).well().document[0]["state"] == "CompleteAbort":
                break
        live = {show: txnctl("log", "dump", "t", "--show", show, "-o", "json", *at).well().objects for show in DUMPS}
        server.kill()
    place = ["--data-dir", str(tmp_path / "data")]
    for show in DUMPS:
        stopped = txnctl("log", "dump", "t", "--show", show, "-o", "json", *place).well().objects
        assert sorted(map(json.dumps, stopped)) == sorted(map(json.dumps, live[show]))
    assert txnctl("store", "verify", str(tmp_path / "data")).well()

    history = txnctl("log", "dump", "--show", "transactions", "--id", "p", "-o", "json", *place).well().objects
    outcomes = [(row["state"], row["csn"]) for row in history if row["state"].startswith("Complete")]
    assert outcomes == [("CompleteCommit", 1), ("CompleteAbort", 2), ("CompleteCommit", 3), ("CompleteAbort", 4)]
    assert {row["client_id"] for row in history} == {"txnctl", ""}
    assert "PrepareCommit" in txnctl("log", "dump", "--show", "transactions", *place).well().stdout
    txnctl("log", "dump", "tt", *place).refused(1, "there is no topic 'tt' in this directory; did you mean t?")
    txnctl("log", "dump", "t", "-p", "5", *place).refused(1, "t has the partitions 0 to 1, and 5 was asked for")
    (row,) = txnctl(
        "log", "dump", "t", "-p", "1", "--show", "records", "--from", "3", "-n", "1", "-o", "json", *place
    ).objects
    assert row["offset"] == 3


DUMPS = ("batches", "records", "markers")


def test_options_before_and_behind_the_command_are_the_same(txnctl: Terminal, server: ServerProcess) -> None:
    for line in ("--json --server {} topic list", "topic --server {} list --json", "topic list --json --server {}"):
        done = txnctl(*line.format(server.address).split()).well()
        assert done.document == json.loads(txnctl("topic", "list", "-o", "json", "-s", server.address).well().stdout)


def test_a_watched_list_has_a_line_for_each_look_until_ctrl_c(server: ServerProcess) -> None:
    watching = Program(server.address)("topic", "list", "--watch", "0.1", "--json")
    assert watching.stdout is not None
    assert [isinstance(json.loads(watching.stdout.readline()), list) for _ in range(3)] == [True] * 3
    watching.send_signal(signal.SIGINT)
    _, stderr = watching.communicate()
    assert (watching.returncode, stderr) == (0, b"")


def test_long_work_shows_its_progress(ask: Terminal, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_MS", "LINE_MS"):
        monkeypatch.setattr(progress, name, 0)
    sent = ask("--progress", "produce", topic, stdin="".join(f"{at}\n" for at in range(300))).well()
    assert sent.stderr.startswith("sent 100 records, ")
    read = ask("consume", topic, "--json", "--progress").well()
    assert " offsets (" in read.stderr
    dumped = ask("log", "dump", topic, "--json", "--progress").well()
    assert re.search(r"dumped (\d+) of \1 offsets \(100%\), ", dumped.stderr)
    for words in (["consume"], ["log", "dump"]):
        assert ask(*words, topic, "--json").well().stderr == ""
