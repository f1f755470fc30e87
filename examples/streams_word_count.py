"""A word count by several processes, exact in spite of `kill -9`: a streams group and transactions.

    .venv/bin/txnctl dev                                                   in one terminal
    .venv/bin/python examples/streams_word_count.py                        in another: loads, runs three workers, kills
    .venv/bin/python examples/streams_word_count.py --work --name words-9  one more worker beside them, until Ctrl-C

It needs `make venv`, which installs into `.venv`. All workers are members of one streams group. Each describes the same
topology, of two parts, and the server places its tasks on the workers:

1. A task of `split` reads a partition of the sentences, and writes their words to a repartition topic, by key. So all
   occurrences of a word come to the same task of the next part. The server makes the repartition topic.
2. A task of `count` reads a partition of the words, counts them, and writes each new count to a changelog, which the
   server makes, too. The counts are the state of the task. A standby task at another worker keeps a copy.

This is why every count is exact, whichever worker dies at whatever moment:

1. One transaction takes what a worker writes AND the offsets of what it has read (`txn.commit_offsets`). Both are
   committed, or neither.
2. Only the worker at which a task is active can commit its offsets. The transaction of a worker that lost the task
   unnoticed is aborted.
3. The next owner of a task asks for its committed offsets (`member.committed`), which waits for an open transaction of
   the last owner. Then it brings its copy of the counts up to the end of the changelog, and goes on from there.

The tasks of a worker that dies move once its session is over, by default after 45 s (`streams_session_timeout_ms`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_client import (
    Abortable,
    Admin,
    Consumer,
    ConsumerRecords,
    Producer,
    Recoverable,
    Rejected,
    Retriable,
    Transaction,
    read,
)
from coordinator_client.streams import (
    StreamsClient,
    StreamsInternalTopic,
    StreamsSubtopology,
    StreamsTopology,
    Task,
    Tasks,
)

PARTITIONS: Final = 4
SPLIT: Final = "split"
COUNT: Final = "count"
VOCABULARY: Final = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "away")
LOOK_MS: Final = 300
"""Time between two looks at the counts (ms)."""


def main() -> int:
    """Run one worker, or load sentences, run workers, kill some, and check the counts."""
    options = arguments()
    if options.work:
        with contextlib.suppress(KeyboardInterrupt):
            Worker(options).work()
        return 0
    wanted = prepare(options)
    with workers(options) as processes:
        supervise(options, processes, wanted)
    return check(options, wanted)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = os.environ.get("TXNCTL_SERVER", "127.0.0.1:7070")
    parser.add_argument("--server", default=server, help="HOST:PORT (default: %(default)s, or TXNCTL_SERVER)")
    parser.add_argument("--topic", default="sentences", help="topic with the sentences (default: %(default)s)")
    parser.add_argument("--group", default="word-count", help="streams group (default: %(default)s)")
    parser.add_argument("--name", default="words-0", help="of this worker: its transactional id (default: %(default)s)")
    parser.add_argument("--sentences", type=int, default=400, help="sentences to load (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=3, help="worker processes (default: %(default)s)")
    parser.add_argument(
        "--kills", type=int, default=1, help="workers to kill -9 and start again (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=5, help="most records in a transaction (default: %(default)s)")
    parser.add_argument(
        "--session-ms", type=int, default=45_000, help="session timeout of the group (default: %(default)s)"
    )
    parser.add_argument("--work", action="store_true", help="load nothing, be one worker, until Ctrl-C")
    return parser.parse_args()


def words_topic(options: argparse.Namespace) -> str:
    """Return the name of the repartition topic."""
    return f"{options.group}-words"


def counts_topic(options: argparse.Namespace) -> str:
    """Return the name of the changelog."""
    return f"{options.group}-counts"


def topology(options: argparse.Namespace) -> StreamsTopology:
    """Describe the application."""
    words, counts = words_topic(options), counts_topic(options)
    return StreamsTopology(
        [
            StreamsSubtopology(subtopology_id=SPLIT, source_topics=[options.topic], repartition_sinks=[words]),
            StreamsSubtopology(
                subtopology_id=COUNT,
                repartition_sources=[StreamsInternalTopic(name=words)],
                changelogs=[StreamsInternalTopic(name=counts)],
            ),
        ]
    )


# A worker


@dataclass
class Copy:
    """The counts of one task, as far as the changelog was read."""

    offset: int = 0
    counts: Counter[bytes] = field(default_factory=Counter)

    def catch_up(self, options: argparse.Namespace, partition: int, end: int) -> None:
        """Read the changelog up to this offset, and wait for transactions before it that are still open. Aborted
        records do not come."""
        begin, self.offset = self.offset, max(self.offset, end)
        changes = read(
            counts_topic(options),
            options.server,
            partitions=[partition],
            start={partition: begin},
            end={partition: self.offset},
            follow=True,
        )
        for record in changes:
            self.counts[record.key or b""] = int(record.value or b"")


class Worker:
    """One process: a member of the group, a reader of the sources, and a producer."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.topology = topology(options)
        self.copies: dict[int, Copy] = {}
        """Counts by partition, of active and standby tasks."""
        self.open: set[Task] = set()
        """Active tasks that are being read."""
        self.restored: set[int] = set()
        """Partitions whose counts this worker alone goes on with."""

    def work(self) -> None:
        """Process the tasks of this worker, for ever."""
        options = self.options
        with (
            Producer(
                options.server, transactional_id=options.name, transaction_timeout_ms=10_000, wait_ms=None
            ) as producer,
            StreamsClient(options.server, group_id=options.group, topology=self.topology, wait_ms=None) as member,
            Consumer(options.server, auto_offset_reset="earliest", max_poll_records=options.batch) as reader,
            Consumer(options.server, isolation="read_uncommitted") as changelog,
        ):
            # Initialise first. This aborts a transaction that an earlier process with this name left open.
            producer.init()
            while True:
                # A worker with tasks looks for changes between two transactions; one without waits for them.
                tasks = member.poll(timeout_ms=0 if self.open else 1_000)
                self.take_over(member, reader, tasks)
                self.catch_up(changelog, tasks)
                batch = reader.poll(timeout_ms=LOOK_MS) if self.open else None
                if batch:
                    self.process(member, producer, batch)

    def take_over(self, member: StreamsClient, reader: Consumer, tasks: Tasks) -> None:
        """Read the sources of all active tasks, the new ones from their committed offsets."""
        if self.open == tasks.active:
            return
        sources = {name: task for task in tasks.active for name in self.topology.sources_of(task)}
        new = [name for name, task in sources.items() if task not in self.open]
        reader.assign(sources)
        # This comes before the changelog is read. It waits for the transaction of the last owner, with its counts.
        for name, committed in member.committed(new).items() if new else ():
            reader.seek(name, 0 if committed is None else committed.offset)
        self.restored &= {task.partition for task in tasks.active & self.open}
        self.open = {*tasks.active}

    def catch_up(self, changelog: Consumer, tasks: Tasks) -> None:
        """Bring the counts of new active tasks up to the end, and copies of others nearer to it."""
        partitions = {task.partition for task in tasks if task.subtopology_id == COUNT}
        self.copies = {partition: self.copies.get(partition, Copy()) for partition in partitions}
        topic = counts_topic(self.options)
        for partition in partitions - self.restored:
            (end,) = changelog.end_offsets([(topic, partition)]).values()
            self.copies[partition].catch_up(self.options, partition, end)
            if Task(COUNT, partition) in tasks.active:
                self.restored.add(partition)

    def process(self, member: StreamsClient, producer: Producer, batch: ConsumerRecords) -> None:
        """Process a batch in one transaction, with its offsets."""
        try:
            with producer.transaction() as txn:
                for record in batch:
                    if record.topic == self.options.topic:
                        self.split(txn, record.value or b"")
                    else:
                        self.count(txn, record.partition, record.value or b"")
                txn.commit_offsets(member, batch.next_offsets)
        except (Abortable, Recoverable, Retriable) as why:
            # Nothing of the transaction is visible, so neither are its counts: begin again from what is committed.
            # Every other error ends the process, which is always safe.
            print(f"once more: {why}", file=sys.stderr)
            self.open, self.restored, self.copies = set(), set(), {}

    def split(self, txn: Transaction, sentence: bytes) -> None:
        """Write the words of a sentence, each to the partition of its key."""
        for word in sentence.split():
            txn.send(words_topic(self.options), word, key=word)

    def count(self, txn: Transaction, partition: int, word: bytes) -> None:
        """Count a word, and write its new count."""
        counts = self.copies[partition].counts
        counts[word] += 1
        txn.send(counts_topic(self.options), b"%d" % counts[word], key=word, partition=partition)


