"""Where a stream stands: its offsets as Spark keeps them in the checkpoint, and what may follow them.

The JSON has the shape of Spark's Kafka source, `{"topic":{"0":23}}`, and beside it, under names that no topic can have,
the ids of the topics and the leader epochs in which the offsets were learned. By these a stream that is started again
knows a topic that was created anew, a log that was restored from a backup, and a server that is another one. The end of
a micro-batch also says where that began: Spark keeps no beginning of the first one, and asks for it again.

Pure. Source: spec spark 4 and 8.
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
    """Where a stream stands in one partition."""

    topic_id: bytes
    offset: int
    """The next offset to read."""
    leader_epoch: int | None = None
    """The leader epoch in which the log was known up to the offset."""
    excluded: Mapping[int, int] = NOTHING_EXCLUDED
    """The transactions before the offset that are still to come, of a stream of snapshots: by producer id, the first
    offset."""


Vector: TypeAlias = Mapping[PartitionKey, StreamPosition]
"""Where a stream stands in all its partitions."""


class Line(NamedTuple):
    """What a look at the records behind a stream is remembered by."""

    topic_id: bytes
    partition: int
    offset: int
    """Where the stream stands."""
    leader_epoch: int | None
    """The leader epoch of the log when it was looked at."""


class InvalidCheckpoint(ValueError):
    """The offsets of a checkpoint are not those of this source."""


def to_json(vector: Vector, begun: Vector | None = None) -> dict[str, Any]:
    """Return the offsets as Spark keeps them; sorted, so that the same offsets are the same text. `begun`: where the
    micro-batch began that ends here."""
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
    """Return the offsets that Spark kept. Raises: InvalidCheckpoint."""
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
    """Return where the micro-batch began that ends at `end`. Offsets that begin a stream end nothing, and are their own
    beginning. Raises: InvalidCheckpoint."""
    return from_json(end.get(START, end))


def to_initial_json(options: SourceOptions, positions: Sequence[Positions]) -> dict[str, Any]:
    """Return where a stream begins, as Spark keeps it, and with it the partitions that `startingOffsets` leaves out.

    Spark asks for it also before it repeats a first micro-batch that was not done, which knows its beginning by its end
    (`beginnings`). Partitions that were added since are no mistake then, so only who goes on from here is told of one.

    Of topics that are gone, nothing is asked where a loss is not fatal.

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
    """Check that a stream may go on from an offset. Raises: InvalidOption where that is a beginning that leaves
    partitions out."""
    if start.get(UNNAMED):
        raise InvalidOption(lacking("startingOffsets", start[UNNAMED]))


def standings(ranges: Sequence[OffsetRange], *, is_end: bool = False) -> dict[PartitionKey, StreamPosition]:
    """Return where a stream stands that begins, or ends, with the ranges."""
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
    """Return where a stream stands that was at `before` and goes on with the ranges: what it has read is known where
    it is still there."""
    bare = {(each.topic, each.partition): StreamPosition(each.topic_id, each.start_offset) for each in ranges}
    return {place: before[place] if before.get(place, ())[:2] == at[:2] else at for place, at in bare.items()}


def changed_lines(before: Vector, positions: Sequence[Positions]) -> list[tuple[Positions, Position]]:
    """Return the partitions whose leader epoch is another one by now, each with where the stream stands: the server
    must be asked whether their logs are still those that were read."""
    changed: list[tuple[Positions, Position]] = []
    for found in positions:
        at = before.get((found.topic, found.partition))
        if at and at.topic_id == found.topic_id and at.leader_epoch not in {None, found.leader_epoch}:
            changed.append((found, Position(at.offset, at.leader_epoch)))
    return changed


def behind_hidden(
    before: Vector, positions: Sequence[Positions], hidden_to: Mapping[Line, int]
) -> dict[PartitionKey, StreamPosition]:
    """Return where the stream stands, at the beginning of the log where that has come behind the stream and nothing was
    deleted but what the stream had looked at and found hidden: that is no loss."""
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
    """Return what there is to read behind `start`: for each partition the range up to its end, never a negative one.

    A partition that the stream does not know begins at 0. Records are lost, which fails the stream or is warned of,
    only where the log begins behind the stream, the topic is another one, or the log went another way. Where it fails
    is up to `failOnDataLoss`.

    Raises: DataLoss; InvalidCheckpoint for that of a stream of snapshots, where this is none.
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
    """Return what the options name and is not there, unless the stream has read it before: that is gone, and `go_on`
    says so."""
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
    """Return the end of a micro-batch as positions of the log: the ranges of a micro-batch are planned from its two
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
    """Fail, or warn where the options say so. Raises: DataLoss."""
    if options.is_loss_fatal:
        raise DataLoss(f"{what}; set failOnDataLoss to false to go on with what is there")
    warnings.warn(what, RuntimeWarning, stacklevel=2)
