"""Settings of topics: their names, valid values, and defaults.

A value is stored as text, as it was set. A value that only a newer program knows counts as the least harmful one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits

VALIDATE_PAYLOAD: Final = "validate_payload"
RETENTION_MS: Final = "retention_ms"
RETENTION_BYTES: Final = "retention_bytes"
TIMESTAMP_AFTER_MAX_MS: Final = "timestamp_after_max_ms"
"""Kafka's `message.timestamp.after.max.ms`."""
BATCH_BYTES_MAX: Final = "batch_bytes_max"
"""Kafka's `max.message.bytes`, in bytes as they are stored."""
CLEANUP_POLICY: Final = "cleanup_policy"
"""Kafka's `cleanup.policy`."""
MIN_COMPACTION_LAG_MS: Final = "min_compaction_lag_ms"
"""Kafka's `min.compaction.lag.ms`."""
MAX_COMPACTION_LAG_MS: Final = "max_compaction_lag_ms"
"""Kafka's `max.compaction.lag.ms`."""
DELETE_RETENTION_MS: Final = "delete_retention_ms"
"""Kafka's `delete.retention.ms`."""
MIN_DIRTY_RATIO: Final = "min_dirty_ratio"
"""Kafka's `min.cleanable.dirty.ratio`."""

FOR_EVER: Final = -1
"""Value of a limit that means no limit."""

OwnSettings: TypeAlias = tuple[tuple[str, str], ...]
"""Settings that a topic has itself, by name."""

_REMEMBERED: Final = 1_024
"""Different settings whose meaning is remembered: the rounds of removal and compaction ask for each topic each time."""

_NUMBER: Final = re.compile("[1-9][0-9]{0,18}")
_NUMBER_MAX: Final = 2**63 - 1
_RATIO: Final = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?|\.[0-9]{1,9}")
_FOR_EVER: Final = str(FOR_EVER)


class PayloadValidation(StrEnum):
    """Checks on a batch before it is accepted: the value of the setting `validate_payload`."""

    FULL = "full"
    """The header, the checksum, and the payload, which every reader must be able to decode."""
    HEADER = "header"
    """Only the header and the checksum. The writer vouches for the payload."""


class CleanupPolicy(StrEnum):
    """Ways in which a topic loses old records: the value of the setting `cleanup_policy`."""

    DELETE = "delete"
    """Retention by time and size."""
    COMPACT = "compact"
    """Compaction, which keeps the newest record of each key. No record is removed because of its age, or of the size of
    the log."""
    COMPACT_AND_DELETE = "compact,delete"
    """Both."""

    @property
    def compacts(self) -> bool:
        return self in (CleanupPolicy.COMPACT, CleanupPolicy.COMPACT_AND_DELETE)


class Retention(Struct, frozen=True):
    """Limits on the contents of each partition of a topic. Beyond either limit the oldest records are removed. FOR_EVER
    means no limit."""

    retention_ms: int = FOR_EVER
    """Time for which records are kept."""
    retention_bytes: int = FOR_EVER
    """Size of the log that is kept, in bytes as they are stored."""


KEEP_ALL: Final = Retention()


class CompactionTerms(Struct, frozen=True):
    """Settings of a topic about its compaction. The defaults are Kafka's."""

    min_lag_ms: int = 0
    """Time for which no record is removed."""
    max_lag_ms: int = FOR_EVER
    """Time after which a record is compacted, however little it is; FOR_EVER means no limit."""
    delete_retention_ms: int = 24 * 3_600_000
    """Time for which tombstones and markers stay after the first pass over them."""
    dirty_ratio: float = 0.5
    """Share of the dirty part in the log from which on a pass is worth it."""


_COMPACTION: Final = CompactionTerms()


