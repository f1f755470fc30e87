"""Checks that messages and procedures still are as promised, without a network or a compiler.

`proto/promised.txt` has a line per fact of every `.proto`. Facts are the existence of a message, the definition of a
field, and the request and response of a procedure. A fact of the file that no longer holds breaks a client of an
earlier version, or a store that it wrote. New messages, fields, values and procedures break nothing and need no line
before they are released. A field or value may be removed only if its number and its name are reserved, so that they are
never used again.

`make promise` writes the file anew. From version 1.0.0 on it refuses to remove a promise, so it is for additions only.
Before that, a breaking change may be promised, too, and its commit says why. `buf breaking` does the same, but is
available from npm only, and nothing else here needs Node. These lines compare what it calls WIRE_JSON.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from coordinator_protocol.version import BASE
from scripts.promises import keeps_promises

ROOT: Final = Path(__file__).resolve().parent.parent
PROTO_ROOT: Final = ROOT / "proto"
PROMISED: Final = PROTO_ROOT / "promised.txt"
NAMING_OPTIONS: Final = ("go_package", "java_package", "java_multiple_files", "java_outer_classname")
"""Options that define the imports of generated code. Another value breaks the source of clients, but not their
messages."""


def files_of_today() -> Iterator[FileDescriptorProto]:
    """Yield the files as the generated code describes them, which `make check` keeps up to date."""
    for path in sorted(PROTO_ROOT.rglob("*.proto")):
        name = path.relative_to(PROTO_ROOT).with_suffix("").as_posix().replace("/", ".")
        file = FileDescriptorProto()
        importlib.import_module(f"{name}_pb2").DESCRIPTOR.CopyToProto(file)
        yield file


def facts(files: Iterable[FileDescriptorProto]) -> Iterator[str]:
    """Yield one line per fact. Each begins with its subject, which tells a change from a removal."""
    for file in files:
        for option in NAMING_OPTIONS:
            if file.options.HasField(option):
                yield f"option {file.name} {option}: {getattr(file.options, option)}"
        for message in file.message_type:
            yield from _of_message(message, file.package)
        for enum in file.enum_type:
            yield from _of_enum(enum, file.package)
        for service in file.service:
            for method in service.method:
                taken = "stream " * method.client_streaming + method.input_type.lstrip(".")
                given = "stream " * method.server_streaming + method.output_type.lstrip(".")
                yield f"procedure {file.package}.{service.name}/{method.name}: {taken} -> {given}"


def _of_message(message: DescriptorProto, package: str) -> Iterator[str]:
    name = f"{package}.{message.name}"
    yield f"message {name}: is there"
    for field in message.field:
        yield f"field {name} {field.number}: {_of_field(field, message)}"
    for span in message.reserved_range:
        yield from _reserved(name, range(span.start, span.end))
    yield from _reserved(name, message.reserved_name)
    for nested in message.nested_type:
        yield from _of_message(nested, name)
    for enum in message.enum_type:
        yield from _of_enum(enum, name)


def _of_field(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    many = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    within = ""
    if field.proto3_optional:
        many = "optional "
    elif field.HasField("oneof_index"):
        within = f" in {message.oneof_decl[field.oneof_index].name}"
    return f"{many}{kind} {field.type_name.lstrip('.')}{' ' * bool(field.type_name)}{field.name}{within}"


def _of_enum(enum: EnumDescriptorProto, package: str) -> Iterator[str]:
    name = f"{package}.{enum.name}"
    yield f"enum {name}: is there"
    yield from (f"value {name} {value.number}: {value.name}" for value in enum.value)
    for span in enum.reserved_range:
        # Unlike the range of a message, that of an enum includes its last number.
        yield from _reserved(name, range(span.start, span.end + 1))
    yield from _reserved(name, enum.reserved_name)


def _reserved(owner: str, reserved: Sequence[int | str]) -> Iterator[str]:
    """Yield the reserved names or numbers; of a very long range, only the first thousand."""
    return (f"reserved {owner} {each}: for ever" for each in reserved[:1_000])


def broken(promised: Iterable[str], today: Iterable[str]) -> Sequence[str]:
    """Return the broken promises, in words."""
    now = dict(_split(fact) for fact in today)
    return [
        f"{about}: was {what!r}, and is {now.get(about, 'gone')!r}"
        for about, what in map(_split, promised)
        if now.get(about) != what and not _is_reserved(about, what, now)
    ]


def _split(fact: str) -> tuple[str, str]:
    about, _, what = fact.partition(": ")
    return about, what


def _is_reserved(about: str, what: str, now: dict[str, str]) -> bool:
    """True if the number and the name of a removed field or value are reserved."""
    kind, owner, *number = about.split(" ")
    if kind not in ("field", "value") or about in now:
        return False
    name = what.partition(" in ")[0].rpartition(" ")[2]
    return all(f"reserved {owner} {each}" in now for each in (*number, name))


def main() -> int:
    """Compare, or with `--write` promise the present facts. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare the messages of today with what was promised.")
    parser.add_argument("--write", action="store_true", help="promise what is there today")
    today = sorted(facts(files_of_today()))
    found = broken(PROMISED.read_text().splitlines(), today)
    if parser.parse_args().write and not (found and keeps_promises(BASE)):
        PROMISED.write_text("".join(f"{fact}\n" for fact in today))
        return 0
    for each in found:
        print(each, file=sys.stderr)
    if found:
        print(
            "this breaks clients or stores of before: take it back, or reserve number and name of what goes; "
            "docs/compatibility.md says what may change",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
