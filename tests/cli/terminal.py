"""txnctl as a script sees it: words in, bytes on stdin; a status, stdout and stderr out. In this process, so that a
command costs milliseconds."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from txnctl.cli import main


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ran."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)

    @property
    def objects(self) -> list[Any]:
        """A stream of JSON, one object per line."""
        return [json.loads(line) for line in self.lines]

    def well(self) -> Ended:
        """Itself, if it went well."""
        assert self.status == 0, self
        return self

    def refused(self, status: int, *said: str) -> None:
        """Assert that it ended with the status and gave the reason, in words and on stderr only."""
        assert self.status == status, self
        assert self.stdout == "", self
        assert "Traceback" not in self.stderr, self
        assert "defect" not in self.stderr, self
        for words in said:
            assert words in self.stderr, self


class Terminal:
    """Runs commands, with the environment of the test only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        for name in os.environ:
            if name.startswith(("TXN_", "TXNCTL_")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("COLUMNS", "100")

    def __call__(self, *words: str, stdin: str | bytes = b"") -> Ended:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        streams = [io.TextIOWrapper(io.BytesIO(given if at == 0 else b""), encoding="utf-8") for at in range(3)]
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["txnctl", *words])
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Ended(status, *(_written(stream) for stream in streams[1:]))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()
