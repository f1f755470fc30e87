"""The lines on the machine's speed at the head of a report."""

from __future__ import annotations

import re
from pathlib import Path

from bench.probes import probes


def test_the_disk_the_threads_and_the_interpreter_are_probed_and_nothing_is_left(tmp_path: Path) -> None:
    found = probes(tmp_path / "stores")
    assert list(found) == [
        "append and flush of 4 KiB",
        "to another thread and back",
        "a turn of an empty Python loop",
    ]
    for said in found.values():
        assert float(re.findall(r"[0-9.]+", said.replace(",", ""))[0]) > 0, said
    assert list((tmp_path / "stores").iterdir()) == []
