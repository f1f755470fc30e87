"""Kafka's command-line tools, each in a JVM of its own. A case is one call of a tool, checked by what it prints."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Finished, Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, java, read_topic, run_class

_TOOLS: Final = "org.apache.kafka.tools."
_CALL_S_MAX: Final = 240
_RECORDS: Final = 3_000
_COPIED: Final = 4_000
_KILLS: Final = 3
_WITHOUT_SERVER: Final = ("ProducerPerformance", "TransactionalMessageCopier", "ClusterTool")
"""Tools that do not take the server as their first option."""


class _Failure(Exception):
    """A tool printed something else than expected."""


class _Shell(msgspec.Struct, frozen=True):
    """Calls tools, and collects a case for each."""

    place: Place
    cases: list[Case]

    def call(self, tool: str, *words: str, wants: str = "", name: str = "") -> str:
        """Run a tool; it must succeed and print text that matches `wants`. Returns the output. Raises: _Failure."""
        finished = self.start(tool, *words)
        is_good = finished.status == 0 and re.search(wants, finished.output, re.MULTILINE) is not None
        if not is_good:
            raise _Failure(f"{name or tool} {' '.join(words[-4:])}: {finished.status}: {finished.last_line()}")
        return finished.output

    def start(self, tool: str, *words: str) -> Finished:
        return run_class(self.place, _class(tool), *self._address(tool), *words, timeout_s=_CALL_S_MAX)

    def _address(self, tool: str) -> tuple[str, ...]:
        return () if tool in _WITHOUT_SERVER else self.server()

    def server(self) -> tuple[str, str]:
        return ("--bootstrap-server", self.place.address)

    def step(self, name: str, act: Callable[[_Shell], None]) -> None:
        """Add the case of one scenario."""
        try:
            act(self)
        except _Failure as error:
            self.cases.append(Case(name, Outcome.FAILED, str(error)[:300]))
        else:
            self.cases.append(Case(name, Outcome.PASSED))


def _class(tool: str) -> str:
    packages = {
        "ConsumerGroupCommand": f"{_TOOLS}consumer.group.",
        "ConsoleConsumer": f"{_TOOLS}consumer.",
        "ConsoleShareConsumer": f"{_TOOLS}consumer.",
        "ShareGroupCommand": f"{_TOOLS}consumer.group.",
        "ConfigCommand": "kafka.admin.",
    }
    return f"{packages.get(tool, _TOOLS)}{tool}"


def _topics(shell: _Shell) -> None:
    shell.call("TopicCommand", "--create", "--topic", "a", "--partitions", "3", wants="Created topic a")
    shell.call("TopicCommand", "--list", wants="^a$")
    shell.call("TopicCommand", "--alter", "--topic", "a", "--partitions", "4")
    shell.call("TopicCommand", "--describe", "--topic", "a", wants=r"PartitionCount: 4")
    shell.call("TopicCommand", "--create", "--topic", "b", "--config", "retention.ms=1000000")
    shell.call("TopicCommand", "--describe", "--topic", "b", wants=r"retention.ms=1000000")
    shell.call("TopicCommand", "--delete", "--topic", "b")
    if re.search("^b$", shell.call("TopicCommand", "--list"), re.MULTILINE):
        raise _Failure("the deleted topic is still listed")


def _configs(shell: _Shell) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", "a")
    shell.call("ConfigCommand", "--alter", *of_topic, "--add-config", "max.message.bytes=500000", wants="Completed")
    shell.call("ConfigCommand", "--describe", *of_topic, wants="max.message.bytes=500000")
    shell.call("ConfigCommand", "--alter", *of_topic, "--delete-config", "max.message.bytes", wants="Completed")
    shell.call("ConfigCommand", "--describe", "--entity-type", "brokers", "--all", wants="message.max.bytes=")


def _performance(shell: _Shell) -> None:
    load = ("--topic", "a", "--num-records", str(_RECORDS), "--record-size", "200", "--throughput", "-1")
    servers = ("--producer-props", f"bootstrap.servers={shell.place.address}")
    shell.call("ProducerPerformance", *load, *servers, wants=f"{_RECORDS} records sent")
    shell.call("ProducerPerformance", *load, *servers, "compression.type=zstd", wants=f"{_RECORDS} records sent")
    transactional = ("--transactional-id", "perf", "--transaction-duration-ms", "100")
    shell.call("ProducerPerformance", *load, *transactional, *servers, wants=f"{_RECORDS} records sent")
    counted = ("--topic", "a", "--num-records", str(3 * _RECORDS), "--timeout", "30000")
    output = shell.call("ConsumerPerformance", *counted, wants=rf", {3 * _RECORDS},")
    if "WARNING: Exiting before" in output:
        raise _Failure("not all records were consumed")


def _offsets(shell: _Shell) -> None:
    output = shell.call("GetOffsetShell", "--topic", "a", "--time", "-1", wants=r"^a:0:\d+")
    ends = sum(int(line.rpartition(":")[2]) for line in output.splitlines() if re.match(r"a:\d+:\d+$", line))
    if ends < 3 * _RECORDS:
        raise _Failure(f"the ends add up to {ends}")
    shell.call("GetOffsetShell", "--topic", "a", "--time", "earliest", wants=r"^a:0:0$")
    shell.call("GetOffsetShell", "--topic", "a", "--time", "max-timestamp", wants=r"^a:0:\d+$")


def _verifiable(shell: _Shell) -> None:
    shell.call("TopicCommand", "--create", "--topic", "v", "--partitions", "2")
    shell.call("VerifiableProducer", "--topic", "v", "--max-messages", "500", wants='"acked":500')
    for protocol in ("classic", "consumer"):
        group = ("--group-id", f"verifiers-{protocol}", "--group-protocol", protocol)
        words = ("--topic", "v", *group, "--reset-policy", "earliest", "--max-messages", "500")
        output = shell.call("VerifiableConsumer", *words, wants="shutdown_complete")
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        count = sum(each["count"] for each in events if each["name"] == "records_consumed")
        if count < 500:
            raise _Failure(f"{protocol}: {count} of 500 records were consumed")
        if not any(each["name"] == "offsets_committed" and each["success"] for each in events):
            raise _Failure(f"{protocol}: no offsets were committed")


def _share_consumers(shell: _Shell) -> None:
    """Three tools drain a topic, each as a group of its own that begins at the first record."""
    shell.call("TopicCommand", "--create", "--topic", "s", "--partitions", "4")
    shell.call("VerifiableProducer", "--topic", "s", "--max-messages", "500", wants='"acked":500')
    modes = ("auto", "sync", "async")
    for group in (*(f"share-verifiers-{mode}" for mode in modes), "share-console", "share-performance"):
        entity = ("--entity-type", "groups", "--entity-name", group)
        shell.call("ConfigCommand", "--alter", *entity, "--add-config", "share.auto.offset.reset=earliest")
    for mode in modes:
        words = ("--topic", "s", "--group-id", f"share-verifiers-{mode}", "--acknowledgement-mode", mode)
        output = shell.call("VerifiableShareConsumer", *words, "--max-messages", "150", wants="shutdown_complete")
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        count = sum(each["count"] for each in events if each["name"] == "offsets_acknowledged" and each["success"])
        if count < 150:
            raise _Failure(f"{mode}: {count} of 150 records were acknowledged")
    console = ("--topic", "s", "--group", "share-console", "--max-messages", "500")
    values = re.findall(r"^\d+$", shell.call("ConsoleShareConsumer", *console), re.MULTILINE)
    if sorted(map(int, values)) != list(range(500)):
        raise _Failure(f"the console printed {len(values)} records, {len(set(values))} different ones")
    counted = ("--topic", "s", "--group", "share-performance", "--num-records", "500", "--timeout", "30000")
    shell.call("ShareConsumerPerformance", *counted, wants=r", 500,")


def _share_groups(shell: _Shell) -> None:
    group = ("--group", "share-console")
    shell.call("ShareGroupCommand", "--list", wants="^share-verifiers-sync")
    shell.call("ShareGroupCommand", "--list", "--state", wants="share-console +Empty")
    shell.call("GroupsCommand", "--list", wants="share-console +Share")
    shell.call("ShareGroupCommand", "--describe", *group, wants=r"s +\d +\d+ +0")
    moved = ("--reset-offsets", *group, "--topic", "s", "--to-earliest", "--execute")
    shell.call("ShareGroupCommand", *moved, wants=r"s +\d +0")
    shell.call("ShareGroupCommand", "--delete-offsets", *group, "--topic", "s", wants="Successful")
    shell.call("ShareGroupCommand", "--delete", *group, wants="successful")


def _groups(shell: _Shell) -> None:
    group = ("--group", "verifiers-classic")
    shell.call("ConsumerGroupCommand", "--list", wants="^verifiers-consumer")
    shell.call("ConsumerGroupCommand", "--list", "--state", wants="verifiers-classic +Empty")
    shell.call("GroupsCommand", "--list", wants="verifiers-consumer +Consumer")
    shell.call("ConsumerGroupCommand", "--describe", *group, wants=r"v +\d+ +\d+ +\d+ +0 ")
    moved = ("--reset-offsets", *group, "--topic", "v", "--to-earliest", "--execute")
    shell.call("ConsumerGroupCommand", *moved, wants=r"v +\d +0")
    shell.call("ConsumerGroupCommand", "--delete-offsets", *group, "--topic", "v", wants="Successful")
    shell.call("ConsumerGroupCommand", "--delete", *group, wants="was successful")


def _console(shell: _Shell) -> None:
    shell.call("TopicCommand", "--create", "--topic", "c")
    command = java(shell.place, _class("ConsoleProducer"), *shell.server(), "--topic", "c")
    done = subprocess.run(
        [str(each) for each in command],
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=_CALL_S_MAX,
        check=False,
    )
    if done.returncode:
        raise _Failure(f"ConsoleProducer: {done.stderr[-200:]}")
    shell.call("ConsoleConsumer", "--topic", "c", "--from-beginning", "--max-messages", "2", wants="one\ntwo")
    offsets = shell.place.directory / "offsets.json"
    deleted = {"partitions": [{"topic": "c", "partition": 0, "offset": 1}], "version": 1}
    offsets.write_text(json.dumps(deleted))
    shell.call("DeleteRecordsCommand", "--offset-json-file", str(offsets), wants="low_watermark: 1")


def _transactions(shell: _Shell) -> None:
    shell.call("TransactionsCommand", "list", wants="perf")
    shell.call("TransactionsCommand", "describe", "--transactional-id", "perf", wants="CompleteCommit")
    shell.call("TransactionsCommand", "describe-producers", "--topic", "a", "--partition", "0", wants="ProducerId")
    shell.call("TransactionsCommand", "find-hanging", "--broker-id", "1", wants="Topic")
    shell.call("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", "perf")


def _abort(shell: _Shell) -> None:
    """An open transaction of a killed producer is found by its start offset, and ended through its coordinator.

    Kafka's brokers write the marker that `abort` asks for in any case. Here only a hanging transaction gets one.
    """
    load = ("--topic", "a", "--num-records", "1000000", "--record-size", "100", "--throughput", "200")
    servers = ("--producer-props", f"bootstrap.servers={shell.place.address}")
    endless = ("--transactional-id", "hanging", "--transaction-duration-ms", "600000")
    command = java(shell.place, _class("ProducerPerformance"), *load, *endless, *servers)
    with subprocess.Popen([str(each) for each in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        try:
            start = _open_start(shell)
        finally:
            one.kill()
    words = ("--topic", "a", "--partition", "0", "--start-offset", start)
    refused = shell.start("TransactionsCommand", "abort", *words)
    if refused.status == 0:
        raise _Failure("a transaction that its coordinator knows was aborted behind its back")
    shell.call("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", "hanging")
    if _start_offset(shell) is not None:
        raise _Failure("the transaction is open after its abortion")


def _open_start(shell: _Shell) -> str:
    until = time.monotonic() + _CALL_S_MAX
    while time.monotonic() < until:
        start = _start_offset(shell)
        if start is not None:
            return start
    raise _Failure("no transaction is open in partition 0")


def _start_offset(shell: _Shell) -> str | None:
    """Return the start offset of an open transaction in partition 0 of the topic `a`."""
    output = shell.call("TransactionsCommand", "describe-producers", "--topic", "a", "--partition", "0")
    numbers = re.findall(r"^\d+\s+\d+\s+-?\d+\s+-?\d+\s+\S+\s+(\d+)\s*$", output, re.MULTILINE)
    return numbers[0] if numbers else None


def _copier(shell: _Shell) -> None:
    """A copier that aborts at random is killed some times. Its output has every record once, in order."""
    for topic in ("from", "to"):
        shell.call("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    words = ("--topic", "from", "--max-messages", str(_COPIED))
    shell.call("VerifiableProducer", *words, wants=f'"acked":{_COPIED}')
    common = ("--input-topic", "from", "--input-partition", "0", "--output-topic", "to", "--consumer-group", "copiers")
    paced = (*common, "--transactional-id", "copier", "--transaction-size", "50", "--enable-random-aborts")
    servers = ("--broker-list", shell.place.address, "--max-messages", "-1")
    command = java(shell.place, _class("TransactionalMessageCopier"), *servers, *paced)
    for _ in range(_KILLS):
        _run_and_kill([str(each) for each in command])
    shell.call("TransactionalMessageCopier", "--broker-list", shell.place.address, *paced, wants="ShutdownComplete")
    copied = [int(value) for value in read_topic(shell.place, "to")]
    if copied != list(range(_COPIED)):
        raise _Failure(f"{len(copied)} of {_COPIED} records were copied, {len(set(copied))} different ones")


def _run_and_kill(command: list[str]) -> None:
    """Kill the copier once it has committed a few transactions."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for count, _ in enumerate(process.stdout):
            if count >= 10:
                break
        process.kill()


