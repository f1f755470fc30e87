"""Kafka's settings of topics, and what each means here.

There are three lists. Settings of the first are settings of the core under another name. Settings of the second have
one value, because this server does nothing else. Settings of the third are accepted with any value, and have no
effect: they tune a way of storing that this server does not have. Every other setting is refused.

Source: Kafka's `TopicConfig` and `LogConfig`; `partition_log/catalog/settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.shown_settings import ShownSetting, Source, Synonym, ValueType, check_type
from partition_log.catalog.settings import FOR_EVER, Origin, SettingValue, sorted_list

_LONG_MAX: Final = str(2**63 - 1)
_NO_LIMIT: Final = str(FOR_EVER)


def _same(value: str) -> str:
    return value


def _limit_to_core(value: str) -> str:
    # Kafka has no -1 for these: its greatest number means no limit.
    return _NO_LIMIT if value == _LONG_MAX else value


def _limit_to_kafka(value: str) -> str:
    return _LONG_MAX if value == _NO_LIMIT else value


class MappedSetting(Struct, frozen=True):
    """A setting of the core under Kafka's name."""

    name: str
    core_name: str
    broker_name: str
    """Kafka's name of the default in the configuration of a broker."""
    value_type: ValueType
    to_core: Callable[[str], str] = _same
    to_kafka: Callable[[str], str] = _same


class FixedSetting(Struct, frozen=True):
    """A setting that this server does not keep."""

    name: str
    value: str
    """The only value, or the value that is shown because none has an effect."""
    value_type: ValueType


_MAPPED: Final = (
    MappedSetting("retention.ms", "retention_ms", "log.retention.ms", ValueType.LONG),
    MappedSetting("retention.bytes", "retention_bytes", "log.retention.bytes", ValueType.LONG),
    MappedSetting("max.message.bytes", "batch_bytes_max", "message.max.bytes", ValueType.INT),
    MappedSetting("cleanup.policy", "cleanup_policy", "log.cleanup.policy", ValueType.LIST, to_core=sorted_list),
    MappedSetting(
        "message.timestamp.after.max.ms",
        "timestamp_after_max_ms",
        "log.message.timestamp.after.max.ms",
        ValueType.LONG,
        to_core=_limit_to_core,
        to_kafka=_limit_to_kafka,
    ),
    MappedSetting(
        "min.compaction.lag.ms", "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms", ValueType.LONG
    ),
    MappedSetting(
        "max.compaction.lag.ms",
        "max_compaction_lag_ms",
        "log.cleaner.max.compaction.lag.ms",
        ValueType.LONG,
        to_core=_limit_to_core,
        to_kafka=_limit_to_kafka,
    ),
    MappedSetting("delete.retention.ms", "delete_retention_ms", "log.cleaner.delete.retention.ms", ValueType.LONG),
    MappedSetting("min.cleanable.dirty.ratio", "min_dirty_ratio", "log.cleaner.min.cleanable.ratio", ValueType.DOUBLE),
)
_FIXED: Final = (
    FixedSetting("message.timestamp.type", "CreateTime", ValueType.STRING),
    FixedSetting("message.timestamp.before.max.ms", _LONG_MAX, ValueType.LONG),
    FixedSetting("min.insync.replicas", "1", ValueType.INT),
    FixedSetting("remote.storage.enable", "false", ValueType.BOOLEAN),
)
_WITHOUT_EFFECT: Final = (
    # Batches stay as their producers compressed them. Readers see no difference.
    FixedSetting("compression.type", "producer", ValueType.STRING),
    FixedSetting("segment.bytes", "1073741824", ValueType.INT),
    FixedSetting("segment.ms", "604800000", ValueType.LONG),
    FixedSetting("segment.jitter.ms", "0", ValueType.LONG),
    FixedSetting("segment.index.bytes", "10485760", ValueType.INT),
    FixedSetting("index.interval.bytes", "4096", ValueType.INT),
    FixedSetting("flush.messages", _LONG_MAX, ValueType.LONG),
    FixedSetting("flush.ms", _LONG_MAX, ValueType.LONG),
    FixedSetting("file.delete.delay.ms", "60000", ValueType.LONG),
    FixedSetting("preallocate", "false", ValueType.BOOLEAN),
    FixedSetting("unclean.leader.election.enable", "false", ValueType.BOOLEAN),
    FixedSetting("compression.gzip.level", "-1", ValueType.INT),
    FixedSetting("compression.lz4.level", "9", ValueType.INT),
    FixedSetting("compression.zstd.level", "3", ValueType.INT),
    FixedSetting("local.retention.ms", "-2", ValueType.LONG),
    FixedSetting("local.retention.bytes", "-2", ValueType.LONG),
    FixedSetting("leader.replication.throttled.replicas", "", ValueType.LIST),
    FixedSetting("follower.replication.throttled.replicas", "", ValueType.LIST),
)