# All of it


def prepare(options: argparse.Namespace) -> Counter[bytes]:
    """Create the topic, let the group have a standby of each task, and load the sentences in one transaction. Returns
    the counts that must come out."""
    choose = random.Random(options.sentences)
    sentences = [" ".join(choose.choices(VOCABULARY, k=5)).encode() for _ in range(options.sentences)]
    with Admin(options.server) as admin:
        admin.create_topic(options.topic, PARTITIONS, is_existing_ok=True)
        settings: Mapping[str, int] = {
            "streams_num_standby_replicas": 1,
            "streams_session_timeout_ms": options.session_ms,
            "streams_heartbeat_interval_ms": min(5_000, options.session_ms // 3),
        }
        admin.alter_group_configs(options.group, settings)
    with Producer(options.server, transactional_id=f"{options.name}-load") as producer, producer.transaction() as txn:
        for number, sentence in enumerate(sentences):
            txn.send(options.topic, sentence, partition=number % PARTITIONS)
    return Counter(word for sentence in sentences for word in sentence.split())


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
    command += ["--group", options.group, "--batch", str(options.batch), "--name", f"{options.group}-{number}"]
    return subprocess.Popen(command)


def supervise(options: argparse.Namespace, processes: list[subprocess.Popen[bytes]], wanted: Counter[bytes]) -> None:
    """Kill a worker now and then, and start its successor, until all words are counted."""
    choose = random.Random(options.sentences)
    killed = 0
    while (counted := counts(options).total()) < wanted.total() or killed < options.kills:
        if killed < options.kills and counted * (options.kills + 1) >= wanted.total() * (killed + 1):
            number = choose.randrange(options.workers)
            processes[number].kill()
            processes[number].wait()
            processes[number] = start(options, number)
            killed += 1
            print(f"killed worker {number} after {counted} words")
        pause(processes)


def pause(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait a little. Raises: RuntimeError if a worker ended by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        processes[0].wait(LOOK_MS / 1_000)
    if any(process.poll() is not None for process in processes):
        raise RuntimeError("a worker ended by itself")


def counts(options: argparse.Namespace) -> Counter[bytes]:
    """Return the newest count of each word: none, while the server has not made the changelog yet."""
    found: Counter[bytes] = Counter()
    with contextlib.suppress(Rejected):
        for record in read(counts_topic(options), options.server):
            found[record.key or b""] = int(record.value or b"")
    return found


def check(options: argparse.Namespace, wanted: Counter[bytes]) -> int:
    """Compare the counts. Returns 0 if each is exact."""
    found = counts(options)
    wrong = sorted(word for word in wanted.keys() | found.keys() if wanted[word] != found[word])
    print(f"{wanted.total()} words, {len(wanted)} different ones, {len(wrong)} wrong counts")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
