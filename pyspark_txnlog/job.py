"""Job that reads the committed records of topics, once or as a stream, and accounts for every offset.

Runs as `python -m pyspark_txnlog.job` and as `spark-submit pyspark_txnlog/job.py`. Exit status: 0 = done, 1 = failed
with one line that says why, 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark_txnlog.advice import Option
    from pyspark_txnlog.job_parts.account import Summary
    from pyspark_txnlog.job_parts.job_settings import JobSettings


_EXPLANATION: Final = """\
Only committed records are read, unless --isolation-level says otherwise: what aborted transactions left is hidden, and
what open ones wrote is not read yet.
Without --follow and --available-now, the end of each partition is fixed when the job starts. With one of them the job
is a stream: it goes on where its checkpoint ends, and a run that died or was stopped is repeated from there, so that
the output has every record once. Afterwards a table says, for each partition, which offsets this run has read, how many
records they gave, how many are hidden in them, and how many rows of them the output holds.

  pyspark_txnlog.job orders --output orders.parquet
  pyspark_txnlog.job orders --follow --starting-offsets earliest --output orders.lake --checkpoint orders.checkpoint
  pyspark_txnlog.job orders --available-now --format topic --output copy --checkpoint copy.checkpoint
  pyspark_txnlog.job orders --rows 5 --columns partition,offset,value"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit status."""
    problem = _missing_package()
    if problem:
        return _fail(problem)
    asked = _parser().parse_args(arguments)
    # gRPC would write lines of its own to stderr about errors that are reported here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from coordinator_client.errors import TransactionError
    from pyspark_txnlog.bounds import InvalidOption
    from pyspark_txnlog.job_parts.job_settings import JobFailed
    from pyspark_txnlog.job_parts.spark_session import JavaMissing
    from pyspark_txnlog.read.planning import UnknownTopic
    from pyspark_txnlog.read.ranges import DataLoss

    try:
        summary = _run(_settings(asked), is_progress_wanted=asked.progress)
    except TransactionError as error:
        return _fail(_why_unanswered(asked.endpoint, error), asked)
    except (JobFailed, InvalidOption, UnknownTopic, DataLoss, JavaMissing) as error:
        return _fail(str(error), asked)
    except (PySparkException, Py4JError) as error:
        return _fail(first_cause(str(error)), asked)
    except KeyboardInterrupt:
        return _fail("interrupted")
    print(summary.table())
    rows = "rows not counted" if summary.rows is None else f"{summary.rows:,} rows"
    print(f"{rows}, {summary.isolation}, {summary.elapsed_ms / 1_000:.1f} s", flush=True)
    return 0


def _run(settings: JobSettings, *, is_progress_wanted: bool) -> Summary:
    from coordinator_client.progress import ProgressShown
    from pyspark_txnlog.job_parts.committed_read import run_job
    from pyspark_txnlog.job_parts.job_settings import Mode
    from pyspark_txnlog.job_parts.streaming_job import run_stream

    if settings.mode is Mode.ONCE:
        shown = ProgressShown.EVERYWHERE if is_progress_wanted else ProgressShown.TERMINAL
        return run_job(settings, say=_say, shown=shown)
    return run_stream(settings, say=_say, is_stopping=_Signals())


class _Signals:
    """Callable that returns True after SIGTERM or SIGINT. A second signal ends the job at once."""

    def __init__(self) -> None:
        self._was_asked = self._is_listening = False

    def __call__(self) -> bool:
        if not self._is_listening:
            # Installed only once the stream runs, because PySpark sets its own handlers when it starts.
            self._is_listening = True
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._take)
        return self._was_asked

    def _take(self, number: int, _frame: object) -> None:
        self._was_asked = True
        signal.signal(number, signal.SIG_DFL)


def first_cause(message: str) -> str:
    """Return the line of a Spark error that has the cause. For an error raised in Python, that is its last line."""
    raised = re.findall(r"^(?:\w+\.)*(\w+): (.+)$", message, re.MULTILINE) if "Traceback" in message else []
    if raised:
        kind, reason = raised[-1]
        return f"{kind}: {reason}"
    thrown = re.search(r"^: (.+)$", message, re.MULTILINE) if message.startswith("An error occurred while") else None
    if thrown:
        return thrown[1]
    return message.strip().splitlines()[0] if message.strip() else "Spark failed without a reason"


def source_flags() -> dict[str, Option]:
    """Return the options of the source that the job accepts under their own names.

    Left out are the options that the job names differently and those without a meaning for it. The job reads no
    snapshots."""
    from pyspark_txnlog.advice import OPTIONS

    others = {"endpoint", "subscribe", "topicIds", "report", "pushdown", "snapshotLease"}
    flags = {name: option for name, option in OPTIONS.items() if name not in others}
    meaning = "read_uncommitted: also show records of open and of aborted transactions"
    return flags | {"isolationLevel": OPTIONS["isolationLevel"]._replace(meaning=meaning)}


