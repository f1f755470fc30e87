"""Processes that load the server: started, killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.results import LoadFailed
from bench.server import last_words

TRANSACTORS: Final = 4
COPIERS: Final = 2
VISITORS: Final = 2
MEMBERS: Final = (
    *(("transact", number) for number in range(TRANSACTORS)),
    *(("copy", number) for number in range(COPIERS)),
    *(("visit", number) for number in range(VISITORS)),
    ("send_bulk", 0),
)


@dataclass(slots=True)
class _Member:
    role: str
    number: int
    process: subprocess.Popen[bytes]


class Crew:
    """All load processes of one server."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        self._endpoint = endpoint
        self._directory = directory
        self._log = directory / "load.log"
        self._next_victim = 0
        self._members = [_Member(role, number, self._started(role, number)) for role, number in MEMBERS]

    def check(self) -> None:
        """Raise LoadFailed if one of the processes ended unexpectedly."""
        for member in self._members:
            if member.process.poll() is not None:
                raise LoadFailed(f"{member.role} {member.number} ended by itself: {last_words(self._log)}")

    def kill_one(self) -> str:
        """End the next process with SIGKILL at any point of its work, and start it again. Returns its role and
        number."""
        self.check()
        member = self._members[self._next_victim % len(self._members)]
        self._next_victim += 1
        member.process.kill()
        member.process.wait()
        member.process = self._started(member.role, member.number)
        return f"{member.role} {member.number}"

    def end(self, *roles: str) -> None:
        """Ask the processes with these roles to finish their work, and wait for them. Raises: LoadFailed."""
        ending = [member for member in self._members if member.role in roles]
        for member in ending:
            member.process.terminate()
        for member in ending:
            # A process that was asked while it was still starting is ended by the signal.
            if member.process.wait() not in {0, -signal.SIGTERM}:
                raise LoadFailed(f"{member.role} {member.number} ended badly: {last_words(self._log)}")
        self._members = [member for member in self._members if member.role not in roles]

    def kill(self) -> None:
        """End all remaining processes. Idempotent."""
        for member in self._members:
            member.process.kill()
            member.process.wait()
        self._members.clear()

    def _started(self, role: str, number: int) -> subprocess.Popen[bytes]:
        arguments = (role, self._endpoint, str(number), str(self._directory))
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "bench.soak.work", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
