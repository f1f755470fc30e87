"""How many rows a transaction is stored as: the table, and that the command measures this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.rows import Rows, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_has_a_line_for_each_family_and_one_for_all() -> None:
    rows = Rows(together={"LOG": (3, 850.4), "HISTORY": (0.25, 50)}, alone={"LOG": (3, 850.4), "PARTITIONS": (3, 1300)})
    assert table(rows).splitlines()[2:] == [
        "| HISTORY | 0.25 | 50 | 0.00 | 0 |",
        "| LOG | 3.00 | 850 | 3.00 | 850 |",
        "| PARTITIONS | 0.00 | 0 | 3.00 | 1,300 |",
        "| **sum** | 3.25 | 900 | 6.00 | 2,150 |",
    ]


def test_every_family_that_a_transaction_writes_is_counted() -> None:
    command = [sys.executable, "-m", "bench.rows"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {}
    for line in done.stdout.splitlines()[2:]:
        family, together, *_ = line.strip("| ").split(" | ")
        rows[family] = float(together)
    assert {"LOG", "COORDINATOR_STATE", "HISTORY", "PARTITIONS", "PRODUCERS"} <= rows.keys()
    assert rows["LOG"] >= 3, "there is a row for each batch"
    assert rows["PARTITIONS"] < 1, "heads are shared in a group"