class TopicDefaults(Struct, frozen=True):
    """Values of the settings of topics that have none of their own, as the server is configured."""

    retention: Retention = KEEP_ALL
    timestamp_after_max_ms: int = FOR_EVER
    batch_bytes_max: int = Limits().batch_bytes_max
    """Limit of the server, which no topic exceeds."""


_BUILT_IN: Final = TopicDefaults()


def _why_no_validation(value: str) -> str | None:
    return None if value in tuple(PayloadValidation) else f"choose {' or '.join(PayloadValidation)}"


def _why_no_policy(value: str) -> str | None:
    return None if value in tuple(CleanupPolicy) else f"choose {' or '.join(CleanupPolicy)}"


def _why_no_limit(value: str) -> str | None:
    if value == _FOR_EVER or _is_number(value):
        return None
    return f"choose a whole number from 1 to {_NUMBER_MAX}, or -1 for no limit"


def _why_no_duration(value: str) -> str | None:
    return None if value == "0" or _is_number(value) else f"choose a whole number from 0 to {_NUMBER_MAX}"


def _why_no_ratio(value: str) -> str | None:
    return None if _RATIO.fullmatch(value) else "choose a number from 0 to 1, such as 0.5"


def _why_no_size(value: str) -> str | None:
    # The limit of the server is known to `check_settings` only.
    return None if _is_number(value) else "choose a whole number from 1"


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None and int(value) <= _NUMBER_MAX


_CHECKS: Final[Mapping[str, Callable[[str], str | None]]] = {
    VALIDATE_PAYLOAD: _why_no_validation,
    RETENTION_MS: _why_no_limit,
    RETENTION_BYTES: _why_no_limit,
    TIMESTAMP_AFTER_MAX_MS: _why_no_limit,
    BATCH_BYTES_MAX: _why_no_size,
    CLEANUP_POLICY: _why_no_policy,
    MIN_COMPACTION_LAG_MS: _why_no_duration,
    MAX_COMPACTION_LAG_MS: _why_no_limit,
    DELETE_RETENTION_MS: _why_no_duration,
    MIN_DIRTY_RATIO: _why_no_ratio,
}
"""Checks of all settings, by name. Each returns the reason why the setting cannot have a value."""


class Origin(StrEnum):
    """Origin of the value of a setting."""

    TOPIC = "topic"
    """The value was set for this topic."""
    SERVER = "server"
    """The value is another default that the server is configured with: `default_` and the name of the setting, or
    its own `batch_bytes_max`."""
    DEFAULT = "default"
    """The value is the built-in default."""


class SettingValue(Struct, frozen=True):
    """The effective value of one setting of a topic."""

    name: str
    value: str
    origin: Origin
    inherited: str
    """Value that applies if the topic has none of its own."""


class SettingsChange(Struct, frozen=True):
    """A change of the settings of a topic. Settings that are not named stay."""

    wanted: Mapping[str, str]
    """New values by name."""
    unset: Sequence[str] = ()
    """Names of settings that the topic is no longer to have itself."""
    added_items: Mapping[str, Sequence[str]] = {}
    """Items to be added to lists, by the name of the setting. One that is there already stays as it is."""
    removed_items: Mapping[str, Sequence[str]] = {}
    """Items to be removed from lists, by the name of the setting. One that is not there is ignored."""

    @property
    def names(self) -> frozenset[str]:
        """Settings that change."""
        return frozenset({*self.wanted, *self.unset, *self.added_items, *self.removed_items})

    @property
    def possible(self) -> Mapping[str, str]:
        """Values that a topic may get by this change and that matter for `loses_records_if_overlooked`."""
        if CleanupPolicy.DELETE in self.removed_items.get(CLEANUP_POLICY, ()):
            return {**self.wanted, CLEANUP_POLICY: CleanupPolicy.COMPACT}
        return self.wanted


def sorted_list(value: str) -> str:
    """Return a list with its items in one order."""
    return ",".join(sorted(each.strip() for each in value.split(",")))