def _others(shell: _Shell) -> None:
    shell.call("BrokerApiVersionsCommand", wants=r"Produce\(0\): 0 to")
    shell.call("ClusterTool", "cluster-id", *shell.server(), wants="Cluster ID")


_STEPS: Final = (
    ("TopicCommand", _topics),
    ("ConfigCommand", _configs),
    ("ProducerPerformance, ConsumerPerformance", _performance),
    ("GetOffsetShell", _offsets),
    ("VerifiableProducer, VerifiableConsumer", _verifiable),
    ("ConsumerGroupCommand, GroupsCommand", _groups),
    ("VerifiableShareConsumer, ConsoleShareConsumer, ShareConsumerPerformance", _share_consumers),
    ("ShareGroupCommand", _share_groups),
    ("ConsoleProducer, ConsoleConsumer, DeleteRecordsCommand", _console),
    ("TransactionsCommand", _transactions),
    ("TransactionsCommand abort, forceTerminateTransaction", _abort),
    ("TransactionalMessageCopier, killed", _copier),
    ("BrokerApiVersionsCommand, ClusterTool", _others),
)


def _run(place: Place) -> list[Case]:
    shell = _Shell(place, [])
    for name, act in _STEPS:
        shell.step(name, act)
    return shell.cases


SUITE: Final = Suite("kafka-tools", "Kafka's tools", KAFKA_VERSION, "scenarios with its command-line tools", _run)
