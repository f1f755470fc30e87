"""Workers that share a queue of jobs, each job done exactly once in spite of crashes: a share group and transactions.

    .venv/bin/txnctl dev                                                in one terminal
    .venv/bin/python examples/share_workers.py --jobs 500 --kills 5     in another: loads jobs, runs four workers, kills
    .venv/bin/python examples/share_workers.py --work --name worker-9   one more worker beside them, until Ctrl-C

It needs `make venv`, which installs into `.venv`. All workers are members of one share group. Each takes records of the
same partitions, and no two hold the same record. This is why no job is missing, and none is done twice:

1. A polled record is held for its worker for the lock duration. If the worker dies, the record is available again once
   its lock ends, or the group misses its heartbeats. It comes to another worker with a higher `delivery_count`.
2. One transaction takes the results of a batch AND its acknowledgements (`txn.acknowledge`). Both are committed, or
   neither.
3. A worker that dies leaves at most one open transaction. Its successor with the same `--name` aborts it on start, else
   its timeout does. Its records are then available again.
4. A worker that was stopped and lost its records unnoticed cannot acknowledge them any more: its transaction aborts.

With `--plain` the workers acknowledge without transactions. Then each job is done at least once: a worker that dies
between a result and its acknowledgement leaves a job that is done again.

The work is `done` below. A job that cannot be done is rejected. It does not come again, and has exactly one letter in
the dead-letter topic of the group (`share_dead_letter_topic`), also if its worker dies at that moment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

from coordinator_client import (
    Abortable,
    Admin,
    Producer,
    Recoverable,
    Retriable,
    ShareConsumer,
    ShareRecord,
    ShareRecords,
    read,
)

PARTITIONS: Final = 4
BAD_JOB_EVERY: Final = 97
"""Every so many jobs there is one that cannot be done."""

LOOK_MS: Final = 200
"""Time between two looks at the results (ms)."""


class BadJob(Exception):
    """A job that cannot be done."""


def main() -> int:
    """Run one worker, or load jobs, run workers, kill some, and check the results."""
    options = arguments()
    if options.work:
        with contextlib.suppress(KeyboardInterrupt):
            work(options)
        return 0
    prepare(options)
    with workers(options) as processes:
        supervise(options, processes)
    return check(options)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = os.environ.get("TXNCTL_SERVER", "127.0.0.1:7070")
    parser.add_argument("--server", default=server, help="HOST:PORT (default: %(default)s, or TXNCTL_SERVER)")
    parser.add_argument("--topic", default="jobs", help="topic with the jobs (default: %(default)s)")
    parser.add_argument("--results", default="results", help="topic with the results (default: %(default)s)")
    parser.add_argument("--letters", default="dead-jobs", help="dead-letter topic (default: %(default)s)")
    parser.add_argument("--group", default="workers", help="share group (default: %(default)s)")
    parser.add_argument(
        "--name", default="worker-0", help="of this worker: its transactional id (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=500, help="jobs to load (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default: %(default)s)")
    parser.add_argument(
        "--kills", type=int, default=5, help="workers to kill -9 and start again (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=5, help="most jobs in a transaction (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="acknowledge without transactions: at least once")
    parser.add_argument("--work", action="store_true", help="load nothing, be one worker, until Ctrl-C")
    return parser.parse_args()


# A worker


def work(options: argparse.Namespace) -> None:
    """Take jobs, write their results, and acknowledge them, for ever."""
    with (
        ShareConsumer(
            options.server,
            group_id=options.group,
            explicit=True,
            max_poll_records=options.batch,
            share_acquire_mode="record_limit",
            # A worker that starts while the server is down waits for it.
            wait_ms=None,
        ) as consumer,
        Producer(
            options.server,
            transactional_id=None if options.plain else options.name,
            transaction_timeout_ms=10_000,
            wait_ms=None,
        ) as producer,
    ):
        # Initialise first. This aborts a transaction that an earlier process with this name left open.
        producer.init()
        consumer.subscribe([options.topic])
        while True:
            batch = consumer.poll(timeout_ms=1_000)
            if options.plain:
                work_plainly(options, consumer, producer, batch)
            elif batch:
                work_in_transaction(options, consumer, producer, batch)


def work_in_transaction(
    options: argparse.Namespace, consumer: ShareConsumer, producer: Producer, batch: ShareRecords
) -> None:
    """Write the results of a batch and acknowledge it in one transaction."""
    try:
        with producer.transaction() as txn:
            for job in batch:
                try:
                    txn.send(options.results, done(job, options.name), key=job.key)
                except BadJob:
                    consumer.reject(job)
            txn.acknowledge(batch)
    except (Abortable, Recoverable, Retriable) as why:
        # Nothing of the transaction is visible. What is still held comes again. Every other error ends the process,
        # which is always safe: the acknowledgements are committed with the results.
        print(f"once more: {why}", file=sys.stderr)
        consumer.release(batch)


def work_plainly(options: argparse.Namespace, consumer: ShareConsumer, producer: Producer, batch: ShareRecords) -> None:
    """Write each result, then acknowledge its job."""
    for job in batch:
        try:
            producer.send(options.results, done(job, options.name), key=job.key)
            producer.flush()
            consumer.accept(job)
        except BadJob:
            consumer.reject(job)


def done(job: ShareRecord, name: str) -> bytes:
    """Do a job, and return its result. Raises: BadJob."""
    number = int(job.value or b"")
    if is_bad(number):
        raise BadJob(number)
    return json.dumps({"job": number, "square": number * number, "by": name, "delivery": job.delivery_count}).encode()


def is_bad(number: int) -> bool:
    """Return True for a job that cannot be done."""
    return number % BAD_JOB_EVERY == BAD_JOB_EVERY - 1


# All of it


def prepare(options: argparse.Namespace) -> None:
    """Create the topics, let the group begin at the first job, and load the jobs in one transaction."""
    with Admin(options.server) as admin:
        for topic in (options.topic, options.results, options.letters):
            admin.create_topic(topic, PARTITIONS, is_existing_ok=True)
        settings: dict[str, int | str] = {
            "share_auto_offset_reset": "earliest",
            "share_isolation_level": "read_committed",
            # The jobs of a worker that was killed come back soon.
            "share_record_lock_duration_ms": 15_000,
            "share_dead_letter_topic": options.letters,
        }
        admin.alter_group_configs(options.group, settings)
    with Producer(options.server, transactional_id=f"{options.name}-load") as producer, producer.transaction() as txn:
        for number in range(options.jobs):
            txn.send(options.topic, b"%d" % number, partition=number % PARTITIONS)


@contextlib.contextmanager
def workers(options: argparse.Namespace) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the worker processes within the block."""
    processes = [start(options, number) for number in range(options.workers)]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def start(options: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    """Start a worker, the first or the next one with its name."""
    command = [sys.executable, __file__, "--work", "--server", options.server, "--topic", options.topic]
    command += ["--results", options.results, "--group", options.group, "--batch", str(options.batch)]
    command += ["--name", f"{options.group}-{number}", *(["--plain"] if options.plain else [])]
    return subprocess.Popen(command)


def supervise(options: argparse.Namespace, processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill a worker now and then, and start its successor, until every job has a result or a letter."""
    choose = random.Random(options.jobs)
    wanted = {number for number in range(options.jobs) if not is_bad(number)}
    killed = 0
    while (
        (found := jobs_done(options)).keys() < wanted
        or jobs_given_up(options).total() < options.jobs - len(wanted)
        or killed < options.kills
    ):
        if killed < options.kills and len(found) * (options.kills + 1) >= len(wanted) * (killed + 1):
            number = choose.randrange(options.workers)
            processes[number].kill()
            processes[number].wait()
            processes[number] = start(options, number)
            killed += 1
            print(f"killed worker {number} after {len(found)} jobs")
        pause(processes)


def pause(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait a little. Raises: RuntimeError if a worker ended by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        processes[0].wait(LOOK_MS / 1_000)
    if any(process.poll() is not None for process in processes):
        raise RuntimeError("a worker ended by itself")


def jobs_done(options: argparse.Namespace) -> Counter[int]:
    """Return the number of visible results of each job."""
    return Counter(json.loads(record.value or b"{}")["job"] for record in read(options.results, options.server))


def jobs_given_up(options: argparse.Namespace) -> Counter[int]:
    """Return the number of letters of each job. A letter has the value of its record."""
    return Counter(int(letter.value or b"-1") for letter in read(options.letters, options.server))


def check(options: argparse.Namespace) -> int:
    """Compare jobs, results and letters. Returns 0 if each good job was done, in transactions only once, and each bad
    one has one letter."""
    found, letters = jobs_done(options), jobs_given_up(options)
    wanted = {number for number in range(options.jobs) if not is_bad(number)}
    missing = len(wanted - found.keys())
    again = sum(count - 1 for count in found.values())
    print(f"{options.jobs} jobs, {letters.total()} dead letters, {missing} missing, {again} done again")
    is_each_once = letters == Counter(number for number in range(options.jobs) if is_bad(number))
    return 0 if not missing and is_each_once and (options.plain or not again) else 1


if __name__ == "__main__":
    sys.exit(main())
