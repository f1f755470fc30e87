"""A new store is not made among files of another owner, and none of these is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_runtime.store import StoreRefused
from coordinator_server.engines import open_rocks_store
from coordinator_server.settings.config import Config


def start(data_dir: Path, **settings: Any) -> None:
    """Open the store as a server does, and close it."""
    opened = open_rocks_store(Config.model_validate({"data_dir": data_dir, "shard_count": 2} | settings))
    opened.store.close()


def everything_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


@pytest.mark.parametrize("name", ["notes.txt", "checkpoint/offsets/0", "segments/7", "store/7", "CURRENT", "lost"])
def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_text("theirs")
    before = everything_in(tmp_path)
    first = name.partition("/")[0]
    with pytest.raises(StoreRefused) as refused:
        start(tmp_path)
    assert f"{tmp_path} holds no store, but other files ({first})" in str(refused.value)
    assert f"name an empty directory, or one that is made, such as {tmp_path / 'data'}" in str(refused.value)
    assert everything_in(tmp_path) == before
    start(tmp_path / "data")


def test_few_of_many_files_are_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"file{number}").touch()
    with pytest.raises(StoreRefused, match=r"\(file0, file1, file2, \.\.\.\)"):
        start(tmp_path)


@pytest.mark.parametrize("name", ["lost+found", ".snapshot", ".nfs0001", "server.toml", "tokens.toml", "LOCK", "store"])
def test_what_a_file_system_a_person_or_a_start_that_was_cut_short_leaves_is_no_hindrance(
    tmp_path: Path, name: str
) -> None:
    if name in {"lost+found", ".snapshot", "store"}:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    start(tmp_path)
    start(tmp_path)


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("audit.log", {"audit_file": "{}/audit.log"}),
        ("audit.log.1", {"audit_file": "{}/audit.log"}),
        ("logs/audit.log.1", {"audit_file": "{}/logs/audit.log"}),
        ("backups/one/manifest", {"backup_directory": "{}/backups"}),
        ("socket", {"listen": "unix:{}/socket"}),
        ("run/socket", {"listeners": '[{{"listen": "unix:{}/run/socket"}}]'}),
        ("tls/ca.pem", {"tls_certificate_file": "{}/tls/server.crt", "tls_key_file": "{}/tls/server.key"}),
    ],
)
def test_what_the_configuration_names_may_lie_there(tmp_path: Path, file: str, settings: dict[str, str]) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / file).touch()
    with pytest.raises(StoreRefused):
        start(tmp_path)
    start(tmp_path, **{name: value.format(tmp_path) for name, value in settings.items()})


def test_beside_a_store_anything_may_lie(tmp_path: Path) -> None:
    start(tmp_path)
    (tmp_path / "notes.txt").write_text("theirs")
    start(tmp_path)
