"""Storms in which backups are made and restored: the server loses what came after, and its clients, who saw it, go on.

What was acknowledged before the backup must be there in the end, and what a client was told later must not be taken for
anything that the new incarnation says. So the answers of the lost incarnation are taken out of the history, and the
auditor gets what it needs to see that nothing of it is given again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.ports import ALLOW_ALL, CallContext
from partition_log.catalog.settings import FOR_EVER, Retention
from partition_log.foreign_markers import DecidedMarker, ForeignMarkers, WriteTxnMarkers
from partition_log.leadership import Diverged
from tests.harness.calls import partition_name
from tests.harness.entries import Reading
from tests.harness.shelf import Shelf
from tests.simulation import shards
from tests.simulation.history import LineChange
from tests.simulation.options import Options
from tests.simulation.share_books import ShareBook
from tests.simulation.simulation import Simulation
from tests.simulation.told import Violation
from tests.simulation.translation import marker_of
from txn_coordinator.hanging import ProducerOwners

_BEGIN_MS = 1_790_000_000_000
"""Lines are numbered by the clock, counted from 2025."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A backup, and what a reader had read by then."""

    backup: Any
    at: int
    positions: dict[str, int]
    log_ends: dict[str, int]
    shares: ShareBook
    """What the workers of the share group knew."""


def options_of(seed: int) -> Options:
    """Those of the seed, without what has a history of its own that would have to be cut, too."""
    return replace(
        Options.of(seed),
        member_weight=0.0,
        delete_weight=0.0,
        growth_weight=0.0,
        sink_weight=0.0,  # its books know of no restore
        streams_weight=0.0,
        retention=Retention(FOR_EVER, FOR_EVER),
        passing_weight=0.0,
    )


class RestoringSimulation(Simulation):
    """A storm with backups and restores."""

    def __init__(self, options: Options, shelf: Shelf | None = None) -> None:
        super().__init__(options, shelf)
        self._lines_rng = Random(f"lines {options.seed}")
        self.world.clock.step_wall(_BEGIN_MS - self.world.clock.wall_ms())
        self._taken: list[_Taken] = []
        self._lost_markers: list[tuple[str, Marker]] = []

    def _events(self) -> list[tuple[float, Callable[[], None]]]:
        return [*super()._events(), (1.5, self._back_up), (0.7, self._restore), (1, self._marker_of_a_lost_line)]

    def _step_wall_clock(self) -> None:
        """It is not set back: by it lines are told apart."""
        self.world.clock.step_wall(5_000)

    def _back_up(self) -> None:
        self.world.clock.advance(1)  # Names tell milliseconds.
        # Readers see what is durable, and a backup has all that is written. What follows from it is staged, in neither.
        self._read_everything()
        self.world.flush()
        ends = self._read_everything()
        self._taken.append(
            _Taken(self.world.back_up(), self._now, dict(self._readers.positions), ends, self._shares.book.copy())
        )

    def _read_everything(self) -> dict[str, int]:
        """The ends of all partitions."""
        return {partition: self._read_all(partition).high_watermark for partition in self._partitions}

    def _read_all(self, partition: str) -> Reading:
        """Read a partition, whose shard may have to be loaded first."""
        try:
            return self.world.read(partition, is_raw=True)
        except Refused:
            shards.bring_all_back(self.world)
            return self.world.read(partition, is_raw=True)

    def _restore(self) -> None:
        if not self._taken:
            return
        taken = self._lines_rng.choice(self._taken)
        # What was made later is of a line that this history cannot go back to.
        self._taken = [each for each in self._taken if each.at <= taken.at]
        readers = {partition: self._reader_of(partition) for partition in self._partitions}
        self._note_lost_markers(taken)
        self.world.restore(taken.backup)
        self._forget_since(taken)
        self._on_restarted()
        self.world.settle()
        for partition, (position, epoch) in readers.items():
            self._check_that_it_is_told(partition, position, epoch, taken.log_ends[partition])
            if self.options.kafka_share:  # Else there are words in the log.
                self._check_that_kafka_is_told(partition, position, epoch, taken.log_ends[partition])

    def _reader_of(self, partition: str) -> tuple[int, int | None]:
        """The position of a reader at the end, and the leader epoch of that."""
        reading = self._read_all(partition)
        return reading.next_offset, reading.last_read_epoch

    def _check_that_it_is_told(self, partition: str, position: int, epoch: int | None, log_end: int) -> None:
        """A reader of the lost incarnation learns where that parted from the new one, and one that stopped before does
        not."""
        self._read_all(partition)
        try:
            self.world.read(partition, fetch_offset=position, is_raw=True, last_read_epoch=epoch)
        except Diverged as told:
            parted = told.divergence.end_offset
            if position <= log_end or parted != log_end:
                raise Violation(f"{partition}: {position} of {epoch} parts at {parted}, not at {log_end}") from told
        else:
            if position > log_end:
                raise Violation(f"{partition}: a reader at {position} of a line that was lost from {log_end} is served")

    def _check_that_kafka_is_told(self, partition: str, position: int, epoch: int | None, log_end: int) -> None:
        """The same of a reader by Kafka's protocol, which asks by two requests."""
        parted = self._kafka.reader.parted_at(partition, position, epoch)
        expected = log_end if position > log_end else None
        if parted != expected:
            raise Violation(f"{partition}: Kafka's reader at {position} of {epoch} parts at {parted}, not {expected}")

    def _note_lost_markers(self, taken: _Taken) -> None:
        for partition, log_end in taken.log_ends.items():
            for entry in self._read_all(partition).entries:
                if entry.marker is not None and entry.offset >= log_end:
                    self._lost_markers.append((partition, marker_of(entry)))

    def _marker_of_a_lost_line(self) -> None:
        """It was on its way when the server was lost."""
        if self._lost_markers:
            with suppress(Refused):
                partition, marker = self._lines_rng.choice(self._lost_markers)
                inside = self.world.inside
                doors = ForeignMarkers(
                    inside.runtime, inside.catalog, guard=ProducerOwners(inside.runtime), authorizer=ALLOW_ALL
                )
                doors.write(WriteTxnMarkers([DecidedMarker(marker, [partition_name(partition)])]), CallContext())

    def _forget_since(self, taken: _Taken) -> None:
        history = self.history
        lost = [answer for op in history.ops for answer in op.forget_answers_after(taken.at)]
        history.reads = [read for read in history.reads if read.at <= taken.at]
        history.compacted = [part for part in history.compacted if part.at <= taken.at]
        history.offset_reads = [read for read in history.offset_reads if read.at <= taken.at]
        for snapshot in history.snapshots:
            snapshot.is_lost = snapshot.is_lost or snapshot.at > taken.at
        for commit in history.plain_commits:
            if commit.answered_at is not None and commit.answered_at > taken.at:
                commit.answered_at = None
        self._answers = [op for op in self._answers if op.completed_at is not None]
        self._readers.positions = defaultdict(int, taken.positions)
        self._shares.book.go_back_to(taken.shares)
        history.restores.append(
            LineChange(
                taken.at,
                self._now,
                frozenset(answer.granted for answer in lost if answer.granted is not None),
                frozenset(answer.csn for answer in lost if answer.csn),
            )
        )
