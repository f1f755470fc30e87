"""Workers of a share group in the storm: they come, fetch, acknowledge or not, also in transactions, and die.

A writer of its own feeds them transactions. Some stay open for a while, and some are aborted. After the calm every
committed record is done: it was accepted, or it has one letter in the dead-letter topic, or it was deleted.

Source: spec groups 6.1-6.3; 10.5, I9; decision 61.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2, share_pb2
from coordinator_protocol.errors import CoordinatorError, ErrorCode
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
from tests.harness.groups import code
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.share_consumers import response_of
from tests.harness.world import TransactContents, World
from tests.simulation.share_books import DELIVERIES_MAX, LOCK_MS, SESSION_MS, Hold, Place, ShareBook
from tests.simulation.share_transactions import WorkerTransactions
from tests.simulation.told import require
from txn_coordinator.state import Identity

TOPIC: Final = "work"
PARTITIONS: Final = ("work-0", "work-1")
GROUP: Final = "workers"
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
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_NO_SESSION: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_ENDED_LATER: Final = "ended later"
_ROUNDS_MAX: Final = 80
_ROUND_MS: Final = 300
_CRASH_SHARE: Final = 0.3
"""Share of runs whose calm has a crash."""


class Worker:
    """One member, as a program."""

    def __init__(self, around: ShareWorkers, number: int) -> None:
        self._around = around
        self._number = number
        self._lives = 0
        self._waiting: Pending[Any] | None = None
        self._asked = 0
        self.transactions = WorkerTransactions(around, GROUP, number)
        self._start_over()

    def _start_over(self) -> None:
        self._around.book.let_go(self.name)
        self.transactions.start_over()
        self._lives += 1
        self.member_epoch = 0
        self.session_epoch = 0
        self._beaten_ms = 0
        self._assigned: set[tuple[bytes, int]] = set()
        self._named: set[tuple[bytes, int]] = set()
        self.held: dict[Place, None] = {}
        self._foreign: dict[Place, Hold | None] = {}
        """Holds of others on what it asked outcomes for."""

    @property
    def name(self) -> str:
        return f"w{self._number}.{self._lives}"

    def act(self) -> None:
        """Do the next thing."""
        rng = self._around.rng
        if self._waiting is not None:
            if rng.random() < 0.1:
                self._give_up()
        elif self.member_epoch == 0:
            self.beat()
        else:
            acts: list[Callable[[], None]] = [
                self.beat,
                self.fetch,
                self.acknowledge,
                partial(self.transactions.act, self),
                self._close,
                self._leave,
                self.die,
            ]
            rng.choices(acts, [5, 10, 6, 10 if self.held else 3, 0.5, 0.5, 0.7])[0]()

    def die(self) -> None:
        self._drop()
        self._start_over()

    def forsaken(self) -> None:
        """The server died. No call is answered now. Sessions last from the start of the next one, whose clock may be
        behind."""
        self._beaten_ms = min(self._beaten_ms, self._around.now_ms())
        self._asked += 1
        self._waiting = None
        self.session_epoch = 0
        self.held.clear()
        self.transactions.forsaken()

    def lose_an_answer(self) -> None:
        """Go on without what an answer has brought."""
        self._give_up()
        self.held.clear()

    def _give_up(self) -> None:
        """Wait no longer; what the answer would have brought is locked for some time."""
        self._drop()
        self.session_epoch = 0

    def _drop(self) -> None:
        self._asked += 1
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    # What it asks

    def beat(self) -> None:
        names = group_pb2.TopicNames(names=[TOPIC]) if self.member_epoch == 0 else None
        request = group_pb2.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.member_epoch, subscribed_topic_names=names
        )
        self._ask(request, self._on_beat)

    def fetch(self, *, acks: bool | None = None) -> None:
        if self.session_epoch == 0:
            self._named = set()
        with_acks = self.session_epoch > 0 and (self._around.rng.random() < 0.4 if acks is None else acks)
        chosen = self._chosen() if with_acks else {}
        joining = self._assigned - self._named
        self._named |= joining
        partitions = [_partition(self._around.world, each, found) for each, found in chosen.items()]
        known = {(each.topic_id, each.partition) for each in partitions}
        partitions += [
            share_pb2.SharePartition(topic_id=topic_id, partition=number)
            for topic_id, number in sorted(joining - known)
        ]
        request = share_pb2.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.session_epoch,
            max_wait_ms=self._around.rng.choice((0, 0, 300, 5_000)),
            max_records=self._around.rng.choice((1, 3, 100)),
            strict_max_records=self._around.rng.random() < 0.3,
            partitions=partitions,
        )
        now_ms = self._around.now_ms()
        self._ask(request, lambda response: self._on_fetched(response, chosen, now_ms))

    def acknowledge(self, *, epoch: int | None = None, outcomes: dict[Place, int] | None = None) -> None:
        if self.session_epoch == 0:
            self.fetch()
            return
        chosen: dict[str, dict[int, int]] = {}
        if outcomes is None:
            chosen = self._chosen()
        else:
            for (partition, offset), kind in outcomes.items():
                chosen.setdefault(partition, {})[offset] = kind
                self.note_asked((partition, offset), kind)
        request = share_pb2.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.session_epoch if epoch is None else epoch,
            partitions=[_partition(self._around.world, name, found) for name, found in chosen.items()],
        )
        self._ask(request, lambda response: self._on_acknowledged(response, chosen, is_last=epoch == -1))

    def _close(self) -> None:
        self._around.book.let_go(self.name)
        self.acknowledge(epoch=-1)

    def _leave(self) -> None:
        self._around.book.let_go(self.name)
        request = group_pb2.ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=-1)
        self._ask(request, lambda _response: self._start_over())

    def _chosen(self) -> dict[str, dict[int, int]]:
        """Outcomes of some of what it holds."""
        rng, chosen = self._around.rng, {}
        for place in [place for place in self.held if rng.random() < 0.6]:
            kind = rng.choices((_ACCEPT, _RELEASE, _REJECT), (6, 2, 1))[0]
            chosen.setdefault(place[0], {})[place[1]] = kind
            self.note_asked(place, kind)
        return chosen

    def note_asked(self, place: Place, kind: int) -> Hold | None:
        """Give the record up. Return the hold of another worker on it."""
        self.held.pop(place, None)
        foreign = self._around.book.ask(self.name, place, is_accepted=kind == _ACCEPT, is_rejected=kind == _REJECT)
        self._foreign = {**self._foreign, place: foreign}
        return foreign

    def _ask(self, request: Message, hears: Callable[[Any], None]) -> None:
        self._asked += 1
        number = self._asked
        self._waiting = asked = self._around.world.inside.group_wire.call(request)

        def answered(reply: Pending[Any]) -> None:
            if number != self._asked:
                return
            self._waiting = None
            if reply.error is None:
                hears(response_of(reply))
            elif not isinstance(reply.error, CoordinatorError):
                raise reply.error

        asked.on_settled(answered)

    # What it hears

    def _on_beat(self, response: Any) -> None:
        heard = code(response)
        if heard in _REJOIN:
            self._start_over()
        elif heard is ErrorCode.NONE:
            self.member_epoch = response.member_epoch
            self._beaten_ms = self._around.now_ms()
            if response.HasField("assignment"):
                self._assigned = {(topic.topic_id, n) for topic in response.assignment.topics for n in topic.partitions}

    def _is_refused(self, response: Any) -> bool:
        heard = code(response)
        if heard in _REJOIN:
            self._start_over()
        elif heard is not ErrorCode.NONE:
            if heard in _NO_SESSION:
                self.session_epoch = 0
        else:
            self.session_epoch += 1
            return False
        return True

    def _on_fetched(self, response: Any, chosen: dict[str, dict[int, int]], asked_ms: int) -> None:
        if self._is_refused(response):
            return
        around = self._around
        until_ms = min(asked_ms + LOCK_MS, self._beaten_ms + SESSION_MS)
        for result in response.results:
            partition = f"{result.topic or TOPIC}-{result.partition}"
            if partition in chosen and not result.acknowledge_error_code:
                around.note_done(partition, chosen[partition], self._foreign)
            shard = around.shard(partition)
            for each in result.acquired:
                for offset in range(each.first_offset, each.last_offset + 1):
                    place = (partition, offset)
                    hold = Hold(self.name, until_ms, shard)
                    around.book.deliver(place, each.delivery_count, hold, around.now_ms())
                    self.held[place] = None

    def _on_acknowledged(self, response: Any, chosen: dict[str, dict[int, int]], *, is_last: bool) -> None:
        if self._is_refused(response):
            return
        if is_last:
            self.session_epoch = 0
            self.held.clear()
        for result, (partition, outcomes) in zip(response.results, chosen.items(), strict=True):
            if code(result) is ErrorCode.NONE:
                self._around.note_done(partition, outcomes, self._foreign)


_KEPT: Final = {"retention_ms": "-1", "retention_bytes": "-1"}
_COMPACTED: Final = {"cleanup_policy": "compact", "min_dirty_ratio": "0", "delete_retention_ms": "0"}


class ShareWorkers:
    """The group of a run, and who writes for it."""

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
        """The outcomes were acknowledged. `foreign`: holds of others when they were asked for. They do not matter for a
        record that was removed: its acknowledgement is passed over."""
        for offset, kind in outcomes.items():
            if kind != _RELEASE:
                place, how = (partition, offset), "accepted" if kind == _ACCEPT else "rejected"
                other = foreign.get(place)
                if other is not None and offset < self._log_start(partition):
                    other = None
                self.book.finish(place, how, other, self.now_ms())

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
        worker.acknowledge(outcomes=dict.fromkeys(worker.held, _REJECT))
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
            worker.acknowledge(outcomes=dict.fromkeys(worker.held, _ACCEPT))
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


def _partition(world: World, name: str, outcomes: dict[int, int]) -> share_pb2.SharePartition:
    """The acknowledgements of single offsets."""
    topic, _topic_id, number = partition_name(name)
    ref = world.inside.catalog.resolve(topic, b"", number)
    return share_pb2.SharePartition(
        topic_id=ref.topic_id,
        partition=number,
        acknowledgements=[
            share_pb2.AcknowledgementBatch(first_offset=offset, last_offset=offset, types=[kind])
            for offset, kind in sorted(outcomes.items())
        ],
    )
