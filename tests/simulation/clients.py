"""Clients as programs: what one instance of a producer wants next, and what it makes of an answer.

They follow the rules that a correct client follows (commit only what was acknowledged, repeat a request under the same
name, ask after an unknown outcome), and nothing more. Some go on after they were fenced: zombies.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.history import SHARED_GROUP, History, Identity, Op

_RETRIABLE = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "REQUEST_TIMED_OUT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
    }
)


@dataclass(slots=True)
class Numbers:
    """What all clients of a run draw their names from."""

    values: int = 0
    transactions: int = 0
    offsets: int = 0
    requests: int = 0


class Instance:
    """One process of a client."""

    transact_share = 0.0
    """How often it ends a transaction with a Transact that brings something along."""
    speaks_kafka = False
    """Whether its requests are of Kafka's protocol: there is no Transact then, and nothing has a name of its own."""

    def __init__(
        self, name: str, transactional_id: str, version: int, *, rng: Random, history: History, numbers: Numbers
    ) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.version = version
        self.identity: Identity | None = None
        self.waiting: Op | None = None
        self.is_dead = False
        """Fenced: a correct client stops here. A zombie does not."""
        self._rng = rng
        self._history = history
        self._numbers = numbers
        self._transaction = 0
        self._steps_left = 0
        self._must_abort = False
        self._must_recover = False
        self._keeps_epoch = False
        """After the abort it goes on with its epoch, and with the sequences behind its last answer."""
        self._sequences: dict[str, int] = {}
        self._added: set[str] = set()
        self._written: dict[str, int] = {}
        """Last sequence acknowledged in this transaction, by partition."""
        self._asked: set[str] = set()
        """Partitions that a batch was sent to in this transaction, whatever became of it."""
        self._has_work = False
        """Something was acknowledged in this transaction."""
        self._has_asked = False
        """Something was sent that may have opened the transaction."""

    def next_request(self, partitions: list[str], now: int) -> Op | None:
        """What the program asks next; None when it has nothing to ask."""
        if self.is_dead:
            return self._zombie_request(partitions, now)
        if self.identity is None or self._must_recover:
            return self._init(now)
        if not self._transaction:
            self._begin()
        if not self._must_abort and self.version == 2 and self._rng.random() < self.transact_share:
            return self._transact_what_is_left(partitions, now)
        if self._must_abort or (self._steps_left <= 0 and self._rng.random() < 0.2):
            return self._end("abort", now)
        if self._steps_left <= 0:
            return self._end("commit" if self._has_work else "abort", now)
        self._steps_left -= 1
        return self._work(partitions, now)

    def _begin(self) -> None:
        self._numbers.transactions += 1
        self._transaction = self._numbers.transactions
        self._steps_left = self._rng.randrange(1, 5)
        self._has_work = False
        self._has_asked = False
        self._added.clear()
        self._written.clear()
        self._asked.clear()

    def _work(self, partitions: list[str], now: int) -> Op:
        self._has_asked = True
        partition = self._rng.choice(partitions)
        if self._rng.random() < 0.15:
            return self._offset(now)
        if partition not in self._added and (self.version == 1 or self._rng.random() < 0.2):
            return self._op("add", now, partition=partition)
        self._asked.add(partition)
        return self._produce(partition, now)

    def _offset(self, now: int) -> Op:
        self._numbers.offsets += 1
        return self._op("offset", now, offset=self._numbers.offsets, group=self._group())

    def _group(self) -> str:
        """One that all commit to, or one for this transaction alone."""
        return SHARED_GROUP if self._rng.random() < 0.5 else f"group-{self._transaction}"

    def _produce(self, partition: str, now: int) -> Op:
        values = []
        for _ in range(self._rng.randrange(1, 4)):
            self._numbers.values += 1
            values.append(f"v{self._numbers.values}")
        sequence = self._sequences.get(partition, 0)
        is_out_of_order = self._rng.random() < 0.05
        return self._op(
            "produce",
            now,
            partition=partition,
            values=tuple(values),
            sequence=sequence + 7 if is_out_of_order else sequence,
            is_out_of_order=is_out_of_order,
        )

    def _init(self, now: int) -> Op:
        self._numbers.requests += 1
        names_itself = not self.speaks_kafka and self._rng.random() < 0.9
        return self._op(
            "init",
            now,
            expected=self.identity if self._must_recover else None,
            request_id=b"%016d" % self._numbers.requests if names_itself else b"",
        )

    def _end(self, outcome: str, now: int) -> Op | None:
        if outcome == "abort" and self.version == 1 and not self._has_asked:
            # Version 1 must not end what it never opened.
            self._finish()
            return None
        claims = outcome == "commit" and not self.speaks_kafka and self._rng.random() < 0.3
        return self._op("end", now, outcome=outcome, last_sequences=tuple(self._written.items()) if claims else ())

    def _transact_what_is_left(self, partitions: list[str], now: int) -> Op:
        """End the transaction whatever is left to do, and bring one or several batches, and perhaps an offset."""
        count = self._rng.randrange(1, len(partitions) + 1)
        batches = [self._produce(partition, now) for partition in self._rng.sample(partitions, count)]
        parts = [*batches, self._offset(now)] if self._rng.random() < 0.3 else batches
        return self._transact("abort" if self._rng.random() < 0.15 else "commit", parts, now)

    def _transact(self, outcome: str, parts: list[Op], now: int) -> Op:
        self._numbers.requests += 1
        request_id = b"%016d" % self._numbers.requests
        op = self._op("transact", now, outcome=outcome, request_id=request_id, parts=parts)
        self._has_asked = True
        return op

    def _zombie_request(self, partitions: list[str], now: int) -> Op | None:
        if self.identity is None:
            return None
        match self._rng.randrange(5):
            case 0:
                return self._produce(self._rng.choice(partitions), now)
            case 4:
                self._numbers.values += 1
                return self._op(
                    "plain", now, partition=self._rng.choice(partitions), values=(f"v{self._numbers.values}",)
                )
            case 1:
                return self._op("end", now, outcome=self._rng.choice(("commit", "abort")))
            case 2:
                return self._op("add", now, partition=self._rng.choice(partitions))
            case _:
                return self._op("init", now, expected=self.identity)

    def _op(self, kind: str, now: int, **fields: object) -> Op:
        op = Op(
            number=len(self._history.ops),
            kind=kind,
            instance=self.name,
            transactional_id=self.transactional_id,
            version=self.version,
            transaction=0 if kind == "init" else self._transaction,
            identity=None if kind == "init" else self.identity,
            invoked_at=now,
            is_by_kafka=self.speaks_kafka,
            is_by_zombie=self.is_dead,
            **fields,  # type: ignore[arg-type]  # each caller names the fields of its kind
        )
        self._history.ops.append(op)
        self.waiting = op
        return op

    # Answers

    def on_answer(self, op: Op) -> bool:
        """Make something of an answer; False when the same request must be sent again."""
        if op.result in _RETRIABLE:
            return False
        self.waiting = None
        if self.is_dead:
            return True
        if op.kind == "init":
            self._on_init(op)
        elif op.is_ok:
            self._on_done(op)
        elif op.kind == "end":
            self._on_end_refused(op)
        elif op.kind == "transact" and op.result == "PRODUCER_FENCED":
            # The coordinator itself says so: another instance has taken over.
            self._on_end_refused(op)
        elif op.result in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            # A newer instance or a timeout: the coordinator, asked to abort, knows which.
            self._must_abort = True
        elif op.result == "INVALID_PRODUCER_ID_MAPPING":
            self._finish()
            self._must_recover = True
        else:
            self._must_abort = True
        return True

    def give_up(self, *, is_underway: bool) -> None:
        """A user's patience ends: the open transaction will be aborted, whatever became of the last request.
        `is_underway`: it may still come to the server."""
        op = self.waiting
        if op is not None and op.kind in ("produce", "add", "offset") and not self.is_dead:
            self.waiting = None
            self._must_abort = True
            # As librdkafka does, which gives the sequences of a batch without an answer to the next transaction.
            self._keeps_epoch = self.version == 1 and not is_underway

    def _on_init(self, op: Op) -> None:
        if not op.is_ok:
            self.is_dead = True
            return
        assert op.granted is not None
        self._must_recover = False
        self._finish()
        self._become(op.granted)

    def _on_done(self, op: Op) -> None:
        match op.kind:
            case "add":
                self._added.add(op.partition)
            case "produce":
                self._has_work = True
                self._sequences[op.partition] = op.sequence + len(op.values)
                self._written[op.partition] = self._sequences[op.partition] - 1
            case "offset":
                self._has_work = True
            case "transact":
                self._place(op)
                self._finish()
                assert op.granted is not None
                self._become(op.granted)
            case _:
                # What was given up may still be on its way. A new epoch keeps it out; version 1 must ask for one.
                self._must_recover = self._must_abort and self.version == 1 and not self._keeps_epoch
                self._finish()
                if op.granted is not None:
                    self._become(op.granted)

    def _place(self, op: Op) -> None:
        """Where its batches lie: at the beginning of the transaction, where it alone wrote to the partition."""
        batches = [part for part in op.parts if part.kind == "produce"]
        for part, first_offset in zip(batches, op.first_offsets, strict=True):
            part.base_offset = -1 if part.partition in self._asked else first_offset

    def _on_end_refused(self, op: Op) -> None:
        if op.kind == "end" and op.outcome == "commit" and self.version == 2 and op.result == "PRODUCER_FENCED":
            # A timeout, perhaps: then an abort is answered with the epoch to go on with.
            self._must_abort = True
        elif (
            op.kind == "end"
            and op.outcome == "commit"
            and op.result in ("TRANSACTION_ABORTABLE", "UNKNOWN_TOPIC_OR_PARTITION")
        ):
            self._must_abort = True
        elif self._may_recover(op):
            self._finish()
            self._must_recover = True
        else:
            self.is_dead = True

    def _may_recover(self, op: Op) -> bool:
        """After KIP-360, with the identity held: after a timeout of version 1, or where nothing was open."""
        nothing_open = op.result == "INVALID_TXN_STATE" and op.outcome == "abort" and self.version == 1
        return nothing_open or (op.result == "PRODUCER_FENCED" and self._rng.random() < 0.3)

    def _become(self, identity: Identity) -> None:
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    def _finish(self) -> None:
        self._transaction = 0
        self._must_abort = self._keeps_epoch = False
