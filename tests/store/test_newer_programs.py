"""A store that a newer program wrote to: what this one opens, what it leaves alone and what it refuses, by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from coordinator_runtime import own_rows, rocks
from coordinator_runtime.rocks import RocksStore, open_read_only, open_store
from coordinator_runtime.running_version import running_version
from coordinator_runtime.store import CommitGroup, Family, StoreRefused

SHARDS = 2


def opened(path: Path) -> RocksStore:
    return open_store(path, shard_count=SHARDS)


def put_into_meta(path: Path, name: bytes, value: bytes) -> None:
    store = opened(path)
    store.write([CommitGroup(store.version() + 1, [(Family.META, name, value)])])
    store.close()


def identity(path: Path) -> own_rows.StoreIdentity:
    store = open_read_only(path)
    store.close()
    return store.identity


def refused(path: Path, words: str) -> None:
    before = {file: file.read_bytes() for file in path.rglob("*.sst")}
    with pytest.raises(StoreRefused, match=words):
        opened(path)
    with pytest.raises(StoreRefused, match=words):
        open_read_only(path)
    assert {file: file.read_bytes() for file in path.rglob("*.sst")} == before


def test_a_store_gets_an_id_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        opened(tmp_path / name).close()
    first = identity(tmp_path / "a")
    assert len(first.store_id) == 16
    assert first.store_id != identity(tmp_path / "b").store_id
    opened(tmp_path / "a").close()
    assert identity(tmp_path / "a") == first
    assert (first.writer, first.features) == (running_version(), ())


def test_a_feature_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    put_into_meta(tmp_path, own_rows.WRITER_KEY, b"7.1")
    put_into_meta(tmp_path, own_rows.FEATURES_KEY, b"queues,tiers")
    ours = re.escape(running_version())
    refused(tmp_path, rf"'queues', the feature 'tiers', which this program \(version {ours}\).* wrote it \(7.1\)")


def test_features_that_are_known_are_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_into_meta(tmp_path, own_rows.FEATURES_KEY, b"queues")
    monkeypatch.setattr(own_rows, "KNOWN_FEATURES", frozenset({"queues", "tiers"}))
    opened(tmp_path).close()
    assert identity(tmp_path).features == ("queues",)


def test_an_unknown_name_with_an_exclamation_mark_is_refused(tmp_path: Path) -> None:
    put_into_meta(tmp_path, b"!moved_to", b"elsewhere")
    refused(tmp_path, r"has the row '!moved_to' in META, which this program")


def test_other_unknown_names_are_left_alone(tmp_path: Path) -> None:
    put_into_meta(tmp_path, b"a note", b"kept")
    store = opened(tmp_path)
    assert store.get(Family.META, b"a note") == b"kept"
    store.close()


@pytest.mark.parametrize(
    ("stored", "ours", "kept"),
    [
        ("", "0.1.0", "0.1.0"),
        ("0.1.0", "0.1.1", "0.1.1"),
        ("0.10.0", "0.9.2", "0.10.0"),
        ("1.0", "1.0.0rc1", "1.0.0rc1"),
        ("no version", "0.1.0", "0.1.0"),
        ("1.0.0", "1.0.0.post20261128130149+g323ce4ec1e", "1.0.0.post20261128130149+g323ce4ec1e"),
        ("1.0.0.post20261128130149+gffffffffff", "1.0.0", "1.0.0.post20261128130149+gffffffffff"),
        (
            "1.0.0.post20261128130149+gffffffffff",
            "1.0.0.post20261130000000+g0000000000",
            "1.0.0.post20261130000000+g0000000000",
        ),
        ("1.0.0.post20261128130149+gffffffffff", "1.0.1", "1.0.1"),
    ],
)
def test_the_newest_program_that_wrote_is_remembered(stored: str, ours: str, kept: str) -> None:
    assert own_rows.newer_writer(stored, ours) == kept


def test_an_older_program_does_not_take_the_name_of_the_newest_away(tmp_path: Path) -> None:
    put_into_meta(tmp_path, own_rows.WRITER_KEY, b"99.0")
    opened(tmp_path).close()
    assert identity(tmp_path).writer == "99.0"


def test_a_newer_format_is_told_although_its_rows_look_otherwise(tmp_path: Path) -> None:
    newer = own_rows.stored_number(own_rows.FORMAT_VERSION + 1)
    store = opened(tmp_path)
    rows = [(Family.META, b"segment_length/?", b"!"), (Family.META, own_rows.FORMAT_VERSION_KEY, newer)]
    store.write([CommitGroup(store.version() + 1, rows)])
    store.close()
    refused(tmp_path, f"has format {own_rows.FORMAT_VERSION + 1}, this program knows formats up to")


def test_a_line_of_the_store_that_began_for_an_unknown_cause_is_refused(tmp_path: Path) -> None:
    put_into_meta(tmp_path, own_rows.INCARNATION_KEY, b"\0\0\0\x05\x7f")
    refused(tmp_path, "cannot be opened: the row of the store's incarnation cannot be read")


def test_a_family_that_only_a_newer_program_knows_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path).close()
    add_family(tmp_path, "SNAPSHOTS")
    refused(tmp_path, r"has the family SNAPSHOTS, which this program")


def add_family(path: Path, name: str) -> None:
    """Make a family in a stopped store, as a newer program does at its first open."""
    directory = str(path / "store")
    tracked = Path(rocks.__file__).with_name("tracked_wals")
    options, _families = Options.load_latest(str(tracked))
    options.create_missing_column_families(True)
    families = {family: Options(raw_mode=True) for family in (*Rdict.list_cf(directory), name) if family != "default"}
    Rdict(directory, options, column_families=families).close()
