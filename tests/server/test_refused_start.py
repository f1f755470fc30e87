"""A server that cannot start says in one line what is wrong and what to do, ends with the right status, and leaves
nothing behind where there was nothing before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from coordinator_server.exits import ExitStatus
from tests.harness import forked
from tests.harness.long_cases import long_but
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.rights import as_user
from tests.harness.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.slow

SERVE: Final = (sys.executable, "-m", "txnctl", "serve")
SMALL_DISK: Final = ("unshare", "--map-root-user", "--mount", "sh", "-c")
"""A name space of its own for what the shell mounts: it is gone when the process is."""


def start(
    directory: Path, *arguments: str | Path, before: Sequence[str] = (), is_new: bool = False
) -> tuple[int, list[str]]:
    """Exit status of a server that does not start, and the lines that it says, warnings in the log left out. It is
    forked unless it is to be a new process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
    run = subprocess.run if is_new else forked.run
    done = run(
        [*before, *SERVE, *arguments],
        cwd=directory,
        env=environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}", "TXN_LISTEN": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, [line for line in done.stderr.splitlines() if '"level": "warning"' not in line]


def small_disk(directory: Path, size: str, before: str, after: str) -> list[str]:
    """Runs the command with a disk of the size mounted on the directory, between two lines of shell."""
    probe = subprocess.run([*SMALL_DISK, f"mount -t tmpfs none {directory}"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("this user may not mount a small disk, even in a name space of its own")
    script = f'mount -t tmpfs -o size={size} none {directory} && cd {directory} && {before} && "$0" "$@"; status=$?'
    script = f"{script}; {after}"
    return [*SMALL_DISK, script]


def test_a_port_in_use_leaves_no_directory_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "one") as running:
        status, said = start(tmp_path, "--data-dir", "two", "--listen", running.address, is_new=True)
    assert status == ExitStatus.ADDRESS_REFUSED
    (line,) = said
    assert line.startswith(f"txnctl: cannot listen on {running.address}: Address already in use: choose another port")
    assert not (tmp_path / "two").exists()


@pytest.mark.long
def test_a_port_for_metrics_in_use_leaves_no_directory_behind(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "one") as running:
        status, said = start(tmp_path, "--data-dir", "two", "--set", f"metrics_listen={running.address}")
    assert status == ExitStatus.ADDRESS_REFUSED
    assert said == [f"txnctl: cannot listen for metrics on {running.address}: Address already in use; choose another"]
    assert not (tmp_path / "two").exists()


@pytest.mark.long
@pytest.mark.parametrize("setting", ["listen", "metrics_listen"])
@pytest.mark.parametrize("address", ["192.0.2.1:7070", "no-such-host.invalid:7070"])
def test_an_address_that_is_not_of_this_machine_leaves_no_directory_behind(
    tmp_path: Path, setting: str, address: str
) -> None:
    status, said = start(tmp_path, "--data-dir", "data", "--insecure", "--set", f"{setting}={address}")
    assert status == ExitStatus.ADDRESS_REFUSED
    (line,) = said
    assert line.startswith("txnctl: cannot listen ")
    assert address in line
    assert not (tmp_path / "data").exists()


def test_a_transport_that_is_not_there_leaves_no_directory_behind(tmp_path: Path) -> None:
    # A module of that name that is not the transport comes before the one that may be installed.
    (tmp_path / "txn_native_transport.py").write_text("raise ModuleNotFoundError('not here')\n")
    status, said = start(tmp_path, "--data-dir", "data", "--set", "transport=native", is_new=True)
    assert status == ExitStatus.USAGE
    assert len(said) == 1
    assert "transport = native, and it is not there" in said[0]
    assert not (tmp_path / "data").exists()


def test_a_directory_where_nothing_may_be_made_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    status, said = start(tmp_path, "--data-dir", closed / "data", before=as_user(closed))
    assert status == ExitStatus.STORE_REFUSED
    (line,) = said
    assert f"the directory {closed / 'data'} cannot be made or used" in line
    assert "Permission denied" in line
    assert "give the user that runs the server" in line


def test_a_refused_directory_leaves_no_socket_behind(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    status, said = start(tmp_path, "--data-dir", "data", "--listen", f"unix:{tmp_path / 'socket'}")
    assert (status, len(said)) == (ExitStatus.STORE_REFUSED, 1)
    assert not (tmp_path / "socket").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "closed", long_but({".", "store"}.__contains__, [".", "LOCK", "durable_mark", "store", "store/CURRENT", "segments"])
)
def test_a_store_of_another_owner_is_refused_with_what_cannot_be_used(tmp_path: Path, closed: str) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.terminate()
    path = tmp_path / "data" / closed
    (tmp_path / "data" / "segments").mkdir()
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        status, said = start(tmp_path, "--data-dir", "data", before=as_user(path))
    finally:
        path.chmod(mode)
    assert status == ExitStatus.STORE_REFUSED, said
    (line,) = said
    assert "Permission denied" in line
    assert "data" in line
    with ServerProcess(tmp_path / "data") as server:
        server.terminate()


def test_a_configuration_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('data_dir = "data"\n')
    file.chmod(0)
    status, said = start(tmp_path, "--config", file, before=as_user(file))
    assert status == ExitStatus.USAGE
    assert said == [f"txnctl: the configuration file {file} cannot be read: Permission denied"]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("file/data", "Not a directory"),
        ("loop/data", "Too many levels of symbolic links"),
        ("x" * 300, "name too long"),
    ],
)
def test_a_path_that_cannot_be_is_refused_with_the_reason(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    status, said = start(tmp_path, "--data-dir", path)
    assert status == ExitStatus.STORE_REFUSED
    (line,) = said
    assert why in line


@pytest.mark.long
@pytest.mark.parametrize("room_kib", long_but({0, 12, 120}.__contains__, [0, 4, 12, 40, 120]))
def test_a_full_disk_is_said_in_one_line_and_forgotten_once_there_is_room(tmp_path: Path, room_kib: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # Its own file fills the disk, but for the room; then the first start; then the file goes, and the second one.
    fill = f"head -c {1024 - room_kib}k /dev/zero > filler"
    reopen = f"from coordinator_runtime.rocks import open_store; open_store('{disk}/data', shard_count=64).close()"
    again = f'rm filler && {sys.executable} -c "{reopen}" && echo opened >&2; exit $status'
    status, said = start(tmp_path, "--data-dir", disk / "data", before=small_disk(disk, "1024k", fill, again))
    assert said.pop() == "opened", said
    assert status == ExitStatus.STORE_REFUSED, said
    (line,) = said
    assert "No space left on device" in line
    assert "make room on the disk, then start again" in line
