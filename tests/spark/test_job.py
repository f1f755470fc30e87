"""The job as users start it: both ways, each once; and every mistake costs one line and no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyspark
import pytest

import pyspark_txnlog.job
from pyspark_txnlog.job import flag_of, main, source_flags
from pyspark_txnlog.job_parts.committed_read import run_job
from pyspark_txnlog.job_parts.job_settings import PARQUET, JobSettings
from tests.docs.fences import ROOT
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

JOB = Path(pyspark_txnlog.job.__file__)
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
UNSET = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_HOME"}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    path = os.pathsep.join(entry for entry in sys.path if Path(entry).is_dir())
    everything = kept | {"PYTHONPATH": path} | environment
    return subprocess.run(command, env=everything, capture_output=True, text=True, check=False)


@pytest.fixture
def flights(topics: Topics) -> str:
    topic = topics.create(2)
    topics.commit(topic, ["a", "b"])
    topics.abort(topic, ["x", "y", "z"])
    topics.commit(topic, ["c"], partition=1, encoding="records")
    return topic


@pytest.mark.long
@pytest.mark.spark
def test_python_m_writes_committed_records_to_parquet_and_accounts_for_all(
    topics: Topics, flights: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"

    done = run(
        sys.executable, "-m", "pyspark_txnlog.job", flights, "--endpoint", topics.endpoint, "--output", str(output)
    )

    assert done.returncode == 0, done.stderr
    rows = pq.read_table(output, columns=["partition", "offset", "value"]).to_pylist()
    assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (1, 0, b"c"),
    ]
    assert [line.split() for line in done.stdout.splitlines()[2:4]] == [
        [flights, "0", "0", "7", "7", "7", "2", "5", "3", "2", "0", "2"],
        [flights, "1", "0", "2", "2", "2", "1", "1", "0", "1", "0", "1"],
    ]
    assert done.stdout.splitlines()[-1].startswith("3 rows, read_committed, ")
    assert f"writing parquet to {output}" in done.stderr


@pytest.mark.long
@pytest.mark.spark
def test_spark_submit_shows_records_on_the_console(topics: Topics, flights: str, tmp_path: Path) -> None:
    done = run(
        str(SPARK_SUBMIT),
        "--master",
        "local[2]",
        str(JOB),
        *(flights, "--endpoint", topics.endpoint, "--isolation-level", "read_uncommitted", "--columns", "value,offset"),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )

    assert done.returncode == 0, done.stderr
    shown = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in done.stdout.splitlines() if "|" in line]
    assert sorted(shown) == [
        ("a", "0"),
        ("b", "1"),
        ("c", "0"),
        ("value", "offset"),
        ("x", "3"),
        ("y", "4"),
        ("z", "5"),
    ]
    assert done.stdout.splitlines()[-1].startswith("6 rows, read_uncommitted, ")


@pytest.mark.spark
def test_a_job_that_begins_at_a_time_reads_what_it_planned_though_more_comes_meanwhile(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.commit_at(topic, [(1_000, "a"), (2_000, "b"), (3_000, "c")])
    options = {"endpoint": topics.endpoint, "subscribe": topic, "startingTimestamp": "2000", "endingTimestamp": "9000"}

    def say(step: str) -> None:
        if step.startswith("writing"):
            topics.commit_at(topic, [(2_500, "late")])

    job = run_job(JobSettings(options=options, format=PARQUET, output=str(tmp_path / "out")), say=say, spark=spark)

    assert sorted(pq.read_table(tmp_path / "out", columns=["value"])["value"].to_pylist()) == [b"b", b"c"]
    assert [(found.start_offset, found.end_offset, found.rows) for found in job.partitions] == [(1, 4, 2)]


CONNECT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
source = spark.read.format("txnlog").option("endpoint", sys.argv[1]).option("subscribe", sys.argv[2])
print([(row.partition, row.offset, bytes(row.value)) for row in source.load().orderBy("partition", "offset").collect()])
spark.stop()
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_query_over_spark_connect_reads_committed_records(topics: Topics, flights: str) -> None:
    local = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = run(sys.executable, "-W", "ignore", "-c", CONNECT, topics.endpoint, flights, **local)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[(0, 0, b'a'), (0, 1, b'b'), (1, 0, b'c')]"


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the line that the job prints when it fails, and which is its only output."""
    assert main(arguments) == 1
    written = capsys.readouterr()
    assert written.out == ""
    (line,) = written.err.splitlines()
    return line


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(capsys, "flights", "--endpoint", "127.0.0.1:1", "--rpc-timeout-ms", "200")
    assert line.startswith("txnlog: error: no server answers at 127.0.0.1:1; start one, or name another")