def check_settings(topic: str, settings: Mapping[str, str], batch_bytes_max: int) -> None:
    """Return only if a topic may have these settings. `batch_bytes_max` is the limit of the server. Raises Refused
    INVALID_CONFIG."""
    for name, value in sorted(settings.items()):
        why = _check_of(name)(value)
        if why is None and name == BATCH_BYTES_MAX and int(value) > batch_bytes_max:
            why = f"the server takes batches of up to {batch_bytes_max} bytes (its batch_bytes_max)"
        if why is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} of the topic {topic} cannot be {str(value)!a:.80}: {why}")


def _check_of(name: str) -> Callable[[str], str | None]:
    """Return the check of a setting. Raises Refused INVALID_CONFIG, with a similar name if there is one."""
    check = _CHECKS.get(name)
    if check is None:
        near = difflib.get_close_matches(name, _CHECKS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_CHECKS)}"
        raise Refused(ErrorCode.INVALID_CONFIG, f"topics have no setting {name!a:.80}: {hint}")
    return check


def altered(
    topic: str, settings: Iterable[tuple[str, str]], change: SettingsChange, batch_bytes_max: int
) -> tuple[tuple[str, str], ...]:
    """Return the settings of a topic after a change, as they are stored. `batch_bytes_max` is the limit of the server.

    Raises Refused INVALID_CONFIG for an unknown setting, for an invalid value, and for a setting that is both set and
    unset. A setting that a newer program left there may be unset. Raises Refused INVALID_REQUEST for an empty
    change."""
    before, unset = dict(settings), frozenset(change.unset)
    wanted = {**change.wanted, **_changed_lists(before, change)}
    if not change.names:
        text = f"nothing is asked of the topic {topic}: name a setting to be set or unset, or leave the topic out"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    check_settings(topic, wanted, batch_bytes_max)
    for name in sorted(unset - before.keys()):
        _check_of(name)
    both = sorted(unset & wanted.keys())
    if both:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{both[0]} of the topic {topic} is set and unset at once: choose one")
    return tuple(sorted((name, value) for name, value in {**before, **wanted}.items() if name not in unset))


def _changed_lists(own: Mapping[str, str], change: SettingsChange) -> dict[str, str]:
    """Return the lists of a topic after the change of their items. The only list is the cleanup policy."""
    changed = {}
    for name in sorted({*change.added_items, *change.removed_items}):
        items = [each for each in own.get(name, CleanupPolicy.DELETE).split(",") if each]
        for added in change.added_items.get(name, ()):
            if added not in items:
                items.append(added)
        removed = change.removed_items.get(name, ())
        changed[name] = sorted_list(",".join(each for each in items if each not in removed))
    return changed


def payload_validation(settings: Iterable[tuple[str, str]]) -> PayloadValidation:
    """Return the checks on batches of a topic. An unknown value counts as the strictest one: batches that every reader
    can decode damage no log."""
    is_header = (VALIDATE_PAYLOAD, PayloadValidation.HEADER.value) in settings
    return PayloadValidation.HEADER if is_header else PayloadValidation.FULL


@lru_cache(_REMEMBERED)
def retention(settings: OwnSettings, default: Retention) -> Retention:
    """Return the retention of a topic's partitions. An unknown value counts as no limit, so that nothing is lost."""
    own = dict(settings)
    retention_ms = _limit(own, RETENTION_MS, default.retention_ms)
    return Retention(retention_ms, _limit(own, RETENTION_BYTES, default.retention_bytes))


@lru_cache(_REMEMBERED)
def cleanup_policy(settings: OwnSettings) -> CleanupPolicy:
    """Return the cleanup policy of a topic. An unknown value counts as COMPACT, so that nothing is lost."""
    value = dict(settings).get(CLEANUP_POLICY, CleanupPolicy.DELETE)
    return CleanupPolicy.COMPACT if _why_no_policy(value) else CleanupPolicy(value)


