"""Report of the demo: the events, the rows that Spark read, and the verdict."""

from __future__ import annotations

from examples.demo_parts.check import Distance
from examples.demo_parts.load import Loaded
from examples.demo_parts.plan import LOADERS, PARTITIONS, SHORT_TIMEOUT_MS, TOPIC
from examples.demo_parts.reading import SparkResult
from examples.demo_parts.server import Server

COLUMNS = 4


def report(loaded: Loaded, server: Server, spark: SparkResult) -> str:
    """Return the report as lines for people."""
    return "\n".join(
        [
            *_load_lines(loaded),
            *_event_lines(loaded, server),
            *_spark_lines(spark),
            "",
            "Distances by carrier, as Spark summed them (flights, miles), equal to those of the data set",
            *_carrier_lines(spark.distances),
            "",
        ]
    )


def problems(rows: int, loaded: Loaded, spark: SparkResult) -> list[str]:
    """Return all problems, one line each; empty if the demo succeeded."""
    tally, job, found = loaded.tally, spark.job, list(spark.comparison.differences)
    hidden = job.aborted_records or 0
    if tally.committed_rows != rows:
        found.append(f"the producers committed {tally.committed_rows} rows, not {rows}")
    if job.rows != rows:
        found.append(f"the Spark job read {job.rows} rows, not {rows}")
    if spark.comparison.matching != rows:
        found.append(f"{spark.comparison.matching} of {rows} rows are as in the data set")
    if hidden < tally.aborted_rows or (hidden > tally.aborted_rows and not tally.surprises):
        found.append(f"{hidden} aborted records are hidden, and producers aborted {tally.aborted_rows}")
    if hidden == 0:
        found.append("no aborted record was hidden, so nothing was shown")
    if spark.contrast.rows - rows != hidden:
        found.append(f"read_uncommitted shows {spark.contrast.rows} rows, not {rows} and {hidden} aborted ones")
    return found


def verdict(rows: int, spark: SparkResult) -> str:
    """Return the last line."""
    comparison = spark.comparison
    return (
        f"demo: OK, {comparison.matching} of {rows} flights, {comparison.missing} missing, "
        f"{comparison.duplicated} duplicated, {spark.job.aborted_records} aborted records hidden"
    )


def _load_lines(loaded: Loaded) -> list[str]:
    tally = loaded.tally
    rate = tally.committed_rows / loaded.seconds
    return [
        "",
        f"Load: {tally.committed_rows:,} flights in {loaded.seconds:.1f} s, {rate:,.0f} rows/s with the outage,",
        f"  by {LOADERS} producers and 2 successors over {PARTITIONS} partitions of the topic {TOPIC}",
        f"  {tally.committed} transactions committed, {tally.aborted} aborted ({_aborted(loaded)})",
    ]


def _aborted(loaded: Loaded) -> str:
    surprises = len(loaded.tally.surprises)
    # One abort each belongs to the zombie and to the killed producer.
    kinds = [f"{loaded.tally.aborted - surprises - 2} on purpose", "1 of the zombie", "1 timed out"]
    if surprises:
        kinds.append(f"{surprises} by the server and repeated")
    return ", ".join(kinds)


def _event_lines(loaded: Loaded, server: Server) -> list[str]:
    outage, zombie, killed = loaded.outage, loaded.zombie, loaded.killed
    timeout_seconds = SHORT_TIMEOUT_MS / 1_000
    return [
        f"Server: killed with SIGKILL after {outage.rows_before:,} rows, in the middle of transactions",
        f"  {server.starts - 1} restart on the same directory and port: {outage.serving_seconds:.1f} s without service",
        f"  first commit {outage.commit_seconds:.1f} s after the kill",
        f"Zombie: a producer, stopped after {zombie.rows:,} rows of a transaction and replaced by a successor",
        f"  woken up, it went on and was refused: {zombie.refusal}",
        f"Killed: a producer, with SIGKILL, after {killed.rows:,} rows of a transaction",
        f"  aborted by the server after {killed.seconds:.1f} s (its timeout is {timeout_seconds} s)",
        "  a successor loaded its rows",
    ]


def _spark_lines(spark: SparkResult) -> list[str]:
    job, contrast = spark.job, spark.contrast
    seconds = job.elapsed_ms / 1_000
    committed = job.rows or 0
    miles = sum(found.miles for found in spark.distances.values())
    return [
        f"Spark: the job read {committed:,} committed rows in {seconds:.1f} s, {committed / seconds:,.0f} rows/s,",
        "  with Parquet written and hidden records counted",
        *(f"  {line}" for line in job.table().splitlines()),
        f"Contrast: read_uncommitted shows {contrast.rows:,} rows, {contrast.rows - committed:,} more",
        f"  {contrast.repeated:,} of them repeat a flight, and the sum is {contrast.miles - miles:,} miles too large",
    ]


def _carrier_lines(carriers: dict[str, Distance]) -> list[str]:
    cells = [f"{name} {carriers[name].flights:>7,} {carriers[name].miles:>11,}" for name in sorted(carriers)]
    # The table is read down the columns.
    height = -(-len(cells) // COLUMNS)
    return ["  " + "    ".join(cells[line::height]) for line in range(height)]
