"""The store that is kept of format 3 is opened, read and written by this program, as by every later one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_runtime.own_rows import FORMAT_VERSION_KEY, STORE_ID_KEY, WRITER_KEY, stored_number
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.store import CommitGroup, Family, StoreRefused
from tests.formats import making
from tests.harness.rocks_shelf import SHARD_COUNT
from txnctl.stopped import known_rows
from txnctl.stopped.store_verify import durable_check, verify_store

DRAWN = (STORE_ID_KEY.hex(), b"classic".hex())
"""Marks of rows that hold a drawn id: only its length is the same each time."""

SHARE_ROWS = (
    *("SHARE_GROUP_EPOCH", "SHARE_MEMBER", "SHARE_TARGET_EPOCH", "SHARE_TARGET_MEMBER"),
    *("SHARE_CURRENT_ASSIGNMENT", "SHARE_PARTITIONS", "SHARE_PARTITION"),
)
STREAMS_ROWS = (
    *("STREAMS_GROUP_EPOCH", "STREAMS_TOPOLOGY", "STREAMS_MEMBER"),
    *("STREAMS_TARGET_EPOCH", "STREAMS_TARGET_MEMBER", "STREAMS_CURRENT_ASSIGNMENT"),
)
NOT_YET = {
    known_rows.RowKind(Family.META, "features"),
    known_rows.RowKind(Family.PARTITIONS, "compaction"),
    *(known_rows.RowKind(Family.COORDINATOR_STATE, name) for name in (*SHARE_ROWS, *STREAMS_ROWS)),
}
"""The kept store is older than the first feature, than compaction, share groups and streams groups."""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The directory of the server that went through the story and stopped."""
    making.unpack(tmp_path / "kept")
    return tmp_path / "kept"


def test_its_rows_are_those_that_are_noted(kept: Path) -> None:
    assert list(making.rows(kept)) == making.ROWS.read_text().splitlines()


def test_a_server_that_starts_on_it_says_what_is_noted_and_goes_on(kept: Path) -> None:
    assert making.answers(kept) == making.ANSWERS.read_text()


def test_every_promise_of_its_rows_holds(kept: Path) -> None:
    store = open_read_only(kept)
    try:
        violations = {check.name: check.violations for check in (durable_check(store), *verify_store(store))}
    finally:
        store.close()
    assert not any(violations.values()), violations


def test_what_is_noted_of_today_may_change_and_the_kept_store_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = making.ARCHIVE.read_bytes(), making.ROWS.read_bytes()
    said = making.ANSWERS.read_text()
    for name in ("TODAY", "ANSWERS"):
        monkeypatch.setattr(making, name, tmp_path / name)
    making.ANSWERS.write_text(said)
    making.main()
    assert len(making.TODAY.read_text().splitlines()) >= len(making.ROWS.read_text().splitlines())
    assert making.ANSWERS.read_text() == said
    assert (making.ARCHIVE.read_bytes(), making.ROWS.read_bytes()) == before


def test_it_has_rows_of_every_kind(kept: Path) -> None:
    store = open_read_only(kept)
    try:
        keys = [(family, key) for family in Family for key, _value in store.scan(family, b"", b"\xff" * 24)]
    finally:
        store.close()
    found = {known_rows.kind_of(*each) for each in keys}
    assert None not in found
    assert known_rows.KINDS - found == NOT_YET


def test_the_same_story_leaves_the_same_rows_today(tmp_path: Path) -> None:
    """The stored form has changed where this fails. If rows or fields were added, and older ones are still read:
    `make stored-format`, read the difference, and say in the commit why."""
    making.make(tmp_path / "made")
    assert list(map(_form, making.rows(tmp_path / "made"))) == list(map(_form, making.TODAY.read_text().splitlines()))


def _form(row: str) -> str:
    family, key, value = row.split(" ", 2)
    if key == WRITER_KEY.hex():
        # The version of the program, which every release changes.
        return f"{family} {key}"
    return f"{family} {key} {len(value)}" if any(mark in key + value for mark in DRAWN) else row


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "has format 1, which no release ever wrote and this program cannot read: begin with an empty directory"),
        (2, "has format 2, which no release ever wrote and this program cannot read: begin with an empty directory"),
        (4, "has format 4, this program knows formats up to 3: use the version that wrote it, or a later one"),
    ],
)
def test_no_other_format_is_opened(kept: Path, number: int, words: str) -> None:
    store = open_store(kept, shard_count=SHARD_COUNT)
    row = (Family.META, FORMAT_VERSION_KEY, stored_number(number))
    store.write([CommitGroup(store.version() + 1, [row])])
    store.close()
    for open_it in (lambda: open_store(kept, shard_count=SHARD_COUNT), lambda: open_read_only(kept)):
        with pytest.raises(StoreRefused, match=words):
            open_it()
