"""Backups of a store: what is in one, what is refused, and that nothing half is ever left."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from coordinator_runtime import backups
from coordinator_runtime.backups import (
    BackupRefused,
    Manifest,
    Restored,
    StoredBackup,
    backups_in,
    create_backup,
    create_backup_of_stopped,
    prune,
    verify_backup,
)
from coordinator_runtime.backups.files import CopyProgress
from coordinator_runtime.backups.manifest import read_manifest
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.rocks import RocksStore, StoreOptions, open_read_only, open_store
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.store import CommitGroup, Family, StoreRefused, StoreUnreadable
from partition_log.codec import log_key
from tests.harness.manual_clock import ManualClock

SHARDS = 8
OPTIONS = StoreOptions(segments=SegmentOptions(value_bytes_min=1_000, segment_bytes_max=5_000))
FAMILIES = [family for family in Family if family not in (Family.META, Family.LOG)]
START_MS = 1_790_000_000_000

random_bytes = Random(21).randbytes


class BackedUpStore:
    """A store that is open, and a directory for its backups."""

    def __init__(self, path: Path) -> None:
        self.data_dir = path / "data"
        self.shelf = path / "backups"
        self.clock = ManualClock(wall_ms=START_MS)
        self.store = self.opened()

    def opened(self) -> RocksStore:
        return open_store(self.data_dir, shard_count=SHARDS, options=OPTIONS)

    def write(self, count: int = 20, *, size: int = 100) -> None:
        """Groups that put their version into every family, and values that lie in segments into the log."""
        for version in range(self.store.version() + 1, self.store.version() + count + 1):
            row = version.to_bytes(8, "big")
            rows = [(family, row, row * 10) for family in FAMILIES]
            value = b"\0" + random_bytes(size)
            self.store.write([CommitGroup(version, [*rows, (Family.LOG, log_key(1, version), value)], size_bytes=size)])
        self.store.sync()

    def back_up(self, *, is_independent: bool = False, progress: CopyProgress | None = None) -> Manifest:
        self.clock.advance(1_000)
        checkpoint = self.store.checkpoint()
        try:
            return create_backup(
                checkpoint,
                self.shelf,
                now_ms=self.clock.wall_ms(),
                is_independent=is_independent,
                progress=progress,
            )
        finally:
            checkpoint.remove()

    def restore(self, manifest: Manifest, target: Path, **more: object) -> Restored:
        self.clock.advance(1_000)
        return backups.restore(
            self.shelf / manifest.name,
            target,
            clock=self.clock,
            pause=self.clock.advance,
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture
def backed_up(tmp_path: Path) -> Iterator[BackedUpStore]:
    backed_up = BackedUpStore(tmp_path)
    yield backed_up
    backed_up.store.close()


def rows_in(directory: Path) -> dict[Family, list[tuple[bytes, bytes]]]:
    store = open_read_only(directory)
    try:
        return {family: [*store.scan(family, b"", b"\xff" * 20)] for family in Family if family is not Family.META}
    finally:
        store.close()


def rows_of(store: RocksStore) -> dict[Family, list[tuple[bytes, bytes]]]:
    return {family: [*store.scan(family, b"", b"\xff" * 20)] for family in Family if family is not Family.META}


def content(directory: Path) -> dict[str, bytes]:
    if not directory.exists():
        return {}
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def flip_bit(path: Path) -> None:
    """Damage a file, and not what it is a link to."""
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.unlink()
    path.write_bytes(stored)


def test_a_backup_holds_every_row_of_its_version_and_nothing_later(backed_up: BackedUpStore, tmp_path: Path) -> None:
    backed_up.write(size=2_000)
    rows, version = rows_of(backed_up.store), backed_up.store.version()
    manifest = backed_up.back_up()
    backed_up.write(size=2_000)
    assert manifest.version == version
    assert verify_backup(backed_up.shelf / manifest.name) == (manifest, [])
    backed_up.restore(manifest, tmp_path / "restored")
    assert rows_in(tmp_path / "restored") == rows
    assert rows_of(backed_up.store) != rows


def test_writes_go_on_while_backups_are_made_and_each_is_of_one_version(
    backed_up: BackedUpStore, tmp_path: Path
) -> None:
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            backed_up.write(5, size=1_500)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [backed_up.back_up() for _ in range(4)]
    finally:
        is_over.set()
        writer.join()
    versions = [manifest.version for manifest in made]
    assert versions == sorted(versions)
    rows = rows_of(backed_up.store)
    for number, manifest in enumerate(made):
        target = tmp_path / f"restored{number}"
        backed_up.restore(manifest, target)
        for family, kept in rows_in(target).items():
            assert kept == [row for row in rows[family] if int.from_bytes(row[0][-8:], "big") <= manifest.version]


def test_a_restored_store_is_in_a_line_of_its_own(backed_up: BackedUpStore, tmp_path: Path) -> None:
    backed_up.write()
    manifest = backed_up.back_up()
    first = backed_up.restore(manifest, tmp_path / "first")
    second = backed_up.restore(manifest, tmp_path / "second")
    assert second.incarnation.number > first.incarnation.number > backed_up.store.incarnation.number
    for name, restored in (("first", first), ("second", second)):
        store = open_store(tmp_path / name, shard_count=SHARDS)
        assert store.incarnation == restored.incarnation
        assert store.incarnation.cause is IncarnationCause.RESTORE
        assert store.version() == manifest.version
        store.close()


def test_two_restores_in_the_same_second_begin_lines_with_different_numbers(
    backed_up: BackedUpStore, tmp_path: Path
) -> None:
    manifest = backed_up.back_up()
    numbers = []
    for each in "abc":
        # Without the clock of this machine going on by itself: only the restore lets time pass.
        restored = backups.restore(
            backed_up.shelf / manifest.name, tmp_path / each, clock=backed_up.clock, pause=backed_up.clock.advance
        )
        numbers.append(restored.incarnation.number)
    assert numbers == sorted({*numbers})


def test_a_backup_of_a_restored_store_restores_to_a_later_line(backed_up: BackedUpStore, tmp_path: Path) -> None:
    first = backed_up.restore(backed_up.back_up(), tmp_path / "first")
    again = create_backup_of_stopped(tmp_path / "first", backed_up.shelf, now_ms=backed_up.clock.wall_ms())
    assert again.incarnation == first.incarnation.number
    second = backups.restore(
        backed_up.shelf / again.name, tmp_path / "second", clock=backed_up.clock, pause=backed_up.clock.advance
    )
    assert second.incarnation.number > first.incarnation.number


def test_the_directory_of_a_stopped_server_is_backed_up_as_it_lies(backed_up: BackedUpStore, tmp_path: Path) -> None:
    backed_up.write(size=2_000)
    rows = rows_of(backed_up.store)
    backed_up.store.close()
    manifest = create_backup_of_stopped(backed_up.data_dir, backed_up.shelf, now_ms=backed_up.clock.wall_ms())
    backed_up.restore(manifest, tmp_path / "restored")
    assert rows_in(tmp_path / "restored") == rows


def test_the_directory_of_a_running_server_is_not_taken_for_a_stopped_one(backed_up: BackedUpStore) -> None:
    with pytest.raises(BackupRefused, match="stop it first"):
        create_backup_of_stopped(backed_up.data_dir, backed_up.shelf, now_ms=0)
    assert not backed_up.shelf.exists()


def test_a_store_that_lost_something_is_not_backed_up(backed_up: BackedUpStore) -> None:
    backed_up.write(size=2_000)
    backed_up.store.close()
    next((backed_up.data_dir / "segments").iterdir()).unlink()
    with pytest.raises(BackupRefused, match=r"segment is missing"):
        create_backup_of_stopped(backed_up.data_dir, backed_up.shelf, now_ms=0)


def test_files_that_the_last_backup_has_are_linked(backed_up: BackedUpStore) -> None:
    backed_up.write(size=2_000)
    first = backed_up.back_up()
    backed_up.write(2, size=2_000)
    second = backed_up.back_up()
    names = {file.path for file in first.files} & {file.path for file in second.files}
    lasting = {name for name in names if name.endswith((".sst", ".segment"))}
    assert lasting
    for name in lasting:
        assert (backed_up.shelf / first.name / name).samefile(backed_up.shelf / second.name / name)


def test_an_independent_backup_shares_no_file(backed_up: BackedUpStore) -> None:
    backed_up.write(size=2_000)
    backed_up.back_up()
    manifest = backed_up.back_up(is_independent=True)
    assert all((backed_up.shelf / manifest.name / file.path).stat().st_nlink == 1 for file in manifest.files)


def test_where_nothing_can_be_linked_files_are_copied_once(
    backed_up: BackedUpStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is so on another file system: no link to the store is possible there, but links among the backups are."""
    link, linked = os.link, []

    def link_on_one_disk(source: Path, target: Path) -> None:
        if backed_up.data_dir in Path(source).parents and backed_up.data_dir not in Path(target).parents:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        linked.append(Path(target).name)
        link(source, target)

    monkeypatch.setattr(os, "link", link_on_one_disk)
    backed_up.write(size=2_000)
    first = backed_up.back_up()
    linked.clear()
    second = backed_up.back_up()
    assert verify_backup(backed_up.shelf / first.name)[1] == verify_backup(backed_up.shelf / second.name)[1] == []
    large = {Path(file.path).name for file in first.files if file.path.endswith((".sst", ".segment"))}
    assert large <= {*linked}


