"""Bytes of the settings of groups (storage/v1/group.proto). The key is the group id."""

from __future__ import annotations

from typing import Final

from coordinator_api.storage.v1 import group_pb2 as storage
from coordinator_runtime.rows import Decoders, EncodedRecord, Encoders
from group_coordinator.administration.settings import GroupConfigChanged
from group_coordinator.codec import GROUP_CONFIG


def _encode(record: GroupConfigChanged) -> EncodedRecord:
    if not record.overrides:
        return EncodedRecord(GROUP_CONFIG, record.group_id.encode(), None)
    numbers = {name: value for name, value in record.overrides.items() if isinstance(value, int)}
    texts = {name: value for name, value in record.overrides.items() if isinstance(value, str)}
    value = storage.GroupConfigValue(overrides=numbers, texts=texts)
    return EncodedRecord(GROUP_CONFIG, record.group_id.encode(), value.SerializeToString(deterministic=True))


def _decode(key: bytes, value: bytes) -> GroupConfigChanged:
    stored = storage.GroupConfigValue.FromString(value)
    return GroupConfigChanged(key.decode(), {**stored.overrides, **stored.texts})


ENCODERS: Final[Encoders] = {GroupConfigChanged: _encode}
DECODERS: Final[Decoders] = {GROUP_CONFIG: _decode}
