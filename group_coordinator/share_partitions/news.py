"""Wakes those that wait for records of share partitions (the effect `SharesAvailable`)."""

from __future__ import annotations

from collections.abc import Callable

from coordinator_runtime.runtime import Runtime
from group_coordinator.share_partitions.events import SharesAvailable
from group_coordinator.share_partitions.records import ShareKey


class ShareNews:
    """Listeners by share partition. Growth of the log is another matter: for that a fetch waits as readers do."""

    def __init__(self, runtime: Runtime) -> None:
        self._listeners: dict[ShareKey, dict[Callable[[], None], None]] = {}
        runtime.handle_effect(SharesAvailable, self._tell)

    def listen(self, key: ShareKey, look_again: Callable[[], None]) -> None:
        """Call the listener at each `SharesAvailable` of the share partition, until it stops listening."""
        self._listeners.setdefault(key, {})[look_again] = None

    def stop_listening(self, key: ShareKey, look_again: Callable[[], None]) -> None:
        """Call the listener no more. Safe while it runs."""
        listeners = self._listeners.get(key, {})
        listeners.pop(look_again, None)
        if not listeners:
            self._listeners.pop(key, None)

    def _tell(self, news: SharesAvailable) -> None:
        for look_again in [*self._listeners.get(ShareKey(news.group_id, news.ordinal), ())]:
            look_again()