def test_every_flipped_bit_is_noticed_and_restores_nothing(backed_up: BackedUpStore, tmp_path: Path) -> None:
    backed_up.write(size=2_000)
    manifest = backed_up.back_up(is_independent=True)
    whole = backed_up.shelf / manifest.name
    for number, name in enumerate(content(whole)):
        damaged = backed_up.shelf / f"damaged{number}"
        shutil.copytree(whole, damaged)
        if not (damaged / name).stat().st_size:
            continue
        flip_bit(damaged / name)
        target = tmp_path / f"restored{number}"
        if name.startswith("manifest"):
            with pytest.raises(BackupRefused, match="is damaged"):
                verify_backup(damaged)
        else:
            assert verify_backup(damaged)[1] == [f"{name} is damaged: its checksum is not that in the manifest"]
        with pytest.raises(BackupRefused, match="damaged"):
            backups.restore(damaged, target, clock=backed_up.clock, pause=backed_up.clock.advance)
        assert not target.exists()


def test_missing_cut_and_foreign_files_are_noticed(backed_up: BackedUpStore, tmp_path: Path) -> None:
    backed_up.write(size=2_000)
    manifest = backed_up.back_up(is_independent=True)
    backup = backed_up.shelf / manifest.name
    segment = next(file.path for file in manifest.files if file.path.endswith(".segment"))

    def problems() -> list[str]:
        with pytest.raises(BackupRefused):
            backed_up.restore(manifest, tmp_path / "restored")
        assert not (tmp_path / "restored").exists()
        return [*verify_backup(backup)[1]]

    (backup / segment).rename(tmp_path / "kept")
    assert problems() == [f"{segment} is missing"]
    (backup / segment).write_bytes((tmp_path / "kept").read_bytes()[:-1])
    assert "bytes, and had" in problems()[0]
    (tmp_path / "kept").rename(backup / segment)
    (backup / "store" / "999999.sst").write_bytes(b"")
    assert problems() == ["store/999999.sst is not in the manifest"]


