"""What a job is asked to do, checked before Spark starts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark_txnlog.bounds import InvalidOption


class JobFailed(RuntimeError):
    """The job cannot do what it was asked for, or did not; the message is for people."""


class Mode(StrEnum):
    """How long a job reads."""

    ONCE = "once"
    """A batch read: up to the ends that it finds, and no checkpoint."""

    AVAILABLE_NOW = "available-now"
    """A stream up to the ends that it finds, which goes on behind its checkpoint the next time."""

    FOLLOW = "follow"
    """A stream until it is stopped."""


PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
TOPIC: Final = "topic"
CONSOLE: Final = "console"
FORMATS: Final = (PARQUET, DELTA, ICEBERG, TOPIC, CONSOLE)

TRIGGER_INTERVAL: Final = "1 second"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings of a job: what to read and where to put it."""

    options: dict[str, str]
    """Options of the source, by name."""

    mode: Mode = Mode.ONCE

    format: str = CONSOLE
    """One of `FORMATS`."""

    output: str = ""
    """The directory of Parquet or of a Delta table, or the name of an Iceberg table or of a topic of the same server;
    nothing for the console."""

    checkpoint: str = ""
    """The directory in which a stream notes how far it is; only the console does without, and then begins anew."""

    trigger_interval: str = TRIGGER_INTERVAL
    """How often a stream looks for more. Shorter: less latency, and more calls of the server while nothing comes.
    Longer: fewer, larger micro-batches, hence fewer files."""

    is_overwriting: bool = False
    """Whether to replace what is in the output; otherwise it must not exist. Not for streams, which append."""

    rows_shown: int = 20
    """How many rows are printed on the console, of a stream for each micro-batch."""

    is_audited: bool = True
    """Whether to compare with the log what the output holds. A batch read reads the ranges once more for that, without
    their records reaching Spark, and so tells also why what is hidden is hidden."""

    master: str | None = None
    """Where Spark runs, unless spark-submit says so. Default: local[*]."""

    remote: str | None = None
    """Where the server of Spark Connect is, if Spark is asked by way of one."""

    def __post_init__(self) -> None:
        """Check what goes together. Raises: InvalidOption."""
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
