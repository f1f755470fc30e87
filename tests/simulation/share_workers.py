"""Workers of a share group in the storm: they come, fetch, acknowledge or not, also in transactions, and die.

A writer of its own feeds them transactions. Some stay open for a while, and some are aborted. After the calm every
committed record is done: it was accepted, or it has one letter in the dead-letter topic, or it was deleted.

Source: spec groups 6.1-6.3; 10.5, I9; decision 61.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from coordinator_api.v1 import group_pb2
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from group_coordinator.share_partitions.draft import Archived, ArchiveReason
from group_coordinator.share_partitions.letter_writer import RETRY_MS
from group_coordinator.share_partitions.places import share_shard
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import SharePartition
from partition_log.requests import DeleteRecords, RecordsToDelete
from partition_log.state import Isolation
from tests.harness.calls import called, partition_name
from tests.harness.dead_letters import letters_in
from tests.harness.entries import LogEntry
from tests.harness.group_calls import ANYBODY
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.world import TransactContents, World
from tests.simulation.share_books import DELIVERIES_MAX, LOCK_MS, SESSION_MS, Hold, Place, ShareBook
from tests.simulation.share_worker import ACCEPT, GROUP, REJECT, RELEASE, TOPIC, Worker
from tests.simulation.told import require
from txn_coordinator.state import Identity

PARTITIONS: Final = ("work-0", "work-1")
DEAD: Final = "dead"
_DEAD_PARTITIONS: Final = ("dead-0", "dead-1")
_WRITER: Final = "work-writer"
_SETTINGS: Final = {
    "share_auto_offset_reset": "earliest",
    "share_isolation_level": "read_committed",
    "share_dead_letter_topic": DEAD,
}
_WORKERS: Final = 3
_ACTS: Final = 3
"""What they do in one step: else hardly any record comes again."""
_ENDED_LATER: Final = "ended later"
_ROUNDS_MAX: Final = 80
_ROUND_MS: Final = 300
_CRASH_SHARE: Final = 0.3
"""Share of runs whose calm has a crash."""


_KEPT: Final = {"retention_ms": "-1", "retention_bytes": "-1"}
_COMPACTED: Final = {"cleanup_policy": "compact", "min_dirty_ratio": "0", "delete_retention_ms": "0"}


class ShareWorkers:
    """The share group of a run, and the writer that feeds it."""

    def __init__(self, world: World, seed: int, *, is_wanted: bool) -> None:
        self.world = world
        self.rng = Random(f"shares {seed}")
        self.book = ShareBook()
        self._workers: list[Worker] = []
        self._identity: Identity | None = None
        self._writing: Pending[Any] | None = None
        self._written = 0
        self._open: set[Place] = set()
        """Records of the transaction that the writer has open."""
        if is_wanted:
            # Every record has a key of its own, so compaction removes aborted ones and markers alone.
            world.create_topic(TOPIC, len(PARTITIONS), config=UNREADABLE_PAYLOADS | _COMPACTED)
            # Letters outlive their records, so that each can be counted at the end.
            world.create_topic(DEAD, len(_DEAD_PARTITIONS), config=UNREADABLE_PAYLOADS | _KEPT)
            configs = [group_pb2.GroupConfig(name=name, text=text) for name, text in _SETTINGS.items()]
            world.ask(group_pb2.AlterGroupConfigsRequest(group_id=GROUP, set=configs))
            self._workers = [Worker(self, number) for number in range(_WORKERS)]

    def step(self) -> None:
        """One worker does several things. Locks live by time, so now and then a little of it passes."""
        for _ in range(_ACTS):
            self._step()

    def _step(self) -> None:
        if self.rng.random() < 0.1:
            self.world.tick(self.rng.choice((1, _ROUND_MS)))
        draw = self.rng.random()
        if draw < 0.2:
            self._write()
        elif draw < 0.22:
            self._delete()
        else:
            self.rng.choice(self._workers).act()

    def now_ms(self) -> int:
        return self.world.clock.monotonic_ms()

    def shard(self, partition: str) -> ShareShard | None:
        found: ShareShard | None = self.world.inside.runtime.table.find(
            share_shard(self.world.shard_of(partition).number)
        )
        return found

    def note_done(self, partition: str, outcomes: dict[int, int], foreign: dict[Place, Hold | None]) -> None:
        """The outcomes were acknowledged. `foreign`: holds of others when they were asked for."""
        for offset, kind in outcomes.items():
            if kind != RELEASE:
                place, how = (partition, offset), "accepted" if kind == ACCEPT else "rejected"
                self.book.finish(place, how, self.standing(place, foreign.get(place)), self.now_ms())

    def standing(self, place: Place, foreign: Hold | None) -> Hold | None:
        """Return the hold of another worker that forbids an acknowledgement. One of a removed record is passed over."""
        partition, offset = place
        return None if foreign is None or offset < self._log_start(partition) else foreign

    def hearing_of(self, archived: Callable[[ShareKey, Archived], Any]) -> Callable[[ShareKey, Archived], Any]:
        """A function that also notes what is given up. A worker with a lost answer does not hear of it."""

        def heard(key: ShareKey, found: Archived) -> Any:
            if found.reason is ArchiveReason.DELIVERY_LIMIT:
                partition = self.world.partition_of(key.ordinal)
                require(
                    found.deliveries == DELIVERIES_MAX, f"I9: given up after {found.deliveries} deliveries: {found}"
                )
                self.book.given_up |= {(partition, at) for at in range(found.first_offset, found.end_offset)}
            return archived(key, found)

        return heard

    def forsaken(self) -> None:
        """The server is another process now: no worker holds anything."""
        self.book.holds.clear()
        self._writing = self._identity = None
        self._open = set()
        for worker in self._workers:
            worker.forsaken()

    # Writing

    def _write(self) -> None:
        if self._writing is not None and not self._writing.is_settled:
            return
        if self._identity is None:
            self._writing = started = self.world.init(_WRITER)
            started.on_settled(self._on_started)
            return
        if self._open:
            self._end_open(self._identity)
            return
        self._written += 1
        values = [f"{self._written}.{number}" for number in range(self.rng.choice((1, 2, 5)))]
        if self.rng.random() < 0.3:
            self._write_open(self._identity, values)
            return
        outcome = self.rng.choices((Outcome.COMMIT, Outcome.ABORT), (4, 1))[0]
        self.book.values.update(dict.fromkeys(values, outcome.name))
        contents = TransactContents(batches=[(self.rng.choice(PARTITIONS), values, 0)])
        identity, self._identity = self._identity, None
        context = CallContext(request_id=self._written.to_bytes(16, "big"))
        self._writing = written = self.world.transact(_WRITER, identity, contents, outcome, context)
        written.on_settled(self._on_written)

    def _write_open(self, identity: Identity, values: list[str]) -> None:
        """Write into a transaction that stays open for some time. The log says how it ended."""
        self.book.values.update(dict.fromkeys(values, _ENDED_LATER))
        partition = self.rng.choice(PARTITIONS)
        self._writing = written = self.world.produce(_WRITER, identity, partition, values, sequence=0)

        def answered(done: Pending[Any]) -> None:
            if done is not self._writing:
                return
            if done.error is not None or done.result().error is not None:
                self._identity = None
                return
            first_offset = done.result().base_offset
            self._open = {(partition, first_offset + number) for number in range(len(values))}
            self.book.unended |= self._open

        written.on_settled(answered)

    def _end_open(self, identity: Identity) -> None:
        outcome = self.rng.choices((Outcome.COMMIT, Outcome.ABORT), (4, 1))[0]
        self.book.unended -= self._open
        self._open, self._identity = set(), None
        self._writing = ended = self.world.end(_WRITER, identity, outcome)
        ended.on_settled(self._on_ended)

    def _on_ended(self, ended: Pending[Any]) -> None:
        if ended is self._writing and ended.error is None:
            self._identity = ended.result().next_identity

    def _on_started(self, started: Pending[Identity]) -> None:
        if started is self._writing and started.error is None:
            self._identity = started.result()

    def _on_written(self, written: Pending[Any]) -> None:
        if written is self._writing and written.error is None:
            self._identity = written.result().ended.next_identity

    def _delete(self) -> None:
        partition = self.rng.choice(PARTITIONS)
        wanted = RecordsToDelete(partition_name(partition), self.rng.choice((-1, self.rng.randrange(20))))
        called(lambda: self.world.inside.log.delete_records(DeleteRecords([wanted]), ANYBODY))

    # The end

    def check_calm(self, crash: Callable[[], None]) -> None:
        """The workers that are left do all the work, and then nothing is open."""
        if not self._workers:
            return
        for worker in self._workers:
            worker.die()
        self.world.settle()
        self.world.tick(10 * SESSION_MS)
        self.world.settle()
        # Newer instances abort what is open.
        for name in (_WRITER, *(worker.transactions.transactional_id for worker in self._workers)):
            self.world.init(name)
            self.world.settle()
        self._check_locks()
        if self.rng.random() < _CRASH_SHARE:
            self._crash_before_letters(self._workers[0], crash)
        for _ in range(_ROUNDS_MAX):
            if self._round():
                break
        else:
            raise AssertionError(f"the workers are never done: {self._standing()}")
        self._check_all()

    def _crash_before_letters(self, worker: Worker, crash: Callable[[], None]) -> None:
        """The server crashes between rejections and their letters. The load alone asks for these: no worker acts."""
        self._take(worker)
        worker.acknowledge(outcomes=dict.fromkeys(worker.held, REJECT))
        self.world.seal()
        self.world.flush(1)
        crash()
        self.world.tick(2 * RETRY_MS)
        self.world.settle()
        for partition in PARTITIONS:
            share = self._share(partition)
            require(share is None or not share.letters_due, f"{partition} waits for letters that the load forgot")

    def _check_locks(self) -> None:
        """A worker that lives, and has lost an answer, holds nothing once the locks have ended."""
        worker = self._workers[0]
        for act in (worker.beat, lambda: worker.fetch(acks=False), worker.lose_an_answer):
            act()
            self.world.settle()
        for _ in range(LOCK_MS // _ROUND_MS + 1):
            self.world.tick(_ROUND_MS)
            worker.beat()
            self.world.settle()
        for partition in PARTITIONS:
            shard = self.shard(partition)
            held = 0 if shard is None else sum(share.held_count for _key, share in shard.of_group(GROUP))
            require(not held, f"I9: the locks of {partition} have ended, and {held} records are held")

    def _round(self) -> bool:
        """Everybody works for some time. Return True once there is nothing left."""
        for worker in self._workers[:2]:
            self._take(worker)
            worker.acknowledge(outcomes=dict.fromkeys(worker.held, ACCEPT))
            self.world.settle()
        self.world.tick(_ROUND_MS)
        self.world.settle()
        return all(start == end for start, end, _log_start in self._standing().values())

    def _take(self, worker: Worker) -> None:
        """Let a worker take records, and wait until it has them."""
        for act in (worker.beat, lambda: worker.fetch(acks=False)):
            act()
            self.world.settle()
            self.world.tick(5_001 if worker._waiting is not None else 1)
            self.world.settle()

    def _standing(self) -> dict[str, tuple[int, int, int]]:
        """Start offset of the group, end of the log, and its start, of each partition."""
        found = {}
        for partition in PARTITIONS:
            share = self._share(partition)
            reading = self._reading(partition)
            start = -1 if share is None else share.start_offset
            found[partition] = start, reading.high_watermark, reading.log_start_offset
        return found

    def _share(self, partition: str) -> SharePartition | None:
        ref = self.world.inside.catalog.resolve(*partition_name(partition))
        shard = self.shard(partition)
        return None if shard is None else shard.durable(ShareKey(GROUP, ref.ordinal))

    def _reading(self, partition: str) -> Any:
        return self.world.read(partition, fetch_offset=self._log_start(partition), is_raw=True)

    def _log_start(self, partition: str) -> int:
        placed = self.world.inside.catalog.place(*partition_name(partition))
        start: int = self.world.inside.runtime.shard(placed.shard).durable_head(placed.ref.ordinal).log_start_offset
        return start

    def _check_all(self) -> None:
        """Nothing is lost, nothing was handed out that was aborted, and each letter is there once."""
        places = [each.place for partition in _DEAD_PARTITIONS for each in letters_in(self.world, partition)]
        letters = Counter(places)
        require(len(letters) == len(places), f"these have more than one letter: {letters - Counter(letters.keys())}")
        for place in letters:
            require(self.book.may_have_letter(place), f"{place} has a letter, and was not given up")
        for partition in PARTITIONS:
            reading = self._reading(partition)
            committed = self._committed(partition)
            for entry in reading.entries:
                # Batches come whole, also the one in which the log begins.
                if entry.offset >= reading.log_start_offset:
                    self._check_entry(partition, entry, letters, committed)

    def _committed(self, partition: str) -> set[int]:
        """Offsets of the committed records."""
        found = self.world.read(partition, fetch_offset=self._log_start(partition), isolation=Isolation.READ_COMMITTED)
        return {entry.offset for entry in found.entries}

    def _check_entry(self, partition: str, entry: LogEntry, letters: Counter[Place], committed: set[int]) -> None:
        place = (partition, entry.offset)
        is_delivered = place in self.book.deliveries
        if entry.marker is not None:
            require(not is_delivered, f"I9: the marker at {place} was delivered")
            return
        outcome = self.book.values[entry.value]
        if outcome == _ENDED_LATER and entry.offset not in committed:
            outcome = Outcome.ABORT.name
        if outcome == Outcome.ABORT.name:
            require(not is_delivered, f"I9: {entry.value} at {place} was aborted, and delivered")
        else:
            is_done = place in letters or place in self.book.asked
            require(is_done, f"I9: {entry.value} at {place} was passed, and is not done")
            is_rejected = self.book.done.get(place) == "rejected"
            require(not is_rejected or place in letters, f"{entry.value} at {place} was rejected, and has no letter")
