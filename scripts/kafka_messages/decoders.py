"""Source of the functions that decode a layout.

A function takes the bytes and an offset, and returns the value and the offset behind it. Neighbouring fields of fixed
size are unpacked together, with the length or the count that follows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.kafka_messages.definitions import FIXED, UnknownDefinition
from scripts.kafka_messages.layouts import Layout, Place
from scripts.kafka_messages.source import Lines, default_of, format_name, local, size_of


def write_decoder(lines: Lines, layout: Layout, data_type: str) -> None:
    """Add the function that decodes a layout."""
    name = layout.structure.name
    with lines.block(f"def _{layout.function}(data: {data_type}, at: int) -> tuple[{name}, int]:"):
        texts = [place for place in layout.places if _is_inlined_text(place)]
        if not texts:
            _write_body(lines, layout, data_type)
            return
        with lines.block("try:"):
            _write_body(lines, layout, data_type)
        with lines.block("except UnicodeDecodeError as error:"):
            where = f'"{texts[0].field.name}"' if len(texts) == 1 else "where"
            lines(f"raise not_utf8({where}, error) from None")


def _is_inlined_text(place: Place) -> bool:
    return place.field.type == "string" and not place.field.is_array


def _write_body(lines: Lines, layout: Layout, data_type: str) -> None:
    run: list[tuple[str, str]] = []
    """Variables and formats that are not yet unpacked."""
    names_texts = sum(map(_is_inlined_text, layout.places)) > 1
    for place in layout.places:
        if place.is_fixed:
            run.append((local(place.field), FIXED[place.field.type][0]))
            continue
        length = _length_format(place, is_flexible=layout.is_flexible)
        if length:
            run.append(("marker" if length == "m" else "n", "B" if length == "m" else length))
        _unpack(lines, run)
        run = []
        _write_variable(lines, place, layout, data_type, names_text=names_texts)
    if layout.is_flexible:
        run.append(("tags", "B"))
    _unpack(lines, run)
    if layout.is_flexible:
        _write_tags(lines, layout, data_type)
    lines(f"return {layout.structure.name}({', '.join(_arguments(layout))}), at")


def _length_format(place: Place, *, is_flexible: bool) -> str:
    """Return the format of what comes before the content of a field; "" if a helper reads it."""
    field = place.field
    if field.is_struct and not field.is_array:
        return "m" if place.is_nullable else ""
    if field.type == "records":
        return ""
    if is_flexible:
        return "B"
    return "h" if field.type == "string" and not field.is_array else "i"


def _unpack(lines: Lines, run: Sequence[tuple[str, str]]) -> None:
    if not run:
        return
    code = "".join(each for _name, each in run)
    names = ", ".join(name for name, _code in run)
    if code == "B":
        lines(f"{names} = data[at]")
    else:
        lines.formats.add(f"get {code}")
        lines(f"{names}{',' if len(run) == 1 else ''} = {format_name('get', code)}(data, at)")
    lines(f"at += {size_of(code)}")


def _write_variable(lines: Lines, place: Place, layout: Layout, data_type: str, *, names_text: bool) -> None:
    field, name = place.field, local(place.field)
    if field.is_array:
        _write_array(lines, place, layout)
    elif field.is_struct:
        _write_struct(lines, place)
    elif field.type == "records":
        lines(f'{name}, at = {_reader("records", place, layout)}(data, at, "{field.name}")')
    elif field.type == "string":
        if names_text:
            lines(f'where = "{field.name}"')
        content = 'str(data[at:stop], "utf-8")' if data_type == "memoryview" else "data[at:stop].decode()"
        _write_short(lines, place, layout, content)
    else:
        _write_short(lines, place, layout, "bytes(data[at:stop])" if data_type == "memoryview" else "data[at:stop]")


def _write_short(lines: Lines, place: Place, layout: Layout, content: str) -> None:
    """Add lines that take a text or bytes out of the data, `n` being its length as it came."""
    name, field = local(place.field), place.field
    if place.is_nullable:
        with lines.block(f"if n == {0 if layout.is_flexible else -1}:"):
            lines(f"{name} = None")
    word = "elif" if place.is_nullable else "if"
    if layout.is_flexible:
        with lines.block(f"{word} 0 < n < 128 and (stop := at + n - 1) <= len(data):"):
            lines(f"{name} = {content}")
            lines("at = stop")
        with lines.block("else:"):
            lines(f'{name}, at = {_reader(field.type, place, layout, is_nullable=False)}(data, at - 1, "{field.name}")')
        return
    with lines.block(f"{word} n < 0 or (stop := at + n) > len(data):"):
        lines(f'raise bad_length("{field.name}", n, len(data) - at)')
    with lines.block("else:"):
        lines(f"{name} = {content}")
        lines("at = stop")


def _reader(kind: str, place: Place, layout: Layout, *, is_nullable: bool | None = None) -> str:
    """Return the helper of `reading.py` for a text, bytes or a slice."""
    can_be_null = place.is_nullable if is_nullable is None else is_nullable
    return f"{'compact_' if layout.is_flexible else ''}{'nullable_' if can_be_null else ''}{kind}"


def _write_struct(lines: Lines, place: Place) -> None:
    name, element = local(place.field), place.element
    assert element is not None, "its field is a structure"
    if not place.is_nullable:
        lines(f"{name}, at = _{element.function}(data, at)")
        return
    with lines.block("if marker == 255:"):
        lines(f"{name} = None")
    with lines.block("elif marker == 1:"):
        lines(f"{name}, at = _{element.function}(data, at)")
    with lines.block("else:"):
        lines(f'raise bad_marker("{place.field.name}", marker)')


def _write_array(lines: Lines, place: Place, layout: Layout) -> None:
    """Add lines that take an array out of the data, `n` being its count as it came."""
    if not place.is_nullable:
        _write_items(lines, place, layout)
        return
    with lines.block(f"if n == {0 if layout.is_flexible else -1}:"):
        lines(f"{local(place.field)} = None")
    with lines.block("else:"):
        _write_items(lines, place, layout)


def _write_items(lines: Lines, place: Place, layout: Layout) -> None:
    field = place.field
    smallest = _item_bytes_min(place, layout)
    if layout.is_flexible:
        # So few items take little memory. The first that is missing ends the loop.
        with lines.block("if 0 < n < 128:"):
            lines("n -= 1")
        with lines.block("else:"):
            lines(f'n, at = compact_count(data, at - 1, {smallest}, "{field.name}")')
    else:
        with lines.block(f"if n < 0 or n * {smallest} > len(data) - at:"):
            lines(f'raise bad_count("{field.name}", n, len(data) - at)')
    name = local(field)
    if field.type in FIXED:
        code, size = FIXED[field.type]
        if code == "16s":
            raise UnknownDefinition(f"{field.name}: an array of {field.type}")
        lines(f'{name} = unpack_from(f">{{n}}{code}", data, at)')
        lines(f"at += n * {size}" if size > 1 else "at += n")
        return
    lines("items = []")
    with lines.block("for _ in range(n):"):
        if place.element is not None:
            lines(f"item, at = _{place.element.function}(data, at)")
        elif field.type == "string":
            lines(f'item, at = {"compact_" if layout.is_flexible else ""}string(data, at, "{field.name}")')
        else:
            raise UnknownDefinition(f"{field.name}: an array of {field.type}")
        lines("items.append(item)")
    lines(f"{name} = tuple(items)")


def _item_bytes_min(place: Place, layout: Layout) -> int:
    if place.element is not None:
        return place.element.bytes_min
    if place.field.type in FIXED:
        return FIXED[place.field.type][1]
    return 1 if layout.is_flexible else 2


def _write_tags(lines: Lines, layout: Layout, data_type: str) -> None:
    """Add lines that read the tagged fields; `tags` is the first byte of their count."""
    for place in layout.tagged:
        lines(f"{local(place.field)} = {default_of(place.field)}")
    with lines.block("if tags:"):
        if not layout.tagged:
            lines("at = skip_tags(data, at - 1)")
            return
        lines("n, at = unsigned_varint(data, at - 1)")
        lines("last = -1")
        with lines.block("for _ in range(n):"):
            lines("tag, at, end = tag_head(data, at, last)")
            lines("last = tag")
            for number, place in enumerate(layout.tagged):
                with lines.block(f"{'elif' if number else 'if'} tag == {place.field.tag}:"):
                    _write_tagged(lines, place, layout, data_type)
            with lines.block("else:"):
                lines("at = end")
            with lines.block("if at != end:"):
                lines("raise bad_tag_size(tag)")


def _write_tagged(lines: Lines, place: Place, layout: Layout, data_type: str) -> None:
    field, name = place.field, local(place.field)
    if place.is_fixed:
        _unpack(lines, [(name, FIXED[field.type][0])])
    elif field.type == "string" and not field.is_array:
        lines(f'{name}, at = {_reader("string", place, layout)}(data, at, "{field.name}")')
    elif field.is_struct and not field.is_array and not place.is_nullable:
        _write_struct(lines, place)
    else:
        raise UnknownDefinition(f"{field.name}: tagged {field.type} of a request")


def _arguments(layout: Layout) -> Sequence[str]:
    """Return the arguments for the constructor, without the defaults at the end."""
    present = {place.field.name for place in (*layout.places, *layout.tagged)}
    arguments = [local(field) if field.name in present else default_of(field) for field in layout.structure.fields]
    while arguments and layout.structure.fields[len(arguments) - 1].name not in present:
        arguments.pop()
    return arguments
