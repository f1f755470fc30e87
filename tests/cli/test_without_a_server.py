"""Every command on a stopped server, a wrong address, a wrong directory: words and a status, never a traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_runtime.rocks import open_store
from tests.cli.terminal import Terminal

ASKING_A_SERVER = [
    ["topic", "create", "t"],
    ["topic", "create", "t", "--dry-run"],
    ["topic", "list"],
    ["topic", "describe", "t"],
    ["topic", "delete", "t", "--yes"],
    ["topic", "delete", "t", "--dry-run"],
    ["produce", "t"],
    ["produce", "t", "--dry-run"],
    ["consume", "t"],
    ["consume", "t", "--follow", "--raw", "-o", "json"],
    ["list"],
    ["describe", "billing-0"],
    ["log", "dump", "t"],
]
READING_A_DIRECTORY = [
    ["store", "verify", "{}"],
    ["store", "inspect", "{}"],
    ["log", "dump", "t", "--data-dir", "{}"],
    ["log", "dump", "--show", "transactions", "--data-dir", "{}"],
]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nothing listens on, and that nothing else gets meanwhile."""
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        yield plug.getsockname()[1]


@pytest.mark.parametrize("words", ASKING_A_SERVER, ids=" ".join)
def test_a_stopped_server_is_said_to_be_one(txnctl: Terminal, words: list[str], closed_port: int) -> None:
    ended = txnctl(*words, "--server", f"127.0.0.1:{closed_port}", stdin="record\n")
    ended.refused(
        5, f"no server answers at 127.0.0.1:{closed_port} (Connection refused)", "txnctl serve --data-dir DIR"
    )


def test_the_address_can_come_from_the_environment(
    txnctl: Terminal, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNCTL_SERVER", f"127.0.0.1:{closed_port}")
    txnctl("list").refused(5, f"127.0.0.1:{closed_port}", "TXNCTL_SERVER")


@pytest.mark.parametrize("words", READING_A_DIRECTORY, ids=" ".join)
@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_directory_that_lacks_a_file_of_the_store_is_refused_by_its_name(
    txnctl: Terminal, words: list[str], file: str, tmp_path: Path
) -> None:
    open_store(tmp_path, shard_count=2).close()
    open_store(tmp_path, shard_count=2).close()
    [path, *_] = (tmp_path / "store").glob(file)
    path.unlink()
    ended = txnctl(*[word.format(tmp_path) for word in words])
    ended.refused(3, f"{path} is missing", "Put the file back from a copy")


@pytest.mark.parametrize("address", ["here", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused_before_anything_is_asked(txnctl: Terminal, address: str) -> None:
    txnctl("topic", "list", "--server", address).refused(2, "is no address of a server: write HOST:PORT")


def test_a_host_that_is_not_there_is_said_to_be_none(txnctl: Terminal) -> None:
    txnctl("topic", "list", "--server", "nowhere.invalid:7070").refused(5, "no server answers at nowhere.invalid:7070")


def test_a_unix_socket_that_is_not_there_is_said_to_be_none(txnctl: Terminal, tmp_path: Path) -> None:
    txnctl("topic", "list", "--server", f"unix:{tmp_path / 'gone'}").refused(5, "no server answers at unix:")


def test_a_program_that_says_nothing_is_no_server_and_was_sent_nothing(txnctl: Terminal) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for words in (["topic", "list"], ["topic", "create", "t"]):
            ended = txnctl(*words, "--server", address, "--timeout", "300ms")
            ended.refused(5, f"no server answers at {address} (something accepts connections there and says nothing)")
            assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", READING_A_DIRECTORY, ids=" ".join)
def test_a_directory_that_holds_no_store_is_said_to_hold_none(
    txnctl: Terminal, words: list[str], tmp_path: Path
) -> None:
    def run(place: Path, *said: str) -> None:
        txnctl(*(word.format(place) for word in words)).refused(3, str(place), "`txnctl serve --data-dir`", *said)

    run(tmp_path / "gone", "there is no directory")
    (tmp_path / "file").touch()
    run(tmp_path / "file", "is no directory")
    run(tmp_path, "there is no store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize("words", READING_A_DIRECTORY, ids=" ".join)
def test_a_directory_in_use_names_who_uses_it(txnctl: Terminal, words: list[str], tmp_path: Path) -> None:
    store = open_store(tmp_path, shard_count=2)
    try:
        txnctl(*(word.format(tmp_path) for word in words)).refused(3, "(pid ", "stop it first")
    finally:
        store.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["log", "dump"], "name the topic to dump"),
        (["log", "dump", "t", "--id", "x"], "--id chooses lines of --show transactions"),
        (["log", "dump", "--show", "transactions"], "give --data-dir DIR"),
        (["log", "dump", "t", "--from", "soon"], "'soon' is no position: write earliest, latest, an offset"),
        (["consume", "t", "--from", "-1"], "'-1' is no position"),
        (["consume", "t", "--max", "0"], "Invalid value for '--max'"),
        (["consume", "t", "--isolation", "none"], "'none' is not one of"),
        (["consume"], "Missing argument"),
        (["list", "--older-than", "long"], "'long' is no time span: write 500ms, 30s, 5m, 2h or 7d"),
        (["produce", "t", "--format", "json", "--key-separator", "="], "--key-separator is for plain lines"),
        (["topic", "create", "t", "-p", "0"], "Invalid value for '--partitions'"),
        (["topic", "list", "-o", "xml"], "'xml' is not one of"),
        (["topic", "lst"], "No such command 'lst'"),
        (["describe"], "Missing argument"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_word_is_refused_before_anything_is_asked(txnctl: Terminal, words: list[str], said: str) -> None:
    txnctl(*words).refused(2, said)
