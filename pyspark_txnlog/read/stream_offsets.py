"""Position of a stream: its offsets as Spark stores them in the checkpoint, and the ranges that may follow them.

The JSON has the shape of Spark's Kafka source, `{"topic":{"0":23}}`. Beside it are the topic ids and the leader epochs
in which the offsets were learned, under names that no topic can have. With these, a restarted stream recognises a topic
that was created anew, a restored log, and a different server. The end of a micro-batch also contains its start: Spark
does not store the start of the first one, and asks for it again.

Pure. Source: docs/spark.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from coordinator_protocol.snapshots import NOTHING_EXCLUDED, SnapshotFilter
from pyspark_txnlog.bounds import InvalidOption, Position
from pyspark_txnlog.options import SourceOptions
from pyspark_txnlog.read.ranges import DataLoss, OffsetRange, Positions, lacking, plan_ranges, unnamed_in

TOPIC_IDS: Final = "$topicIds"
LEADER_EPOCHS: Final = "$leaderEpochs"
EXCLUDED: Final = "$excluded"
START: Final = "$start"
UNNAMED: Final = "$unnamed"
_OWN_NAMES: Final = frozenset({TOPIC_IDS, LEADER_EPOCHS, EXCLUDED, START, UNNAMED})

PartitionKey: TypeAlias = tuple[str, int]


class StreamPosition(NamedTuple):
    """Position of a stream in one partition."""

    topic_id: bytes
    offset: int
    """Next offset to read."""
    leader_epoch: int | None = None
    """Leader epoch of the log up to the offset; None if not known."""
    excluded: Mapping[int, int] = NOTHING_EXCLUDED
    """Transactions before the offset that a stream of snapshots has not read yet: first offset by producer id."""


Vector: TypeAlias = Mapping[PartitionKey, StreamPosition]
"""Position of a stream in all its partitions."""


class Line(NamedTuple):
    """Key for remembering the result of a look at the records after the position of a stream."""

    topic_id: bytes
    partition: int
    offset: int
    """Position of the stream."""
    leader_epoch: int | None
    """Leader epoch of the log at the time of the look."""


class InvalidCheckpoint(ValueError):
    """The offsets of a checkpoint are not those of this source."""


def to_json(vector: Vector, begun: Vector | None = None) -> dict[str, Any]:
    """Return the offsets in the form that Spark stores, sorted so that equal offsets have equal text. `begun` is the
    start of the micro-batch that ends here."""
    offsets: dict[str, Any] = {}
    epochs: dict[str, dict[str, int]] = {}
    excluded: dict[str, dict[str, dict[str, int]]] = {}
    ids: dict[str, str] = {}
    for (topic, partition), found in sorted(vector.items()):
        offsets.setdefault(topic, {})[str(partition)] = found.offset
        ids[topic] = found.topic_id.hex()
        if found.leader_epoch is not None:
            epochs.setdefault(topic, {})[str(partition)] = found.leader_epoch
        if found.excluded:
            of_topic = excluded.setdefault(topic, {})
            of_topic[str(partition)] = {str(producer_id): at for producer_id, at in sorted(found.excluded.items())}
    kept = offsets | {TOPIC_IDS: ids, LEADER_EPOCHS: epochs} | ({EXCLUDED: excluded} if excluded else {})
    return kept if begun is None else kept | {START: to_json(begun)}


def from_json(offsets: Mapping[str, Any]) -> dict[PartitionKey, StreamPosition]:
    """Return the offsets that Spark stored. Raises: InvalidCheckpoint."""
    try:
        ids, epochs, excluded = offsets[TOPIC_IDS], offsets[LEADER_EPOCHS], offsets.get(EXCLUDED, {})
        return {
            (topic, int(partition)): StreamPosition(
                bytes.fromhex(ids[topic]),
                int(offset),
                epochs.get(topic, {}).get(partition),
                {int(each): int(at) for each, at in excluded.get(topic, {}).get(partition, {}).items()},
            )
            for topic, partitions in offsets.items()
            if topic not in _OWN_NAMES
            for partition, offset in partitions.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidCheckpoint(
            f"the checkpoint has offsets that the source txnlog did not write ({error!r}): it is of a stream of "
            "another source; give this stream a checkpointLocation of its own"
        ) from None


def beginnings(end: Mapping[str, Any]) -> dict[PartitionKey, StreamPosition]:
    """Return the start of the micro-batch that ends at `end`. The first offsets of a stream end no micro-batch, and are
    their own start. Raises: InvalidCheckpoint."""
    return from_json(end.get(START, end))


def to_initial_json(options: SourceOptions, positions: Sequence[Positions]) -> dict[str, Any]:
    """Return the start of a stream in the form that Spark stores, with the partitions that `startingOffsets` leaves
    out.

    Spark asks for it also before it repeats an unfinished first micro-batch, whose end contains its start
    (`beginnings`). Then partitions that were added since are no error. So the error is raised only when a stream
    continues from here (`check_named`).

    If a loss is not fatal, topics that are gone are left out.

    Raises: InvalidOption; DataLoss.
    """
    if not options.is_loss_fatal and isinstance(options.starting, Mapping):
        there = {found.topic for found in positions}
        starting = {topic: places for topic, places in options.starting.items() if topic in there}
        options = replace(options, starting=starting)
    unnamed = unnamed_in(options.starting, positions)
    begun = to_json(standings(plan_ranges(options, [found for found in positions if found not in unnamed])))
    return begun | ({UNNAMED: [found.place for found in unnamed]} if unnamed else {})


def check_named(start: Mapping[str, Any]) -> None:
    """Check that a stream may continue from an offset. Raises InvalidOption for a start that leaves out partitions."""
    if start.get(UNNAMED):
        raise InvalidOption(lacking("startingOffsets", start[UNNAMED]))


def standings(ranges: Sequence[OffsetRange], *, is_end: bool = False) -> dict[PartitionKey, StreamPosition]:
    """Return the position of a stream at the start, or at the end, of the ranges."""
    return {
        (found.topic, found.partition): StreamPosition(
            found.topic_id,
            found.end_offset if is_end else found.start_offset,
            found.leader_epoch,
            _excluded_at_end(found) if is_end or not found.offset_count else NOTHING_EXCLUDED,
        )
        for found in ranges
    }


def _excluded_at_end(found: OffsetRange) -> Mapping[int, int]:
    return NOTHING_EXCLUDED if found.shown is None else found.shown.excluded


def still_standing(before: Vector, ranges: Sequence[OffsetRange]) -> dict[PartitionKey, StreamPosition]:
    """Return the position of a stream that was at `before` and continues with the ranges. Leader epoch and excluded
    transactions are kept for partitions whose topic and offset are unchanged."""
    bare = {(each.topic, each.partition): StreamPosition(each.topic_id, each.start_offset) for each in ranges}
    return {place: before[place] if before.get(place, ())[:2] == at[:2] else at for place, at in bare.items()}


def changed_incarnations(before: Vector, positions: Sequence[Positions]) -> list[tuple[Positions, Position]]:
    """Return the partitions with a changed leader epoch, each with the position of the stream. The server must compare
    their logs with those that were read."""
    changed: list[tuple[Positions, Position]] = []
    for found in positions:
        at = before.get((found.topic, found.partition))
        if at and at.topic_id == found.topic_id and at.leader_epoch not in {None, found.leader_epoch}:
            changed.append((found, Position(at.offset, at.leader_epoch)))
    return changed


def behind_hidden(
    before: Vector, positions: Sequence[Positions], hidden_to: Mapping[Line, int]
) -> dict[PartitionKey, StreamPosition]:
    """Return the position of the stream, moved to the start of the log in some partitions.

    These are the partitions whose log start has passed the stream, if all deleted records were known to be hidden. That
    is no loss."""
    stands = dict(before)
    for found in positions:
        place = (found.topic, found.partition)
        at = before.get(place)
        if at is None or at.offset >= found.earliest:
            continue
        if hidden_to.get(Line(found.topic_id, found.partition, at.offset, found.leader_epoch), 0) >= found.earliest:
            stands[place] = at._replace(offset=found.earliest)
    return stands


def go_on(options: SourceOptions, start: Vector, positions: Sequence[Positions]) -> list[OffsetRange]:
    """Return the ranges to read after `start`: for each partition up to its end, and never negative.

    A partition that the stream does not know begins at 0. Records count as lost if the log starts after the position of
    the stream, ends before it, or diverged. They also count as lost if the topic is gone, or is a different one.
    `failOnDataLoss` decides if that fails the stream or is a warning.

    Raises: DataLoss; InvalidCheckpoint for the checkpoint of a stream of snapshots, if this is none.
    """
    if not options.is_snapshot and any(found.excluded for found in start.values()):
        raise InvalidCheckpoint(
            "the checkpoint is of a stream of snapshots, which still waits for open transactions behind which it has "
            "read on: set isolationLevel to snapshot, or give this stream a checkpointLocation of its own"
        )
    gone = set(start) - {(found.topic, found.partition) for found in positions}
    for topic, partition in sorted(gone):
        lose(options, f"{topic}-{partition} is gone, and the stream was at {start[topic, partition].offset} there")
    return [_behind(options, start.get((found.topic, found.partition)), found) for found in positions]


def absent(options: SourceOptions, before: Vector, positions: Sequence[Positions]) -> list[str]:
    """Return topics and partitions that the options name but that do not exist. Those that the stream has read before
    are not included: `go_on` reports them as gone."""
    known = [*before, *((found.topic, found.partition) for found in positions)]
    topics = {topic for topic, _ in known}
    assigned = options.topics.assigned or {}
    partitions = [
        f"{topic}-{partition}"
        for topic, numbers in assigned.items()
        if topic in topics
        for partition in numbers
        if (topic, partition) not in known
    ]
    return [name for name in (*options.topics.names, *assigned) if name not in topics] + partitions


def _behind(options: SourceOptions, before: StreamPosition | None, found: Positions) -> OffsetRange:
    start = 0 if before is None else before.offset
    if before is not None and before.topic_id != found.topic_id:
        lose(
            options,
            f"the stream read the topic {found.topic} with the id {before.topic_id.hex()}, and here it has the id "
            f"{found.topic_id.hex()}: the topic was deleted and created again, or the checkpoint is of another cluster",
        )
        start = 0
    elif before is not None:
        parted_at = found.parted_at.get(Position(before.offset, before.leader_epoch))
        if parted_at is not None:
            lose(
                options,
                f"the log of {found.place} went another way from offset {parted_at} on, and the stream has read up to "
                f"{start}, because acknowledged writes were lost or a backup was restored",
            )
            start = parted_at
        elif start > found.end:
            lose(options, f"{found.place} ends at {found.end} and the stream is at {start} already")
    if start < found.earliest:
        lose(options, f"{found.place} begins at {found.earliest} and the stream at {start}: records before it are gone")
        start = found.earliest
    return OffsetRange(
        topic=found.topic,
        topic_id=found.topic_id,
        partition=found.partition,
        start_offset=start,
        end_offset=max(start, found.end),
        leader_epoch=found.leader_epoch,
        shown=None if found.excluded is None else SnapshotFilter(found.excluded),
    )


def as_positions(end: Vector, *, is_snapshot: bool = False) -> list[Positions]:
    """Return the end of a micro-batch as positions of the log. The ranges of a micro-batch are planned from its two
    ends alone, so that they are the same when it is repeated."""
    return [
        Positions(
            topic=topic,
            topic_id=found.topic_id,
            partition=partition,
            earliest=0,
            end=found.offset,
            leader_epoch=found.leader_epoch,
            excluded=found.excluded if is_snapshot else None,
        )
        for (topic, partition), found in sorted(end.items())
    ]


def lose(options: SourceOptions, what: str) -> None:
    """Fail, or warn if the options say so. Raises: DataLoss."""
    if options.is_loss_fatal:
        raise DataLoss(f"{what}; set failOnDataLoss to false to go on with what is there")
    warnings.warn(what, RuntimeWarning, stacklevel=2)
