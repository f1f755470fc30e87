"""A runtime driven by hand: no loop, no thread, and nothing is durable until the test says so."""

from __future__ import annotations

from coordinator_core.assembly import Core
from coordinator_runtime.clock import Clock
from coordinator_runtime.loader import ShardKind, ShardLoader
from coordinator_runtime.runtime import Runtime, RuntimeLimits
from coordinator_runtime.store import CommitGroup, Store

_ROUNDS_MAX = 10_000


class HandDriver:
    """Owns a runtime over a store and plays its commit thread.

    A defect in an operation that the server started itself is raised by the next `flush`: no test may overlook it."""

    def __init__(self, store: Store, clock: Clock, limits: RuntimeLimits | None = None) -> None:
        self.store = store
        self.handed_over: list[CommitGroup] = []
        """Sealed groups that are not written yet."""
        self.defects: list[Exception] = []
        self.runtime = Runtime(
            clock=clock, durable_version=store.version(), hand_over=self.handed_over.append, limits=limits
        )
        self.runtime.on_defect = self.defects.append
        self.loader = ShardLoader(self.runtime, store)

    def load(self, kind: ShardKind) -> None:
        """Read all shards of a kind. Those with a coordinator epoch serve after the next flush. One that cannot be read
        is failed; raises its refusal if it is essential."""
        self.loader.add(kind)
        replies = [self.loader.load(key) for key in kind.all_shards()]
        self.read_all()
        if kind.is_essential:
            for reply in replies:
                reply.result()

    def load_core(self, core: Core) -> None:
        """Read all that a core has, which was assembled on this runtime. Shards with a coordinator epoch serve after
        the next flush. Raises the refusal if what all shards share cannot be read."""
        self.loader = core.loader
        shared = core.load_shared()
        self.read_all()
        shared.result()
        core.load_shards()
        self.read_all()

    def read_all(self) -> None:
        """Let every load that can go on read all of its shard. One whose read is late waits for its time."""
        while self.loader.is_reading:
            deadline_ms = self.runtime.timers.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self.runtime.clock.monotonic_ms():
                return
            self.runtime.run_due_timers()

    def flush(self, count: int | None = None) -> bool:
        """Make durable what is staged, or its first `count` groups; False when there was nothing. What follows from it
        stays staged."""
        self.runtime.groups.seal()
        self._raise_defects()
        groups = self.handed_over[:count]
        if not groups:
            return False
        del self.handed_over[: len(groups)]
        self.store.write(groups)
        self.store.sync()
        self.runtime.on_durable(groups[-1].version)
        self._raise_defects()
        return True

    def settle(self) -> None:
        """Flush, and go on with loads, until nothing follows any more. The clock stays."""
        for _ in range(_ROUNDS_MAX):
            self.read_all()
            if not self.flush():
                return
        raise AssertionError(f"still not settled after {_ROUNDS_MAX} flushes")

    def write_unsynced(self, kept_groups: int) -> None:
        """Leave the store as a crash does: the first `kept_groups` of the staged groups reached it, the rest is
        lost."""
        self.runtime.groups.seal()
        self.store.write(self.handed_over[:kept_groups])
        self.handed_over.clear()

    @property
    def undurable_groups(self) -> int:
        """Groups that a crash may lose, the open one included."""
        self.runtime.groups.seal()
        return len(self.handed_over)

    def _raise_defects(self) -> None:
        if self.defects:
            raise self.defects[0]
