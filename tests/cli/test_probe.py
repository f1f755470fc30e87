"""`txnctl probe`: what its steps find out, what it exports, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator_client import Admin, Producer, read
from coordinator_client.transport.connection import Connection
from coordinator_runtime.clock import SystemClock
from coordinator_server.metrics.families import Kind
from coordinator_server.metrics.probe import PROBE_FAMILIES, ProbeMetrics
from tests.cli.terminal import Terminal
from tests.harness import forked
from tests.harness.server_process import ServerProcess
from tests.harness.threaded_server import threaded_server
from txnctl.commands import probing
from txnctl.commands.probing import Probe, ProbeStep, StepResult, keep_probing

TOPIC = "txn-probe"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with threaded_server() as address:
        yield address


def test_a_round_takes_every_step_and_shows_how_long_each_took(txnctl: Terminal, address: str) -> None:
    (line,) = txnctl("probe", "--server", address, "--count", "1").well().lines
    assert re.search(r"Z  ok  init \S+  commit \S+  read \S+  abort \S+  hide \S+$", line)
    with Admin(address) as admin:
        assert len(admin.describe_topic(TOPIC).partitions) == 1


def test_rounds_follow_each_other_and_leave_only_what_they_committed(txnctl: Terminal, address: str) -> None:
    words = ("--count", "3", "--interval", "1ms", "--topic", "again", "-o", "json")
    rounds = txnctl("probe", "--server", address, *words).well().objects
    assert [each["result"] for each in rounds] == ["ok"] * 3
    assert all(list(each["steps_ms"]) == [step.value for step in ProbeStep] for each in rounds)
    assert len(list(read("again", address))) == 3
    assert sum("aborted" in str(record.value) for record in read("again", address, isolation="read_uncommitted")) == 3


def test_a_server_that_is_away_fails_the_round_and_the_status_tells(txnctl: Terminal) -> None:
    ended = txnctl("probe", "--server", "127.0.0.1:1", "--count", "1", "--timeout", "1ms")
    assert ended.status == 1
    assert "FAILED in init: no server answers at 127.0.0.1:1 (Connection refused)" in ended.stdout
    assert "1 of 1 rounds failed" in ended.stderr


def test_an_address_that_is_none_is_a_wrong_use_and_no_failed_round(txnctl: Terminal) -> None:
    ended = txnctl("probe", "--server", "nonsense", "--count", "1")
    assert (ended.status, ended.stdout) == (2, "")
    assert "'nonsense' is no address of a server" in ended.stderr


def test_a_commit_of_the_round_before_that_came_through_late_is_not_counted_as_of_this_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Connection(address) as connection, Producer(address, transactional_id="late") as before:
        probe = Probe(connection, SystemClock(), topic="late", transactional_id="late", timeout_ms=30_000)
        assert [result.failure for result in probe.round()] == [None] * len(ProbeStep)
        left = before.transaction()
        left.__enter__()
        left.send("late", b"sent by the round before")
        left.flush()

        class Following(Producer):
            def init(self) -> None:
                left.__exit__(None, None, None)
                super().init()

        monkeypatch.setattr(probing, "Producer", Following)
        assert [result.failure for result in probe.round()] == [None] * len(ProbeStep)


def test_a_server_with_a_low_limit_for_timeouts_can_be_probed(txnctl: Terminal) -> None:
    """The runbook of TxnLsoStuck tells to lower it; the probe must not call for help because of that."""
    with threaded_server(transaction_max_timeout_ms=20_000) as address:
        (line,) = txnctl("probe", "--server", address, "--count", "1").well().lines
    assert "Z  ok  init" in line


def test_another_writer_in_its_topic_is_found_by_the_reader(address: str) -> None:
    """The step that looks is the one that fails, and says what it was shown."""
    with Connection(address) as connection, Producer(address, transactional_id="intruder") as other:
        probe = Probe(connection, SystemClock(), topic="shared", transactional_id="p", timeout_ms=30_000)
        assert [result.failure for result in probe.round()] == [None] * len(ProbeStep)
        steps = probe.steps(b"mine")
        next(steps)
        with other.transaction() as txn:
            txn.send("shared", b"theirs")
        next(steps)
        with pytest.raises(Exception, match=r"was shown \[b'theirs', b'mine'\], not \[b'mine'\]"):
            next(steps)


def test_the_metrics_are_those_of_the_table() -> None:
    metrics = ProbeMetrics(tuple(ProbeStep))
    found = {family.name: family for family in metrics.registry.collect()}
    for family in PROBE_FAMILIES:
        published = found.pop(family.name.removesuffix("_total"))
        assert (published.type, published.documentation) == (family.kind.value, family.meaning)
        for sample in published.samples:
            assert set(sample.labels) - {"le"} == set(family.labels)
        assert family.name.endswith("_total") is (family.kind is Kind.COUNTER)
    assert not found


def test_rounds_and_steps_are_counted() -> None:
    metrics = ProbeMetrics(tuple(ProbeStep))
    metrics.step(ProbeStep.INIT, 2_000)
    metrics.ended(ProbeStep.COMMIT, 5_000)
    value = metrics.registry.get_sample_value
    assert value("txn_probe_failures_total", {"step": "commit"}) == 1
    assert value("txn_probe_rounds_total", {"result": "failed"}) == 1
    assert value("txn_probe_last_success_timestamp_seconds") == 0
    metrics.ended(None, 7_500)
    assert value("txn_probe_rounds_total", {"result": "ok"}) == 1
    assert value("txn_probe_last_success_timestamp_seconds") == 7.5
    assert value("txn_probe_step_seconds_sum", {"step": "init"}) == 0.002


def test_a_pause_is_made_between_two_rounds_and_can_end_them() -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 3

    good = [StepResult(ProbeStep.INIT, 1)]
    assert len(list(keep_probing(lambda: good, wait, interval_ms=250, count=None))) == 3
    assert pauses == [0.25] * 3
    assert len(list(keep_probing(lambda: good, lambda _seconds: False, interval_ms=1, count=2))) == 2


@pytest.mark.parametrize(
    ("listen", "status", "said"),
    [("nowhere", 2, "no HOST:PORT"), ("192.0.2.1:1", 4, "name a free port of this machine")],
)
def test_an_address_that_cannot_be_listened_on_is_refused(
    txnctl: Terminal, listen: str, status: int, said: str
) -> None:
    txnctl("probe", "--metrics-listen", listen, "--count", "1").refused(status, said)


@pytest.mark.slow
def test_a_probe_that_runs_for_ever_can_be_scraped_and_stops_when_told(server_process: ServerProcess) -> None:
    command = [sys.executable, "-m", "txnctl", "probe", "--server", server_process.address]
    with forked.Popen(
        [*command, "--interval", "10ms", "--metrics-listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as probe:
        assert probe.stderr is not None
        assert probe.stdout is not None
        said = re.search(r"http://\S+", probe.stderr.readline())
        assert said is not None
        assert "  ok  " in probe.stdout.readline()
        with urllib.request.urlopen(said[0]) as scraped:
            families = {each.name: each for each in text_string_to_metric_families(scraped.read().decode())}
        (ok,) = (each for each in families["txn_probe_rounds"].samples if each.labels == {"result": "ok"})
        assert ok.value >= 1
        probe.send_signal(signal.SIGTERM)
        probe.communicate()
    assert probe.returncode == 0


@pytest.fixture
def server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process
