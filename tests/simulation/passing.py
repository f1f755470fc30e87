"""A topic that is deleted and made again, as readers of snapshots meet it.

Each time it is made it is another topic, so what was seen of it goes by its id. What it holds is gone with it; so
whenever a snapshot is taken, what that can show is copied, for the auditor.
"""

from __future__ import annotations

from coordinator_protocol.errors import Refused
from coordinator_protocol.snapshots import PartitionView
from coordinator_runtime.ports import PartitionName
from tests.harness.entries import stored_entries
from tests.harness.world import World
from tests.simulation.history import History
from tests.simulation.translation import plain_entry


class Passing:
    """The topic, if the run has one."""

    def __init__(self, world: World, history: History, topic: str) -> None:
        """`topic`: its name; empty: there is none."""
        self._world = world
        self._history = history
        self._topic = topic
        self.partition = f"{topic}-0" if topic else ""
        self._copied_to: dict[str, int] = {}

    def topic_id(self) -> bytes:
        """The id that it has durably; empty: it is not there."""
        if not self._topic:
            return b""
        try:
            return self._world.inside.catalog.durable_topic(self._topic, b"").topic_id
        except Refused:
            return b""

    def has(self, name: PartitionName) -> bool:
        return bool(self._topic) and name.topic == self._topic

    def text(self, name: PartitionName) -> str:
        """What a partition is called in the history."""
        plain = f"{name.topic}-{name.partition}"
        return f"{plain}/{name.topic_id.hex()}" if self.has(name) else plain

    def copy(self, name: PartitionName, view: PartitionView) -> None:
        """Note what the log has up to the end of a snapshot. Of what went before anybody saw it nothing is known: what
        comes behind is a part of its own, so that no marker is taken for that of another transaction."""
        if not self.has(name):
            return
        partition = self.text(name)
        copied_to = self._copied_to.get(partition, 0)
        ordinal = self._world.inside.catalog.resolve(*name).ordinal
        store = self._world.shelf.store
        entries = [plain_entry(each) for each in stored_entries(store, ordinal, copied_to, view.end_offset)]
        parts = self._history.passing_logs.setdefault(partition, [])
        if not parts or (entries and entries[0].offset != copied_to):
            parts.append([])
        parts[-1] += entries
        self._copied_to[partition] = view.end_offset
