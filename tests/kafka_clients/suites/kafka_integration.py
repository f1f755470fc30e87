"""Kafka's integration tests, by the class `RaftClusterInvocationContext` of ours.

Each class of tests runs in a JVM and on a server of its own. A case is a test with one set of its parameters, and each
counts.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Finished, Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, run_class

_CLIENTS: Final = "org.apache.kafka.clients."
_SERVER: Final = "kafka."
_CLASS_S_MAX: Final = 1_200
_TEST_S_MAX: Final = 90
_CONSOLE: Final = "org.junit.platform.console.ConsoleLauncher"
_OPTIONS: Final = (
    "--config=junit.jupiter.extensions.autodetection.enabled=true",
    f"--config=junit.jupiter.execution.timeout.default={_TEST_S_MAX}s",
    "--details=none",
    "--disable-banner",
)

CLASSES: Final = (
    "TransactionsExpirationTest",
    "TransactionsWithMaxInFlightOneTest",
    "admin.AdminFenceProducersTest",
    "admin.AutoTopicCreationTest",
    "admin.ConcurrentListOffsetsRequestTest",
    "admin.DescribeFeaturesTest",
    "admin.DescribeProducersWithBrokerIdTest",
    "admin.DynamicGroupConfigIntegrationTest",
    "admin.ListOffsetsIntegrationTest",
    "admin.StaticBrokerConfigTest",
    "consumer.ConsumerIntegrationTest",
    "consumer.ConsumerTopicCreationTest",
    "consumer.PlaintextConsumerAssignTest",
    "consumer.PlaintextConsumerCallbackTest",
    "consumer.PlaintextConsumerCloseTest",
    "consumer.PlaintextConsumerCommitTest",
    "consumer.PlaintextConsumerFetchTest",
    "consumer.PlaintextConsumerPollTest",
    "consumer.PlaintextConsumerSubscriptionTest",
    "consumer.PlaintextConsumerTest",
    "producer.ProducerCompressionTest",
    "producer.ProducerFailureHandlingTest",
    "producer.ProducerIdExpirationTest",
    "producer.ProducerIntegrationTest",
    "producer.ProducerSendWhileDeletionTest",
)
"""Classes with tests of the clients; `expected.toml` has the others, with the reasons."""

REQUEST_CLASSES: Final = (
    "server.ApiVersionsRequestTest",
    "server.ConsumerGroupDescribeRequestTest",
    "server.ConsumerGroupHeartbeatRequestTest",
    "server.ConsumerProtocolMigrationTest",
    "server.DeleteGroupsRequestTest",
    "server.DescribeGroupsRequestTest",
    "server.HeartbeatRequestTest",
    "server.JoinGroupRequestTest",
    "server.LeaveGroupRequestTest",
    "server.ListGroupsRequestTest",
    "server.OffsetCommitRequestTest",
    "server.OffsetDeleteRequestTest",
    "server.OffsetFetchRequestTest",
    "server.SyncGroupRequestTest",
    "server.TxnOffsetCommitRequestTest",
    "server.WriteTxnMarkersRequestTest",
)
"""Classes with tests of the group coordinator by single requests, in all versions."""

_SETTINGS: Final[Mapping[str, Sequence[str]]] = {
    "TransactionsExpirationTest": ("transactional_id_expiration_ms=10000", "producer_id_expiration_ms=5000"),
    "producer.ProducerIdExpirationTest": ("transactional_id_expiration_ms=5000", "producer_id_expiration_ms=10000"),
    "consumer.PlaintextConsumerPollTest": (
        "group_consumer_heartbeat_interval_ms=500",
        "group_consumer_heartbeat_interval_ms_min=500",
    ),
}
"""What a class sets for its brokers, by our names."""


def _run(place: Place) -> list[Case]:
    return [case for name in CLASSES for case in _class_cases(place, _CLIENTS, name)]


def _run_requests(place: Place) -> list[Case]:
    return [case for name in REQUEST_CLASSES for case in _class_cases(place, _SERVER, name)]


def _class_cases(place: Place, package: str, name: str) -> list[Case]:
    reports = place.directory / name
    with place.another_server(_SETTINGS.get(name, ())) as address:
        finished = run_class(
            place,
            f"-Dbootstrap={address}",
            _CONSOLE,
            "execute",
            f"--select-class={package}{name}",
            *_OPTIONS,
            f"--reports-dir={reports}",
            timeout_s=_CLASS_S_MAX,
        )
    report = reports / "TEST-junit-jupiter.xml"
    cases = _cases_of_report(report, name) if report.exists() else []
    if finished.status is None or not cases:
        cases.append(_ended_early(name, finished))
    return cases


def _ended_early(name: str, finished: Finished) -> Case:
    return Case(f"{name}.end of the class", Outcome.FAILED, finished.last_line())


def _cases_of_report(report: Path, name: str) -> list[Case]:
    """Return the cases of a report in JUnit's XML."""
    cases = []
    for element in ElementTree.parse(report).getroot().iter("testcase"):
        outcome, detail = Outcome.PASSED, ""
        for child in element:
            if child.tag in ("failure", "error"):
                outcome, detail = Outcome.FAILED, _summary(child)
            elif child.tag == "skipped":
                outcome, detail = Outcome.SKIPPED, _summary(child)
        cases.append(Case(f"{name}.{element.get('name', '')}", outcome, detail))
    return cases


def _summary(element: ElementTree.Element) -> str:
    message = element.get("message") or (element.text or "").strip() or element.get("type", "")
    return message.splitlines()[0][:200] if message else ""


REQUESTS: Final = Suite(
    "kafka-requests",
    "Kafka's request tests",
    KAFKA_VERSION,
    f"{len(REQUEST_CLASSES)} classes that send single requests in all versions",
    _run_requests,
    settings=("group_consumer_assignment_interval_ms=0",),
)
SUITE: Final = Suite(
    "kafka-integration",
    "Kafka's Java clients",
    KAFKA_VERSION,
    f"{len(CLASSES)} classes of Kafka's integration tests of its clients",
    _run,
    settings=("kafka_auto_create_topics=true",),
)
