"""Histories of clients: one JSON object a line, one line an operation, in the terms of spec log-and-runtime 6.1.

An operation has the two times between which it took effect, on one clock for all processes, in any unit. Its type is
`ok` (it happened), `fail` (it did not and will not) or `info` (unknown). Each value is sent once in a history.
`k` is a partition, named as the writer of the history likes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

Record: TypeAlias = tuple[int, str]
"""Offset and value."""


class Outcome(StrEnum):
    """Knowledge of the client about its operation."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Verdict(StrEnum):
    """The end that a client asks for."""

    COMMIT = "commit"
    ABORT = "abort"


class Isolation(StrEnum):
    """The records that a consumer asks for."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Producer(Struct, frozen=True, array_like=True):
    """Identity of a producer at one time: the three that every operation of it carries."""

    transactional_id: str
    producer_id: int
    epoch: int


class Marks(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Offsets of a partition that came with an answer; None = not told."""

    lso: int | None = None
    hw: int | None = None
    log_start: int | None = None


class Operation(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="f", tag="other"
):
    """Fields of all operations. A process is one client, with its restarts or without."""

    process: str
    invoked: float
    completed: float | None = None
    """None = never, which only `info` may say."""
    type: Outcome = Outcome.OK

    def __post_init__(self) -> None:
        if self.completed is None and self.type is not Outcome.INFO:
            raise ValueError(f"an operation of type {self.type} has no time of its completion")
        if self.completed is not None and self.completed < self.invoked:
            raise ValueError("an operation is complete before it began")

    @property
    def is_ok(self) -> bool:
        return self.type is Outcome.OK

    @property
    def end(self) -> float:
        """The last moment at which it can have taken effect."""
        return math.inf if self.completed is None else self.completed


class Init(Operation, frozen=True, kw_only=True, tag="init"):
    """InitProducerId; an answer that is not `ok` has no producer."""

    producer: Producer | None = None
    decided_within: float | None = None
    """Time in which each of its transactions must be decided: the transaction timeout, and grace."""


class Send(Operation, frozen=True, kw_only=True, tag="send"):
    """Append values to one partition, in a transaction or (without `txn`) each on its own."""

    k: str
    values: tuple[str, ...]
    offsets: tuple[int, ...] = ()
    """Those of the values in the answer, or nothing if the client does not tell them."""
    txn: str | None = None
    """Name of the transaction, used once in the history."""
    producer: Producer | None = None
    session: int = 0
    """Number of the client's incarnation: the order of sends is promised within one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offsets and len(self.offsets) != len(self.values):
            raise ValueError("offsets of some of the values only")


class SendOffsets(Operation, frozen=True, kw_only=True, tag="offsets"):
    """Add positions of a group to a transaction."""

    txn: str
    group: str
    positions: dict[str, int]
    producer: Producer | None = None


class End(Operation, frozen=True, kw_only=True, tag="end"):
    """Commit or abort a transaction."""

    txn: str
    verdict: Verdict
    producer: Producer | None = None


class Reading(Operation, frozen=True, kw_only=True, tag="reading"):
    """Fields of all reads."""

    records: dict[str, tuple[Record, ...]] = {}
    spans: dict[str, tuple[int, int]] = {}
    """Half-open ranges of offsets that the records are all visible ones of."""
    marks: dict[str, Marks] = {}


class Poll(Reading, frozen=True, kw_only=True, tag="poll"):
    """The next records of a consumer. Within a session it neither seeks nor loses a partition."""

    isolation: Isolation = Isolation.COMMITTED
    txn: str | None = None
    """The transaction in which the records are processed."""
    session: int = 0


class Snapshot(Reading, frozen=True, kw_only=True, tag="snapshot"):
    """All rows of some partitions in a snapshot."""

    snapshot: str
    csn: int | None = None


class Delta(Reading, frozen=True, kw_only=True, tag="delta"):
    """Rows of a snapshot that an earlier one did not have."""

    since: str
    until: str


class FinalRead(Reading, frozen=True, kw_only=True, tag="final"):
    """A full read_committed drain once all is quiet. Those of one process cover all partitions of the history."""


class Committed(Operation, frozen=True, kw_only=True, tag="committed"):
    """Fetch the committed positions of a group; a partition without one is left out."""

    group: str
    positions: dict[str, int]


class Fault(Operation, frozen=True, kw_only=True, tag="fault"):
    """A kill, a cut of the tail or a stop after a failed write: what was acknowledged before is there afterwards."""

    kind: str


AnyOperation: TypeAlias = Init | Send | SendOffsets | End | Poll | Snapshot | Delta | FinalRead | Committed | Fault
Kind = TypeVar("Kind", bound="Operation")
_DECODER: Final = msgspec.json.Decoder(AnyOperation)
_ENCODER: Final = msgspec.json.Encoder()


class History(Struct, frozen=True):
    """Operations with the lines that they were read from, in the order of their beginnings."""

    operations: tuple[tuple[int, AnyOperation], ...]

    def of(self, kind: type[Kind]) -> Iterator[tuple[int, Kind]]:
        """Yield line and operation of those of a kind."""
        return ((line, each) for line, each in self.operations if isinstance(each, kind))


def history(operations: Iterable[AnyOperation]) -> History:
    """Return the history of these operations; the line of each is its place."""
    return History(tuple(sorted(enumerate(operations, 1), key=lambda numbered: (numbered[1].invoked, numbered[0]))))


def read(path: Path) -> History:
    """Return the history in a file.

    Raises:
        ValueError: a line that is not in the form, with its number.
    """
    with path.open("rb") as lines:
        return parse(lines)


def parse(lines: Iterable[bytes]) -> History:
    """Return the history in these lines; raises as `read` does."""
    found: list[AnyOperation] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, ValueError) as failure:
            raise ValueError(f"line {number}: {failure}") from failure
    return history(found)


def written(operations: Sequence[AnyOperation]) -> bytes:
    """Return the lines of a file."""
    return b"".join(_ENCODER.encode(each) + b"\n" for each in operations)
