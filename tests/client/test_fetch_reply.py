"""Answers to Fetch: what protobuf would say, without its copies."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.fetch_reply import parse_fetch_reply

PAYLOADS = [b"", b"a", b"b" * 200, b"c" * 20_000]


def answer() -> log.FetchResponse:
    response = log.FetchResponse(throttle_ms=3)
    response.results.add(topic="empty", error_code=3, error_message="no such topic")
    full = response.results.add(topic="full", partition=2, next_offset=40, aborted_records_hidden=5)
    for number, payload in enumerate(PAYLOADS):
        full.batches.add(base_offset=10 * number, record_count=10, crc32c=number, payload=payload)
    return response


def test_an_answer_says_what_the_message_says() -> None:
    response = answer()
    reply = parse_fetch_reply(response.SerializeToString())
    assert (reply.error_code, reply.throttle_ms) == (0, 3)
    for found, sent in zip(reply.results, response.results, strict=True):
        assert [batch.payload for batch in found.batches] == [batch.payload for batch in sent.batches]
        assert [batch.fields.crc32c for batch in found.batches] == [batch.crc32c for batch in sent.batches]
        del sent.batches[:]
        assert found.fields == sent


def test_an_error_of_the_whole_has_its_fields() -> None:
    sent = log.FetchResponse(error_code=7, error_class=2, error_message="busy", throttle_ms=50)
    reply = parse_fetch_reply(sent.SerializeToString())
    assert (reply.error_code, reply.error_class, reply.error_message, reply.throttle_ms) == (7, 2, "busy", 50)
    assert reply.results == []


def test_a_payload_is_a_view_of_the_answer_until_it_is_kept() -> None:
    body = answer().SerializeToString()
    for given in (body, memoryview(body)):
        batch = parse_fetch_reply(given).results[1].batches[-1]
        assert isinstance(batch.payload, memoryview)
        assert batch.payload.obj is body
    kept = batch.kept()
    assert kept.payload == PAYLOADS[-1]
    assert isinstance(kept.payload, bytes)


@pytest.mark.parametrize("cut", [1, 100, 20_000])
def test_a_damaged_answer_is_refused(cut: int) -> None:
    body = answer().SerializeToString()[:-cut]
    for given in (body, memoryview(body)):
        with pytest.raises(DecodeError):
            parse_fetch_reply(given)
