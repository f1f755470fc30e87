"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.acls import CLUSTER_NAME, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages import alter_configs_request, incremental_alter_configs_request
from coordinator_server.kafka_front.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from coordinator_server.kafka_front.topic_settings import FIXED, MAPPED, WITHOUT_EFFECT
from partition_log.catalog.settings import Retention, SettingsChange
from partition_log.catalog.state import TopicToAlter
from partition_log.requests import AlterTopicConfigs, DescribeTopicConfigs, TopicName
from tests.harness.group_calls import ANYBODY
from tests.harness.guarded import Guarded
from tests.harness.inside import WorldOptions
from tests.harness.kafka_caller import NODE, KafkaCaller
from tests.harness.kafka_rules import CLERK, allow, create_topics
from tests.harness.world import World

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, STATIC_BROKER, DEFAULT, GROUP_CONFIG = 1, 4, 5, 8
BOOLEAN, INT, LONG = 1, 3, 5


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topic("orders", 1)
    return world


@pytest.fixture
def caller(world: World) -> KafkaCaller:
    return KafkaCaller(world)


def describe(
    caller: KafkaCaller,
    kind: int = TOPIC,
    name: str = "orders",
    keys: tuple[str, ...] | None = None,
    **fields: bool,
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=(resource,), **fields)
    (result,) = caller.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def values(caller: KafkaCaller, kind: int = TOPIC, name: str = "orders") -> dict[str, str]:
    return {each.name: each.value for each in describe(caller, kind, name).configs}


def own(caller: KafkaCaller, kind: int = TOPIC, name: str = "orders") -> dict[str, str]:
    """Return the settings that the resource has itself."""
    configs = describe(caller, kind, name).configs
    return {each.name: each.value for each in configs if each.config_source in (TOPIC_CONFIG, GROUP_CONFIG)}


