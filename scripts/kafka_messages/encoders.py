"""Source of the functions that encode a layout.

A function hands the pieces of a value to `add`. Neighbouring fields of fixed size are packed together, with an empty
section of tagged fields that follows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.kafka_messages.definitions import FIXED, Field, UnknownDefinition
from scripts.kafka_messages.layouts import Layout, Place
from scripts.kafka_messages.source import Lines, default_of, format_name


def write_encoder(lines: Lines, layout: Layout) -> None:
    """Add the function that encodes a layout."""
    with lines.block(f"def _{layout.function}(add: Add, value: {layout.structure.name}) -> None:"):
        for field in layout.absent:
            if not field.is_ignorable:
                with lines.block(f"if {_is_set(field)}:"):
                    lines(f'raise not_in_version("{field.name}")')
        run: list[tuple[str, str]] = []
        """Expressions and formats that are not yet packed."""
        for place in layout.places:
            if place.is_fixed:
                run.append((f"value.{place.field.name}", FIXED[place.field.type][0]))
                continue
            _pack(lines, run)
            run = []
            _write_variable(lines, place, f"value.{place.field.name}", layout)
        if layout.is_flexible and not layout.tagged:
            run.append(("", "x"))
        _pack(lines, run)
        if layout.tagged:
            _write_tags(lines, layout)
        if not (layout.places or layout.is_flexible):
            lines("return")


def _is_set(field: Field) -> str:
    """Return the condition that a field is not at its default, in the cheapest form."""
    shown, default = f"value.{field.name}", default_of(field)
    if default == "None":
        return f"{shown} is not None"
    if default in ("()", '""', 'b""', "False", "0"):
        return shown
    if default == "True":
        return f"not {shown}"
    if field.is_struct:
        return f"{shown} is not {default} and {shown} != {default}"
    return f"{shown} != {default}"


def _pack(lines: Lines, run: Sequence[tuple[str, str]]) -> None:
    code = "".join(each for _expression, each in run)
    if not code:
        return
    if code == "x":
        lines('add(b"\\0")')
        return
    lines.formats.add(f"put {code}")
    values = ", ".join(expression for expression, _code in run if expression)
    lines(f"add({format_name('put', code)}({values}))")


def _write_variable(lines: Lines, place: Place, shown: str, layout: Layout) -> None:
    field = place.field
    if field.type == "records":
        if not place.is_nullable:
            _refuse_none(lines, place, shown)
        lines(f"{'compact_' if layout.is_flexible else ''}records(add, {shown})")
        return
    can_be_none = field.nullable.highest >= 0
    if not can_be_none:
        _write_present(lines, place, shown, layout)
    elif place.is_nullable:
        with lines.block(f"if {shown} is None:"):
            lines(f"add({_null(place, layout)})")
        with lines.block("else:"):
            _write_present(lines, place, shown, layout)
    else:
        _refuse_none(lines, place, shown)
        _write_present(lines, place, shown, layout)


def _refuse_none(lines: Lines, place: Place, shown: str) -> None:
    with lines.block(f"if {shown} is None:"):
        lines(f'raise null_in_version("{place.field.name}")')


def _null(place: Place, layout: Layout) -> str:
    if place.field.is_struct and not place.field.is_array:
        return 'b"\\xff"'
    if layout.is_flexible:
        return 'b"\\0"'
    is_text = place.field.type == "string" and not place.field.is_array
    return 'b"\\xff\\xff"' if is_text else 'b"\\xff\\xff\\xff\\xff"'


def _write_present(lines: Lines, place: Place, shown: str, layout: Layout) -> None:
    """Add lines for a value that is not None."""
    field = place.field
    if field.is_array:
        _write_array(lines, place, shown, layout)
    elif place.element is not None:
        if place.is_nullable:
            lines('add(b"\\x01")')
        lines(f"_{place.element.function}(add, {shown})")
    elif layout.is_flexible:
        _write_text(lines, field.type, shown, field.name)
    elif field.type == "string":
        lines(f'add(string({shown}, "{field.name}"))')
    else:
        lines(f"add(data({shown}))")


def _write_text(lines: Lines, kind: str, shown: str, name: str) -> None:
    """Add lines for a text or bytes with a compact length."""
    lines(f"raw = {shown}.encode()" if kind == "string" else f"raw = {shown}")
    lines(f'add(COUNTS[len(raw)] + raw if len(raw) < 127 else long_{kind}(raw, "{name}"))')


def _write_array(lines: Lines, place: Place, shown: str, layout: Layout) -> None:
    field = place.field
    lines(f"items = {shown}")
    count = "COUNTS[len(items)] if len(items) < 127 else varint(len(items) + 1)"
    lines(f"add({count if layout.is_flexible else 'count(len(items))'})")
    if field.type in FIXED:
        if field.type == "uuid":
            raise UnknownDefinition(f"{field.name}: an array of {field.type}")
        lines.formats.add(f"puts {FIXED[field.type][0]}")
        lines(f"add({format_name('puts', FIXED[field.type][0])}(items))")
        return
    with lines.block("for item in items:"):
        if place.element is not None:
            lines(f"_{place.element.function}(add, item)")
        elif field.type != "string":
            raise UnknownDefinition(f"{field.name}: an array of {field.type}")
        elif layout.is_flexible:
            _write_text(lines, "string", "item", field.name)
        else:
            lines(f'add(string(item, "{field.name}"))')


def _write_tags(lines: Lines, layout: Layout) -> None:
    """Add lines for the section of tagged fields: those that are not at their default."""
    lines("tags: list[bytes] = []")
    lines("parts: list[Piece]")
    for place in layout.tagged:
        field, shown = place.field, f"value.{place.field.name}"
        with lines.block(f"if {_is_set(field)}:"):
            lines("parts = []")
            if place.is_fixed:
                code = FIXED[field.type][0]
                lines.formats.add(f"put {code}")
                lines(f"parts.append({format_name('put', code)}({shown}))")
            elif place.element is not None and not field.is_array and not place.is_nullable:
                lines(f"_{place.element.function}(parts.append, {shown})")
            elif place.element is not None and field.is_array and not place.is_nullable:
                lines(f"parts.append(varint(len({shown}) + 1))")
                with lines.block(f"for item in {shown}:"):
                    lines(f"_{place.element.function}(parts.append, item)")
            else:
                raise UnknownDefinition(f"{field.name}: tagged {field.type} of a response")
            lines(f"tags.append(tagged({field.tag}, parts))")
    lines('add(tag_section(tags) if tags else b"\\0")')
