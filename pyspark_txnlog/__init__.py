"""Spark data source `txnlog`, which reads committed records of the log and writes records to it.

`spark.read.format("txnlog").option("endpoint", "HOST:PORT").option("subscribe", "topic").load()` works without a
registration call. Spark imports every module called `pyspark_*` when it looks for formats. So this module loads nothing
until one of its names is used. The tasks that need grpc and pyarrow load them.
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