def change(
    caller: KafkaCaller,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "orders",
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [
        incremental_alter_configs_request.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental_alter_configs_request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=tuple(configs)
    )
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    (answer,) = caller.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


def replace(
    caller: KafkaCaller,
    settings: dict[str, str | None],
    kind: int = TOPIC,
    name: str = "orders",
    *,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [alter_configs_request.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = alter_configs_request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=tuple(configs)
    )
    request = alter_configs_request.AlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (answer,) = caller.call(ApiKey.ALTER_CONFIGS, 2, request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


OK = (0, None)

# Describing topics


def test_a_topic_has_all_settings_that_kafka_has_a_name_for(caller: KafkaCaller) -> None:
    assert set(values(caller)) == {*MAPPED, *FIXED, *WITHOUT_EFFECT}


def test_settings_are_named_as_in_kafka_with_types_and_sources(world: World, caller: KafkaCaller) -> None:
    change(caller, ("retention.ms", SET, "60000"))
    result = describe(caller, keys=("retention.ms", "segment.bytes"), include_synonyms=True)
    assert (result.error_code, result.error_message) == (0, None)
    retention, segments = result.configs
    assert (retention.name, retention.value, retention.config_source) == ("retention.ms", "60000", TOPIC_CONFIG)
    assert (retention.config_type, retention.read_only, retention.is_sensitive) == (LONG, False, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "60000", TOPIC_CONFIG),
        ("log.retention.ms", "-1", DEFAULT),
    ]
    # It cannot be set to any effect, so it is read-only.
    assert (segments.name, segments.config_type, segments.read_only) == ("segment.bytes", INT, True)


def test_a_default_of_the_server_is_a_setting_of_the_broker() -> None:
    world = World(WorldOptions(retention=Retention(retention_ms=5_000)))
    world.create_topic("orders", 1)
    (retention,) = describe(KafkaCaller(world), keys=("retention.ms",), include_synonyms=True).configs
    assert (retention.value, retention.config_source) == ("5000", STATIC_BROKER)
    assert [(each.name, each.source) for each in retention.synonyms] == [("log.retention.ms", STATIC_BROKER)]


def test_synonyms_and_documentation_come_on_request(caller: KafkaCaller) -> None:
    (bare,) = describe(caller, keys=("segment.bytes",)).configs
    assert (bare.synonyms, bare.documentation) == ([], None)
    (full,) = describe(caller, keys=("segment.bytes",), include_documentation=True).configs
    assert "without effect" in full.documentation


def test_kafka_says_no_limit_of_time_stamps_by_its_greatest_number(world: World, caller: KafkaCaller) -> None:
    name = "message.timestamp.after.max.ms"
    assert values(caller)[name] == str(2**63 - 1)
    assert change(caller, (name, SET, "1000")) == OK
    assert values(caller)[name] == "1000"
    assert change(caller, (name, SET, str(2**63 - 1))) == OK
    assert (own(caller)[name], core_settings(world)["timestamp_after_max_ms"]) == (str(2**63 - 1), "-1")


def core_settings(world: World) -> dict[str, str]:
    (described,) = world.inside.topics.describe_topic_configs(DescribeTopicConfigs([TopicName("orders")]), ANYBODY)
    return {each.name: each.value for each in described.settings}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic abc", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_of_no_topic_cannot_be_asked_for(caller: KafkaCaller, name: str, expected: ErrorCode) -> None:
    result = describe(caller, name=name)
    assert (result.error_code, list(result.configs)) == (expected, [])
    assert result.error_message


# Describing brokers, groups, and what is nothing here


def test_this_server_shows_a_few_settings_of_a_broker(caller: KafkaCaller) -> None:
    result = describe(caller, BROKER, str(NODE.node_id))
    settings = {each.name: each.value for each in result.configs}
    assert settings["node.id"] == str(NODE.node_id)
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["message.max.bytes"] == str(1 << 20)
    assert settings["group.consumer.assignors"] == "uniform,range"
    assert all(each.read_only for each in result.configs)


def test_there_are_no_settings_that_all_brokers_share(caller: KafkaCaller) -> None:
    assert values(caller, BROKER, "") == {}


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "77"), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"), (0, "x")])
def test_other_resources_have_no_settings(caller: KafkaCaller, kind: int, name: str) -> None:
    assert describe(caller, kind, name).error_code == ErrorCode.INVALID_REQUEST
    assert change(caller, ("a", SET, "b"), kind=kind, name=name)[0] == ErrorCode.INVALID_REQUEST


def test_a_group_has_the_settings_of_the_server_until_it_has_its_own(caller: KafkaCaller) -> None:
    assert values(caller, GROUP, "workers") == {
        "consumer.session.timeout.ms": "45000",
        "consumer.heartbeat.interval.ms": "5000",
        "share.session.timeout.ms": "45000",
        "share.heartbeat.interval.ms": "5000",
        "share.record.lock.duration.ms": "30000",
        "share.delivery.count.limit": "5",
        "share.partition.max.record.locks": "2000",
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_uncommitted",
        "share.renew.acknowledge.enable": "true",
        "errors.deadletterqueue.topic.name": "",
        "streams.session.timeout.ms": "45000",
        "streams.heartbeat.interval.ms": "5000",
        "streams.initial.rebalance.delay.ms": "3000",
        "streams.num.standby.replicas": "0",
        "streams.num.warmup.replicas": "2",
        "streams.acceptable.recovery.lag": "10000",
        "streams.task.offset.interval.ms": "60000",
    }
    assert change(caller, ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="workers") == OK
    assert own(caller, GROUP, "workers") == {"consumer.session.timeout.ms": "50000"}
    assert change(caller, ("consumer.session.timeout.ms", DELETE, None), kind=GROUP, name="workers") == OK
    assert own(caller, GROUP, "workers") == {}


def test_a_share_group_has_settings_that_are_words(caller: KafkaCaller) -> None:
    wanted = {
        "share.auto.offset.reset": "by_duration:PT1H30M",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.record.lock.duration.ms": "15000",
        "errors.deadletterqueue.topic.name": "orders",
    }
    for key, value in wanted.items():
        assert change(caller, (key, SET, value), kind=GROUP, name="workers") == OK
    assert own(caller, GROUP, "workers") == wanted


def test_the_settings_of_a_group_are_replaced_as_a_whole(caller: KafkaCaller) -> None:
    change(caller, ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="workers")
    assert replace(caller, {"consumer.heartbeat.interval.ms": "6000"}, GROUP, "workers") == OK
    assert own(caller, GROUP, "workers") == {"consumer.heartbeat.interval.ms": "6000"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "soon"),
        ("share.session.timeout.ms", "44999"),
        ("share.auto.offset.reset", "newest"),
        ("share.renew.acknowledge.enable", "maybe"),
        ("errors.deadletterqueue.topic.name", "no topic"),
        ("errors.deadletterqueue.topic.name", "missing"),
        ("streams.session.timeout.ms", "44999"),
        ("consumer_session_timeout_ms", "50000"),
    ],
)
def test_a_group_takes_no_other_settings(caller: KafkaCaller, key: str, value: str) -> None:
    assert change(caller, (key, SET, value), kind=GROUP, name="workers")[0] == ErrorCode.INVALID_CONFIG


