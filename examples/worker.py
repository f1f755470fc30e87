"""A worker: it takes jobs from a topic, writes their results, and stops in order on SIGTERM or Ctrl-C.

    .venv/bin/txnctl dev                            in one terminal
    .venv/bin/python examples/worker.py             in another; HOST:PORT may follow

Each result is written once, however often a worker dies: results and progress are committed together. Several workers
share the jobs if each has a slot of its own. `--jobs N` first makes N jobs, and stops once they are done.
"""

from __future__ import annotations

import argparse
import signal
from types import FrameType
from typing import Final

from coordinator_client import (
    Abortable,
    Admin,
    Consumer,
    ConsumerRecords,
    OutcomeUnknown,
    Producer,
    Recoverable,
    Retriable,
    Transaction,
    read,
    stable_id,
)

JOBS: Final = "jobs"
RESULTS: Final = "results"


class Stop:
    """Notes that the process is to stop. A batch that was begun is finished first."""

    def __init__(self) -> None:
        self.is_asked = False
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.is_asked = True


def work(endpoint: str, slot: int, jobs: int | None) -> int:
    """Work until asked to stop, or until `jobs` are done; return the number of jobs done."""
    done, stop = 0, Stop()
    with (
        Consumer(endpoint, group_id="workers", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
        Producer(endpoint, transactional_id=stable_id("worker", slot=slot)) as producer,
    ):
        # Fences the previous process of this slot, and aborts what it left open.
        producer.init()
        consumer.subscribe([JOBS])
        while not stop.is_asked and (jobs is None or done < jobs):
            batch = consumer.poll(timeout_ms=500)
            if batch and finish(consumer, producer, batch):
                done += len(batch)
    return done


def finish(consumer: Consumer, producer: Producer, batch: ConsumerRecords) -> bool:
    """Write the results of a batch; return False if it was rolled back, and comes again."""

    def write(txn: Transaction) -> None:
        for job in batch:
            txn.send(RESULTS, b"done: " + (job.value or b""), key=job.key)
        txn.commit_offsets(consumer, batch)

    try:
        producer.run(write, attempts=2)
    except (Abortable, Recoverable, Retriable):
        consumer.rewind(batch)
        return False
    except OutcomeUnknown:
        # The next start continues at the committed offsets, whatever the outcome is.
        consumer.rewind(batch)
        raise
    return True


def main() -> None:
    """Make the topics, and jobs if asked, then work."""
    parser = argparse.ArgumentParser(description="A worker that stops in order.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", metavar="HOST:PORT")
    parser.add_argument("--slot", type=int, default=0, metavar="N", help="number of this worker (default: 0)")
    parser.add_argument("--jobs", type=int, metavar="N", help="make N jobs, and stop once they are done")
    options = parser.parse_args()
    with Admin(options.endpoint) as admin:
        for topic in (JOBS, RESULTS):
            admin.create_topic(topic, 2, is_existing_ok=True)
    if options.jobs:
        with Producer(options.endpoint) as producer:
            for number in range(options.jobs):
                producer.send(JOBS, b"job %d" % number)
    print("done:", work(options.endpoint, options.slot, options.jobs))
    print("results:", sum(1 for _ in read(RESULTS, options.endpoint)))


if __name__ == "__main__":
    main()
