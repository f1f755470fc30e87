"""Headers of requests and responses, by the bytes that Kafka's clients send."""

from __future__ import annotations

import pytest

from coordinator_server.kafka_front.headers import (
    RequestHeader,
    request_header,
    request_start,
    response_header,
)
from coordinator_server.kafka_front.malformed import Malformed

START = bytes.fromhex("0000000900000007")


def test_a_header_ends_where_the_body_begins() -> None:
    header, body = request_header(memoryview(START + b"\x00\x03abcBODY"), is_flexible=False)
    assert header == RequestHeader(api_key=0, api_version=9, correlation_id=7, client_id="abc")
    assert bytes(body) == b"BODY"


def test_a_flexible_header_has_tagged_fields_after_the_same_client_id() -> None:
    header, body = request_header(memoryview(START + b"\x00\x03abc\x01\x05\x02xyBODY"), is_flexible=True)
    assert (header.client_id, bytes(body)) == ("abc", b"BODY")


def test_a_client_need_not_say_who_it_is() -> None:
    assert request_header(memoryview(START + b"\xff\xff"), is_flexible=False)[0].client_id is None


def test_the_beginning_is_readable_without_the_rest() -> None:
    assert request_start(memoryview(START)) == (0, 9, 7)


@pytest.mark.parametrize(
    ("frame", "is_flexible", "said"),
    [
        (b"\0\0\0", False, "no room for a header"),
        (START, False, "ends within its header"),
        (START + b"\0\0", True, "ends within its header"),
        (START + b"\xff\xfe", False, "client_id: a length of -2 bytes"),
        (START + b"\0\x05abc", False, "client_id: a length of 5 bytes, with 3 left"),
        (START + b"\0\x01\xff", False, "client_id: text that is not UTF-8"),
        (START + b"\0\0\x02\x01\0\x01\0", True, "tag 1 of a field follows tag 1"),
    ],
)
def test_a_broken_header_is_refused_with_the_reason(frame: bytes, is_flexible: bool, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        request_header(memoryview(frame), is_flexible=is_flexible)


def test_a_response_begins_with_the_number_of_its_request() -> None:
    assert response_header(7, is_flexible=False) == b"\0\0\0\x07"
    assert response_header(7, is_flexible=True) == b"\0\0\0\x07\0"