# Changing topics


def test_a_change_stays_after_a_crash_and_is_one_of_the_core(world: World, caller: KafkaCaller) -> None:
    changes = [("retention.bytes", SET, "1000"), ("max.message.bytes", SET, "2000")]
    assert change(caller, *changes) == OK
    world.crash()
    assert own(caller) == {"retention.bytes": "1000", "max.message.bytes": "2000"}
    assert (core_settings(world)["retention_bytes"], core_settings(world)["batch_bytes_max"]) == ("1000", "2000")


def test_an_incremental_change_leaves_the_other_settings(caller: KafkaCaller) -> None:
    change(caller, ("retention.ms", SET, "1000"), ("retention.bytes", SET, "1000"))
    assert change(caller, ("retention.ms", DELETE, None)) == OK
    assert own(caller) == {"retention.bytes": "1000"}


def test_a_replacement_leaves_only_settings_that_kafka_has_no_name_for(world: World, caller: KafkaCaller) -> None:
    ours = TopicToAlter("orders", b"", SettingsChange({"validate_payload": "header"}))
    world.inside.topics.alter_topic_configs(AlterTopicConfigs([ours]), ANYBODY)
    change(caller, ("retention.ms", SET, "1000"), ("retention.bytes", SET, "1000"))
    assert replace(caller, {"retention.bytes": "2000"}) == OK
    assert own(caller) == {"retention.bytes": "2000"}
    assert core_settings(world)["validate_payload"] == "header"
    assert replace(caller, {}) == OK
    assert own(caller) == {}


@pytest.mark.parametrize("by", [change, replace])
def test_validation_changes_nothing(caller: KafkaCaller, by: Any) -> None:
    wanted = {"retention.ms": "1000"} if by is replace else ("retention.ms", SET, "1000")
    assert by(caller, wanted, validate_only=True) == OK
    assert own(caller) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.bytes", "1000000"),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("unclean.leader.election.enable", "true"),
        ("compression.type", "producer"),
        ("message.timestamp.type", "CreateTime"),
        ("min.insync.replicas", "1"),
    ],
)
def test_settings_without_effect_are_accepted_and_change_nothing(caller: KafkaCaller, key: str, value: str) -> None:
    change(caller, ("retention.ms", SET, "1000"))
    before = values(caller)
    assert change(caller, (key, SET, value)) == OK
    assert change(caller, (key, DELETE, None)) == OK
    assert values(caller) == before


def test_settings_without_effect_are_no_way_round_permission_or_existence() -> None:
    world = World(Guarded())
    create_topics(world, "orders")
    allow(world, (Permission.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders"))
    caller = KafkaCaller(world, CLERK)
    assert change(caller, ("segment.bytes", SET, "1"))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow(world, (Permission.ALTER_CONFIGS, ResourceType.TOPIC, "*"))
    assert change(caller, ("segment.bytes", SET, "1")) == OK
    assert change(caller, ("segment.bytes", SET, "1"), name="missing")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "soon"),
        ("max.message.bytes", str(1 << 30)),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "2"),
        ("remote.storage.enable", "true"),
        ("segment.bytes", "large"),
        ("preallocate", "maybe"),
        ("min.cleanable.dirty.ratio", "half"),
        ("retention_ms", "1000"),
        ("no.such.setting", "1"),
    ],
)
def test_other_settings_are_refused(caller: KafkaCaller, key: str, value: str) -> None:
    code, message = change(caller, (key, SET, value))
    assert code == ErrorCode.INVALID_CONFIG
    assert message
    assert own(caller) == {}


