"""Processes that the demos start end with them, also where they are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.demo_parts.crew import stop_this_producer
from examples.demo_parts.leashed import leashed
from tests.harness.patience import looks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


def wait_for_the_demo(_assignment: object, line: object) -> None:
    line.send("here")
    line.recv()


def work_on(_assignment: object, line: object) -> None:
    line.send("here")
    while True:
        os.getpid()


def stop(_assignment: object, line: object) -> None:
    line.send("here")
    stop_this_producer()
    line.send("woken")


DEMO = """
import time
from types import SimpleNamespace
from examples.demo_parts.crew import Crew
from tests.demo import test_leashed

if __name__ == "__main__":
    with Crew() as crew:
        member = crew.start(test_leashed.{role}, SimpleNamespace(transactional_id="a"))
        member.next_report()
        print(member.process_id, flush=True)
        {then}
"""


@contextmanager
def demo(tmp_path: Path, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose output is at its end once none of the processes is left that it started and that have it, too."""
    path = tmp_path / "demo.py"
    path.write_text(program)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])}
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, env=environment) as running:
        yield running
        running.kill()


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("role", ["wait_for_the_demo", "work_on", "stop"])
def test_a_producer_ends_with_the_demo_even_if_it_is_stopped(tmp_path: Path, role: str) -> None:
    with demo(tmp_path, DEMO.format(role=role, then="time.sleep(3_600)")) as running:
        assert running.stdout is not None
        producer = int(running.stdout.readline())
        if role == "stop":
            for _ in looks("the state of the producer"):
                if state_of(producer) == "T":
                    break
        running.kill()
        assert running.stdout.read() == b""


def test_a_producer_that_is_woken_goes_on(tmp_path: Path) -> None:
    wake = "\n        ".join(
        [
            "from pathlib import Path",
            "while Path(f'/proc/{member.process_id}/stat').read_text().rpartition(')')[2].split()[0] != 'T':",
            "    pass",
            "member.wake()",
            "print(member.next_report(), member.next_report(), flush=True)",
        ]
    )
    with demo(tmp_path, DEMO.format(role="stop", then=wake)) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert running.stdout.read() == b"woken None\n"
        assert running.wait() == 0


def test_the_server_ends_with_the_demo(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from examples.demo_parts.server import Server

server = Server(Path({str(tmp_path)!r}))
server.start()
server.kill()
server.start()
print(server.endpoint, flush=True)
time.sleep(3_600)
"""
    with demo(tmp_path, program) as running:
        assert running.stdout is not None
        host, _, port = running.stdout.readline().decode().strip().partition(":")
        socket.create_connection((host, int(port))).close()
        running.kill()
        for _ in looks("the port of the server"):
            try:
                socket.create_connection((host, int(port))).close()
            except ConnectionResetError:
                # It was on its way out.
                continue
            except ConnectionRefusedError:
                break


def test_what_is_leashed_ends_with_all_of_its_group_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "a_job.py").write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '3600'])\n"
        "print(__name__, sys.argv[1:], flush=True)\n"
        "time.sleep(3_600)\n"
    )
    with subprocess.Popen(
        leashed("a_job", "x", "y"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        start_new_session=True,
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == b"__main__ ['x', 'y']\n"
        assert job.poll() is None
        job.stdin.close()
        assert job.stdout.read() == b""
        assert job.wait() == -signal.SIGKILL


def test_what_is_leashed_may_end_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a_job.py").write_text("raise SystemExit(3)\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(leashed("a_job"), stdin=subprocess.PIPE, env=environment, start_new_session=True) as job:
        assert job.wait() == 3
