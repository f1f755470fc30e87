"""Statements of `common.proto` about all messages hold for all of them, so that a foreign client can rely on them
blindly."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from scripts.wire import files_of_today

PACKAGE: Final = "coordinator_api.v1"
FILES: Final = [file for file in files_of_today() if file.package == PACKAGE]
MESSAGES: Final = {message.name: message for file in FILES for message in file.message_type}
ERROR_FIELDS: Final = {"error_code": 1, "error_class": 2, "error_message": 3}
HARMLESS: Final = {
    "ERROR_CLASS_NONE",
    "ERROR_CODE_NONE",
    "COMPRESSION_NONE",
    "TIMESTAMP_TYPE_CREATE_TIME",
    "ACKNOWLEDGE_TYPE_GAP",
}
"""First values that are the usual case, so that a field left out means the right thing."""
NEVER_UNSET: Final = {"STREAMS_STATUS_CODE_STALE_TOPOLOGY"}
"""First values with Kafka's number 0, in elements of lists: a caller that means nothing sends no element."""
OF_TIME: Final = re.compile(r"(?:^|_)(?:timeout|interval|delay|duration|age|lease|wait|timestamp|throttle)$")


def numbers(message: DescriptorProto) -> Mapping[str, int]:
    return {field.name: field.number for field in message.field}


def procedures() -> Iterator[tuple[str, str, str]]:
    """Name, request and response of every procedure with one of each."""
    for file in FILES:
        for service in file.service:
            for method in service.method:
                if not method.client_streaming:
                    taken, given = (
                        name.removeprefix(f".{PACKAGE}.") for name in (method.input_type, method.output_type)
                    )
                    yield method.name, taken, given


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_generated_code_has_the_same_package_for_every_file(file: FileDescriptorProto) -> None:
    options, name = file.options, file.name.rpartition("/")[2].removesuffix(".proto")
    assert options.go_package == "github.com/txn-coordinator/txn-coordinator/proto/coordinator_api/v1;coordinatorapiv1"
    assert (options.java_package, options.java_multiple_files) == ("io.github.txn_coordinator.api.v1", True)
    assert options.java_outer_classname == f"{name.title()}Proto", "a class of the name of a message would be renamed"


def test_a_procedure_has_a_request_and_a_response_of_its_own() -> None:
    for name, taken, given in procedures():
        assert (taken, given) == (f"{name}Request", f"{name}Response")


def test_a_request_begins_with_the_header() -> None:
    for name in (*(taken for _name, taken, _given in procedures()), "SessionRequest"):
        first = MESSAGES[name].field[0]
        assert (first.number, first.name, first.type_name) == (1, "header", f".{PACKAGE}.RequestHeader"), name


def test_a_response_begins_with_what_became_of_the_request() -> None:
    for _name, _taken, given in procedures():
        assert numbers(MESSAGES[given]).items() >= (ERROR_FIELDS | {"throttle_ms": 4}).items(), given


def test_whatever_can_fail_says_so_in_the_same_three_fields() -> None:
    can_fail = [message for message in MESSAGES.values() if ERROR_FIELDS.keys() & numbers(message).keys()]
    assert len(can_fail) > 80
    assert [each.name for each in can_fail if not ERROR_FIELDS.items() <= numbers(each).items()] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_enum_that_is_not_said_means_nothing_or_the_usual_case(file: FileDescriptorProto) -> None:
    for enum in file.enum_type:
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper()
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value), enum.name
        assert enum.value[0].number == 0
        assert enum.value[0].name in HARMLESS | NEVER_UNSET | {f"{prefix}_UNSPECIFIED"}


def test_what_has_a_unit_names_it() -> None:
    fields = [(message.name, name) for message in MESSAGES.values() for name in numbers(message)]
    assert [each for each in fields if OF_TIME.search(each[1])] == []


def test_a_name_is_of_one_number_type() -> None:
    """A shard that is an int32 here and a uint32 there is two types in most languages."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for message in MESSAGES.values():
        for field in message.field:
            kind = FieldDescriptorProto.Type.Name(field.type)
            if "INT" in kind:
                kinds[field.name].add(kind)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
