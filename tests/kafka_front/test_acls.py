"""DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator_core.acls import ACLS_PER_REQUEST_MAX
from coordinator_protocol.acls import CLUSTER_NAME, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.create_acls_request import AclCreation, CreateAclsRequest
from coordinator_server.kafka_front.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from coordinator_server.kafka_front.messages.describe_acls_request import DescribeAclsRequest
from tests.harness.guarded import SUPER_USER, Guarded
from tests.harness.kafka_caller import CALLER, KafkaCaller
from tests.harness.kafka_rules import CLERK, allow
from tests.harness.world import World

UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = range(5)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
ALL, READ, WRITE, CREATE = range(2, 6)
DENY, ALLOW = 2, 3
NEWEST = 3

READS = AclCreation(
    resource_type=TOPIC,
    resource_name="orders",
    resource_pattern_type=LITERAL,
    principal="User:clerk",
    host="*",
    operation=READ,
    permission_type=ALLOW,
)


def rule(**fields: Any) -> AclCreation:
    return msgspec.structs.replace(READS, **fields)


WRITES_PREFIXED = rule(resource_name="or", resource_pattern_type=PREFIXED, operation=WRITE)
CREATES = rule(resource_type=CLUSTER, resource_name="kafka-cluster", operation=CREATE)


@pytest.fixture
def world() -> World:
    return World(Guarded())


@pytest.fixture
def boss(world: World) -> KafkaCaller:
    return KafkaCaller(world, msgspec.structs.replace(CALLER, principal=SUPER_USER))


def create(caller: KafkaCaller, *rules: AclCreation) -> list[int]:
    results = caller.call(ApiKey.CREATE_ACLS, NEWEST, CreateAclsRequest(creations=rules)).results
    return [each.error_code for each in results]


def wanted(**fields: Any) -> dict[str, Any]:
    """Return the fields of a filter that selects everything but for the given ones."""
    open_fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return {**open_fields, **fields}


def describe(caller: KafkaCaller, **fields: Any) -> Any:
    return caller.call(ApiKey.DESCRIBE_ACLS, NEWEST, DescribeAclsRequest(**wanted(**fields)))


def found(caller: KafkaCaller, **fields: Any) -> list[tuple[int, str, int, str, int, int]]:
    """Return type, name, pattern, principal, operation and permission of each rule that is described."""
    response = describe(caller, **fields)
    assert (response.error_code, response.error_message) == (0, None)
    return [
        (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for each in response.resources
        for acl in each.acls
    ]


def delete(caller: KafkaCaller, *filters: dict[str, Any]) -> Any:
    request = DeleteAclsRequest(filters=tuple([DeleteAclsFilter(**each) for each in filters]))
    return caller.call(ApiKey.DELETE_ACLS, NEWEST, request).filter_results


READS_FOUND = (TOPIC, "orders", LITERAL, "User:clerk", READ, ALLOW)
WRITES_FOUND = (TOPIC, "or", PREFIXED, "User:clerk", WRITE, ALLOW)
CREATES_FOUND = (CLUSTER, "kafka-cluster", LITERAL, "User:clerk", CREATE, ALLOW)


def test_rules_that_are_created_are_described_and_in_force(world: World, boss: KafkaCaller) -> None:
    assert create(boss, READS, WRITES_PREFIXED, CREATES) == [0, 0, 0]
    world.crash()
    assert found(boss) == [CREATES_FOUND, WRITES_FOUND, READS_FOUND]
    assert found(KafkaCaller(world, msgspec.structs.replace(CLERK, principal=SUPER_USER))) == found(boss)


def test_rules_of_one_resource_are_described_together(boss: KafkaCaller) -> None:
    create(boss, READS, rule(operation=WRITE), rule(principal="User:other"))
    (resource,) = describe(boss).resources
    assert [(acl.principal, acl.host, acl.operation) for acl in resource.acls] == [
        ("User:clerk", "*", READ),
        ("User:clerk", "*", WRITE),
        ("User:other", "*", READ),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"resource_type_filter": CLUSTER}, [CREATES_FOUND]),
        ({"resource_type_filter": CLUSTER, "resource_name_filter": "kafka-cluster"}, [CREATES_FOUND]),
        ({"resource_name_filter": "kafka-cluster"}, [CREATES_FOUND]),
        ({"resource_type_filter": TOPIC, "resource_name_filter": "orders"}, [READS_FOUND]),
        ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, [WRITES_FOUND, READS_FOUND]),
        ({"pattern_type_filter": PREFIXED}, [WRITES_FOUND]),
        ({"operation": WRITE}, [WRITES_FOUND]),
        ({"permission_type": DENY}, []),
        ({"principal_filter": "User:other"}, []),
        ({"host_filter": "1.2.3.4"}, []),
        ({"resource_type_filter": DELEGATION_TOKEN}, []),
        ({"resource_type_filter": USER}, []),
        ({"operation": 13}, []),
    ],
)
def test_a_filter_selects_rules(boss: KafkaCaller, fields: dict[str, Any], expected: list[Any]) -> None:
    create(boss, READS, WRITES_PREFIXED, CREATES)
    assert found(boss, **fields) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type_filter": UNKNOWN},
        {"resource_type_filter": 99},
        {"pattern_type_filter": UNKNOWN},
        {"operation": UNKNOWN},
        {"permission_type": 7},
    ],
)
def test_a_filter_with_an_unknown_number_is_refused(boss: KafkaCaller, fields: dict[str, Any]) -> None:
    response = describe(boss, **fields)
    assert (response.error_code, bool(response.error_message)) == (ErrorCode.INVALID_REQUEST, True)
    (result,) = delete(boss, wanted(**fields))
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "wrong",
    [
        rule(resource_type=DELEGATION_TOKEN),
        rule(resource_type=USER),
        rule(resource_type=ANY),
        rule(resource_pattern_type=MATCH),
        rule(operation=ANY),
        rule(operation=CREATE, resource_type=GROUP),
        rule(permission_type=ANY),
        rule(principal="clerk"),
        rule(host="somewhere"),
        rule(resource_type=CLUSTER, resource_name="cluster", operation=CREATE),
        rule(resource_name=""),
    ],
)
def test_a_rule_that_cannot_have_an_effect_is_refused_by_itself(boss: KafkaCaller, wrong: AclCreation) -> None:
    assert create(boss, wrong, READS) == [ErrorCode.INVALID_REQUEST, 0]
    assert found(boss) == [READS_FOUND]


def test_rules_are_deleted_by_filters_each_with_what_it_matched(boss: KafkaCaller) -> None:
    create(boss, READS, WRITES_PREFIXED, CREATES)
    topics, nothing = delete(boss, wanted(resource_type_filter=TOPIC), wanted(resource_type_filter=USER))
    assert (topics.error_code, nothing.error_code, list(nothing.matching_acls)) == (0, 0, [])
    deleted = {(each.resource_name, each.pattern_type, each.operation) for each in topics.matching_acls}
    assert deleted == {("orders", LITERAL, READ), ("or", PREFIXED, WRITE)}
    assert found(boss) == [CREATES_FOUND]


def test_rules_about_operations_that_kafka_does_not_have_are_neither_shown_nor_deleted(
    world: World, boss: KafkaCaller
) -> None:
    hidden = [
        (Permission.BACKUP, ResourceType.CLUSTER, CLUSTER_NAME),
        (Permission.DECIDE, ResourceType.TRANSACTIONAL_ID, "sink"),
        (Permission.SNAPSHOT, ResourceType.TOPIC, "orders"),
    ]
    allow(world, *hidden)
    assert found(boss) == []
    (result,) = delete(boss, wanted())
    assert (result.error_code, list(result.matching_acls)) == (0, [])
    assert len(world.inside.core.catalog.acls.durable()) == len(hidden)


def test_rules_are_for_those_who_administer_the_cluster(world: World, boss: KafkaCaller) -> None:
    caller = KafkaCaller(world, CLERK)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert create(caller, READS) == [refused]
    assert describe(caller).error_code == refused
    assert describe(caller, resource_type_filter=USER).error_code == refused
    results = delete(caller, wanted(), wanted(resource_type_filter=USER))
    assert [each.error_code for each in results] == [refused] * 2
    assert found(boss) == []


def test_a_request_has_a_limited_number_of_rules(boss: KafkaCaller) -> None:
    too_many = ACLS_PER_REQUEST_MAX + 1
    assert set(create(boss, *[READS] * too_many)) == {ErrorCode.INVALID_REQUEST}
    assert {each.error_code for each in delete(boss, *[wanted()] * too_many)} == {ErrorCode.INVALID_REQUEST}
    assert found(boss) == []


def test_a_refused_call_has_its_error_at_every_item(boss: KafkaCaller) -> None:
    refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    created = boss.refused(ApiKey.CREATE_ACLS, NEWEST, CreateAclsRequest(creations=(READS, READS)), refusal)
    filters = (DeleteAclsFilter(**wanted()),)
    deleted = boss.refused(ApiKey.DELETE_ACLS, NEWEST, DeleteAclsRequest(filters=filters), refusal)
    described = boss.refused(ApiKey.DESCRIBE_ACLS, NEWEST, DescribeAclsRequest(**wanted()), refusal)
    answers = [*created.results, *deleted.filter_results, described]
    assert [(each.error_code, each.error_message) for each in answers] == [(14, "loading")] * 4
