"""Questions to a shard and its answers: values only.

An `Operation` names a shard and a function that decides on it. The function looks things up and returns a `Decision`;
it changes nothing. The runtime then replays the decision's records and performs its joins in the same operation and the
same batch. Once all of that is durable, it starts the effects and settles the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from coordinator_protocol.errors import Refused
from coordinator_protocol.hashing import coordinator_key, shard_of


class Coordinator(IntEnum):
    """The kinds of shards. The number is part of stored keys."""

    COUNTERS = 0
    """One shard: producer-id blocks and the commit sequence number."""
    CATALOG = 1
    """One shard: topics."""
    LOG = 2
    """Topic partitions."""
    TRANSACTIONS = 3
    GROUPS = 4
    SHARE_PARTITIONS = 5
    """Partitions as share groups read them, each beside its log shard: with the same number. In stores with the feature
    `share_groups` only."""


class ShardKey(NamedTuple):
    """Address of one shard."""

    coordinator: Coordinator
    number: int


IDS_REMEMBERED: Final = 1 << 14
"""Number of ids whose shard is cached."""


class ShardRouter:
    """Finds the shard of a transactional id or a group. All code finds shards by it."""

    def __init__(self, coordinator: Coordinator, shard_count: int) -> None:
        key_of: Callable[[str], str] = coordinator_key if coordinator is Coordinator.TRANSACTIONS else str
        keys = self.shard_keys = tuple(ShardKey(coordinator, number) for number in range(shard_count))
        """All shards of the coordinator."""
        self.shard_key: Callable[[str], ShardKey] = lru_cache(IDS_REMEMBERED)(
            lambda name: keys[shard_of(key_of(name), shard_count)]
        )
        """Function from an id to its shard. Source: spec groups 10.1 (Kafka's string hash; the smallest integer maps to
        0), design 6 (`coordinator_key`)."""


CATALOG_KEY: Final = ShardKey(Coordinator.CATALOG, 0)
"""The one shard of the topics."""


class Turn(Struct, frozen=True, gc=False):
    """Time and caller of an operation: everything a decision may use besides the state."""

    now_ms: int
    """Wall clock (Unix ms). For stored times only; deadlines are the runtime's."""
    client_id: str = ""
    host: str = ""
    principal: str = ""
    """Principal of the caller; empty for the server itself."""


class Record(Struct, frozen=True, gc=False):
    """One change of one shard. `value` is a frozen value of the shard's package, whose codec encodes it."""

    shard: ShardKey
    value: object
    cause: str = ""
    """Reason for the change, for the history."""


class ShardEpoch(Struct, frozen=True, gc=False):
    """Record: the shard was opened once more. Markers carry the epoch, so that an obsolete process is refused (design
    9)."""

    coordinator_epoch: int


class Operation(Struct, frozen=True):
    """One question to one shard. `decide(shard, turn)` returns a Decision or raises Refused, and changes nothing."""

    shard: ShardKey
    decide: Callable[[Any, Turn], Decision]


class ArmTimer(Struct, frozen=True):
    """Effect: perform an operation after a delay, unless the timer is armed again or cancelled first.

    The newest decision speaks for a timer from the moment it is staged. The earlier deadline is void at once, and the
    new one runs once the decision is durable. So no timer acts for a reason that a staged decision has taken away. The
    operation must still check that its reason stands: it may run late, or after a restart.

    A delay of 0 is no deadline. Staging it leaves an earlier deadline of the timer in force. Once the decision is
    durable, the operation runs at once in place of that deadline, even if a later decision about the timer is staged
    by then."""

    key: Hashable
    delay_ms: int
    operation: Operation
    since_answer: bool = False
    """Count the delay from the moment the decision is durable, that is, from the answer, and not from the decision. For
    deadlines of a client that waits for that answer first."""


class CancelTimer(Struct, frozen=True):
    """Effect: disarm a timer, if it is armed. Like `ArmTimer`, it speaks for the timer from the moment it is staged."""

    key: Hashable


class TransactionInTheWay(Struct, frozen=True, gc=False):
    """Park key of calls that wait for the end of a transactional id's transaction."""

    transactional_id: str


class ProducerInTheWay(Struct, frozen=True, gc=False):
    """Park key of calls that wait for the checks of earlier requests of the same producer, outside transactions."""

    producer_id: int


class ConnectionInTheWay(Struct, frozen=True, gc=False):
    """Park key of batches without a producer whose payload is being checked, and of later ones of their connection."""

    connection: Hashable


class CheckInTheWay(Struct, frozen=True, gc=False):
    """Park key of a call that waits for a check and blocks no other call."""

    call: int
    """Number that no other waiting call has."""


class Unpark(Struct, frozen=True):
    """Effect: try the calls parked under this key again, because what blocked them is done."""

    key: Hashable


class AnswerLater(Struct, frozen=True):
    """Reply of an operation: the caller waits for an `Answer` to this ticket (`late_answers`)."""

    ticket: int


class Answer(Struct, frozen=True):
    """Effect: answer the call that waits for the ticket, with the reply or the refusal. No effect if no call waits."""

    ticket: int
    reply: object = None
    refusal: Refused | None = None


Effect = object
"""A frozen value. ArmTimer, CancelTimer and Unpark are the runtime's own; for others a handler is registered by
type."""


class Decision(Struct, frozen=True):
    """Outcome of an operation. An empty one changes nothing and replies None."""

    reply: Any = None
    """Reply to the caller once durable. Among an operation, its joins and its attempts, in this order, the last reply
    that is not None counts."""
    records: tuple[Record, ...] = ()
    joins: tuple[Operation, ...] = ()
    """Operations performed after the records were replayed, in order, in the same batch. One refused join refuses
    everything."""
    attempts: tuple[Operation, ...] = ()
    """Operations performed after the joins, in order, in the same batch, each by itself. A refused one is rolled back
    alone, and its reply is the Refused. If it met a transaction being completed and the caller may wait, the whole
    operation waits."""
    effects: tuple[Effect, ...] = ()
    """Effects, started in order once the decision is durable."""
    events: tuple[object, ...] = ()
    """Events, as frozen values for observers (metrics, logs). Reported once durable; they change nothing."""
    combine: Callable[[Sequence[Any]], Any] | None = None
    """Makes the reply from those of the joins and attempts, in their order. None: the last reply that is not None, see
    `reply`."""


def once_durable(key: ShardKey, answer: object = None) -> Operation:
    """Return an operation that gives this answer once everything that the shard holds now is durable. It changes
    nothing.

    If the answer is a Refused, the operation raises it. This is for answers that rest on state which a crash would take
    back. "There is no such topic" may rest on a deletion that is not on disk yet (promise 1)."""

    def decide(_shard: object, _turn: Turn) -> Decision:
        if isinstance(answer, Refused):
            raise answer
        return Decision(reply=answer)

    return Operation(key, decide)


class NotCommon(Exception):
    """The call is not of the common shape that the fast path takes. Never reaches a caller: the general path decides on
    the call."""


class Shard(Protocol):
    """A slice of state. Pure: no clock, no I/O, no randomness; state changes only in `replay`."""

    def replay(self, value: Any) -> None:  # noqa: ANN401  each shard narrows it to its own records
        """Apply one record value. Total and deterministic: the stored newest records, replayed on an empty shard, give
        an equal shard."""

    def on_loaded(self, turn: Turn) -> Decision:
        """Decide on what is owed after a load: timers to arm again, outcomes to finish."""
