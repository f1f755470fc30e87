"""Start of a Spark session for programs that are run by hand, on one machine or by spark-submit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_txnlog.job_parts.job_settings import JobSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
_LOOPBACK: Final = "127.0.0.1"
_SHORT_ERRORS: Final = ("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
"""Setting that makes errors of sources begin with the reason."""


class JavaMissing(RuntimeError):
    """Spark needs Java, and none was found."""


def is_submitted() -> bool:
    """True if spark-submit started this program. Then the JVM runs already and has its settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def job_session(
    settings: JobSettings, spark: SparkSession | None, say: Callable[[str], None]
) -> Iterator[SparkSession]:
    """Yield the given session, or start one and stop it at the end. Raises the errors of `start_spark`."""
    if spark is not None:
        yield spark
        return
    say(f"asking the Spark at {settings.remote}" if settings.remote else "starting Spark")
    started = start_spark("txnlog committed read", master=settings.master, remote=settings.remote)
    try:
        yield started
    finally:
        started.stop()


def start_spark(app_name: str, *, master: str | None = None, remote: str | None = None) -> SparkSession:
    """Start Spark and return its `SparkSession`.

    Under spark-submit, the settings are those of spark-submit. Otherwise Spark runs locally with `master` (default
    local[*]). With `remote`, such as sc://HOST:PORT, a Spark Connect server is used, which has a Python of its own.

    On one machine, workers run in this same Python and everything stays on the loopback address, unless PYSPARK_PYTHON
    and SPARK_LOCAL_IP say otherwise. Raises: JavaMissing.
    """
    if remote:
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName(app_name).remote(remote).config(*_SHORT_ERRORS).getOrCreate()
    if is_submitted():
        chosen = _submitted_master() or master or "local[*]"
    else:
        check_java()
        chosen = master or "local[*]"
    if chosen.startswith("local"):
        # Otherwise workers run in the first `python3` of the search path, which rarely has our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # A machine with a name that does not resolve, like many laptops, could not reach itself.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(chosen)
    builder = builder.config(*_SHORT_ERRORS)
    if is_submitted() and chosen.startswith("local"):
        # The JVM was started before the variable was set. Its INFO lines would hide ours.
        builder = builder.config("spark.driver.host", _LOOPBACK).config("spark.driver.bindAddress", _LOOPBACK)
        builder = builder.config("spark.log.level", "WARN")
    if not is_submitted():
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        # Its line would mix with ours.
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.getOrCreate()


def check_java() -> None:
    """Check that the Java exists that Spark would start. Raises: JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            return
        problem = f"JAVA_HOME is {home} and {program} cannot be started"
    elif shutil.which("java"):
        return
    else:
        problem = "none was found"
    raise JavaMissing(
        f"Spark needs Java {OLDEST_JAVA} or newer and {problem}: install a Java {OLDEST_JAVA} runtime "
        f"(Debian and Ubuntu: openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME"
    )


def _submitted_master() -> str | None:
    from pyspark import SparkConf, SparkContext

    # SparkConf sees the settings of spark-submit only with an open gateway.
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")
