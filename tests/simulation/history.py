"""What clients did and saw, as plain values: all that the auditor is given."""

from __future__ import annotations

from dataclasses import dataclass, field

Identity = tuple[int, int]
"""(producer id, epoch)"""

SHARED_GROUP = "group"
"""The group whose offset all clients commit; every other one belongs to one transaction alone."""

UNKNOWN_OUTCOME = "REQUEST_TIMED_OUT"
"""What the server answers when it does not know itself what became of a request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One success, as it left the server."""

    at: int
    granted: Identity | None = None
    base_offset: int = -1
    csn: int = 0
    ongoing: Identity | None = None
    first_offsets: tuple[int, ...] = ()
    """For a Transact: where its transaction begins in the partition of each batch."""


@dataclass(slots=True)
class Op:
    """One request of one client, however often it travelled. Times are steps of the simulation."""

    number: int
    kind: str
    """init, add, produce, offset, prepare, end, transact, or plain: a batch outside of all transactions"""
    instance: str
    transactional_id: str
    version: int
    transaction: int
    """Number of the client's transaction, unique over all clients; 0 = none."""
    identity: Identity | None = None
    partition: str = ""
    values: tuple[str, ...] = ()
    sequence: int = 0
    is_out_of_order: bool = False
    """The sequence does not follow: this batch must never be taken."""
    last_sequences: tuple[tuple[str, int], ...] = ()
    """For a commit: (partition, last sequence sent)."""
    offset: int = -1
    group: str = ""
    """For an offset: the group that it belongs to."""
    outcome: str = ""
    """commit or abort"""
    expected: Identity | None = None
    request_id: bytes = b""
    keeps: bool = False
    """For an init: whether to keep what is open, for an outside decision."""
    invoked_at: int = 0
    deliveries: int = 0
    """How often a copy of it reached the server."""
    last_seen_at: int = 0
    """When the last copy reached the server, or was answered."""
    is_by_kafka: bool = False
    """It travels by Kafka's protocol, which tells neither numbers of decisions nor that a batch was a repetition."""
    is_by_zombie: bool = False
    """Its client heard that it is over and went on nevertheless, with its old sequences."""
    completed_at: int | None = None
    result: str = ""
    """"ok", or the name of the error code. Empty: no answer came."""
    granted: Identity | None = None
    """The identity that the answer told, to go on with."""
    ongoing: Identity | None = None
    """For an init: the identity of the open transaction that was kept."""
    base_offset: int = -1
    first_offsets: tuple[int, ...] = ()
    is_duplicate: bool = False
    csn: int = 0
    answered: int = 0
    """How many copies were answered, refusals included."""
    answers: list[Answer] = field(default_factory=list)
    """Every success that the server sent for it, including lost ones."""
    parts: list[Op] = field(default_factory=list)
    """For a Transact: the batches and offsets that it brings, each as the request that it could have been. They travel,
    are taken and are refused with it."""

    def forget_answers_after(self, moment: int) -> list[Answer]:
        """What it was answered later is of a lost incarnation: its client may believe it, and no other does. Returns
        what the server had answered there."""
        lost = [answer for answer in self.answers if answer.at > moment]
        # A repetition of an init is remembered within one line only.
        self.answers = [] if self.kind == "init" else [answer for answer in self.answers if answer.at <= moment]
        if self.completed_at is not None and self.completed_at > moment:
            self.completed_at, self.result, self.granted, self.ongoing = None, "", None, None
            self.base_offset, self.first_offsets, self.csn, self.is_duplicate = -1, (), 0, False
        self.share()
        return lost

    def share(self) -> None:
        """What happened to it happened to its parts."""
        for part in self.parts:
            part.deliveries, part.answered, part.last_seen_at = self.deliveries, self.answered, self.last_seen_at
            part.completed_at, part.result = self.completed_at, self.result

    @property
    def is_ok(self) -> bool:
        return self.result == "ok"

    @property
    def is_misled(self) -> bool:
        """A zombie used a sequence again and was given the answer of the batch that had it."""
        return self.is_by_zombie and self.is_duplicate

    @property
    def is_settled(self) -> bool:
        """The client knows what became of it: the server said so, and no other copy may have had another fate."""
        is_told = self.result not in ("", UNKNOWN_OUTCOME)
        return self.completed_at is not None and is_told and (self.is_ok or self.deliveries <= 1)

    def __str__(self) -> str:
        what = " ".join(str(part) for part in (self.partition, *self.values, self.outcome) if part)
        answer = self.result or "no answer"
        return (
            f"[{self.invoked_at}-{self.completed_at}] {self.instance}/{self.transactional_id} {self.kind} "
            f"{self.identity} {what} txn {self.transaction} -> {answer} {self.granted or ''}"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One record or marker at one offset."""

    offset: int
    value: str
    producer_id: int
    producer_epoch: int
    outcome: str = ""
    """For a marker: commit or abort; empty for a record."""
    csn: int = 0
    coordinator_shard: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """One fetch of one partition."""

    at: int
    partition: str
    level: str
    """committed, uncommitted or raw"""
    fetch_offset: int
    next_offset: int
    entries: tuple[Entry, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


@dataclass(slots=True)
class Deletion:
    """A request that a partition begins at an offset."""

    invoked_at: int
    partition: str
    asked: int
    """-1 = the high watermark."""
    high_watermark: int
    """At the moment of the request."""
    answered_at: int | None = None
    error: str = ""
    low_watermark: int = -1
    held_back: str = ""


@dataclass(slots=True)
class Lease:
    """A hold on records from an offset on."""

    partition: str
    offset: int
    taken_at: int
    ended_at: int | None = None


@dataclass(slots=True)
class Growth:
    """One CreatePartitions of the topic that all write to."""

    at: int
    asked: int
    """How many partitions it shall have."""
    answered_at: int | None = None
    error: str = ""


@dataclass(slots=True)
class SettingChange:
    """One AlterTopicConfigs of that topic."""

    at: int
    value: str | None
    """None: it shall have no value of its own."""
    answered_at: int | None = None
    error: str = ""


@dataclass(slots=True)
class PlainCommit:
    """An offset committed without a transaction."""

    group: str
    offset: int
    invoked_at: int
    answered_at: int | None = None
    """When it was acknowledged; None = it was not."""
    is_refused: bool = False
    """Nothing must come of it."""


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """One fetch of the offset of a group, answered with one."""

    invoked_at: int
    at: int
    group: str
    offset: int
    """-1 = none."""
    is_stable: bool
    """It asked for what no open transaction can change."""


@dataclass(frozen=True, slots=True)
class LineChange:
    """A restore: from when the new line is, and what the lost one had told."""

    backed_up_at: int
    restored_at: int
    identities: frozenset[Identity]
    """Given away in the lost incarnation."""
    csns: frozenset[int]
    """Numbers of decisions that were told there."""


@dataclass(slots=True)
class ShownSnapshot:
    """A snapshot. Its partitions are by name."""

    number: int
    at: int
    starts: dict[str, int]
    ends: dict[str, int]
    last_stable: dict[str, int]
    """The vector of last stable offsets of the same moment."""
    cut: dict[str, int] = field(default_factory=dict)
    """A cut of the same moment, in the partitions that one was asked for; it begins ..."""
    cut_starts: dict[str, int] = field(default_factory=dict)
    """... here: at the cut that they asked for before, or where the log began."""
    compacted: dict[str, int] = field(default_factory=dict)
    """End of the newest pass of compaction, begun or finished, of the partitions of the main topic."""
    is_checked: bool = True
    """Its reader asked to be refused what was compacted since."""
    readings: list[dict[str, tuple[Entry, ...]]] = field(default_factory=list)
    """What it showed, each time it was read as a whole."""
    is_held: list[bool] = field(default_factory=list)
    """Whether a lease held its records from when it was taken until the end of each reading."""
    is_lost: bool = False
    """The line in which it was taken was lost."""

    def __str__(self) -> str:
        """Without its records, which the complaint of an auditor names where they matter."""
        return f"{self.number} at {self.at}: {self.starts} to {self.ends}, cut {self.cut_starts} to {self.cut}"


@dataclass(frozen=True, slots=True)
class ShownDelta:
    """What a reader who follows a log by snapshots had to add to what it had."""

    sequence: int
    """The reader; when it began anew, it is another one."""
    at: int
    snapshot: ShownSnapshot
    """What it had then."""
    added: dict[str, tuple[Entry, ...]]

    def __str__(self) -> str:
        return f"delta at {self.at}, snapshot {self.snapshot}"


@dataclass(frozen=True, slots=True)
class CompactedPart:
    """A part of a log that a pass of compaction has gone over, with all that was there before."""

    at: int
    partition: str
    begin_offset: int
    end_offset: int
    pass_end_offset: int
    """Records before it may replace others."""
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class History:
    """Everything the outside saw of one run."""

    epoch_max: int
    """The largest producer epoch of the server; no client is ever given this one."""
    ops: list[Op] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final_raw: dict[str, Read] = field(default_factory=dict)
    """Every partition from its start, once all is calm."""
    final_committed: dict[str, Read] = field(default_factory=dict)
    removed: dict[str, list[Entry]] = field(default_factory=dict)
    """What went from the beginning of every partition, before what `final_raw` shows."""
    compacted: list[CompactedPart] = field(default_factory=list)
    clean_to: dict[str, int] = field(default_factory=dict)
    """End of the compacted part of each partition in the calm."""
    key_count: int = 0
    """Number of keys of the records; 0 = each has its own."""
    deletions: list[Deletion] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """How many partitions the topic had durably, and when that was seen."""
    alterations: list[SettingChange] = field(default_factory=list)
    settings_seen: list[tuple[int, str | None]] = field(default_factory=list)
    """What it had set, durably, and when that was seen."""
    counted: dict[str, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    """What the store says, then, lies before some offsets of every partition: offset, records, markers, aborted
    transactions."""
    plain_commits: list[PlainCommit] = field(default_factory=list)
    offset_reads: list[OffsetRead] = field(default_factory=list)
    final_offsets: dict[str, int] = field(default_factory=dict)
    """By group, once all is calm; -1 = none."""
    unstable_groups: list[str] = field(default_factory=list)
    """Groups with offsets that still wait for a transaction once all is calm."""
    snapshots: list[ShownSnapshot] = field(default_factory=list)
    deltas: list[ShownDelta] = field(default_factory=list)
    caught_up: set[int] = field(default_factory=set)
    """Sequences of deltas that go on until all is calm."""
    sink_logs: dict[str, list[Entry]] = field(default_factory=dict)
    """All that is in the partitions of sinks in the end."""
    passing_logs: dict[str, list[list[Entry]]] = field(default_factory=dict)
    """What snapshots could show of topics that were deleted, or may have been, by partition and topic id. A part begins
    where what lies before it is not known."""
    participants: set[str] = field(default_factory=set)
    """Transactional ids whose transactions are decided outside."""
    restores: list[LineChange] = field(default_factory=list)
    """Where the server went on from a backup. What it had answered since that was made is of a lost incarnation, and is
    in `LineChange` alone."""
    calm_states: dict[str, str] = field(default_factory=dict)
    """State name of every transactional id once the storm is over and every timeout has passed."""
    calm_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Last stable offset and high watermark of every partition at the same moment."""
