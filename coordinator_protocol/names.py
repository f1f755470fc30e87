"""Checks of ids and names. They become parts of stored keys, so none of them contains NUL, our separator.

Source: design 6 (limits, reserved names); spec transactions 2.2; Kafka's `Topic.validate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused

ID_BYTES_MAX: Final = 1_000
TOPIC_ID_BYTES: Final = 16
TOPIC_NAME_LENGTH_MAX: Final = 249
RESERVED_PREFIX: Final = "__"

_PLAIN_ID: Final = re.compile(rf"[\x01-\x7f]{{1,{ID_BYTES_MAX}}}")
"""Pattern of nearly all ids; the others are checked more closely."""
_PLAIN_TRANSACTIONAL_ID: Final = re.compile(rf"(?!{RESERVED_PREFIX}){_PLAIN_ID.pattern}")

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SHOWN_MAX: Final = 60


def check_transactional_id(text: str) -> None:
    """Return only if `text` may be a transactional id.

    Ids that start with two underscores belong to the system. Among them are those that share a shard
    (`hashing.coordinator_key`), which no application may take by chance.

    Raises: Refused (INVALID_REQUEST) if it is empty, reserved, contains NUL or takes more than 1,000 bytes of UTF-8."""
    if not text:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "the transactional id is empty; give one (only InitProducerId may leave it out, for no transactions)",
        )
    if _PLAIN_TRANSACTIONAL_ID.fullmatch(text) is None:
        _check_id("transactional id", text, ErrorCode.INVALID_REQUEST)
        if text.startswith(RESERVED_PREFIX):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the transactional id {_shown(text)} is reserved: ids that start with {RESERVED_PREFIX} belong to the "
                "system; choose another",
            )


def check_client_id(text: str) -> None:
    """Return only if `text` may be a client id; it may be empty.

    Raises: Refused (INVALID_REQUEST) if it contains NUL or takes more than 1,000 bytes of UTF-8."""
    if _PLAIN_ID.fullmatch(text) is None:
        _check_id("client id", text, ErrorCode.INVALID_REQUEST)


def check_group_id(text: str) -> None:
    """Return only if `text` may be a group id.

    Raises: Refused (INVALID_GROUP_ID) if it is empty, contains NUL or takes more than 1,000 bytes of UTF-8."""
    if not text:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id is empty; give the group a name")
    if _PLAIN_ID.fullmatch(text) is None:
        _check_id("group id", text, ErrorCode.INVALID_GROUP_ID)


def check_topic_name(text: str, *, reserved_allowed: bool = False) -> None:
    """Return only if `text` may be the name of a topic that a user creates, writes or reads.

    Names that start with two underscores belong to the system, which passes `reserved_allowed` for its own.

    Raises: Refused (INVALID_TOPIC_EXCEPTION)."""
    if _TOPIC_NAME.fullmatch(text) is None or text in {".", ".."}:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{_shown(text)} is no topic name: 1 to {TOPIC_NAME_LENGTH_MAX} of the characters a-z A-Z 0-9 . _ - are, "
            "but not '.' or '..' alone",
        )
    if text.startswith(RESERVED_PREFIX) and not reserved_allowed:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{_shown(text)} is reserved: names that start with {RESERVED_PREFIX} belong to the system; choose another",
        )


def check_topic(name: str, topic_id: bytes) -> None:
    """Return only if a request may name a topic like this: by name, by id or by both. The topic need not exist.

    Raises: Refused (INVALID_REQUEST) for no name at all, or a topic id of a wrong length."""
    if topic_id and len(topic_id) != TOPIC_ID_BYTES:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the topic_id of {_shown(name)} has {len(topic_id)} bytes: send {TOPIC_ID_BYTES} bytes, or none",
        )
    if not name and not topic_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "something is named without a topic: give the topic's name, its topic_id or both"
        )


def check_partition(topic: str, topic_id: bytes, partition: int) -> None:
    """Return only if a request may name a partition like this.

    Raises: Refused (INVALID_REQUEST) as `check_topic`, and for a negative number.
    """
    check_topic(topic, topic_id)
    if partition < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"partition {partition} of topic {_shown(topic)}: partition numbers start at 0"
        )


def check_partitions(names: Iterable[tuple[str, bytes, int]]) -> None:
    """Return only if a request may name these partitions, each by topic, topic id and number.

    Raises: Refused (INVALID_REQUEST) as `check_partition`, and for a partition that is named twice.
    """
    seen: set[tuple[str, bytes, int]] = set()
    for name in names:
        check_partition(*name)
        if name in seen:
            topic, _, partition = name
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of topic {_shown(topic)} is named twice; name it once",
            )
        seen.add(name)


def _check_id(what: str, text: str, code: ErrorCode) -> None:
    if "\0" in text:
        raise Refused(code, f"the {what} {_shown(text)} contains NUL, which no id may contain")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise Refused(code, f"the {what} {_shown(text)} is not valid Unicode: it contains half a character") from None
    if size > ID_BYTES_MAX:
        raise Refused(
            code, f"the {what} {_shown(text)} takes {size} bytes of UTF-8 and at most {ID_BYTES_MAX} are allowed"
        )


def _shown(text: str) -> str:
    """Quote a name for a message, ASCII only and cut, so that a hostile one cannot garble a terminal or fill a log."""
    return ascii(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")