@lru_cache(_REMEMBERED)
def compaction_terms(settings: OwnSettings) -> CompactionTerms:
    """Return the settings of a topic about its compaction. An unknown value counts as the one that removes least."""
    own = dict(settings)
    ratio = own.get(MIN_DIRTY_RATIO)
    return CompactionTerms(
        _duration(own, MIN_COMPACTION_LAG_MS, _COMPACTION.min_lag_ms),
        _limit(own, MAX_COMPACTION_LAG_MS, _COMPACTION.max_lag_ms),
        _duration(own, DELETE_RETENTION_MS, _COMPACTION.delete_retention_ms),
        _COMPACTION.dirty_ratio if ratio is None else 1.0 if _why_no_ratio(ratio) else float(ratio),
    )


def loses_records_if_overlooked(wanted: Mapping[str, str]) -> bool:
    """True if a program that does not know these settings could remove records that they keep. They need the feature
    `coordinator_runtime.features.COMPACT_TOPICS`."""
    return wanted.get(CLEANUP_POLICY) == CleanupPolicy.COMPACT


def timestamp_after_max(settings: Iterable[tuple[str, str]], default_ms: int) -> int:
    """Return the number of milliseconds by which the timestamps of a topic may lie ahead of the clock; FOR_EVER means
    any number. An unknown value counts as no limit, so that no producer is stopped."""
    return _limit(dict(settings), TIMESTAMP_AFTER_MAX_MS, default_ms)


def batch_bytes_max(settings: Iterable[tuple[str, str]], server_max: int) -> int:
    """Return the largest stored size of a batch of a topic (bytes). The server may be configured with less than it was
    when the topic was altered. An unknown value counts as no limit of the topic, so that no producer is stopped."""
    value = dict(settings).get(BATCH_BYTES_MAX)
    return server_max if value is None or _why_no_size(value) else min(int(value), server_max)


def _limit(own: Mapping[str, str], name: str, default: int) -> int:
    value = own.get(name)
    if value is None:
        return default
    return FOR_EVER if _why_no_limit(value) else int(value)


def _duration(own: Mapping[str, str], name: str, default: int) -> int:
    value = own.get(name)
    if value is None:
        return default
    return _NUMBER_MAX if _why_no_duration(value) else int(value)


def setting_values(settings: OwnSettings, server: TopicDefaults) -> list[SettingValue]:
    """Return the effective value of every setting of a topic with these own settings."""
    own = dict(settings)
    values, inherited, built_in = _in_effect(settings, server), _in_effect((), server), _in_effect((), _BUILT_IN)

    def origin(name: str) -> Origin:
        if name in own:
            return Origin.TOPIC
        return Origin.DEFAULT if inherited[name] == built_in[name] else Origin.SERVER

    return [SettingValue(name, value, origin(name), inherited[name]) for name, value in values.items()]


def _in_effect(settings: OwnSettings, server: TopicDefaults) -> dict[str, str]:
    kept, terms = retention(settings, server.retention), compaction_terms(settings)
    return {
        VALIDATE_PAYLOAD: payload_validation(settings).value,
        RETENTION_MS: str(kept.retention_ms),
        RETENTION_BYTES: str(kept.retention_bytes),
        TIMESTAMP_AFTER_MAX_MS: str(timestamp_after_max(settings, server.timestamp_after_max_ms)),
        BATCH_BYTES_MAX: str(batch_bytes_max(settings, server.batch_bytes_max)),
        CLEANUP_POLICY: cleanup_policy(settings).value,
        MIN_COMPACTION_LAG_MS: str(terms.min_lag_ms),
        MAX_COMPACTION_LAG_MS: str(terms.max_lag_ms),
        DELETE_RETENTION_MS: str(terms.delete_retention_ms),
        MIN_DIRTY_RATIO: f"{terms.dirty_ratio:.9f}".rstrip("0").rstrip("."),
    }
