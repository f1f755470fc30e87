"""Starts with any file of a store missing, emptied, cut, changed or an older copy.

It refuses and changes nothing, or finds what was written up to the durable mark or beyond, or a read says what is
damaged. It never shows something else without a word, and never crashes (`tests/store/damage.py`).
"""

from __future__ import annotations

import ast
import os
import shutil
import struct
from pathlib import Path

import pytest

from coordinator_protocol.checksum import crc32c
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.rocks.durable_mark import DurableMark, Marked, read_mark
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.store import CommitGroup, Family, StoreRefused
from tests.store.damage import (
    GROUPS,
    GROUPS_MARKED,
    HARMS,
    OPTIONS,
    ROOT,
    SHARDS,
    Cell,
    built,
    files_of,
    kept,
    look,
    looked,
    write_up_to,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The live store and its older copies. Tests damage copies of it."""
    directory = tmp_path_factory.mktemp("base")
    built(directory)
    return directory


@pytest.fixture
def live(base: Path, tmp_path: Path) -> Path:
    """A copy of the live store for one test."""
    directory = tmp_path / "live"
    shutil.copytree(base / "live", directory)
    return directory


def logs(base: Path) -> list[str]:
    """The files of the write-ahead log in the order in which they were written."""
    return [file for file in files_of(base / "live") if file.endswith(".log")]


def closed_log(base: Path) -> str:
    """The last log but one: families have rows in it that are nowhere else, while earlier ones may not be needed."""
    return logs(base)[-2]


def segments(base: Path) -> list[str]:
    return [file for file in files_of(base / "live") if file.endswith(".segment")]


def manifest(base: Path) -> str:
    return "store/" + (base / "live" / "store" / "CURRENT").read_text().strip()


def must_be_refused(cell: Cell, base: Path) -> bool:
    """Return whether anything but a refusal would lose durable groups, or nothing else makes sense."""
    is_shorter = not cell.harm.endswith("flipped")
    if cell.file == "store/CURRENT":
        return True
    if cell.file == manifest(base):
        # RocksDB may have added to it after the mark, and what it added is in other files as well.
        return cell.harm not in ("cut by one byte", "last byte flipped")
    if cell.file.endswith(".segment") or cell.file == closed_log(base):
        return is_shorter
    return cell.file == "durable_mark" and cell.harm in ("missing", "emptied")


def cells_of(file: str, base: Path) -> list[Cell]:
    """An older copy only where there is one that differs."""
    earlier, now = base / "earlier" / file, base / "live" / file
    has_older_copy = earlier.exists() and earlier.read_bytes() != now.read_bytes()
    return [Cell(file, harm) for harm in HARMS if has_older_copy or harm != "older copy"]


def wrong(base: Path, cells: list[Cell], at: Path) -> list[str]:
    """List the broken rules, in words, after each cell was done to a copy."""
    found = []
    directories = [cell.made(base, at) for cell in cells]
    contents = [kept(directory) for directory in directories]
    for cell, directory, before, (verdict, words) in zip(
        cells, directories, contents, looked(directories), strict=True
    ):
        match verdict:
            case "refused":
                is_right = (
                    "Nothing was changed." in words
                    and str(directory) in words
                    and ("Put the file back" in words or "--accept-data-loss to go on" in words)
                    and kept(directory) == before
                )
            case "whole":
                is_right = int(words) >= GROUPS_MARKED and not must_be_refused(cell, base)
            case "told":
                is_right = cell.harm.endswith("flipped") and not must_be_refused(cell, base)
            case _:
                is_right = False
        if not is_right:
            found.append(f"{cell.file}, {cell.harm}: {verdict}: {words}")
        shutil.rmtree(directory)
    return found


def test_the_store_that_is_damaged_has_files_of_every_kind(base: Path) -> None:
    assert look_at_copy(base) == ("whole", str(GROUPS))
    assert len(logs(base)) > 3
    assert len(segments(base)) > 3
    mark = read_mark(base / "live" / "durable_mark")
    assert mark.version == GROUPS_MARKED
    assert mark.manifest.number > read_mark(base / "before" / "durable_mark").manifest.number
    assert mark.manifest.length > read_mark(base / "earlier" / "durable_mark").manifest.length
    kinds = {Path(file).suffix or Path(file).name.partition("-")[0] for file in files_of(base / "live")}
    assert kinds >= {".sst", ".log", ".segment", "MANIFEST", "CURRENT", "OPTIONS", "IDENTITY", "durable_mark", "LOCK"}


def look_at_copy(base: Path) -> tuple[str, str]:
    (verdict,) = looked([shutil.copytree(base / "live", base / "copy")])
    shutil.rmtree(base / "copy")
    return verdict


@pytest.mark.slow
@pytest.mark.long
def test_every_file_and_every_harm(base: Path, tmp_path: Path) -> None:
    found = []
    for file in files_of(base / "live"):
        found += wrong(base, cells_of(file, base), tmp_path)
    assert not found, "\n".join(found)


def test_files_that_rocksdb_would_not_miss(base: Path, tmp_path: Path) -> None:
    files = (closed_log(base), "store/CURRENT", manifest(base), segments(base)[1], "durable_mark")
    cells = [Cell(file, harm) for file in files for harm in ("missing", "cut in half")]
    assert wrong(base, [*cells, Cell(manifest(base), "older copy")], tmp_path) == []


@pytest.mark.slow
def test_any_end_of_the_manifest_that_no_mark_knows_yet(base: Path, tmp_path: Path) -> None:
    marked = read_mark(base / "earlier" / "durable_mark").manifest.length
    length = (base / "live" / manifest(base)).stat().st_size
    directories = []
    for cut in range(marked, length, (length - marked) // 40):
        directories.append(shutil.copytree(base / "live", tmp_path / str(cut)))
        shutil.copyfile(base / "earlier" / "durable_mark", directories[-1] / "durable_mark")
        os.truncate(directories[-1] / manifest(base), cut)
    assert {verdict for verdict, _ in looked(directories)} <= {"refused", "whole"}


def test_an_older_current_with_its_manifest_is_refused(base: Path, live: Path) -> None:
    for file in ("CURRENT", (base / "before" / "store" / "CURRENT").read_text().strip()):
        shutil.copyfile(base / "before" / "store" / file, live / "store" / file)
    verdict, words = look(live)
    assert verdict == "refused"
    assert f"{live / 'store' / 'CURRENT'} is an older copy" in words
    assert look(live, accept_data_loss=True) == (verdict, words)


def test_an_older_store_below_its_mark_is_refused(base: Path, live: Path) -> None:
    shutil.rmtree(live / "store")
    shutil.copytree(base / "earlier" / "store", live / "store")
    verdict, words = look(live)
    assert verdict == "refused"
    assert "is cut off or an older copy" in words


def test_a_whole_older_directory_stays_unnoticed(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "before", tmp_path / "before")
    assert look(tmp_path / "before") == ("whole", "100")


@pytest.mark.parametrize("harm", ["missing", "emptied"])
def test_what_makes_no_sense_is_refused_whatever_is_accepted(base: Path, tmp_path: Path, harm: str) -> None:
    for file in ("store/CURRENT", manifest(base), closed_log(base)):
        directory = Cell(file, harm).made(base, tmp_path)
        before = kept(directory)
        for accept_data_loss in (False, True):
            verdict, words = look(directory, accept_data_loss=accept_data_loss)
            assert verdict == "refused"
            assert str(directory / file) in words
            assert "--accept-data-loss does not help here" in words
        with pytest.raises(StoreRefused, match=file):
            open_read_only(directory)
        assert kept(directory) == before
        shutil.copyfile(base / "live" / file, directory / file)
        assert look(directory) == ("whole", str(GROUPS))


@pytest.mark.slow
def test_a_loss_is_offered_to_be_accepted_only_where_that_works(base: Path, tmp_path: Path) -> None:
    offers = []
    for log in logs(base):
        directory = Cell(log, "middle byte flipped").made(base, tmp_path)
        mark = read_mark(directory / "durable_mark")
        verdict, words = look(directory)
        if verdict == "refused":
            assert "of its log is damaged" in words or "*.log is damaged" in words
            is_offered = "--accept-data-loss to go on" in words
            accepted, words_then = look(directory, accept_data_loss=True)
            assert (accepted == "whole") == is_offered
            assert is_offered or (words_then == words and "--accept-data-loss does not help here" in words)
            assert is_offered or read_mark(directory / "durable_mark") == mark
            offers.append(is_offered)
    # If a family lies in newer files than the damage, the remains of the others are older than that family.
    assert False in offers


def test_a_segment_whose_loss_is_accepted_is_told_by_every_read_and_by_no_later_start(base: Path, live: Path) -> None:
    first, second, *_ = [live / segment for segment in segments(base)]
    first.unlink()
    os.truncate(second, 5_000)
    verdict, words = look(live)
    assert verdict == "refused"
    assert f"{first} is missing" in words
    assert f"{second} has 5000 bytes of" in words
    verdict, words = look(live, accept_data_loss=True)
    assert verdict == "told"
    assert str(first) in words
    assert look(live) == (verdict, words)
    store = open_store(live, shard_count=SHARDS, options=OPTIONS)
    write_up_to(store, GROUPS + 40)
    # The partition is deleted, and the files with it.
    store.write([CommitGroup(GROUPS + 41, [], [(Family.LOG, b"", b"\xff" * 9)])])
    store.sync()
    store.close()
    assert not first.exists()
    assert not second.exists()


def test_a_store_whose_making_was_cut_short_before_current_is_made_again(tmp_path: Path) -> None:
    open_store(tmp_path, shard_count=SHARDS).close()
    mark = StoreDirectory(tmp_path).durable_mark_path
    mark.unlink()
    unmade = DurableMark(mark)
    unmade.write(Marked(0))
    unmade.close()
    for path in [*(tmp_path / "store").glob("*.*"), tmp_path / "store" / "CURRENT"]:
        path.unlink()
    assert list((tmp_path / "store").glob("MANIFEST-*"))
    store = open_store(tmp_path, shard_count=SHARDS)
    assert store.version() == 0
    store.close()


def test_a_mark_of_a_version_alone_promises_nothing_of_files(live: Path) -> None:
    body = struct.pack(">4sQQ", b"TXDM", 1, GROUPS)
    (live / "durable_mark").write_bytes(body + struct.pack(">I", crc32c(body, 0)))
    assert read_mark(live / "durable_mark") == Marked(GROUPS)
    assert look(live) == ("whole", str(GROUPS))
    assert read_mark(live / "durable_mark").manifest.number > 0


def test_a_stop_in_order_leaves_a_mark_of_the_whole_manifest(base: Path) -> None:
    marked = read_mark(base / "before" / "durable_mark").manifest
    path = base / "before" / "store" / f"MANIFEST-{marked.number:06}"
    assert path.stat().st_size == marked.length


def test_a_copy_without_its_lock_can_be_read(live: Path) -> None:
    (live / "LOCK").unlink()
    store = open_read_only(live)
    assert store.version() == GROUPS
    store.close()


def test_a_stray_file_among_the_segments_is_left_alone(live: Path) -> None:
    stray = live / "segments" / "notes.segment"
    stray.write_text("not ours")
    assert look(live) == ("whole", str(GROUPS))
    assert stray.read_text() == "not ours"


def test_a_directory_that_cannot_be_written_is_refused(live: Path) -> None:
    (live / "durable_mark").unlink()
    (live / "durable_mark").mkdir()
    verdict, words = look(live, accept_data_loss=True)
    assert verdict == "refused"
    assert "durable_mark" in words


def test_damage_in_the_rows_of_the_store_itself_is_refused(live: Path) -> None:
    store = open_store(live, shard_count=SHARDS, options=OPTIONS)
    store.close()
    for path in (live / "store").glob("*.sst"):
        if b"format_version" in path.read_bytes():
            HARMS["first byte flipped"](path, path)
    verdict, words = look(live)
    assert verdict == "refused"
    assert "is damaged. RocksDB cannot open" in words


def test_rocksdb_is_opened_in_one_place() -> None:
    """Other options may end the process, or drop the list of logs: see `database._tracking_options`."""
    openers = {"AccessType", "Options"}
    found = []
    for path in sorted((ROOT / "coordinator_runtime" / "rocks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "rocksdict":
                found += [f"{path.name} imports {name.name}" for name in node.names if name.name in openers]
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] == "Rdict":
                found.append(f"{path.name} calls {ast.unparse(node.func)}")
    assert found == [
        "database.py imports AccessType",
        "database.py imports Options",
        "database.py calls Rdict.list_cf",
        "database.py calls Rdict",
    ]
