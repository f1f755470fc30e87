"""Settings of this server and of groups under Kafka's names, for tools that ask brokers and groups for them.

Those of the server are a few that clients and tools look at, and can only be read.

Source: Kafka's `KafkaConfig`, `GroupConfig`; the limits that DescribeLimits reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from coordinator_core.config import CoreConfig
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.shown_settings import ShownSetting, Source, Synonym, ValueType, check_type
from group_coordinator.administration.settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from group_coordinator.config import GroupConfig

_MS_PER_MINUTE: Final = 60_000
_B, _I, _L, _S, _LIST = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.STRING, ValueType.LIST
GROUP_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }
)
"""Kafka's names of the settings of a group, and the core's."""


def broker_settings(config: CoreConfig, settings: FrontSettings, node_id: int) -> list[ShownSetting]:
    """Return the settings of this server that Kafka has a name for."""
    values = (*_of_the_log(config, settings, node_id), *_of_transactions(config), *_of_groups(config.groups))
    return [
        ShownSetting(
            name=name,
            value=text,
            source=Source.STATIC_BROKER,
            value_type=value_type,
            is_read_only=True,
            synonyms=(Synonym(name, text, Source.STATIC_BROKER),),
        )
        for name, value, value_type in values
        for text in (_text(value),)
    ]


def _of_the_log(config: CoreConfig, settings: FrontSettings, node_id: int) -> Iterable[tuple[str, object, ValueType]]:
    limits, kept = config.limits, config.default_retention
    return (
        ("broker.id", node_id, _I),
        ("node.id", node_id, _I),
        ("num.partitions", settings.auto_create_partitions, _I),
        ("auto.create.topics.enable", settings.auto_create_topics, _B),
        ("delete.topic.enable", True, _B),
        ("default.replication.factor", 1, _I),
        ("min.insync.replicas", 1, _I),
        ("message.max.bytes", limits.batch_bytes_max, _I),
        ("socket.request.max.bytes", limits.message_bytes_max, _I),
        ("compression.type", "producer", _S),
        ("log.cleanup.policy", "delete", _LIST),
        ("log.message.timestamp.type", "CreateTime", _S),
        ("log.retention.ms", kept.retention_ms, _L),
        ("log.retention.bytes", kept.retention_bytes, _L),
    )


def _of_transactions(config: CoreConfig) -> Iterable[tuple[str, object, ValueType]]:
    return (
        ("transaction.max.timeout.ms", config.limits.transaction_max_timeout_ms, _I),
        ("transactional.id.expiration.ms", config.transactional_id_expiration_ms, _I),
        ("transaction.two.phase.commit.enable", config.two_phase_commit_enable, _B),
    )


def _of_groups(groups: GroupConfig) -> Iterable[tuple[str, object, ValueType]]:
    return (
        ("offsets.retention.minutes", groups.offsets_retention_ms // _MS_PER_MINUTE, _I),
        ("offset.metadata.max.bytes", groups.offset_metadata_length_max, _I),
        ("group.initial.rebalance.delay.ms", groups.initial_rebalance_delay_ms, _I),
        ("group.max.size", groups.size_max, _I),
        ("group.min.session.timeout.ms", groups.session_timeout_ms_min, _I),
        ("group.max.session.timeout.ms", groups.session_timeout_ms_max, _I),
        ("group.consumer.max.size", groups.consumer_size_max, _I),
        ("group.consumer.session.timeout.ms", groups.consumer_session_timeout_ms, _I),
        ("group.consumer.min.session.timeout.ms", groups.consumer_session_timeout_ms_min, _I),
        ("group.consumer.max.session.timeout.ms", groups.consumer_session_timeout_ms_max, _I),
        ("group.consumer.heartbeat.interval.ms", groups.consumer_heartbeat_interval_ms, _I),
        ("group.consumer.min.heartbeat.interval.ms", groups.consumer_heartbeat_interval_ms_min, _I),
        ("group.consumer.max.heartbeat.interval.ms", groups.consumer_heartbeat_interval_ms_max, _I),
        ("group.consumer.assignors", ",".join(groups.consumer_assignors), _LIST),
        ("group.consumer.migration.policy", groups.consumer_migration_policy.value, _S),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def group_settings(overrides: Mapping[str, int], groups: GroupConfig) -> list[ShownSetting]:
    """Return the settings of a group. `overrides`: those that differ from the server's."""
    servers = {
        SESSION_TIMEOUT_MS: groups.consumer_session_timeout_ms,
        HEARTBEAT_INTERVAL_MS: groups.consumer_heartbeat_interval_ms,
    }
    return [_of_group(name, overrides.get(core_name), servers[core_name]) for name, core_name in GROUP_NAMES.items()]


def _of_group(name: str, own: int | None, inherited: int) -> ShownSetting:
    found = [] if own is None else [Synonym(name, str(own), Source.GROUP)]
    synonyms = (*found, Synonym(f"group.{name}", str(inherited), Source.STATIC_BROKER))
    return ShownSetting(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        value_type=ValueType.INT,
        synonyms=synonyms,
    )


def core_group_settings(settings: Iterable[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    """Return the settings of the core for settings of a group. Raises Refused INVALID_CONFIG."""
    return tuple([(_core_name(name), _whole(name, value)) for name, value in settings])


def core_group_names(names: Iterable[str]) -> frozenset[str]:
    """Return the settings of the core that return to the server's. Raises Refused INVALID_CONFIG."""
    return frozenset(map(_core_name, names))


def _whole(name: str, value: str) -> int:
    check_type(name, value, ValueType.INT)
    return int(value)


def _core_name(name: str) -> str:
    core_name = GROUP_NAMES.get(name)
    if core_name is None:
        text = f"groups have no setting {name!a:.80} here; there are {', '.join(GROUP_NAMES)}"
        raise Refused(ErrorCode.INVALID_CONFIG, text)
    return core_name
