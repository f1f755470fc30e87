"""`txnctl topic add-partitions`, `alter` and `configs`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server


@pytest.fixture
def ask(txnctl: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with threaded_server(default_retention_ms=86_400_000) as address:
        monkeypatch.setenv("TXNCTL_SERVER", address)
        txnctl("topic", "create", "t", "-p", "2").well()
        yield txnctl


def settings(ask: Terminal, *words: str) -> dict[str, tuple[str, str, str]]:
    found = ask("topic", *words, "-o", "json").well().document
    return {each["name"]: (each["value"], each["origin"], each["inherited_value"]) for each in found}


def test_partitions_are_added_after_a_dry_run(ask: Terminal) -> None:
    add = ("topic", "add-partitions", "t", "-p")
    (planned,) = ask(*add, "5", "--dry-run", "-o", "json").well().document
    assert planned == {"topic": "t", "result": "would be extended", "partitions": 5, "before": 2}
    (done,) = ask(*add, "5", "-o", "json").well().document
    assert done == {"topic": "t", "result": "extended", "partitions": 5, "before": 2}
    assert len(ask("topic", "describe", "t", "-o", "json").well().document) == 5


def test_partitions_that_no_topic_can_get_are_refused(ask: Terminal) -> None:
    add = ("topic", "add-partitions", "t", "-p")
    ask(*add, "2").refused(1, "it has as many already")
    ask(*add, "1", "--dry-run").refused(1, "partitions are never taken away")
    ask(*add, "10001").refused(1, "may have up to 10000")
    ask(*add, "0").refused(2)
    ask("topic", "add-partitions", "nowhere", "-p", "3").refused(1, "there is no topic 'nowhere'")
    assert len(ask("topic", "describe", "t", "-o", "json").well().document) == 2


def test_settings_are_shown_changed_and_given_back(ask: Terminal) -> None:
    inherited = ("86400000", "server", "86400000")
    assert settings(ask, "configs", "t") == {
        "validate_payload": ("full", "default", "full"),
        "retention_ms": inherited,
        "retention_bytes": ("-1", "default", "-1"),
        "timestamp_after_max_ms": ("-1", "default", "-1"),
        "batch_bytes_max": ("1048576", "default", "1048576"),
        "cleanup_policy": ("delete", "default", "delete"),
        "min_compaction_lag_ms": ("0", "default", "0"),
        "max_compaction_lag_ms": ("-1", "default", "-1"),
        "delete_retention_ms": ("86400000", "default", "86400000"),
        "min_dirty_ratio": ("0.5", "default", "0.5"),
    }
    change = ("alter", "t", "--set", "retention_ms=2h", "--set", "validate_payload=header")
    altered = ("7200000", "topic", "86400000")
    assert settings(ask, *change, "--dry-run")["retention_ms"] == altered
    assert settings(ask, "configs", "t")["retention_ms"] == inherited
    assert settings(ask, *change)["retention_ms"] == altered
    assert settings(ask, "alter", "t", "--unset", "retention_ms")["retention_ms"] == inherited
    assert settings(ask, "configs", "t")["validate_payload"] == ("header", "topic", "full")


def test_a_topic_is_created_with_smaller_batches_and_not_with_larger_ones_than_the_servers(ask: Terminal) -> None:
    create = ("topic", "create", "small", "--batch-bytes-max")
    ask(*create, "1048577").refused(1, "the server takes batches of up to 1048576 bytes")
    ask(*create, "1000").well()
    assert settings(ask, "configs", "small")["batch_bytes_max"] == ("1000", "topic", "1048576")


def test_a_topic_is_created_with_a_cleanup_policy(ask: Terminal) -> None:
    create = ("topic", "create", "compacted", "--cleanup-policy")
    ask(*create, "none").refused(2, "'compact,delete'")
    ask(*create, "compact,delete").well()
    assert settings(ask, "configs", "compacted")["cleanup_policy"] == ("compact,delete", "topic", "delete")
    altered = settings(ask, "alter", "compacted", "--set", "cleanup_policy=compact")
    assert altered["cleanup_policy"] == ("compact", "topic", "delete")
    assert altered["retention_ms"] == ("86400000", "server", "86400000"), "shown, though it is off"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "--set NAME=VALUE or --unset NAME"),
        (("--set", "retention_ms"), 2, "write NAME=VALUE"),
        (("--set", "=5"), 2, "write NAME=VALUE"),
        (("--set", "retention_ms=5", "--set", "retention_ms=6"), 2, "names retention_ms twice"),
        (("--set", "retention_ms=soon"), 2, "or milliseconds"),
        (("--set", "retention_ms=0"), 1, "choose a whole number from 1"),
        (("--set", "retention_bytes=-7"), 1, "choose a whole number from 1"),
        (("--set", "retentions_ms=5"), 1, "did you mean retention_ms?"),
        (("--set", "retention_ms=5", "--unset", "retention_ms"), 1, "set and unset at once"),
    ],
)
def test_what_no_setting_can_be_is_refused(ask: Terminal, words: tuple[str, ...], status: int, said: str) -> None:
    ask("topic", "alter", "t", *words).refused(status, said)
    assert settings(ask, "configs", "t")["retention_ms"][1] == "server"


def test_settings_of_a_topic_that_is_not_there(ask: Terminal) -> None:
    ask("topic", "configs", "nowhere").refused(1, "there is no topic 'nowhere'")
    ask("topic", "alter", "nowhere", "--set", "retention_ms=5").refused(1, "there is no topic 'nowhere'")
