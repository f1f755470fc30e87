"""Settings of a job, checked before Spark starts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark_txnlog.bounds import InvalidOption


class JobFailed(RuntimeError):
    """The job cannot do its work, or did not. The message is for people."""


class Mode(StrEnum):
    """End of a job's read."""

    ONCE = "once"
    """Batch read up to the current ends, without a checkpoint."""

    AVAILABLE_NOW = "available-now"
    """Stream up to the current ends. The next run continues after its checkpoint."""

    FOLLOW = "follow"
    """Stream until it is stopped."""


PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
TOPIC: Final = "topic"
CONSOLE: Final = "console"
FORMATS: Final = (PARQUET, DELTA, ICEBERG, TOPIC, CONSOLE)

TRIGGER_INTERVAL: Final = "1 second"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Settings of a job: the records to read and the place to write them to."""

    options: dict[str, str]
    """Options of the source, by name."""

    mode: Mode = Mode.ONCE

    format: str = CONSOLE
    """One of `FORMATS`."""

    output: str = ""
    """Directory of Parquet or of a Delta table, or name of an Iceberg table or of a topic on the same server. Empty for
    the console."""

    checkpoint: str = ""
    """Directory in which a stream stores its progress. Only the console may go without, and then starts anew."""

    trigger_interval: str = TRIGGER_INTERVAL
    """Interval at which a stream looks for more records. Shorter: lower latency, but more calls to the server while no
    records arrive. Longer: fewer, larger micro-batches, hence fewer files."""

    is_overwriting: bool = False
    """True to replace the output; otherwise it must not exist. Not for streams, which append."""

    rows_shown: int = 20
    """Number of rows to print on the console, for a stream in each micro-batch."""

    is_audited: bool = True
    """True to compare the output with the log.

    For that, a batch read reads the ranges once more, but no record reaches Spark. So the account also shows why
    records are hidden."""

    master: str | None = None
    """Master of Spark, unless spark-submit sets it. Default: local[*]."""

    remote: str | None = None
    """Address of a Spark Connect server, if Spark is used through one."""

    def __post_init__(self) -> None:
        """Check the combination of settings. Raises: InvalidOption."""
        is_stream = self.mode is not Mode.ONCE
        if (self.format == CONSOLE) == bool(self.output):
            raise InvalidOption("parquet, delta, iceberg and topic need --output, which says where; console has none")
        if self.format == TOPIC and self.is_overwriting:
            raise InvalidOption("--overwrite is not for topics, which are only ever appended to; leave it out")
        if is_stream and self.is_overwriting:
            raise InvalidOption("--overwrite is not for streams, which append: name a new --output and --checkpoint")
        if is_stream and self.output and not self.checkpoint:
            raise InvalidOption(
                "--follow and --available-now need --checkpoint DIR, where the stream notes how far it is; it goes "
                "with its output and is never shared"
            )
        if self.checkpoint and not is_stream:
            raise InvalidOption("--checkpoint is of a stream: say --follow or --available-now too")
        if self.master and self.remote:
            raise InvalidOption("--master starts a Spark and --remote uses one that runs; set one of them")
