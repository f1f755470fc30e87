"""Makes the store that is kept of the present format, by a server that goes through a story, and looks at it.

    make stored-format      # or: python -m tests.formats.making

writes `today.rows.txt`, the rows that the story leaves today, and what follows the rulers in `answers.txt`, which is
what a server says that starts on the kept store. Read the difference: a release may add rows and fields, and take
nothing away.

The kept store is `format_3.tar.xz` (the directory of the stopped server), with its rows in `format_3.rows.txt`. Both
are as the first release of the format wrote them, every later one opens them, and nothing replaces them. They are
written once, for a format that has another number.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2
from coordinator_core.config import CoreConfig
from coordinator_protocol.acls import Acl, AclFilter, PatternType, Permission, ResourceType
from coordinator_runtime import own_rows
from coordinator_runtime.features import SHARE_GROUPS
from coordinator_runtime.ports import CallContext
from coordinator_runtime.rocks import ReadOnlyStore, RocksStore, open_read_only, open_store
from coordinator_runtime.rocks.store_directory import StoreDirectory
from coordinator_runtime.store import Family
from coordinator_runtime.store_features import StoreFeatures
from group_coordinator.share_partitions.decisions import decide_delete, decide_initialize
from tests.harness.inside import WorldOptions
from tests.harness.rocks_shelf import SHARD_COUNT, RocksShelf
from tests.harness.script import Script
from tests.harness.share_partitions import Shares
from tests.harness.transcript import play, read_transcript, written
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

HERE: Final = Path(__file__).parent
ARCHIVE: Final = HERE / f"format_{own_rows.FORMAT_VERSION}.tar.xz"
ROWS: Final = HERE / f"format_{own_rows.FORMAT_VERSION}.rows.txt"
TODAY: Final = HERE / "today.rows.txt"
ANSWERS: Final = HERE / "answers.txt"

_LARGE: Final = "large" * 10_000
"""A value so long that its batch lies in a segment."""
_LOSS_MS: Final = 1_735_689_605_000
"""Time of the loss that began the incarnation of the store: five seconds after the beginning of 2025, for small
numbers."""
_VALUE_BYTES_SHOWN_MAX: Final = 400
_UNKEPT: Final = ("LOG*", "LOCK", "OPTIONS-*", "rocksdict-config.json")
"""Files of RocksDB in which nothing is kept; the first and the third name the directory that they were made in."""


class _ShortStretches(WorldOptions):
    """A server whose logs have finished stretches soon."""

    def core_config(self) -> CoreConfig:
        config = super().core_config()
        return replace(config, partitions=replace(config.partitions, index_interval_batches=3))


class _LosingShelf(RocksShelf):
    """A store whose durable mark can get lost, which the operator accepts."""

    loses = False

    def crash(self) -> RocksStore:
        if not self.loses:
            return super().crash()
        directory = self.store.directory
        self.store.close()
        StoreDirectory(directory).durable_mark_path.unlink()
        self.store = open_store(directory, shard_count=SHARD_COUNT, accept_data_loss=True, wall_ms=lambda: _LOSS_MS)
        return self.store


def make(directory: Path) -> None:
    """Make a store in the directory that has rows of every kind."""
    transcript = read_transcript((HERE / "story.txt").read_text())
    options = transcript.options(TwoPhase.SPLIT)
    shelf = _LosingShelf(directory)
    world = World(
        _ShortStretches(two_phase=options.two_phase, producer_expiration_ms=options.producer_expiration_ms), shelf
    )
    script = Script(world)
    first, *others = transcript.blocks
    for command in first.commands:
        script.run(command)
    # Each start begins a new segment, and the second one a new line.
    for name, shelf.loses in (("first", False), ("second", True)):
        script.run(f"init {name}")
        script.run(f"produce {name} large-0 {_LARGE} plain")
        script.run(f"produce {name} large-0 {name} plain")
        script.run("settle")
        script.run("crash")
    # Behind the loss, with which members of before have to join again.
    _add_groups(world)
    _add_acls(world)
    _add_shares(world)
    for block in others:
        for command in block.commands:
            script.run(command)
    shelf.close()
    for pattern in _UNKEPT:
        for file in [*directory.rglob(pattern)]:
            file.unlink()


def _add_acls(world: World) -> None:
    """Two rules, one of which is deleted."""
    rules = [
        Acl(
            principal=f"User:{name}",
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            operation=Permission.READ,
            pattern_type=PatternType.PREFIXED,
        )
        for name in ("reader", "gone")
    ]
    acls = world.inside.core.admin.acls
    acls.create(rules, CallContext(), validate_only=False)
    acls.delete([AclFilter(principal="User:gone")], CallContext(), validate_only=False)
    world.settle()


def _add_shares(world: World) -> None:
    """A share group that has handed out records, and got some back; one that has read nothing; and one that is gone."""
    StoreFeatures(world.inside.runtime, world.shelf.store).begin(SHARE_GROUPS)
    world.settle()
    read = Shares(world)
    read.begin()
    offsets = read.acquire("m")
    read.acknowledge("m", *((at, at, [kind]) for at, kind in zip(offsets[1:], (1, 2, 3), strict=False)))
    for group_id in ("unread", "gone"):
        other = Shares(world, group_id=group_id)
        other.ask(decide_initialize, key=other.key, state_epoch=1)
    other.ask(decide_delete, keys=[other.key])


def _add_groups(world: World) -> None:
    """Members of all protocols, settings of a group, and what an administrator deleted."""

    def ask(request: Message) -> Any:
        reply = world.inside.group_wire.call(request)
        while not reply.is_settled:
            world.tick(1_000)
            world.settle()
        assert not getattr(reply.result(), "error_code", 0), reply.result()
        return reply.result()

    protocols = [group_pb2.JoinGroupProtocol(name="range", metadata=b"m")]
    joined = ask(
        group_pb2.JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=protocols,
            skip_member_id_required=True,
        )
    )
    share = group_pb2.SyncGroupAssignment(member_id=joined.member_id, assignment=b"a")
    ask(
        group_pb2.SyncGroupRequest(
            group_id="classic",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[share],
        )
    )
    beat = group_pb2.ConsumerGroupHeartbeatRequest(
        group_id="consumer",
        member_id="m1",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=group_pb2.TopicNames(names=["t"]),
        subscribed_topic_regex="l.*",
        topic_partitions=group_pb2.PartitionSet(),
    )
    epoch = ask(beat).member_epoch
    for _ in range(3):
        world.tick(2_000)
        world.settle()
        again = group_pb2.ConsumerGroupHeartbeatRequest(group_id="consumer", member_id="m1", member_epoch=epoch)
        epoch = ask(again).member_epoch
    topics_read = group_pb2.TopicNames(names=["t"])
    ask(group_pb2.ShareGroupHeartbeatRequest(group_id="share", member_id="m1", subscribed_topic_names=topics_read))
    _add_streams(ask)
    setting = group_pb2.GroupConfig(name="consumer_session_timeout_ms", value=50_000)
    ask(group_pb2.AlterGroupConfigsRequest(group_id="consumer", set=[setting]))
    offset = group_pb2.PartitionOffset(partition=0, committed_offset=1)
    topics = [group_pb2.TopicOffsets(topic="t", partitions=[offset])]
    ask(group_pb2.OffsetCommitRequest(group_id="deleted", generation_id_or_member_epoch=-1, topics=topics))
    ask(group_pb2.DeleteGroupsRequest(group_ids=["deleted"]))


def _add_streams(ask: Callable[[Message], Any]) -> None:
    """A streams group with a member that has tasks."""
    subtopology = group_pb2.StreamsSubtopology(subtopology_id="0", source_topics=["t"])
    delay = group_pb2.GroupConfig(name="streams_initial_rebalance_delay_ms", value=0)
    ask(group_pb2.AlterGroupConfigsRequest(group_id="streams", set=[delay]))
    ask(
        group_pb2.StreamsGroupHeartbeatRequest(
            group_id="streams",
            member_id="m1",
            rebalance_timeout_ms=30_000,
            topology=group_pb2.StreamsTopology(epoch=1, subtopologies=[subtopology]),
            owned_tasks=group_pb2.StreamsTasks(),
            process_id="p1",
        )
    )


def answers(directory: Path) -> str:
    """Return the answers of a server that starts on the store, which this changes."""
    transcript = read_transcript(ANSWERS.read_text())
    shelf = RocksShelf(directory)
    try:
        return written(transcript, play(transcript, TwoPhase.SPLIT, shelf))
    finally:
        shelf.close()


def rows(directory: Path) -> Iterator[str]:
    """The rows of a store, one a line: family, key and value."""
    store = open_read_only(directory)
    try:
        for family in Family:
            yield from _rows_of(store, family)
    finally:
        store.close()


def _rows_of(store: ReadOnlyStore, family: Family) -> Iterator[str]:
    for key, value in store.scan(family, b"", b"\xff" * 24):
        shown = value.hex()
        if len(value) > _VALUE_BYTES_SHOWN_MAX:
            shown = f"{len(value)} bytes with SHA-256 {hashlib.sha256(value).hexdigest()}"
        yield f"{family.name} {key.hex()} {shown}"


def unpack(directory: Path) -> None:
    """Put the kept store into the directory."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")


def _pack(directory: Path) -> None:
    def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for file in sorted(directory.rglob("*")):
            archive.add(file, file.relative_to(directory), recursive=False, filter=without_owner)


def main() -> None:
    """Note what is stored today, and what a server says of the store that is kept; keep one if none is."""
    with TemporaryDirectory() as scratch:
        made, kept = Path(scratch, "made"), Path(scratch, "kept")
        make(made)
        TODAY.write_text("".join(f"{row}\n" for row in rows(made)))
        if not ARCHIVE.exists():
            _pack(made)
            ROWS.write_text(TODAY.read_text())
        unpack(kept)
        ANSWERS.write_text(answers(kept))
    sys.stdout.write(f"{TODAY.name} and {ANSWERS.name}: written; read the difference. {ARCHIVE.name} stays as it is\n")


if __name__ == "__main__":
    main()