def test_a_setting_that_means_nothing_cannot_be_deleted_either(caller: KafkaCaller) -> None:
    assert change(caller, ("no.such.setting", DELETE, None))[0] == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("policy", ["compact,delete", "delete,compact", "delete, compact", "compact", "delete"])
def test_a_policy_is_a_list_in_any_order(caller: KafkaCaller, policy: str) -> None:
    assert change(caller, ("cleanup.policy", SET, policy)) == OK
    assert set(own(caller)["cleanup.policy"].split(",")) == set(policy.replace(" ", "").split(","))


@pytest.mark.parametrize("policy", ["delete,delete", "compact,delete,compact", "", "delete,", "purge"])
def test_a_policy_has_each_item_once(caller: KafkaCaller, policy: str) -> None:
    assert change(caller, ("cleanup.policy", SET, policy))[0] == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("before", "operation", "items", "after"),
    [
        (None, APPEND, "compact", "compact,delete"),
        ("delete", APPEND, "compact", "compact,delete"),
        ("compact", APPEND, "delete,", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact", APPEND, "delete,delete", "compact,delete"),
        ("compact", APPEND, " delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact,delete", SUBTRACT, "compact,compact", "delete"),
        ("compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete,purge,", "compact"),
    ],
)
def test_items_are_added_to_a_list_and_removed(
    world: World, caller: KafkaCaller, before: str | None, operation: int, items: str, after: str
) -> None:
    if before is not None:
        assert change(caller, ("cleanup.policy", SET, before)) == OK
    assert change(caller, ("cleanup.policy", operation, items), validate_only=True) == OK
    assert values(caller)["cleanup.policy"] == (before or "delete")
    assert change(caller, ("cleanup.policy", operation, items), ("retention.ms", SET, "9")) == OK
    world.crash()
    assert own(caller) == {"cleanup.policy": after, "retention.ms": "9"}


@pytest.mark.parametrize(
    ("operation", "items"),
    [
        (APPEND, "purge"),
        (APPEND, ""),
        (APPEND, " delete"),
        (APPEND, "compact,,delete"),
        # Kafka then keeps every record, which no policy here says.
        (SUBTRACT, "delete"),
    ],
)
def test_what_makes_a_list_invalid_is_refused(caller: KafkaCaller, operation: int, items: str) -> None:
    code, message = change(caller, ("cleanup.policy", operation, items), ("retention.ms", SET, "9"))
    assert (code, "choose delete or compact or compact,delete" in str(message)) == (ErrorCode.INVALID_CONFIG, True)
    assert own(caller) == {}


@pytest.mark.parametrize(("operation", "word"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (TOPIC, "orders", "retention.ms"),
        (TOPIC, "orders", "compression.type"),
        (TOPIC, "orders", "message.timestamp.type"),
        (TOPIC, "orders", "no.such.setting"),
        (GROUP, "workers", "consumer.session.timeout.ms"),
        (GROUP, "workers", "no.such.setting"),
    ],
)
def test_only_lists_have_items(caller: KafkaCaller, kind: int, name: str, key: str, operation: int, word: str) -> None:
    refusal = f"Can't {word} to key '{key}' because its type is not LIST."
    assert change(caller, (key, operation, "50000"), kind=kind, name=name) == (ErrorCode.INVALID_CONFIG, refusal)
    assert own(caller, kind, name) == {}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_items_of_a_list_without_effect_are_accepted(caller: KafkaCaller, operation: int) -> None:
    name = "leader.replication.throttled.replicas"
    assert change(caller, (name, operation, "0:1")) == OK
    assert values(caller)[name] == ""


