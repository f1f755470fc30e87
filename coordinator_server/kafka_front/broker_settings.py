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
from group_coordinator.administration.settings import (
    SETTINGS,
    SHARE_DEAD_LETTER_TOPIC,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
    shown,
)
from group_coordinator.config import Bounded, GroupConfig

_MS_PER_MINUTE: Final = 60_000
_B, _I, _L, _S, _LIST = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.STRING, ValueType.LIST
_UNLIKE_OURS: Final = {SHARE_DEAD_LETTER_TOPIC: "errors.deadletterqueue.topic.name"}
GROUP_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {_UNLIKE_OURS.get(name, name.replace("_", ".")): name for name in SETTINGS}
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
        *_bounded("consumer", "session.timeout.ms", groups.consumer_session),
        *_bounded("consumer", "heartbeat.interval.ms", groups.consumer_heartbeat),
        ("group.consumer.assignors", ",".join(groups.consumer_assignors), _LIST),
        ("group.consumer.migration.policy", groups.consumer_migration_policy.value, _S),
        ("group.share.max.size", groups.share_size_max, _I),
        ("group.share.max.share.sessions", groups.share_sessions_max, _I),
        *_bounded("share", "session.timeout.ms", groups.share_session),
        *_bounded("share", "heartbeat.interval.ms", groups.share_heartbeat),
        *_bounded("share", "record.lock.duration.ms", groups.share_record_lock),
        ("group.share.delivery.count.limit", groups.share_delivery_count_limit, _I),
        ("group.share.partition.max.record.locks", groups.share_partition_max_record_locks, _I),
        ("group.streams.max.size", groups.streams_size_max, _I),
        *_bounded("streams", "session.timeout.ms", groups.streams_session),
        *_bounded("streams", "heartbeat.interval.ms", groups.streams_heartbeat),
        ("group.streams.initial.rebalance.delay.ms", groups.streams_initial_rebalance_delay_ms, _I),
        ("group.streams.num.standby.replicas", groups.streams_num_standby_replicas, _I),
        ("group.streams.max.standby.replicas", groups.streams_num_standby_replicas_max, _I),
        ("group.streams.task.offset.interval.ms", groups.streams_task_offset_interval_ms, _I),
        ("group.streams.min.task.offset.interval.ms", groups.streams_task_offset_interval_ms_min, _I),
    )


def _bounded(kind: str, name: str, bounded: Bounded) -> Iterable[tuple[str, object, ValueType]]:
    """Return a setting of a kind of groups, with its bounds."""
    return (
        (f"group.{kind}.{name}", bounded.value, _I),
        (f"group.{kind}.min.{name}", bounded.least, _I),
        (f"group.{kind}.max.{name}", bounded.most, _I),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def group_settings(overrides: Mapping[str, int | str], groups: GroupConfig) -> list[ShownSetting]:
    """Return the settings of a group. `overrides`: those that differ from the server's."""
    return [_of_group(name, overrides.get(core_name), core_name, groups) for name, core_name in GROUP_NAMES.items()]


def _of_group(name: str, own: int | str | None, core_name: str, groups: GroupConfig) -> ShownSetting:
    setting = SETTINGS[core_name]
    inherited = str(shown(core_name, setting.of_server(groups)))
    found = [] if own is None else [Synonym(name, str(own), Source.GROUP)]
    # Kafka's brokers have no setting for those with words: a group without its own has the default.
    if setting.has_words:
        synonyms = (*found, Synonym(name, inherited, Source.DEFAULT))
    else:
        synonyms = (*found, Synonym(f"group.{name}", inherited, Source.STATIC_BROKER))
    return ShownSetting(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        value_type=_type_of(core_name),
        synonyms=synonyms,
    )


def _type_of(core_name: str) -> ValueType:
    if core_name == SHARE_RENEW_ACKNOWLEDGE_ENABLE:
        return ValueType.BOOLEAN
    return ValueType.STRING if SETTINGS[core_name].has_words else ValueType.INT


def core_group_settings(settings: Iterable[tuple[str, str]]) -> tuple[tuple[str, int | str], ...]:
    """Return the settings of the core for settings of a group. Raises Refused INVALID_CONFIG."""
    return tuple(
        [(core_name, _value(name, core_name, value)) for name, value in settings for core_name in (_core_name(name),)]
    )


def core_group_names(names: Iterable[str]) -> frozenset[str]:
    """Return the settings of the core that return to the server's. Raises Refused INVALID_CONFIG."""
    return frozenset(map(_core_name, names))


def _value(name: str, core_name: str, value: str) -> int | str:
    value_type = _type_of(core_name)
    check_type(name, value, value_type)
    return int(value) if value_type is ValueType.INT else value


def _core_name(name: str) -> str:
    core_name = GROUP_NAMES.get(name)
    if core_name is None:
        text = f"groups have no setting {name!a:.80} here; there are {', '.join(GROUP_NAMES)}"
        raise Refused(ErrorCode.INVALID_CONFIG, text)
    return core_name
