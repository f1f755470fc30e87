"""Everything that a shard holds, as plain values that can be compared and printed.

It knows the ways to hold state (timeline maps, frozen values, collections) and no shard in particular, so a new field
is compared from its first day on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from msgspec import Struct, structs

from coordinator_runtime.timeline import Journal, TimelineMap

_SHARES = ("partition_log", "txn_coordinator", "group_coordinator")
"""Packages whose objects are state. What a shard holds of others (journal, configuration, worker) it was handed."""


def inventory(value: Any) -> object:
    """Return the content of an object and of all that it refers to, live and durable."""
    return _plain(value, set())


def _plain(value: Any, above: set[int]) -> object:
    if value is None or isinstance(value, (bool, int, float, str, bytes, Enum)):
        return value
    if id(value) in above or isinstance(value, (Journal, type)):
        return "..."
    within = above | {id(value)}
    if isinstance(value, TimelineMap):
        return {"live": _mapping(dict(value.items()), within), "durable": _mapping(dict(value.durable_items()), within)}
    if isinstance(value, Struct):
        return (type(value).__name__, *[_plain(each, within) for each in structs.astuple(value)])
    if is_dataclass(value):
        return (type(value).__name__, *[_plain(getattr(value, field.name), within) for field in fields(value)])
    if isinstance(value, Mapping):
        return _mapping(value, within)
    if isinstance(value, Set):
        return sorted(repr(_plain(each, within)) for each in value)
    if isinstance(value, Sequence):
        return [_plain(each, within) for each in value]
    if isinstance(value, Callable) or not type(value).__module__.startswith(_SHARES):  # type: ignore[arg-type]
        return "..."
    return {name: _plain(held, within) for name, held in _attributes(value).items()}


def _mapping(value: Mapping[Any, Any], within: set[int]) -> object:
    """Two mappings that hold the same are the same, in whatever order it came."""
    return {repr(_plain(key, within)): _plain(held, within) for key, held in value.items()}


def _attributes(value: object) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