def test_an_unknown_topic_is_one_line(capsys: pytest.CaptureFixture[str], topics: Topics) -> None:
    line = complaint(capsys, "no-such-topic", "--endpoint", topics.endpoint)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line
    assert "no-such-topic" in line


def test_an_output_that_exists_is_not_touched(
    capsys: pytest.CaptureFixture[str], topics: Topics, flights: str, tmp_path: Path
) -> None:
    line = complaint(capsys, flights, "--endpoint", topics.endpoint, "--output", str(tmp_path))
    assert f"{tmp_path} exists already; choose another directory, or say --overwrite" in line


def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "columns has 'size'; there are key, value," in complaint(capsys, "flights", "--columns", "size")
    assert "parquet, delta, iceberg and topic need --output" in complaint(capsys, "flights", "--format", "parquet")
    assert "need --checkpoint DIR" in complaint(capsys, "flights", "--follow", "--output", "out")
    assert "maxOffsetsPerTrigger limits a stream" in complaint(capsys, "flights", "--max-offsets-per-trigger", "5")
    assert "endingOffsets ends a batch read" in complaint(capsys, "flights", "--follow", "--ending-offsets", "latest")


def test_every_option_of_a_read_is_a_flag_of_the_same_name_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert flag_of("rpcTimeoutMs") == "--rpc-timeout-ms"
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name, (default, meaning) in source_flags().items():
        assert f"{flag_of(name)} VALUE {meaning}" in shown
        assert not default or f"{meaning} (default: {default})" in shown
    assert "snapshot" not in shown, "the job refuses that level"
    assert "a snapshot has none" in complaint(capsys, "flights", "--isolation-level", "snapshot")
    assert "a snapshot has none" in complaint(capsys, "flights", "--follow", "--isolation-level", "snapshot")
    assert "groupId" in complaint(capsys, "flights", "--starting-offsets", "group")
    assert "no record" not in complaint(capsys, "--assign", '{"t":[]}')


def test_a_machine_without_java_is_told_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, topics: Topics, flights: str, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([flights, "--endpoint", topics.endpoint]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("txnlog: error: Spark needs Java 17 or newer and none was found: install a Java 17 runtime")


@pytest.mark.long
@pytest.mark.spark
def test_it_runs_with_the_defaults_that_we_give_to_clusters(topics: Topics, flights: str, tmp_path: Path) -> None:
    """Only the place of Python is this machine's."""
    defaults = (ROOT / "ops/spark/spark-defaults.conf").read_text()
    file = tmp_path / "spark-defaults.conf"
    file.write_text(defaults.replace("/opt/txn-coordinator/bin/python", sys.executable))
    assert file.read_text() != defaults
    submit = [str(SPARK_SUBMIT), "--master", "local[2]", "--properties-file", str(file), str(JOB)]
    done = run(*submit, flights, "--endpoint", topics.endpoint)
    assert done.returncode == 0, done.stderr
    assert "Ignoring non-Spark config" not in done.stderr
    assert "3 rows, read_committed" in done.stdout


def test_the_file_alone_says_what_python_lacks(tmp_path: Path) -> None:
    alone = tmp_path / "job.py"
    alone.write_bytes(JOB.read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(alone), "flights"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot import what the job needs (No module named 'pyspark_txnlog')" in line
    assert "install txn-coordinator[spark] there" in line


def test_the_module_spark_looks_into_loads_nothing_heavy() -> None:
    program = (
        "import sys, pyspark_txnlog; print([name for name in ('grpc', 'pyarrow', 'pyspark') if name in sys.modules])"
    )
    assert run(sys.executable, "-c", program).stdout == "[]\n"


def test_help_names_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("--endpoint", "--output", "--follow", "--available-now", "--columns"))