MAPPED: Final[Mapping[str, MappedSetting]] = MappingProxyType({each.name: each for each in _MAPPED})
FIXED: Final[Mapping[str, FixedSetting]] = MappingProxyType({each.name: each for each in _FIXED})
WITHOUT_EFFECT: Final[Mapping[str, FixedSetting]] = MappingProxyType({each.name: each for each in _WITHOUT_EFFECT})


def core_settings(topic: str, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings of the core for settings of Kafka. Values of the core are checked by the core.

    Raises Refused INVALID_CONFIG for a setting that has no meaning here, and for another value than the only one."""
    wanted = {}
    for name, value in settings:
        mapped = MAPPED.get(name)
        if mapped is not None:
            wanted[mapped.core_name] = mapped.to_core(value)
        elif name in FIXED:
            _check_fixed(topic, FIXED[name], value)
        elif name in WITHOUT_EFFECT:
            check_type(name, value, WITHOUT_EFFECT[name].value_type)
        else:
            raise unknown_setting(topic, name)
    return wanted


def kafka_settings(settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return settings of the core under Kafka's names, in their order. Those that Kafka does not have are left out."""
    return [(each.name, each.to_kafka(settings[each.core_name])) for each in _MAPPED if each.core_name in settings]


def core_names(topic: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the settings of the core that return to their defaults. Raises Refused INVALID_CONFIG."""
    unset = []
    for name in names:
        if name in MAPPED:
            unset.append(MAPPED[name].core_name)
        elif name not in FIXED and name not in WITHOUT_EFFECT:
            raise unknown_setting(topic, name)
    return tuple(unset)


def core_items(change: str, values: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the items of lists of the core by the name of the setting. `change` is Kafka's word for what is done with
    them. Raises Refused INVALID_CONFIG for a setting that is no list."""
    items = {}
    for name, value in values:
        mapped = MAPPED.get(name)
        known = mapped or FIXED.get(name) or WITHOUT_EFFECT.get(name)
        if known is None or known.value_type is not ValueType.LIST:
            raise no_list(change, name)
        if mapped is not None:
            # As Java's `split`, which leaves out empty items at the end. Others are refused with the list.
            items[mapped.core_name] = tuple(value.rstrip(",").split(","))
    return items


def no_list(change: str, name: str) -> Refused:
    """Return the refusal to add items to a setting that is no list, or to remove them."""
    return Refused(ErrorCode.INVALID_CONFIG, f"Can't {change} to key {name!a:.80} because its type is not LIST.")


def unknown_setting(topic: str, name: str) -> Refused:
    """Return the refusal of a setting that topics do not have here."""
    return Refused(
        ErrorCode.INVALID_CONFIG,
        f"{name!a:.80} of the topic {topic!a:.300} means nothing here; there are {', '.join(MAPPED)}",
    )


def _check_fixed(topic: str, fixed: FixedSetting, value: str) -> None:
    if value.strip().lower() != fixed.value.lower():
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"{fixed.name} of the topic {topic!a:.300} cannot be {value!a:.80}: this server does {fixed.value} only",
        )


def shown_topic_settings(values: Sequence[SettingValue]) -> list[ShownSetting]:
    """Return all settings of a topic under Kafka's names. Settings that Kafka does not have are left out."""
    by_name = {each.name: each for each in values}
    shown = [_shown(each, by_name[each.core_name]) for each in _MAPPED if each.core_name in by_name]
    shown += [_constant(each, "This server does nothing else.") for each in _FIXED]
    shown += [_constant(each, "Accepted, and without effect on this server.") for each in _WITHOUT_EFFECT]
    return shown


def _shown(mapped: MappedSetting, value: SettingValue) -> ShownSetting:
    own, inherited = mapped.to_kafka(value.value), mapped.to_kafka(value.inherited)
    is_own = value.origin is Origin.TOPIC
    below = Source.STATIC_BROKER if value.origin is Origin.SERVER else Source.DEFAULT
    found = [Synonym(mapped.name, own, Source.TOPIC)] if is_own else []
    return ShownSetting(
        name=mapped.name,
        value=own,
        source=Source.TOPIC if is_own else below,
        value_type=mapped.value_type,
        synonyms=(*found, Synonym(mapped.broker_name, inherited, below)),
        documentation=f"The setting {mapped.core_name} of the topic.",
    )


def _constant(fixed: FixedSetting, documentation: str) -> ShownSetting:
    return ShownSetting(
        name=fixed.name,
        value=fixed.value,
        source=Source.DEFAULT,
        value_type=fixed.value_type,
        is_read_only=True,
        synonyms=(Synonym(fixed.name, fixed.value, Source.DEFAULT),),
        documentation=documentation,
    )
