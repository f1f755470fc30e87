"""docs/spark.md names every option of the source with the default that the source has, and its programs run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_client.admin.admin import Admin
from coordinator_client.producer.producer import Producer
from pyspark_txnlog.advice import ALIASES, OPTIONS
from pyspark_txnlog.write.sink_options import SINK_ALIASES, SINK_OPTIONS
from tests.docs.fences import PROGRAMS, ROOT, commands, fences

NAME = "docs/spark.md"
PAGE = (ROOT / NAME).read_text()
DEFAULT_ENDPOINT = "127.0.0.1:7070"
COMMANDS = commands(NAME)
PRELUDE = """\
from pyspark_txnlog.job_parts.spark_session import start_spark
spark = start_spark("page")
"""
END = """
assert orders.count() == 3
assert [bytes(row.value) for row in late.where("partition = 0 and offset >= 1").collect()] == [b"1"]
written = spark.read.format("txnlog").options(endpoint="127.0.0.1:7070", subscribe="even,odd").load()
found = sorted((row.topic, bytes(row.value)) for row in written.collect())
assert found == [("even", b"0"), ("even", b"2"), ("odd", b"1")]
spark.stop()
"""


READING, _, WRITING = PAGE.partition("## Writing")


@pytest.mark.parametrize(
    ("part", "options"),
    [(READING, {name: option.default for name, option in OPTIONS.items()}), (WRITING, dict(SINK_OPTIONS))],
    ids=["reading", "writing"],
)
def test_the_page_has_a_row_for_each_option_and_no_other(part: str, options: dict[str, str]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| (?=.*\| .* \|$)", part, re.MULTILINE)
    assert dict(rows) == options


def test_the_page_names_what_is_understood_of_kafka() -> None:
    assert all(f"`{alias}`" in PAGE for alias in (*ALIASES, *SINK_ALIASES))


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    """Blocks of `text` need packages that are not installed here."""
    assert {block.language for block in fences(NAME)} == {"sh", "python", "text"}
    assert all("--packages" in block.text for block in fences(NAME) if block.language == "text")


@pytest.fixture(scope="module")
def filled(endpoint: str) -> str:
    """The server with the topic that the page reads."""
    with Admin(endpoint) as admin:
        admin.create_topic("orders", 2)
        for written in ("shouted", "even", "odd"):
            admin.create_topic(written, 1)
    with (
        Producer(endpoint, transactional_id="page", encoding="arrow") as producer,
        producer.transaction() as transaction,
    ):
        for number in range(3):
            transaction.send("orders", str(number).encode(), partition=number // 2)
    return endpoint


def run(arguments: list[str], directory: Path) -> str:
    environment = os.environ | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(arguments, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_the_programs_of_the_page_run(filled: str, tmp_path: Path) -> None:
    parts = [block.text for block in fences(NAME) if block.language == "python"]
    program = "".join([PRELUDE, *parts, END]).replace(DEFAULT_ENDPOINT, filled)
    run([sys.executable, "-c", program], tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(filled: str, command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    shown = run([str(PROGRAMS / program), *arguments, "--endpoint", filled], tmp_path)
    assert "--help" in command or shown.splitlines()[-1].startswith("3 rows, read_committed")