def test_items_of_lists_of_brokers_cannot_be_changed(caller: KafkaCaller) -> None:
    code, message = change(caller, ("cleanup.policy", APPEND, "compact"), kind=BROKER, name=str(NODE.node_id))
    assert (code, "configuration file" in str(message)) == (ErrorCode.INVALID_REQUEST, True)


def test_there_are_no_other_operations(caller: KafkaCaller) -> None:
    assert change(caller, ("cleanup.policy", 9, "compact"))[0] == ErrorCode.INVALID_REQUEST
    assert own(caller) == {}


def test_a_value_may_not_be_null(caller: KafkaCaller) -> None:
    assert change(caller, ("retention.ms", SET, None))[0] == ErrorCode.INVALID_REQUEST
    for operation in (APPEND, SUBTRACT):
        assert change(caller, ("cleanup.policy", operation, None))[0] == ErrorCode.INVALID_REQUEST
    assert replace(caller, {"retention.ms": None})[0] == ErrorCode.INVALID_REQUEST


def test_a_setting_that_is_named_twice_is_ambiguous(caller: KafkaCaller) -> None:
    changes = [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]
    assert change(caller, *changes)[0] == ErrorCode.INVALID_REQUEST
    items = [("cleanup.policy", APPEND, "compact"), ("cleanup.policy", SUBTRACT, "delete")]
    assert change(caller, *items)[0] == ErrorCode.INVALID_REQUEST


def test_a_resource_that_is_named_twice_is_not_changed(caller: KafkaCaller) -> None:
    config = incremental_alter_configs_request.AlterableConfig(name="retention.ms", value="1")
    resource = incremental_alter_configs_request.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=(config,)
    )
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(resources=(resource, resource))
    responses = caller.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert [each.error_code for each in responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert own(caller) == {}


def test_the_settings_of_this_server_are_in_its_configuration_file(caller: KafkaCaller) -> None:
    code, message = change(caller, ("message.max.bytes", SET, "1"), kind=BROKER, name=str(NODE.node_id))
    assert (code, "configuration file" in str(message)) == (ErrorCode.INVALID_REQUEST, True)


def test_reading_and_changing_need_their_permissions() -> None:
    world = World(Guarded())
    create_topics(world, "orders")
    caller = KafkaCaller(world, CLERK)
    assert describe(caller).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert describe(caller, GROUP, "workers").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert replace(caller, {})[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    interval = ("consumer.heartbeat.interval.ms", DELETE, None)
    assert change(caller, interval, kind=GROUP, name="workers")[0] == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_settings_of_this_server_need_permissions_of_the_cluster() -> None:
    world = World(Guarded())
    caller = KafkaCaller(world, CLERK)
    this, wanted = str(NODE.node_id), ("message.max.bytes", SET, "1")
    for name in (this, "", "77"):
        assert describe(caller, BROKER, name).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow(world, (Permission.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
    assert values(caller, BROKER, this)["node.id"] == this
    assert change(caller, wanted, kind=BROKER, name=this)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow(world, (Permission.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME))
    assert change(caller, wanted, kind=BROKER, name=this)[0] == ErrorCode.INVALID_REQUEST


def test_a_refused_call_has_its_error_at_every_resource(caller: KafkaCaller) -> None:
    refusal = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    described = DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=TOPIC, resource_name="a"),))
    (result,) = caller.refused(ApiKey.DESCRIBE_CONFIGS, 4, described, refusal).results
    resource = alter_configs_request.AlterConfigsResource(resource_type=TOPIC, resource_name="a")
    replaced = alter_configs_request.AlterConfigsRequest(resources=(resource,))
    (answer,) = caller.refused(ApiKey.ALTER_CONFIGS, 2, replaced, refusal).responses
    changed = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=(incremental_alter_configs_request.AlterConfigsResource(resource_type=TOPIC, resource_name="a"),)
    )
    (other,) = caller.refused(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, changed, refusal).responses
    for each in (result, answer, other):
        assert (each.error_code, each.error_message, each.resource_type, each.resource_name) == (14, "loading", 2, "a")