def flag_of(option: str) -> str:
    """Return the name of a source option on the command line: rpcTimeoutMs is --rpc-timeout-ms."""
    return "--" + re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", option)


def _parser() -> argparse.ArgumentParser:
    from pyspark_txnlog.advice import DEFAULT_ENDPOINT
    from pyspark_txnlog.job_parts.job_settings import FORMATS

    parser = argparse.ArgumentParser(
        prog="pyspark_txnlog.job",
        description="Reads the committed records of topics to Parquet, a Delta or Iceberg table, another topic, or the"
        " console.",
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviated option may mean another one in a later version.
        allow_abbrev=False,
    )
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help="topics to read, all partitions of each; or see --assign"
    )
    parser.add_argument(
        "--endpoint", default=DEFAULT_ENDPOINT, metavar="HOST:PORT", help="the server (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        default="",
        metavar="PLACE",
        help="directory for Parquet or a Delta table, or name of an Iceberg table or, with --format topic, of a topic;"
        " without it, rows are printed",
    )
    parser.add_argument("--format", choices=FORMATS, help="default: parquet with --output, else console")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="rows to print (default: %(default)s)")
    parser.add_argument(
        "--no-audit",
        dest="is_audited",
        action="store_false",
        help="skip the comparison of the output with the log; it reads both again, or only the output of a stream",
    )
    parser.add_argument("--master", metavar="URL", help="where Spark runs, without spark-submit (default: local[*])")
    parser.add_argument("--remote", metavar="URL", help="a server of Spark Connect to ask instead, sc://HOST:PORT")
    parser.add_argument("--progress", action="store_true", help="show how far it is where stderr is no terminal, too")
    parser.add_argument("--traceback", action="store_true", help="show where an error happened")
    _add_stream_flags(parser)
    source = parser.add_argument_group("options of the source", "with its defaults; docs/spark.md says more of each")
    for name, (default, meaning) in source_flags().items():
        shown = f"{meaning} (default: {default})" if default else meaning
        source.add_argument(flag_of(name), dest=name, metavar="VALUE", help=shown)
    return parser


def _add_stream_flags(parser: argparse.ArgumentParser) -> None:
    from pyspark_txnlog.job_parts.job_settings import TRIGGER_INTERVAL, Mode

    stream = parser.add_argument_group("as a stream")
    how_long = stream.add_mutually_exclusive_group()
    how_long.add_argument(
        "--follow", dest="mode", action="store_const", const=Mode.FOLLOW, help="go on until SIGTERM or SIGINT"
    )
    how_long.add_argument(
        "--available-now", dest="mode", action="store_const", const=Mode.AVAILABLE_NOW, help="up to what there is now"
    )
    stream.add_argument(
        "--checkpoint", default="", metavar="DIR", help="directory for the progress of the stream; one for each output"
    )
    stream.add_argument(
        "--trigger-interval",
        default=TRIGGER_INTERVAL,
        metavar="TIME",
        help="with --follow, interval between looks for new records (default: %(default)s)",
    )


def _settings(asked: argparse.Namespace) -> JobSettings:
    from pyspark_txnlog.job_parts.job_settings import CONSOLE, PARQUET, JobSettings, Mode

    given: dict[str, str | None] = {name: getattr(asked, name) for name in source_flags()}
    given |= {"endpoint": asked.endpoint, "subscribe": ",".join(asked.topics) or None}
    return JobSettings(
        options={name: value for name, value in given.items() if value is not None},
        mode=asked.mode or Mode.ONCE,
        format=asked.format or (PARQUET if asked.output else CONSOLE),
        output=asked.output,
        checkpoint=asked.checkpoint,
        trigger_interval=asked.trigger_interval,
        is_overwriting=asked.overwrite,
        rows_shown=asked.rows,
        is_audited=asked.is_audited,
        master=asked.master,
        remote=asked.remote,
    )


def _missing_package() -> str | None:
    """Return the missing package as a message, or None. When started by its path, this file is not yet part of a
    package."""
    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - compared with texts of sys.path
    if not __package__:
        # Python puts this directory first, where our modules would hide other modules of the same name.
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != own]  # noqa: PTH100
    try:
        from pyspark_txnlog.read.reading import check_dependencies

        check_dependencies()
    except ImportError as error:
        return (
            f"{sys.executable} cannot import what the job needs ({error}): install txn-coordinator[spark] there, or "
            "name another Python with PYSPARK_PYTHON, also for spark-submit"
        )
    return None


def _why_unanswered(endpoint: str, error: Exception) -> str:
    from coordinator_client.errors import Retriable
    from coordinator_protocol.errors import ErrorCode

    if isinstance(error, Retriable) and error.code in {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}:
        return f"no server answers at {endpoint}; start one, or name another with --endpoint ({error.reason})"
    return str(error)


def _fail(reason: str, asked: argparse.Namespace | None = None) -> int:
    if asked is not None and asked.traceback:
        traceback.print_exc()
    _say(f"error: {' '.join(reason.split())}")
    return 1


def _say(line: str) -> None:
    print(f"txnlog: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
