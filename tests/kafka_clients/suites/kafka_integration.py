"""Kafka's integration tests, by the class `RaftClusterInvocationContext` of ours.

Each class of tests runs in a JVM and on a server of its own. A case is a test with one set of its parameters, and each
counts.
"""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Finished, Place, Suite
from tests.kafka_clients.suites.java import KAFKA_VERSION, run_class

_CLIENTS: Final = "org.apache.kafka.clients."
_SERVER: Final = "kafka."
_CLASS_S_MAX: Final = 3_600
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

SHARE_CLASSES: Final = (
    (_CLIENTS, "consumer.ShareConsumerTest"),
    (_SERVER, "server.ShareFetchAcknowledgeRequestTest"),
    (_SERVER, "server.ShareGroupDescribeRequestTest"),
    (_SERVER, "server.ShareGroupHeartbeatRequestTest"),
)
"""Classes with tests of share consumers, and of their single requests."""

STREAMS_CLASSES: Final = ("server.StreamsGroupHeartbeatRequestTest", "server.StreamsGroupDescribeRequestTest")
"""Classes with tests of streams groups by single requests."""

_SETTINGS: Final[Mapping[str, Sequence[str]]] = {
    "TransactionsExpirationTest": ("transactional_id_expiration_ms=10000", "producer_id_expiration_ms=5000"),
    "producer.ProducerIdExpirationTest": ("transactional_id_expiration_ms=5000", "producer_id_expiration_ms=10000"),
    "consumer.PlaintextConsumerPollTest": (
        "group_consumer_heartbeat_interval_ms=500",
        "group_consumer_heartbeat_interval_ms_min=500",
    ),
    "consumer.ShareConsumerTest": (
        "group_share_record_lock_duration_ms=15000",
        "group_share_partition_max_record_locks=10000",
        "group_share_partition_max_record_locks_max=10000",
    ),
    "server.StreamsGroupHeartbeatRequestTest": ("group_streams_initial_rebalance_delay_ms=0",),
}
"""What a class sets for its brokers, by our names."""


_OWN_SERVERS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "consumer.ShareConsumerTest": {
        "group_share_delivery_count_limit=2": ("testFetchWithThrottledDeliveryBatchesWithDecreasedDeliveryLimit",),
        "group_share_delivery_count_limit=3": (
            "testBehaviorOnDeliveryCountBoundary",
            "testDynamicDeliveryCountLimitIncreaseAllowsMoreDeliveries",
        ),
        "group_share_delivery_count_limit=10": (
            "testFetchWithThrottledDeliveryBatchesWithIncreasedDeliveryLimit",
            "testFetchWithThrottledDeliveryValidateDeliveryCount",
        ),
        "group_share_size_max=3": ("testShareGroupMaxSizeConfigExceeded",),
        "group_share_size_max=1 group_share_sessions_max=1": ("testShareGroupShareSessionCacheIsFull",),
        "group_share_record_lock_duration_ms_min=12000 group_share_record_lock_duration_ms=12000": (
            "testRenewAcknowledgementNoResultInPoll",
        ),
    },
    "server.ShareFetchAcknowledgeRequestTest": {
        "group_share_delivery_count_limit=2": ("testShareAcknowledgeRequestMaxDeliveryAttemptExhausted",),
        "group_share_record_lock_duration_ms=15000": ("testShareFetchRequestPiggybackedAccept",),
        "group_share_size_max=2 group_share_sessions_max=2": ("testShareSessionEvictedOnConnectionDrop",),
    },
    "server.StreamsGroupHeartbeatRequestTest": {
        "group_streams_heartbeat_interval_ms_min=500 group_streams_heartbeat_interval_ms=500 "
        "group_streams_session_timeout_ms_min=501 group_streams_session_timeout_ms=501": (
            "testMemberJoiningAndExpiring",
        ),
    },
    "server.ShareGroupHeartbeatRequestTest": {
        "group_share_size_max=2": ("testShareGroupMaxSizeConfigExceeded",),
        "group_share_heartbeat_interval_ms_min=500 group_share_heartbeat_interval_ms=500 "
        "group_share_session_timeout_ms_min=501 group_share_session_timeout_ms=501": ("testMemberJoiningAndExpiring",),
    },
}
"""Settings that tests of a class have besides, with these tests. They run on a server of their own."""


def _run(place: Place) -> list[Case]:
    return [case for name in CLASSES for case in _class_cases(place, _CLIENTS, name)]


def _run_requests(place: Place) -> list[Case]:
    return [case for name in REQUEST_CLASSES for case in _class_cases(place, _SERVER, name)]


def _run_shares(place: Place) -> list[Case]:
    return [case for package, name in SHARE_CLASSES for case in _class_cases(place, package, name)]


def _run_streams(place: Place) -> list[Case]:
    return [case for name in STREAMS_CLASSES for case in _class_cases(place, _SERVER, name)]


def _class_cases(place: Place, package: str, name: str) -> list[Case]:
    own = _OWN_SERVERS.get(name, {})
    elsewhere = [f"--exclude-methodname={_pattern(test)}" for tests in own.values() for test in tests]
    cases = _cases(place, package, name, elsewhere, _SETTINGS.get(name, ()))
    for settings, tests in own.items():
        alone = [f"--include-methodname={_pattern(test)}" for test in tests]
        cases += _cases(place, package, name, alone, (*_SETTINGS.get(name, ()), *settings.split()))
    return cases


def _pattern(test: str) -> str:
    return rf".*#{test}"


def _cases(place: Place, package: str, name: str, filters: Sequence[str], settings: Sequence[str]) -> list[Case]:
    """Run the tests of a class that pass the filters, on a server with these settings."""
    reports = Path(tempfile.mkdtemp(prefix=name, dir=place.directory))
    with place.another_server(settings) as address:
        finished = run_class(
            place,
            f"-Dbootstrap={address}",
            _CONSOLE,
            "execute",
            f"--select-class={package}{name}",
            *filters,
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
SHARES: Final = Suite(
    "kafka-shares",
    "Kafka's share consumers",
    KAFKA_VERSION,
    f"{len(SHARE_CLASSES)} classes: ShareConsumerTest, and those that send its single requests",
    _run_shares,
)
STREAMS: Final = Suite(
    "kafka-streams-groups",
    "Kafka's request tests of streams groups",
    KAFKA_VERSION,
    f"{len(STREAMS_CLASSES)} classes that send single requests",
    _run_streams,
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
