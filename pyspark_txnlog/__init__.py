"""Spark data source `txnlog`, which reads committed records of the log and writes records to it.

`spark.read.format("txnlog").option("endpoint", "HOST:PORT").option("subscribe", "topic").load()` works without a
registration call. Spark imports every module called `pyspark_*` when it looks for formats. So this module loads nothing
until one of its names is used. The tasks that need grpc and pyarrow load them.

For maintainers: `source` is the format, and chooses a reader or writer for a query. Spark pickles readers and writers,
and sends them to other processes. So they are plain values, and none opens a connection before it runs.

- A read is planned once, on the driver: `read/planning` asks the server for positions and fixes ranges of offsets. A
  task that is repeated reads the same range again. A micro-batch of a stream ends at last stable offsets.
- A write is a batch of a sink: each task joins it as a member, writes and seals. The driver's `commit` decides for all
  of them by one record (decision 39).
- `job` is a program around both, with its parts in `job_parts`.

Reading order: `source`, `options`, `read/reading`, `read/planning`, `read/ranges`, `read/arrow_rows`,
`read/stream_source`, `write/sink`, `write/sink_task`, `job`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_txnlog.source import DefaultSource, read_committed, register

__all__ = ["DefaultSource", "read_committed", "register"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_txnlog import source

    return getattr(source, name)
