"""Types of settings: the valid texts of each, and their meaning."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from coordinator_server.listeners import KafkaListener, Listener
from group_coordinator.assignors import SERVER_ASSIGNORS
from partition_log.catalog.settings import FOR_EVER


def names(text: str) -> tuple[str, ...]:
    """Split a list with commas; an empty text has no elements."""
    return tuple(name for each in text.split(",") if (name := each.strip()))


def assignor_names(text: str) -> tuple[str, ...]:
    """Split a list with commas; an empty text is one element, which is no assignor."""
    return tuple(name.strip() for name in text.split(","))


def _checked_assignors(text: str) -> str:
    for name in assignor_names(text):
        if name not in SERVER_ASSIGNORS:
            raise ValueError(f"{name!r} is no assignor; there are {', '.join(sorted(SERVER_ASSIGNORS))}")
    return text


def _checked_limit(number: int) -> int:
    if number == 0:
        raise ValueError("must be at least 1, or -1 for no limit")
    return number


def _listeners(value: object) -> object:
    """Parse the listeners. A TOML file gives tables; the environment and flags have only text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f'is no list in JSON ({error}), such as [{{"listen": "unix:/run/txn.sock"}}]') from error


MoreListeners = Annotated[tuple[Listener, ...], NoDecode, BeforeValidator(_listeners)]
MoreKafkaListeners = Annotated[tuple[KafkaListener, ...], NoDecode, BeforeValidator(_listeners)]
AssignorNames = Annotated[str, AfterValidator(_checked_assignors)]
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
KeptLimit = Annotated[int, Field(ge=FOR_EVER, le=2**63 - 1), AfterValidator(_checked_limit)]
