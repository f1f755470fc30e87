"""Changes that break an earlier client or store are refused, and those that only add are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileOptions,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)

from scripts import wire
from scripts.promises import keeps_promises

Field = FieldDescriptorProto


def file() -> FileDescriptorProto:
    """One of everything."""
    fields = [
        Field(name="id", number=1, type=Field.TYPE_STRING),
        Field(
            name="age", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL, oneof_index=1, proto3_optional=True
        ),
        Field(name="cash", number=3, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, oneof_index=0),
        Field(name="kind", number=4, type=Field.TYPE_ENUM, type_name=".p.Kind", label=Field.LABEL_REPEATED),
    ]
    values = [EnumValueDescriptorProto(name="NONE", number=0), EnumValueDescriptorProto(name="CASH", number=1)]
    kind = EnumDescriptorProto(name="Kind", value=values)
    kind.reserved_range.add(start=7, end=7)
    inner = DescriptorProto(name="Inner", field=[Field(name="x", number=1, type=Field.TYPE_BOOL)])
    order = DescriptorProto(
        name="Order",
        field=fields,
        nested_type=[inner],
        oneof_decl=[OneofDescriptorProto(name="paid"), OneofDescriptorProto(name="_age")],
        reserved_name=["old"],
    )
    order.reserved_range.add(start=8, end=10)
    method = MethodDescriptorProto(name="Buy", input_type=".p.Order", output_type=".p.Order", server_streaming=True)
    return FileDescriptorProto(
        name="p/shop.proto",
        options=FileOptions(go_package="example.com/p"),
        package="p",
        message_type=[order],
        enum_type=[kind],
        service=[ServiceDescriptorProto(name="Shop", method=[method])],
    )


def complaints(change: Callable[[FileDescriptorProto], object]) -> Sequence[str]:
    changed = file()
    change(changed)
    return wire.broken(wire.facts([file()]), wire.facts([changed]))


def reserve_cash(changed: FileDescriptorProto) -> None:
    order = changed.message_type[0]
    del order.field[2]
    order.reserved_range.add(start=3, end=4)
    order.reserved_name.append("cash")


def reserve_value(changed: FileDescriptorProto) -> None:
    kind = changed.enum_type[0]
    del kind.value[1]
    kind.reserved_range.add(start=1, end=1)
    kind.reserved_name.append("CASH")


@pytest.mark.parametrize(
    "change",
    [
        lambda changed: changed.message_type[0].field.add(name="new", number=5, type=Field.TYPE_STRING),
        lambda changed: changed.message_type.add(name="New"),
        lambda changed: changed.enum_type[0].value.add(name="CARD", number=2),
        lambda changed: changed.service[0].method.add(name="Sell", input_type=".p.Order", output_type=".p.Order"),
        lambda changed: changed.message_type[0].reserved_name.append("more"),
        reserve_cash,
        reserve_value,
    ],
)
def test_what_only_adds_is_taken(change: Callable[[FileDescriptorProto], object]) -> None:
    assert complaints(change) == []


def number_only(changed: FileDescriptorProto) -> None:
    reserve_cash(changed)
    del changed.message_type[0].reserved_name[-1]


def name_only(changed: FileDescriptorProto) -> None:
    reserve_cash(changed)
    del changed.message_type[0].reserved_range[-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda changed: changed.options.ClearField("go_package"), "p/shop.proto go_package: was 'example.com/p'"),
        (lambda changed: changed.message_type.pop(), "message p.Order: was 'is there', and is 'gone'"),
        (lambda changed: changed.message_type[0].nested_type.pop(), "message p.Order.Inner: was"),
        (lambda changed: changed.message_type[0].field.pop(0), "field p.Order 1: was 'string id', and is 'gone'"),
        (number_only, "field p.Order 3: was 'int32 cash in paid', and is 'gone'"),
        (name_only, "field p.Order 3: was"),
        (lambda changed: setattr(changed.message_type[0].field[0], "name", "key"), "and is 'string key'"),
        (lambda changed: setattr(changed.message_type[0].field[0], "number", 6), "field p.Order 1: was"),
        (lambda changed: setattr(changed.message_type[0].field[0], "type", Field.TYPE_BYTES), "and is 'bytes id'"),
        (
            lambda changed: setattr(changed.message_type[0].field[0], "label", Field.LABEL_REPEATED),
            "repeated string id",
        ),
        (lambda changed: setattr(changed.message_type[0].field[0], "oneof_index", 0), "string id in paid"),
        (lambda changed: changed.message_type[0].field[2].ClearField("oneof_index"), "and is 'int32 cash'"),
        (lambda changed: setattr(changed.message_type[0].field[1], "proto3_optional", False), "field p.Order 2: was"),
        (
            lambda changed: setattr(changed.message_type[0].field[3], "type_name", ".p.Sort"),
            "repeated enum p.Sort kind",
        ),
        (lambda changed: changed.message_type[0].reserved_name.pop(), "reserved p.Order old: was"),
        (lambda changed: changed.message_type[0].reserved_range.pop(), "reserved p.Order 9: was"),
        (lambda changed: changed.enum_type.pop(), "enum p.Kind: was"),
        (lambda changed: changed.enum_type[0].value.pop(), "value p.Kind 1: was 'CASH', and is 'gone'"),
        (lambda changed: setattr(changed.enum_type[0].value[1], "name", "CARD"), "and is 'CARD'"),
        (lambda changed: changed.enum_type[0].reserved_range.pop(), "reserved p.Kind 7: was"),
        (lambda changed: changed.service[0].method.pop(), "procedure p.Shop/Buy: was"),
        (
            lambda changed: setattr(changed.service[0].method[0], "output_type", ".p.Other"),
            "and is 'p.Order -> stream p.Other",
        ),
        (lambda changed: setattr(changed.service[0].method[0], "client_streaming", True), "and is 'stream p.Order -> "),
    ],
)
def test_a_breaking_change_is_refused(change: Callable[[FileDescriptorProto], object], said: str) -> None:
    assert said in "\n".join(complaints(change))


def test_the_messages_of_today_are_what_was_promised() -> None:
    promised = wire.PROMISED.read_text().splitlines()
    assert promised == sorted(promised)
    assert wire.broken(promised, wire.facts(wire.files_of_today())) == []


def test_every_message_and_procedure_is_compared() -> None:
    """A file without readers could change freely."""
    names = {file.name for file in wire.files_of_today()}
    assert names == {path.relative_to(wire.PROTO_ROOT).as_posix() for path in wire.PROTO_ROOT.rglob("*.proto")}
    assert any("storage.v1" in fact for fact in wire.facts(wire.files_of_today()))


@pytest.mark.parametrize(("version", "status"), [("0.1.0", 0), ("0.12.3", 0), ("1.0.0", 1), ("2.3.4", 1)])
def test_from_version_1_on_what_breaks_is_not_promised(
    version: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = file()
    del today.message_type[0].field[0]
    promised = tmp_path / "promised.txt"
    before = "".join(f"{fact}\n" for fact in wire.facts([file()]))
    promised.write_text(before)
    monkeypatch.setattr(wire, "PROMISED", promised)
    monkeypatch.setattr(wire, "BASE", version)
    monkeypatch.setattr(wire, "files_of_today", lambda: [today])
    monkeypatch.setattr(sys, "argv", ["wire", "--write"])
    assert wire.main() == status
    assert (promised.read_text() == before) is (status == 1)


def test_additions_are_promised_in_every_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = file()
    today.message_type.add(name="New")
    promised = tmp_path / "promised.txt"
    promised.write_text("".join(f"{fact}\n" for fact in wire.facts([file()])))
    monkeypatch.setattr(wire, "PROMISED", promised)
    monkeypatch.setattr(wire, "BASE", "1.2.0")
    monkeypatch.setattr(wire, "files_of_today", lambda: [today])
    monkeypatch.setattr(sys, "argv", ["wire", "--write"])
    assert wire.main() == 0
    assert "message p.New: is there" in promised.read_text()


def test_the_first_version_that_keeps_promises_is_1_0_0() -> None:
    assert [keeps_promises(each) for each in ("0.1.0", "0.99.0", "1.0.0", "10.0.0")] == [False, False, True, True]
