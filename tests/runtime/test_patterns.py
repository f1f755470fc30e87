"""Patterns that callers send."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.patterns import PATTERN_LENGTH_MAX, Pattern


@pytest.mark.parametrize(
    ("pattern", "text", "is_matched"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders.*", "orders-2", True),
        (".*", "", True),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("ä+", "ää", True),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, text: str, is_matched: bool) -> None:
    assert Pattern(pattern).matches(text) is is_matched


@pytest.mark.parametrize("pattern", ["(", "a**", r"(a)\1", "(?=a)", "a{1001}", "a" * (PATTERN_LENGTH_MAX + 1)])
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(Refused, match="pattern") as refused:
        Pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_can_keep_the_engine_busy() -> None:
    assert not Pattern("(a*)*b").matches("a" * 10_000)
