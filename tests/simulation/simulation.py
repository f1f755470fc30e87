"""One run: clients, a network that delays, repeats and loses, a server that crashes, readers; all from one seed.

First the storm: anything may happen. Then the calm: no more faults, time passes, and everything that was promised must
come true.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import RuntimeLimits
from group_coordinator.share_partitions import decisions as share_decisions
from partition_log import index_rows
from partition_log.compaction import chunks, passes
from partition_log.shard import LogShard
from tests.harness.engines import is_in_bucket
from tests.harness.inside import WorldOptions
from tests.harness.shelf import Shelf
from tests.harness.world import World
from tests.simulation import shards
from tests.simulation.clients import Instance, Numbers
from tests.simulation.compactions import Compactions
from tests.simulation.groups import CONFIG as GROUP_CONFIG
from tests.simulation.groups import Groups
from tests.simulation.history import SHARED_GROUP, Answer, History, OffsetRead, Op, PlainCommit
from tests.simulation.kafka_clients import KafkaClients
from tests.simulation.options import Options
from tests.simulation.participants import Manager, Participant
from tests.simulation.readers import Readers
from tests.simulation.removal import Removals
from tests.simulation.sending import send
from tests.simulation.share_workers import ShareWorkers
from tests.simulation.sinks import Sinks
from tests.simulation.snapshots import Snapshots
from tests.simulation.strangers import check_that_they_are_noticed
from tests.simulation.streams_groups import StreamsGroups
from tests.simulation.topics import Topics
from tests.simulation.translation import answer_of, is_repetition, marker_of, plain_entry, receive
from txn_coordinator.sinks import decisions as sink_decisions

_CALM_MS = 30_000
_REQUESTS_MAX = 300
_COMPACTION_WEIGHT = 6.0
_COMPACTION_STEPS = 12
_CALM_STEPS = 200
_UNAUTHENTICATED_SHARE = 0.2
"""Share of the crashes before which the store is looked at with altered rows; each look is up to four starts."""


@dataclass(slots=True)
class _Message:
    op: Op
    is_copy: bool = False
    """Made by the network: its answer reaches no client."""


def _world_options(options: Options) -> WorldOptions:
    return WorldOptions(
        two_phase=options.two_phase,
        producer_epoch_max=options.epoch_max,
        producer_expiration_ms=options.producer_expiration_ms,
        index_interval_batches=options.stretch_rows,
        retention=options.retention,
        removal_interval_ms=options.removal_interval_ms,
        compaction_interval_ms=options.compaction_interval_ms,
        group_config=GROUP_CONFIG,
        lane=options.lane,
        writes_records=bool(options.kafka_share) or options.topic_keys is not None,
        key_counts={} if options.topic_keys is None else {"t": options.topic_keys},
        runtime_limits=RuntimeLimits(
            group_bytes_max=options.group_bytes_max, parked_calls_max=options.parked_calls_max
        ),
    )


class Simulation:
    """A storm and the calm after it. `history` is what the auditor gets."""

    def __init__(self, options: Options, shelf: Shelf | None = None) -> None:
        self.options = options
        self._disk_fails = shelf is None and not is_in_bucket()
        """Only the memory store fails when told to."""
        self._rng = Random(options.seed)
        self._strangers_rng = Random(f"strangers {options.seed}")
        self.world = World(_world_options(options), shelf)
        self._kafka = KafkaClients(self.world)
        self.history = History(options.epoch_max, key_count=options.topic_keys or 0)
        self._numbers = Numbers()
        self._ids = [f"id{number}" for number in range(options.transactional_ids)]
        self.history.participants = {f"pay{number}" for number in range(options.participant_ids)}
        self._ids.extend(sorted(self.history.participants))
        self._manager = Manager()
        self._instances: list[Instance] = []
        self._wire: list[_Message] = []
        self._answers: list[Op] = []
        self._calls: list[Pending[Any]] = []
        self._now = 0
        self._is_calm = False
        self._topics = Topics(self.world, self._rng, self.history, options, lambda: self._now)
        self._partitions, self._targets = self._topics.partitions, self._topics.targets
        self._members = Groups(self.world, self._rng, self.history, self._numbers, lambda: self._now, self._is_of_kafka)
        self._removals = Removals(
            self.world, self._rng, self.history, partitions=self._partitions, now=lambda: self._now, plain=plain_entry
        )
        self._readers = Readers(
            self.world,
            self._rng,
            self.history,
            topics=self._topics,
            removals=self._removals,
            kafka=self._kafka,
            is_of_kafka=self._is_of_kafka,
            now=lambda: self._now,
        )
        self._sinks = Sinks(
            self.world, options.seed, self.history, self._topics.passing, is_wanted=bool(options.sink_weight)
        )
        self._snapshots = Snapshots(
            self.world,
            options.seed,
            self.history,
            partitions=lambda: [*self._partitions, *self._sinks.partitions],
            passing=self._topics.passing,
            now=lambda: self._now,
        )
        self._compactions = Compactions(self.world, self.history, lambda: self._now)
        self._shares = ShareWorkers(self.world, options.seed, is_wanted=bool(options.share_weight))
        self._streams = StreamsGroups(
            self.world, options.seed, self.history, now=lambda: self._now, is_wanted=bool(options.streams_weight)
        )
        if options.member_weight:
            self._members.gather()

    def run(self) -> History:
        """All of it. Raises whatever the server raises that is not a refusal."""
        constants = (
            (index_rows, "ABORTED_STRIDE", self.options.aborted_stride),
            (sink_decisions, "PARTICIPANTS_AT_ONCE", self.options.participants_at_once),
            (share_decisions, "_archived", self._shares.hearing_of(share_decisions._archived)),
            (chunks, "CHUNK_ROWS_MAX", self.options.chunk_rows),
            # A chunk of one row or of four comes with steps of one row each.
            (passes, "BYTES_PER_STEP", self.options.chunk_rows),
            (LogShard, "decide_compact", self._compactions.hearing_of(LogShard.decide_compact)),
        )
        with ExitStack() as undo:
            for module, name, value in constants:
                undo.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, value)
            return self._run()

    def _run(self) -> History:
        for transactional_id in self._ids:
            self._new_instance(transactional_id)
        events = self._events()
        weights = [*accumulate(weight for weight, _ in events)]
        actions = [action for _, action in events]
        for _ in range(self.options.steps):
            self._now += 1
            self._rng.choices(actions, cum_weights=weights)[0]()
        self._calm_down()
        return self.history

    def _events(self) -> list[tuple[float, Callable[[], None]]]:
        is_compacted = self.options.topic_keys is not None
        return [
            (30, self._deliver),
            (25, self._answer),
            (25, self._client_step),
            (self.options.flush_weight, self._flush),
            (4, self._flush_some),
            (4, self.world.seal),
            (6, partial(self._if_served, self._readers.read_one)),
            (4, self._resend),
            (3, self._copy),
            (2, self._lose),
            (self.options.give_up_weight, self._give_up),
            (1, self._cancel),
            (1, partial(self._if_served, self._send_late_marker)),
            (1, self._commit_plainly),
            (2, self._read_offset),
            (1, self._step_wall_clock),
            (0.6, self._start_rival),
            (self.options.passing_weight, self._topics.delete_or_create),
            (self.options.growth_weight, self._topics.change),
            (self.options.growth_weight, self._topics.look),
            (self.options.tick_weight, self._tick),
            (self.options.crash_weight, self._crash),
            (self.options.crash_weight / 4 if self._disk_fails else 0, self._fail_disk),
            (self.options.shard_weight, lambda: shards.move_one(self.world, self._rng)),
            (2 * self.options.shard_weight, lambda: shards.go_on(self.world)),
            (self.options.member_weight, self._members.step),
            (self.options.sink_weight, self._sinks.step),
            (self.options.snapshot_weight, self._snapshots.step),
            (self.options.share_weight, self._shares.step),
            (self.options.delete_weight, partial(self._if_served, self._removals.delete)),
            (self.options.delete_weight, partial(self._if_served, self._removals.hold)),
            (self.options.streams_weight, self._streams.step),
            (_COMPACTION_WEIGHT if is_compacted else 0, lambda: self._compactions.work(_COMPACTION_STEPS)),
        ]

    # The network

    def _deliver(self) -> None:
        if self._wire:
            self._hand_over(self._wire.pop(self._rng.randrange(len(self._wire))))
        else:
            self._client_step()

    def _hand_over(self, message: _Message) -> None:
        op, life = message.op, self.world.lives
        op.deliveries += 1
        op.last_seen_at = self._now
        op.share()
        reply = send(self.world, self._kafka, self._rng, op)

        def on_settled(settled: Pending[Any]) -> None:
            if life != self.world.lives:
                return
            op.last_seen_at = self._now
            op.answered += 1
            answer = answer_of(op, settled, self._now)
            if op.is_by_kafka and op.kind == "produce":
                op.is_duplicate = op.is_duplicate or is_repetition(op, self.history.ops)
            if isinstance(answer, Answer):
                op.answers.append(answer)
            is_lost = not self._is_calm and self._rng.random() < 0.1
            if not message.is_copy and not is_lost and op.completed_at is None:
                receive(op, answer)
                op.completed_at = self._now
                self._answers.append(op)
            op.share()

        reply.on_settled(on_settled)
        self._calls.append(reply)

    def _answer(self) -> None:
        if not self._answers:
            self._deliver()
            return
        op = self._answers.pop(self._rng.randrange(len(self._answers)))
        (instance,) = (each for each in self._instances if each.name == op.instance)
        if instance.waiting is not op:
            return
        if not instance.on_answer(op):
            op.completed_at = None
            op.result = ""
            op.share()
            self._wire.append(_Message(op))
        elif op.version == 1:
            # A request of version 1 that arrives late enough to meet the next transaction is taken for one of it: what
            # version 2 was made for. Its clients rely on a connection that drops what they stopped to wait for.
            self._wire = [message for message in self._wire if message.op is not op]

    def _resend(self) -> None:
        """A client has waited long enough and repeats its request; the first copy may still arrive."""
        waiting = [each for each in self._instances if each.waiting is not None]
        if waiting:
            op = self._rng.choice(waiting).waiting
            assert op is not None
            if op.completed_at is None and not any(message.op is op for message in self._wire):
                self._wire.append(_Message(op))

    def _copy(self) -> None:
        known = [message for message in self._wire if message.op.version == 2]
        if known:
            self._wire.append(_Message(self._rng.choice(known).op, is_copy=True))

    def _lose(self) -> None:
        if self._wire:
            self._wire.pop(self._rng.randrange(len(self._wire)))

    def _cancel(self) -> None:
        if self._calls:
            self._rng.choice(self._calls).cancel()
        self._calls = [call for call in self._calls if not call.is_settled]

    # Clients

    def _new_instance(self, transactional_id: str) -> Instance:
        name = f"c{len(self._instances)}"
        known: dict[str, Any] = {"rng": self._rng, "history": self.history, "numbers": self._numbers}
        instance: Instance
        if transactional_id in self.history.participants:
            instance = Participant(name, transactional_id, manager=self._manager, **known)
        else:
            version = 1 if self._rng.random() < self.options.version_1_share else 2
            instance = Instance(name, transactional_id, version, **known)
            instance.speaks_kafka = self._is_of_kafka()
        instance.transact_share = 0.0 if instance.speaks_kafka else self.options.transact_share
        self._instances.append(instance)
        return instance

    def _is_of_kafka(self) -> bool:
        """Whether the next one who does something does it by Kafka's protocol."""
        share = self.options.kafka_share
        return bool(share) and self._rng.random() < share

    def _start_rival(self) -> None:
        self._new_instance(self._rng.choice(self._ids))

    def _client_step(self) -> None:
        idle = [each for each in self._instances if each.waiting is None]
        if idle:
            op = self._rng.choice(idle).next_request(self._targets, self._now)
            if op is not None:
                self._wire.append(_Message(op))

    def _give_up(self) -> None:
        instance = self._rng.choice(self._instances)
        instance.give_up(is_underway=instance.waiting is not None and self._is_underway(instance.waiting))

    def _is_underway(self, op: Op) -> bool:
        """True if a copy of a request may still be taken for one that comes later."""
        return op.answered < op.deliveries or any(message.op is op for message in self._wire)

    # The server

    def _flush(self) -> None:
        self.world.flush()

    def _flush_some(self) -> None:
        self.world.flush(1)

    def _tick(self) -> None:
        self.world.tick(self._rng.choice((1, 50, 400, 1_500)))

    def _step_wall_clock(self) -> None:
        self.world.clock.step_wall(self._rng.choice((-5_000, 5_000)))

    def _crash(self) -> None:
        self.world.check_replay()
        if self._strangers_rng.random() < _UNAUTHENTICATED_SHARE:
            check_that_they_are_noticed(self.world, self._strangers_rng)
        kept_groups = self._rng.randrange(self.world.undurable_groups + 1)
        self.world.crash(kept_groups=kept_groups, down_ms=self._rng.choice((0, 700)))
        self._on_restarted()

    def _crash_at_rest(self) -> None:
        self.world.crash()
        self._on_restarted()

    def _crash_in_the_calm(self) -> None:
        self._crash_at_rest()
        shards.bring_all_back(self.world)
        self.world.settle()

    def _fail_disk(self) -> None:
        self.world.check_replay()
        self.world.fail_disk(kept_groups=self._rng.randrange(self.world.undurable_groups + 1))
        self._on_restarted()

    def _on_restarted(self) -> None:
        self._calls.clear()
        self._members.forsaken()
        self._sinks.forsaken()
        self._shares.forsaken()
        self._streams.forsaken()
        self._removals.watch()
        self._topics.look()

    def _if_served(self, action: Callable[[], None]) -> None:
        """Act, unless no client is there at this moment."""
        with suppress(Refused):
            action()

    def _send_late_marker(self) -> None:
        """A marker that was sent before arrives once more, much later."""
        partition = self._rng.choice(self._partitions)
        reading = self.world.read(partition, fetch_offset=self._removals.log_start(partition), is_raw=True)
        markers = [entry for entry in reading.entries if entry.marker is not None]
        if markers:
            self.world.send_marker(partition, marker_of(self._rng.choice(markers)))
        for marker in map(marker_of, markers):
            for group in self._groups():
                # The worst of them: those that look like the marker of what waits there now.
                if (marker.producer_id, marker.txn_epoch) in [
                    each[0] for each in self.world.inside.groups.view(group).pending
                ]:
                    self.world.inside.groups.send_marker(group, marker)

    # Groups

    def _groups(self) -> list[str]:
        """All groups with a commit."""
        asked = {op.group for op in self.history.ops if op.group}
        return sorted({SHARED_GROUP, *asked, *(commit.group for commit in self.history.plain_commits)})

    def _commit_plainly(self) -> None:
        """A client without a transaction moves the group that all share."""
        partition = self._rng.choice([*self._targets, "t-0"])
        if partition != "t-0":
            # A group without readers; its topic may be deleted under it.
            self.world.inside.groups.commit(SHARED_GROUP, self._now, partition=partition)
            return
        self._numbers.offsets += 1
        commit = PlainCommit(SHARED_GROUP, self._numbers.offsets, self._now)
        self.history.plain_commits.append(commit)
        life = self.world.lives

        def acknowledged(settled: Pending[int]) -> None:
            with suppress(CoordinatorError):
                settled.result()
                if life == self.world.lives:
                    commit.answered_at = self._now

        by_kafka = self._is_of_kafka()
        commit_one = self._kafka.commit_plainly if by_kafka else self.world.inside.groups.commit
        commit_one(commit.group, commit.offset).on_settled(acknowledged)

    def _read_offset(self) -> None:
        group, is_stable = self._rng.choice(self._groups()), self._rng.random() < 0.5
        invoked_at, life = self._now, self.world.lives

        def answered(settled: Pending[int]) -> None:
            # An unstable one is refused.
            with suppress(CoordinatorError):
                offset = settled.result()
                if life == self.world.lives:
                    self.history.offset_reads.append(OffsetRead(invoked_at, self._now, group, offset, is_stable))

        fetch = self._kafka.fetch_offset if self._is_of_kafka() else self.world.inside.groups.fetch
        fetch(group, require_stable=is_stable).on_settled(answered)

    # The calm

    def _calm_down(self) -> None:
        self._is_calm = self._readers.is_calm = True
        self._now += 1
        while self._wire:
            message = self._wire.pop(self._rng.randrange(len(self._wire)))
            if self._rng.random() < 0.5:
                self._hand_over(message)
                self.world.settle()
        shards.bring_all_back(self.world)
        assert all(call.is_settled for call in self._calls), "a call waits for something that has happened"
        for _ in range(2):
            self.world.tick(_CALM_MS)
            self.world.settle()
        if self.options.topic_keys is not None:
            self._compactions.work(_CALM_STEPS)
        self._topics.look()
        self._members.check_calm()
        self._sinks.check_calm()
        self._shares.check_calm(self._crash_in_the_calm)
        self._streams.check_calm()
        for transactional_id in sorted(self.history.participants):
            self._recover_participant(transactional_id)
        self._note_calm()
        self._serve_everybody()
        self._streams.rest(self._crash_at_rest)
        self._members.rest()
        self._snapshots.check_calm()
        self.world.check_replay()
        self.world.check_stored()
        self._look()

    def _recover_participant(self, transactional_id: str) -> None:
        """What waits for an outside decision waits for ever, until a client brings it."""
        instance = self._new_instance(transactional_id)
        assert isinstance(instance, Participant)
        self._let_work(instance, lambda: instance.has_recovered)

    def _note_calm(self) -> None:
        for transactional_id in self._ids:
            with suppress(CoordinatorError):
                found = self.world.describe(transactional_id)
                self.history.calm_states[transactional_id] = found.state.api_name
        for partition in self._partitions:
            read = self._readers.note(partition, "raw")
            self.history.calm_bounds[partition] = (read.last_stable_offset, read.high_watermark)

    def _serve_everybody(self) -> None:
        """The server still serves: a new instance of every id gets a transaction through."""
        for transactional_id in self._ids:
            instance = self._new_instance(transactional_id)
            self._let_work(instance, partial(self._has_committed, instance))

    def _has_committed(self, instance: Instance) -> bool:
        return any(op.instance == instance.name and op.is_ok and op.outcome == "commit" for op in self.history.ops)

    def _let_work(self, instance: Instance, is_through: Callable[[], bool]) -> None:
        """Let the program run, and get every answer, until it has come far enough."""
        for _ in range(_REQUESTS_MAX):
            if is_through():
                return
            op = instance.next_request(self._partitions, self._now)
            if op is not None:
                self._insist(instance, op)
        raise AssertionError(f"{instance.name} gets nothing done for {instance.transactional_id}")

    def _insist(self, instance: Instance, op: Op) -> None:
        """Send a request until it is answered for good."""
        for _ in range(_REQUESTS_MAX):
            self._now += 1
            self._hand_over(_Message(op))
            self.world.settle()
            assert op.completed_at is not None, f"{op} is not answered"
            if instance.on_answer(op):
                assert not instance.is_dead, f"{op} fences the only producer there is"
                return
            op.completed_at = None
            op.share()
        raise AssertionError(f"{op} is not served")

    def _look(self) -> None:
        self._now += 1
        self._removals.copy_rest()
        for partition in self._partitions:
            self.history.final_raw[partition] = self._readers.note(partition, "raw")
            self.history.counted[partition] = self.world.counted(partition)
            self.history.clean_to[partition] = self.world.clean_to(partition)
            self.history.final_committed[partition] = self._readers.note(partition, "committed")
        for group in self._groups():
            self.history.final_offsets[group] = self.world.inside.groups.committed(group)
            if self.world.inside.groups.view(group).pending:
                self.history.unstable_groups.append(group)
