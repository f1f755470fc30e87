"""The report: what happened, what Spark read, and the verdict."""

from __future__ import annotations

from examples.demo_parts.check import Distance
from examples.demo_parts.load import Loaded
from examples.demo_parts.plan import LOADERS, PARTITIONS, SHORT_TIMEOUT_MS, TOPIC
from examples.demo_parts.reading import SparkResult
from examples.demo_parts.server import Server

COLUMNS = 4


def report(loaded: Loaded, server: Server, spark: SparkResult) -> str:
    """Return the whole story in lines for people."""
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
    """Return everything that is not as it must be, one line each; empty = the demo succeeded."""
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
        found.append(
            f"read_uncommitted shows {spark.contrast.rows} rows, which is not {rows} and {hidden} aborted ones"
        )
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
    # One each is the zombie's and the killed producer's.
    kinds = [f"{loaded.tally.aborted - surprises - 2} on purpose", "1 of the zombie", "1 timed out"]
    if surprises:
        kinds.append(f"{surprises} by the server and repeated")
    return ", ".join(kinds)


def _event_lines(loaded: Loaded, server: Server) -> list[str]:
    outage, zombie, killed = loaded.outage, loaded.zombie, loaded.killed
    return [
        f"Server: killed with SIGKILL after {outage.rows_before:,} rows, in the middle of transactions; "
        f"{server.starts - 1} restart",
        f"  took work again after {outage.serving_seconds:.1f} s; first commit {outage.commit_seconds:.1f} s "
        "after the kill",
        f"Zombie: stopped after {zombie.rows:,} rows of a transaction, replaced by a successor, woken and refused:",
        f"  {zombie.refusal}",
        f"Killed: a producer, by SIGKILL, after {killed.rows:,} rows of a transaction with a timeout of "
        f"{SHORT_TIMEOUT_MS / 1_000:.1f} s;",
        f"  the server aborted it {killed.seconds:.1f} s after the kill, a successor loaded its rows",
    ]


def _spark_lines(spark: SparkResult) -> list[str]:
    job, contrast = spark.job, spark.contrast
    miles = sum(found.miles for found in spark.distances.values())
    rate = (job.rows or 0) / (job.elapsed_ms / 1_000)
    return [
        f"Spark: the job read {job.rows:,} committed rows in {job.elapsed_ms / 1_000:.1f} s, {rate:,.0f} rows/s "
        "with Parquet written and hidden records counted",
        *(f"  {line}" for line in job.table().splitlines()),
        f"Contrast: read_uncommitted shows {contrast.rows:,} rows, {contrast.rows - (job.rows or 0):,} more: "
        f"{contrast.repeated:,} repeat a flight, {contrast.miles - miles:,} miles too many",
    ]


def _carrier_lines(carriers: dict[str, Distance]) -> list[str]:
    cells = [f"{name} {carriers[name].flights:>7,} {carriers[name].miles:>11,}" for name in sorted(carriers)]
    # Read down the columns.
    height = -(-len(cells) // COLUMNS)
    return ["  " + "    ".join(cells[line::height]) for line in range(height)]
