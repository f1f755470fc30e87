"""Answers to Fetch as the transport takes them: as bytes, or in the pieces that they are made of."""

from __future__ import annotations

import pytest

from coordinator_client.fetch_reply import parse_fetch_reply
from coordinator_protocol.wire import Pieces
from coordinator_server.grpc_front.wire.log.fetch_edge import PAYLOAD_BYTES_MIN, FetchAnswer
from partition_log.requests import FetchResult
from tests.log.driven_log import Batch, DrivenLog

LARGE = 3 * PAYLOAD_BYTES_MIN


def answers(sizes: list[int]) -> tuple[FetchResult, bytes | Pieces, bytes]:
    """Return the batches found, with payloads of these sizes, and the answer for clients that take pieces and for
    others."""
    driven = DrivenLog()
    driven.create()
    for number, size in enumerate(sizes):
        driven.append(Batch(payload=bytes([number]) * size))
    found = driven.read()
    assert len(found.batches) == len(sizes)
    whole = FetchAnswer([found]).SerializeToString()
    assert isinstance(whole, bytes)
    return found, FetchAnswer([found]).in_pieces(), whole


@pytest.mark.parametrize("sizes", [[LARGE], [LARGE] * 3, [LARGE * 3, 1]])
def test_large_batches_are_pieces_of_what_the_store_gave_and_the_same_answer(sizes: list[int]) -> None:
    found, answer, whole = answers(sizes)
    assert isinstance(answer, Pieces)
    assert b"".join(answer.parts) == whole
    assert len(answer) == len(whole)
    stored = [memoryview(encoded).obj for _header, encoded in found.batches]
    shown = [part.obj for part in answer.parts if isinstance(part, memoryview)]
    assert all(one is other for one, other in zip(shown, stored, strict=True))
    payloads = [bytes(batch.payload) for batch in parse_fetch_reply(whole).results[0].batches]
    assert payloads == [bytes([number]) * size for number, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [[], [1], [PAYLOAD_BYTES_MIN // 2], [LARGE, 1, 1, 1, 1]])
def test_an_answer_of_small_pieces_is_joined(sizes: list[int]) -> None:
    _found, answer, whole = answers(sizes)
    assert answer == whole


def test_batches_of_all_partitions_count_for_whether_pieces_pay() -> None:
    small, large = answers([1, 1, 1, 1])[0], answers([LARGE])[0]
    for found in ([small, large], [large, small]):
        assert FetchAnswer(found).in_pieces() == FetchAnswer(found).SerializeToString()
    both = FetchAnswer([large, large]).in_pieces()
    assert isinstance(both, Pieces)
    assert b"".join(both.parts) == FetchAnswer([large, large]).SerializeToString()


def test_what_follows_a_message_in_pieces_is_part_of_it() -> None:
    _found, answer, whole = answers([LARGE])
    assert isinstance(answer, Pieces)
    longer = answer + b"more"
    assert b"".join(longer.parts) == whole + b"more"
    assert len(longer) == len(whole) + 4
    assert (b"".join(answer.parts), len(answer)) == (whole, len(whole)), "which stays as it was"
