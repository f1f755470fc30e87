"""Layouts: the bytes of a structure in one version. Versions with the same layout share a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.kafka_messages.definitions import FIXED, Field, Message, Structure, snake_case


@dataclass(frozen=True, slots=True)
class Place:
    """A field as it is in a layout."""

    field: Field
    is_nullable: bool
    element: Layout | None
    """Layout of the structure in the field, or of each in its array."""

    @property
    def is_fixed(self) -> bool:
        return not self.field.is_array and self.field.type in FIXED


@dataclass(frozen=True, slots=True)
class Layout:
    """A structure in some versions."""

    structure: Structure
    version: int
    """Lowest version with this layout."""
    is_flexible: bool
    places: tuple[Place, ...]
    """Fields in their order, without the tagged ones."""
    tagged: tuple[Place, ...]
    """Tagged fields by tag."""

    @property
    def function(self) -> str:
        """Return the end of the names of its functions."""
        return f"{snake_case(self.structure.name)}_{self.version}"

    @property
    def absent(self) -> Iterator[Field]:
        """Yield the fields of the structure that this layout lacks."""
        held = {place.field.name for place in (*self.places, *self.tagged)}
        return (field for field in self.structure.fields if field.name not in held)

    @property
    def bytes_min(self) -> int:
        """Return the size of the smallest value."""
        return sum(self._place_bytes_min(place) for place in self.places) + self.is_flexible

    def _place_bytes_min(self, place: Place) -> int:
        field = place.field
        if place.is_fixed:
            return FIXED[field.type][1]
        if place.element is not None and not field.is_array:
            return 1 if place.is_nullable else place.element.bytes_min
        if self.is_flexible:
            return 1
        return 2 if field.type == "string" and not field.is_array else 4


class Layouts:
    """All layouts of a message."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._found: dict[tuple[object, ...], Layout] = {}
        self.of_message = {version: self._layout(message.name, version) for version in _range(message)}
        """Layout of the message itself by version."""

    def __iter__(self) -> Iterator[Layout]:
        """Yield all layouts, each after those that it contains."""
        return iter(self._found.values())

    def _layout(self, name: str, version: int) -> Layout:
        structure = self._message.structures[name]
        is_flexible = version in self._message.flexible
        present = [field for field in structure.fields if version in field.versions]
        places = tuple(self._place(field, version) for field in present if version not in field.tagged)
        tagged = [self._place(field, version) for field in present if version in field.tagged]
        tagged.sort(key=lambda place: place.field.tag)
        key = (name, is_flexible, _key(places), _key(tagged))
        if key not in self._found:
            self._found[key] = Layout(structure, version, is_flexible, places, tuple(tagged))
        return self._found[key]

    def _place(self, field: Field, version: int) -> Place:
        element = self._layout(field.type, version) if field.is_struct else None
        return Place(field, version in field.nullable, element)


def _range(message: Message) -> range:
    return range(message.versions.lowest, message.versions.highest + 1)


def _key(places: Sequence[Place]) -> tuple[object, ...]:
    return tuple((place.field.name, place.is_nullable, place.element and place.element.function) for place in places)
