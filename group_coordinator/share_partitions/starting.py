"""Start offsets of new share partitions, found at the first fetch by the settings of the group.

Source: spec groups 6.3 (share.auto.offset.reset); KIP-932, KIP-1106.
"""

from __future__ import annotations

from functools import partial

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.decision import Operation, ShardKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionRef
from coordinator_runtime.record_log import LogView, RecordLog
from coordinator_runtime.runtime import Runtime
from group_coordinator.administration.settings import ShareSettings
from group_coordinator.administration.words import EARLIEST, LATEST
from group_coordinator.share_partitions.decisions import decide_resolve_start
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.shard import ShareShard


class StartOffsets:
    """Finds start offsets, each once."""

    def __init__(self, runtime: Runtime, log: RecordLog) -> None:
        self._runtime = runtime
        self._log = log
        self._searching: set[ShareKey] = set()
        """Share partitions whose start is being looked for in the log by time."""
        self._refused: dict[ShareKey, Refused] = {}
        """Refusals of failed searches, each until a fetch returns it."""

    def find(
        self,
        shard: ShardKey,
        key: ShareKey,
        ref: PartitionRef,
        view: LogView,
        settings: ShareSettings,
        context: CallContext,
    ) -> None:
        """Give the share partition its start offset. An end of the log is known at once. A time takes a search, which
        wakes the fetches that wait for the share partition."""
        reset = settings.auto_offset_reset
        if reset == LATEST:
            self._resolve(shard, key, view.bound_offset)
        elif reset == EARLIEST:
            self._resolve(shard, key, view.log_start_offset)
        elif key not in self._searching and key not in self._refused:
            self._searching.add(key)
            since_ms = max(0, self._runtime.clock.wall_ms() - reset)
            found = self._log.offset_since(ref, since_ms, context, is_committed=settings.is_read_committed)
            found.on_settled(partial(self._found, shard, key))

    def refusal(self, key: ShareKey) -> Refused | None:
        """Return the error of a search that failed, once."""
        return self._refused.pop(key, None)

    def _found(self, shard: ShardKey, key: ShareKey, found: Pending[int]) -> None:
        self._searching.discard(key)
        if isinstance(found.error, Refused):
            self._refused[key] = found.error
        elif found.error is None:
            self._resolve(shard, key, found.result())
        elif not isinstance(found.error, CoordinatorError):
            self._runtime.on_defect(found.error)

    def _resolve(self, shard: ShardKey, key: ShareKey, offset: int) -> None:
        found: ShareShard | None = self._runtime.table.find(shard)
        share = None if found is None else found.find(key)
        if share is not None:
            decide = partial(decide_resolve_start, key=key, state_epoch=share.state_epoch, offset=offset)
            self._runtime.write(Operation(shard, decide))
