"""Settings as DescribeConfigs and CreateTopics show them, whatever they are settings of.

Source: Kafka's `DescribeConfigsResponse.ConfigSource` and `ConfigType`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused


class Source(IntEnum):
    """Origin of a value, with Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ValueType(IntEnum):
    """Type of a value, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(Struct, frozen=True):
    """A value under which a setting is found, in the order in which they are looked for."""

    name: str
    value: str
    source: Source


class ShownSetting(Struct, frozen=True):
    """One setting with Kafka's name and its effective value."""

    name: str
    value: str
    source: Source
    value_type: ValueType
    is_read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()
    documentation: str = ""


def check_type(name: str, value: str, value_type: ValueType) -> None:
    """Return only if a text is a value of the type. Raises Refused INVALID_CONFIG."""
    try:
        match value_type:
            case ValueType.INT | ValueType.LONG:
                int(value)
            case ValueType.DOUBLE:
                float(value)
            case ValueType.BOOLEAN if value.lower() not in ("true", "false"):
                raise ValueError(value)
    except ValueError:
        text = f"{name} cannot be {value!a:.80}: it is a {value_type.name.lower()}"
        raise Refused(ErrorCode.INVALID_CONFIG, text) from None
