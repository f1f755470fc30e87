"""`txnctl backup` and `txnctl restore`: on the directory of a stopped server, and of one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer, read
from coordinator_runtime.rocks import open_store
from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess
from tests.harness.threaded_server import threaded_server


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    open_store(tmp_path / "data", shard_count=4).close()
    return tmp_path / "data"


def test_a_stopped_server_is_backed_up_checked_and_restored(txnctl: Terminal, stopped: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "backups"
    (made,) = txnctl("backup", "create", "--data-dir", str(stopped), "--to", str(shelf), "-o", "json").well().document
    assert txnctl("backup", "list", str(shelf), "-o", "json").well().document == [made]
    backup = shelf / made["name"]
    for path in (shelf, backup):
        (verdict,) = txnctl("backup", "verify", str(path), "-o", "json").well().document
        assert (verdict["verdict"], verdict["problems"]) == ("whole", [])
    restored = txnctl("restore", str(backup), str(tmp_path / "restored"), "-o", "json").well().document
    assert restored["incarnation"] > made["incarnation"]
    assert txnctl("store", "inspect", str(tmp_path / "restored"), "-o", "json").well().document["incarnation"] == {
        "number": restored["incarnation"],
        "cause": "restore",
    }


def test_damage_is_named_and_the_status_says_so(txnctl: Terminal, stopped: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "backups"
    (made,) = txnctl("backup", "create", "--data-dir", str(stopped), "--to", str(shelf), "-o", "json").well().document
    (shelf / made["name"] / "durable_mark").write_bytes(b"")
    ended = txnctl("backup", "verify", str(shelf))
    assert ended.status == 1
    assert "durable_mark has 0 bytes" in ended.stdout
    ended = txnctl("restore", str(shelf / made["name"]), str(tmp_path / "restored"))
    assert ended.status == 3
    assert "is damaged" in ended.stderr
    assert not (tmp_path / "restored").exists()
    (shelf / made["name"] / "manifest.json").write_text("{}")
    assert txnctl("backup", "verify", str(shelf)).status == 1
    assert txnctl("backup", "list", str(shelf), "-o", "json").well().document[0]["state"] == "unreadable"


def test_old_backups_are_removed_when_a_person_says_so(txnctl: Terminal, stopped: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "backups"
    names = [
        txnctl("backup", "create", "--data-dir", str(stopped), "--to", str(shelf), "-o", "json").document[0]["name"]
        for _ in range(3)
    ]
    shown = txnctl("backup", "prune", str(shelf), "--keep", "1", "--dry-run", "-o", "json").well().document
    assert [(row["name"], row["state"]) for row in shown] == [(name, "would be removed") for name in names[:2]]
    assert len([*shelf.glob("*Z")]) == 3
    gone = txnctl("backup", "prune", str(shelf), "--keep", "1", "-o", "json").well().document
    assert [row["name"] for row in gone] == names[:2]
    assert [path.name for path in shelf.glob("*Z")] == names[2:]


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["backup", "create", "--data-dir", "x"], "--data-dir and --to belong together", 2),
        (["backup", "create", "--data-dir", "nowhere", "--to", "b"], "there is no store in nowhere", 3),
        (["backup", "create", "--data-dir", "s3://b/p", "--to", "x"], "`txnctl migrate s3://b/p DIR`", 2),
        (["backup", "create", "--data-dir", "x", "--to", "gs://b/p"], "gs://b/p is no directory", 2),
        (["backup", "list", "nowhere"], "No such file or directory", 3),
        (["backup", "verify", "nowhere"], "No such file or directory", 3),
        (["restore", "nowhere", "target"], "No such file or directory", 3),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = txnctl(*words)
    assert (ended.status, said in ended.stderr) == (status, True), ended.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_server_without_a_directory_for_them_says_what_to_set(txnctl: Terminal) -> None:
    with threaded_server() as address:
        for command in ("create", "list"):
            ended = txnctl("backup", command, "--server", address)
            assert ended.status == 1
            assert "set backup_directory, and start it again" in ended.stderr


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--set", f"backup_directory={tmp_path / 'backups'}") as server:
        monkeypatch.setenv("TXNCTL_SERVER", server.address)
        yield server


@pytest.mark.long
@pytest.mark.slow
def test_a_running_server_is_backed_up_and_the_backup_serves(
    txnctl: Terminal, server: ServerProcess, tmp_path: Path
) -> None:
    with Admin(server.address) as admin:
        admin.create_topic("orders")
    with Producer(server.address, transactional_id="shop") as producer, producer.transaction() as transaction:
        transaction.send("orders", b"before")
    (made,) = txnctl("backup", "create", "-o", "json").well().document
    assert made["state"] == "complete"
    assert txnctl("backup", "list", "-o", "json").well().document == [made]
    with Producer(server.address, transactional_id="shop") as producer, producer.transaction() as transaction:
        transaction.send("orders", b"after")
    target = tmp_path / "restored"
    txnctl("restore", str(tmp_path / "backups" / made["name"]), str(target)).well()
    assert txnctl("store", "verify", str(target)).well().status == 0
    with ServerProcess(target) as restored:
        assert [record.value for record in read("orders", restored.address)] == [b"before"]
        with Producer(restored.address, transactional_id="shop") as producer, producer.transaction() as transaction:
            transaction.send("orders", b"again")
        assert [record.value for record in read("orders", restored.address)] == [b"before", b"again"]
