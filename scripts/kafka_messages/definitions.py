"""Kafka's definitions of messages, read from the jar of its clients.

A definition is a JSON file with comments. It says for each field in which versions it exists, may be null, and is
tagged. Source: the README beside the definitions in Kafka's sources.
"""

from __future__ import annotations

import json
import keyword
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

FIXED: Final[Mapping[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of fixed size: format of the struct module, and size in bytes."""
VARIABLE: Final = frozenset({"string", "bytes", "records"})
_FOLDER: Final = "common/message/"
_HIGHEST: Final = 32767


class UnknownDefinition(Exception):
    """A definition has something that this generator does not know; the message says what."""


class Versions(NamedTuple):
    """Versions from the lowest to the highest, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def meets(self, other: Versions) -> bool:
        """Return True if there is a version in both."""
        return max(self.lowest, other.lowest) <= min(self.highest, other.highest)


NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure."""

    name: str
    """Name in snake_case."""
    type: str
    """Name of a type of `FIXED` or `VARIABLE`, or of a structure; for an array, that of its elements."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    """Default as the definition spells it; None if it says nothing."""
    is_ignorable: bool
    about: str

    @property
    def is_struct(self) -> bool:
        return self.type not in FIXED and self.type not in VARIABLE


@dataclass(frozen=True, slots=True)
class Structure:
    """A named sequence of fields."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response."""

    name: str
    is_request: bool
    api_key: int
    versions: Versions
    flexible: Versions
    is_latest_unstable: bool
    structures: Mapping[str, Structure]
    """All structures by name, each after those of its fields; the last is the message itself."""

    @property
    def module(self) -> str:
        return snake_case(self.name)

    @property
    def has_records(self) -> bool:
        return any(field.type == "records" for each in self.structures.values() for field in each.fields)


def read_messages(jar: Path, api_keys: Sequence[int]) -> list[Message]:
    """Return requests and responses of the APIs by key, each request before its response. Raises UnknownDefinition."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith(_FOLDER) and name.endswith(".json")]
        definitions = [_read(archive.read(name).decode()) for name in names]
    wanted = [each for each in definitions if each["type"] in ("request", "response") and each["apiKey"] in api_keys]
    messages = [_message(each) for each in wanted]
    if len(messages) != 2 * len(api_keys):
        raise UnknownDefinition(f"{jar}: {len(messages)} definitions for {len(api_keys)} APIs")
    return sorted(messages, key=lambda message: (message.api_key, not message.is_request))


def versions_of(text: str) -> Versions:
    """Return the versions in a definition's notation: `none`, `3`, `3-5` or `3+`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _HIGHEST)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


def snake_case(name: str) -> str:
    """Return a name of a definition in snake_case, with an underscore behind a word that Python reserves."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{snake}_" if keyword.iskeyword(snake) else snake


def _read(text: str) -> dict[str, Any]:
    """Return a definition without its comments."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
    definition: dict[str, Any] = json.loads("\n".join(lines))
    return definition


def _message(definition: Mapping[str, Any]) -> Message:
    name, versions = definition["name"], versions_of(definition["validVersions"])
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    structures: dict[str, Structure] = {}

    def add(structure: str, fields: Sequence[Mapping[str, Any]]) -> None:
        present = [each for each in fields if versions_of(each["versions"]).meets(versions)]
        found = [_field(each, versions) for each in present]
        for field, each in zip(found, present, strict=True):
            if field.is_struct and field.type not in structures:
                add(field.type, each.get("fields") or common[field.type])
        structures[structure] = Structure(structure, tuple(found))

    add(name, definition["fields"])
    return Message(
        name=name,
        is_request=definition["type"] == "request",
        api_key=definition["apiKey"],
        versions=versions,
        flexible=versions_of(definition["flexibleVersions"]),
        is_latest_unstable=definition.get("latestVersionUnstable", False),
        structures=structures,
    )


def _field(definition: Mapping[str, Any], valid: Versions) -> Field:
    type_ = definition["type"].removeprefix("[]")
    if unknown := definition.keys() - _KNOWN:
        raise UnknownDefinition(f"{definition['name']}: {', '.join(sorted(unknown))}")
    nullable = versions_of(definition.get("nullableVersions", "none"))
    return Field(
        name=snake_case(definition["name"]),
        type=type_,
        is_array=definition["type"].startswith("[]"),
        versions=versions_of(definition["versions"]),
        nullable=nullable if nullable.meets(valid) else NO_VERSIONS,
        tagged=versions_of(definition.get("taggedVersions", "none")),
        tag=definition.get("tag", -1),
        default=definition.get("default"),
        is_ignorable=definition.get("ignorable", False),
        about=definition.get("about", ""),
    )


_KNOWN: Final = frozenset(
    (
        "about",
        "default",
        "entityType",
        "fields",
        "ignorable",
        "mapKey",
        "name",
        "nullableVersions",
        "tag",
        "taggedVersions",
        "type",
        "versions",
    )
)