def test_a_backup_is_not_restored_for_another_store(backed_up: BackedUpStore, tmp_path: Path) -> None:
    manifest = backed_up.back_up()
    with pytest.raises(BackupRefused, match=f"is of the store {manifest.store_id}, and not of other"):
        backed_up.restore(manifest, tmp_path / "restored", store_id="other")
    backed_up.restore(manifest, tmp_path / "restored", store_id=manifest.store_id)


@pytest.mark.parametrize("field", ["version", "store_id", "incarnation"])
def test_a_manifest_that_tells_of_another_store_is_not_believed(
    backed_up: BackedUpStore, tmp_path: Path, field: str
) -> None:
    from msgspec.structs import replace

    from coordinator_runtime.backups.manifest import CHECKSUM_NAME, MANIFEST_NAME, write_manifest

    manifest = backed_up.back_up()
    backup = backed_up.shelf / manifest.name
    (backup / MANIFEST_NAME).unlink()
    (backup / CHECKSUM_NAME).unlink()
    other = {"version": manifest.version + 1, "store_id": "other", "incarnation": 7}[field]
    write_manifest(backup, replace(manifest, **{field: other}))
    with pytest.raises(BackupRefused, match="are not the store that its manifest tells of"):
        backed_up.restore(manifest, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_who_names_the_directory_of_backups_is_told_to_name_one_of_them(backed_up: BackedUpStore) -> None:
    manifest = backed_up.back_up()
    with pytest.raises(BackupRefused, match=f"; name one that lies in it, such as .*{manifest.name}$"):
        read_manifest(backed_up.shelf)


def test_only_an_empty_directory_is_filled(backed_up: BackedUpStore, tmp_path: Path) -> None:
    manifest = backed_up.back_up()
    target = tmp_path / "restored"
    target.mkdir()
    (target / "kept").write_text("mine")
    with pytest.raises(BackupRefused, match=r"is not empty \(kept\)"):
        backed_up.restore(manifest, target)
    assert content(target) == {"kept": b"mine"}
    with pytest.raises(BackupRefused, match="Not a directory"):
        backed_up.restore(manifest, target / "kept")
    (target / "kept").unlink()
    (target / "lost+found").mkdir()
    backed_up.restore(manifest, target)


def test_a_clock_that_is_behind_the_backup_is_refused(backed_up: BackedUpStore, tmp_path: Path) -> None:
    manifest = backed_up.back_up()
    behind = ManualClock(wall_ms=START_MS - 5_000)
    with pytest.raises(BackupRefused, match="set it first"):
        backups.restore(backed_up.shelf / manifest.name, tmp_path / "restored", clock=behind, pause=behind.advance)


def full_after(count: int) -> Callable[[CopyProgress], None]:
    steps = iter(range(count))

    def step(_progress: CopyProgress) -> None:
        if next(steps, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return step


@pytest.mark.parametrize("count", [0, 3, 7])
def test_a_full_disk_leaves_no_half_backup_and_no_half_store(
    backed_up: BackedUpStore, tmp_path: Path, count: int
) -> None:
    backed_up.write(size=2_000)
    with pytest.raises(BackupRefused, match="make room on the disk"):
        backed_up.back_up(progress=CopyProgress(full_after(count)))
    assert backups_in(backed_up.shelf) == []
    assert [path.name for path in backed_up.shelf.iterdir()] == [".lock"]
    assert not (backed_up.data_dir / "checkpoint").exists()

    manifest = backed_up.back_up()
    for target in (tmp_path / "new", tmp_path / "there"):
        if target.name == "there":
            target.mkdir()
        with pytest.raises(BackupRefused, match="make room on the disk"):
            backed_up.restore(manifest, target, progress=CopyProgress(full_after(count)))
        assert content(target) == {}
    assert not (tmp_path / "new").exists()


class Killed(BaseException):
    """Nothing runs any more: no clean-up either."""


def test_what_a_kill_leaves_is_neither_listed_nor_opened_and_goes_with_the_next(
    backed_up: BackedUpStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up.write(size=2_000)

    def die(_progress: CopyProgress) -> None:
        raise Killed

    target = tmp_path / "restored"
    whole = backed_up.back_up()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_args, **_more: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            backed_up.back_up(progress=CopyProgress(die))
        with pytest.raises(Killed):
            backed_up.restore(whole, target, progress=CopyProgress(die))
    assert [backup.manifest for backup in backups_in(backed_up.shelf)] == [whole]
    assert any(path.suffix == ".partial" for path in backed_up.shelf.iterdir())
    assert (target / "RESTORING").exists()
    for opening in (open_read_only, lambda path: open_store(path, shard_count=SHARDS)):
        with pytest.raises(StoreRefused, match="under way or was cut short"):
            opening(target)

    backed_up.back_up()
    assert not any(path.suffix == ".partial" for path in backed_up.shelf.iterdir())
    backed_up.restore(whole, target)
    open_store(target, shard_count=SHARDS).close()


def test_a_start_removes_what_a_killed_backup_left_in_the_directory(backed_up: BackedUpStore) -> None:
    backed_up.write()
    backed_up.store.checkpoint()
    backed_up.store.close()
    backed_up.store = backed_up.opened()
    assert not (backed_up.data_dir / "checkpoint").exists()


def test_a_checkpoint_that_cannot_be_made_leaves_the_store_alone(
    backed_up: BackedUpStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up.write(size=2_000)

    def refuse(*_paths: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(StoreUnreadable, match="make room"):
            backed_up.store.checkpoint()
    assert not (backed_up.data_dir / "checkpoint").exists()
    backed_up.write(size=2_000)
    backed_up.back_up()


def test_old_backups_go_and_those_of_other_stores_and_unreadable_ones_stay(
    backed_up: BackedUpStore, tmp_path: Path
) -> None:
    made = [backed_up.back_up() for _ in range(4)]
    other = BackedUpStore(tmp_path / "other")
    other.shelf = backed_up.shelf
    other.clock.advance(100_000)
    theirs = other.back_up()
    other.store.close()
    flip_bit(backed_up.shelf / made[1].name / "manifest.json")

    def names(found: list[StoredBackup] | tuple[StoredBackup, ...]) -> list[str]:
        return [backup.path.name for backup in found]

    removed = prune(backed_up.shelf, keep=1)
    assert names([*removed]) == [made[0].name, made[2].name]
    assert names([*backups_in(backed_up.shelf)]) == [made[1].name, made[3].name, theirs.name]


def test_a_backup_that_is_being_restored_is_not_removed(backed_up: BackedUpStore, tmp_path: Path) -> None:
    made = [backed_up.back_up(), backed_up.back_up()]

    def try_to_remove(_progress: CopyProgress) -> None:
        assert prune(backed_up.shelf, keep=1) == []

    backed_up.restore(made[0], tmp_path / "restored", progress=CopyProgress(try_to_remove))
    assert [backup.manifest for backup in prune(backed_up.shelf, keep=1)] == [made[0]]


def test_two_makers_of_backups_do_not_meet(backed_up: BackedUpStore) -> None:
    def also_make(_progress: CopyProgress) -> None:
        with pytest.raises(BackupRefused, match="another process makes or removes backups"):
            prune(backed_up.shelf, keep=1)

    backed_up.back_up(progress=CopyProgress(also_make))


def test_a_backup_directory_inside_the_store_is_refused(backed_up: BackedUpStore) -> None:
    backed_up.store.close()
    with pytest.raises(BackupRefused, match="lies inside the directory of the store"):
        create_backup_of_stopped(backed_up.data_dir, backed_up.data_dir / "backups", now_ms=0)
