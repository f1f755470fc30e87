"""One Spark session and one server for all tests here: both are slow to start, and every test has topics of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator_client.admin.admin import Admin
from coordinator_client.transport.connection import Connection
from tests.harness.compacted_topic import SOON
from tests.harness.server_process import ServerProcess
from tests.spark.streams import Stream
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("spark") / "log", environment=SOON) as running:
        yield running


@pytest.fixture(autouse=True)
def own_connections() -> Iterator[None]:
    """Close the connections that a test has the source open in this process, where a job keeps them open: other tests
    of the process count sessions and loops."""
    yield
    if (connections := sys.modules.get("pyspark_txnlog.connections")) is not None:
        while connections._CONNECTIONS:
            connections._CONNECTIONS.popitem()[1].close()


@pytest.fixture
def topics(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Topics]:
    """Makes and fills topics named after the test."""
    with Topics(server.address, prefix=request.node.name) as made:
        yield made


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    with Connection(server.address, client_id="tests") as connection:
        yield Admin(connection)


@pytest.fixture
def stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> Stream:
    """Runs a stream up to what is there, again and again."""
    return Stream(spark, topics, tmp_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2,4]`: two tasks at once, and up to three repeats of one, which `local[2]` would not allow."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # The JVM hands its environment to the workers, which then find the packages that this process found.
        environment.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if Path(entry).is_dir()))
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2,4]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        yield session
        session.stop()
