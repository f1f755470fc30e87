"""The whole demo, end to end, on a small part of the data: real processes, real kills, real Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo_parts.plan import ROWS_MIN
from tests.harness import forked
from tests.harness.flights import require_flights

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "examples" / "demo.py"
STREAMING_DEMO = ROOT / "examples" / "demo_streaming.py"
SECURE_DEMO = ROOT / "examples" / "demo_secure.py"
ROWS = 6_000


@pytest.fixture
def flights() -> None:
    require_flights()


def run_demo(
    *arguments: str, scratch: Path, program: Path = DEMO, **environment: str
) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [sys.executable, str(program), *arguments],
        env=os.environ | {"TMPDIR": str(scratch)} | environment,
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("flights")
def test_the_demo_finds_every_flight_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_demo("--rows", str(ROWS), scratch=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.fullmatch(
        rf"demo: OK, {ROWS} of {ROWS} flights, 0 missing, 0 duplicated, (\d+) aborted records hidden",
        done.stdout.splitlines()[-1],
    )
    assert said is not None, done.stdout
    assert int(said[1]) > 0
    assert "refused: PRODUCER_FENCED (90)" in done.stdout
    assert "1 restart on the same directory and port" in done.stdout
    assert f"read_uncommitted shows {ROWS + int(said[1]):,} rows" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("txn-demo-")] == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("flights")
def test_the_streaming_demo_copies_every_flight_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_demo("--rows", str(ROWS), scratch=tmp_path, program=STREAMING_DEMO)
    assert done.returncode == 0, done.stdout + done.stderr
    killed, verdict = done.stdout.splitlines()
    assert verdict == f"demo-streaming: OK, {ROWS} of {ROWS} flights copied once, 0 missing, 0 duplicated"
    assert killed.startswith("killed: 2 executors, 2 times the server, 3 times the driver; ")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("txn-demo-")] == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("flights")
def test_the_secure_demo_goes_on_behind_its_backup_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_demo("--rows", str(ROWS), scratch=tmp_path, program=SECURE_DEMO)
    assert done.returncode == 0, done.stdout + done.stderr
    refused, on_record, restored, verdict = done.stdout.splitlines()
    assert refused == (
        "refused: a stranger who reads (CLUSTER_AUTHORIZATION_FAILED);"
        " the loader who reads (TOPIC_AUTHORIZATION_FAILED);"
        " the analyst who writes (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)"
    )
    # Five acts: a topic, three rules, a backup. A refusal is on record as often as the SDK asked again.
    said = re.fullmatch(r"on record: 5 act, \d+ fenced, (\d+) refused, (\d+) unauthenticated", on_record)
    assert said is not None, on_record
    assert int(said[1]) >= 2
    assert int(said[2]) >= 1
    assert restored.startswith(f"restored: {ROWS // 2} flights of the backup after the disk was lost")
    assert verdict == f"demo-secure: OK, {ROWS} of {ROWS} flights, 0 missing, 0 duplicated"
    lines = done.stderr.splitlines()
    assert [line for line in lines if not line.startswith("demo: ")] == []
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("txn-demo-")] == []


@pytest.mark.slow
def test_without_java_it_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    done = run_demo(scratch=tmp_path, JAVA_HOME=str(tmp_path / "no-java"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"demo: FAILED, Spark needs Java 17 or newer .*: install .*\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["0", str(ROWS_MIN - 1), "336777", "many"])
def test_an_impossible_number_of_rows_is_refused(tmp_path: Path, rows: str) -> None:
    done = run_demo("--rows", rows, scratch=tmp_path)
    assert done.returncode == 2
    assert f"'{rows}' is no number from {ROWS_MIN} to 336776" in done.stderr
