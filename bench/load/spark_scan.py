"""Reads a topic with Spark in batch mode and discards the rows. Operations are rows.

It runs in the environment of either side, so it imports only the measuring modules of the project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.results import Run
from bench.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORES: Final = 2
WARM_UP_SCANS: Final = 4
"""Number of scans before the measured ones. The JVM compiles on the cores that read: the second scan takes half as long
again as the fifth, for every source, and its time differs from run to run."""
_MEASURED_SCANS: Final = 3
"""Number of scans that are measured as one. A single scan takes a second or two, of which other programs on the machine
may take half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load: the source and its options."""

    format: str
    options: Mapping[str, str]
    jars: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, besides those of every load."""
    server_process_id: int = 0
    """Process to report the processor time of; 0 = none."""


def measure(load: Load) -> Run:
    """Count the rows, read them until the JVM has compiled the reading code, and measure."""
    spark = session(load)
    try:
        rows = _records(spark, load).count()
        for _ in range(WARM_UP_SCANS):
            _scan(spark, load)
        window = Window(load.server_process_id)
        for _ in range(_MEASURED_SCANS):
            _scan(spark, load)
        return window.close(rows * _MEASURED_SCANS)
    finally:
        spark.stop()


def session(load: Load) -> SparkSession:
    """Start Spark with the settings of the load."""
    # All connections stay on this machine, and the workers run in the Python of this environment.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{_CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if load.jars:
        builder = builder.config("spark.jars", ",".join(load.jars))
    for name, value in load.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if load.format == "constant":
        from bench.load.constant_source import ConstantSource

        spark.dataSource.register(ConstantSource)
    return spark


def _records(spark: SparkSession, load: Load) -> DataFrame:
    return spark.read.format(load.format).options(**load.options).load()


def _scan(spark: SparkSession, load: Load) -> None:
    _records(spark, load).write.format("noop").mode("overwrite").save()
