"""Ids and names: what users may call their things."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import (
    check_client_id,
    check_group_id,
    check_partition,
    check_partitions,
    check_topic_name,
    check_transactional_id,
)

INVALID_REQUEST, INVALID_GROUP_ID, INVALID_TOPIC = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
CHECKS_OF_IDS = [
    (check_transactional_id, INVALID_REQUEST),
    (check_client_id, INVALID_REQUEST),
    (check_group_id, INVALID_GROUP_ID),
]


def refusal_of(check: Callable[[str], None], text: str) -> Refused:
    with pytest.raises(Refused) as refusal:
        check(text)
    return refusal.value


@pytest.mark.parametrize(("check", "code"), CHECKS_OF_IDS)
def test_an_id_has_no_nul_in_it(check: Callable[[str], None], code: ErrorCode) -> None:
    refusal = refusal_of(check, "a\0b")
    assert refusal.code is code
    assert "NUL" in refusal.message


@pytest.mark.parametrize(("check", "code"), CHECKS_OF_IDS)
def test_an_id_is_bounded_in_bytes_not_in_characters(check: Callable[[str], None], code: ErrorCode) -> None:
    check("x" * 1000)
    check("é" * 500)
    assert refusal_of(check, "x" * 1001).code is code
    assert refusal_of(check, "é" * 501).code is code
    assert "1002 bytes" in refusal_of(check, "é" * 501).message


@pytest.mark.parametrize(("check", "code"), CHECKS_OF_IDS)
def test_half_a_character_is_no_id(check: Callable[[str], None], code: ErrorCode) -> None:
    assert refusal_of(check, "a\ud83d").code is code


def test_a_transactional_id_or_group_id_is_not_empty_and_a_client_id_may_be() -> None:
    assert refusal_of(check_transactional_id, "").code is INVALID_REQUEST
    assert refusal_of(check_group_id, "").code is INVALID_GROUP_ID
    check_client_id("")


@pytest.mark.parametrize("text", ["__", "__member/sink/1", "__é"])
def test_transactional_ids_with_two_underscores_belong_to_the_system(text: str) -> None:
    refusal = refusal_of(check_transactional_id, text)
    assert refusal.code is INVALID_REQUEST
    assert "is reserved: ids that start with __ belong to the system; choose another" in refusal.message
    check_transactional_id(f"_{text[2:]}")
    check_group_id(text)


@given(st.text(min_size=1, max_size=250).filter(lambda text: "\0" not in text and not text.startswith("__")))
def test_any_short_text_without_nul_is_an_id(text: str) -> None:
    for check, _ in CHECKS_OF_IDS:
        check(text)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."}))
def test_kafkas_characters_make_a_topic_name(name: str) -> None:
    check_topic_name(name, reserved_allowed=True)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a\n", "a\0", "x" * 250])
def test_other_names_are_refused_even_for_the_system(name: str) -> None:
    assert refusal_of(check_topic_name, name).code is INVALID_TOPIC
    assert refusal_of(lambda text: check_topic_name(text, reserved_allowed=True), name).code is INVALID_TOPIC


def test_names_with_two_underscores_in_front_belong_to_the_system() -> None:
    check_topic_name("_one")
    check_topic_name("__state", reserved_allowed=True)
    refusal = refusal_of(check_topic_name, "__state")
    assert refusal.code is INVALID_TOPIC
    assert "reserved" in refusal.message


def test_a_hostile_name_is_shown_tame() -> None:
    message = refusal_of(check_topic_name, "\x1b[2J" + "x" * 10_000).message
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([("t", b"", -1)], "partition -1 of topic 't'"),
        ([("", b"", 0)], "without a topic"),
        ([("t", b"abc", 0)], "has 3 bytes"),
        ([("t", b"", 4), ("t", b"", 4)], "partition 4 of topic 't' is named twice"),
    ],
)
def test_partitions_that_are_named_wrongly_are_refused(names: list[tuple[str, bytes, int]], said: str) -> None:
    with pytest.raises(Refused, match=said) as refusal:
        check_partitions(names)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_hostile_name_of_a_partition_is_quoted_and_cut_in_the_message() -> None:
    with pytest.raises(Refused) as refusal:
        check_partition("\x1b[31m" + "x" * 5000, b"", -1)
    assert "\x1b" not in refusal.value.message
    assert len(refusal.value.message) < 200
