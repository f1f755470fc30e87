"""The durable mark survives a torn write, and says so when it cannot be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_runtime.rocks.durable_mark import DurableMark, Marked, read_mark
from coordinator_runtime.store import StoreRefused

SLOTS = (0, 4096)


def marked(path: Path, *versions: int) -> None:
    mark = DurableMark(path)
    for version in versions:
        mark.write(Marked(version))
    mark.close()
    mark.close()


def damage(path: Path, offset: int) -> None:
    stored = bytearray(path.read_bytes())
    stored[offset + 12] ^= 0x01
    path.write_bytes(stored)


def slot_written_last(path: Path, *versions: int) -> int:
    """Return the place of the newest slot: damaging that one brings the version before it back."""
    for offset in SLOTS:
        marked(path, *versions)
        damage(path, offset)
        if read_mark(path).version == versions[-2]:
            return offset
        path.unlink()
    raise AssertionError("neither slot was the newest")


@pytest.mark.parametrize("versions", [(1,), (1, 2), (1, 2, 3), (1, 5, 9, 1_000_000_000_000)])
def test_the_newest_version_is_read_back(tmp_path: Path, versions: tuple[int, ...]) -> None:
    path = tmp_path / "mark"
    marked(path, *versions)
    assert read_mark(path).version == versions[-1]


def test_writing_goes_on_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    for version in range(1, 6):
        marked(path, version)
        assert read_mark(path).version == version


def test_the_version_may_go_back_when_a_loss_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    marked(path, 100, 101, 40)
    assert read_mark(path).version == 40


def test_a_torn_write_leaves_the_version_before_it(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    slot_written_last(path, 7, 8)
    assert read_mark(path).version == 7
    marked(path, 9)
    assert read_mark(path).version == 9


@pytest.mark.parametrize("stored", [b"", b"\x00" * 5000, b"\xff" * 5000, b"TXDM"])
def test_a_file_without_a_valid_slot_is_refused_and_usable_again_once_written(tmp_path: Path, stored: bytes) -> None:
    path = tmp_path / "mark"
    path.write_bytes(stored)
    with pytest.raises(StoreRefused, match="has no valid slot left"):
        read_mark(path)
    marked(path, 3)
    assert read_mark(path).version == 3


def test_two_damaged_slots_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    marked(path, 1, 2)
    for offset in SLOTS:
        damage(path, offset)
    with pytest.raises(StoreRefused, match="has no valid slot left"):
        read_mark(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="is missing"):
        read_mark(tmp_path / "mark")
