"""Share sessions: the partitions that a member fetches from, and the epoch that counts its requests.

They are in memory only. A session ends with its membership, or shortly after a leave that keeps it. One that was begun
over Kafka's protocol ends with its connection, too. Their number has a limit, beyond which none is begun. If they have
too many partitions, the one ends that was idle for longest. Its member begins a new one, and keeps the records that it
holds.

Source: spec groups 6.2; KIP-932.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Connection, PartitionName, PartitionRef

T = TypeVar("T")

FINAL_EPOCH: Final = -1
"""Ends a session."""
INITIAL_EPOCH: Final = 0
"""Begins a session."""
_EPOCH_MAX: Final = 0x7FFF_FFFF

PARTITIONS_MAX: Final = 1_000_000
"""Largest number of partitions in all sessions together: some 200 MB."""


class MemberKey(NamedTuple):
    """Name of a session: a group and its member."""

    group_id: str
    member_id: str


class ShareSession:
    """One session."""

    __slots__ = ("_requests", "connection", "key", "next_epoch", "on_end", "partitions")

    def __init__(self, key: MemberKey, connection: Connection | None = None) -> None:
        self.key = key
        self.connection = connection
        """Connection with which the session ends; None if it outlives connections."""
        self.next_epoch = 1
        """Epoch that the next request must name."""
        self.partitions: dict[int, PartitionRef] = {}
        """Partitions by ordinal, in the order in which the next fetch reads them."""
        self.on_end: dict[Hashable, Callable[[], None]] = {}
        """Callbacks of the fetches that wait, by their names, for the end of the session or of the membership."""
        self._requests: deque[tuple[Callable[[], Pending[Any]], Pending[Any]]] = deque()
        """Requests that were taken, the first of which has begun, and their replies."""

    def in_turn(self, begin: Callable[[], Pending[T]]) -> Pending[T]:
        """Begin a request once all that were taken before it are done, and return its reply. It begins also if its
        caller has given up meanwhile, because its epoch is used up."""
        reply: Pending[T] = Pending()
        self._requests.append((begin, reply))
        if len(self._requests) == 1:
            self._begin_requests()
        return reply

    def _begin_requests(self) -> None:
        while self._requests:
            begin, _reply = self._requests[0]
            done = begin()
            if not done.is_settled:
                done.on_settled(self._go_on)
                return
            self._end_request(done)

    def _go_on(self, done: Pending[Any]) -> None:
        self._end_request(done)
        self._begin_requests()

    def _end_request(self, done: Pending[Any]) -> None:
        _begin, reply = self._requests[0]
        try:
            # A request that comes from a callback of the reply is begun by the caller of this.
            reply.settle_as(done)
        finally:
            self._requests.popleft()

    def ordinals_of(self, names: Collection[PartitionName]) -> list[int]:
        """Return the ordinals of its partitions with these names. The catalog no longer knows those of a deleted
        topic."""
        wanted = {(name.topic_id or name.topic, name.partition) for name in names}
        if not wanted:
            return []
        return [
            ordinal
            for ordinal, ref in self.partitions.items()
            if (ref.topic_id, ref.partition) in wanted or (ref.topic, ref.partition) in wanted
        ]

    def end_waits(self) -> None:
        """Answer the fetches that wait."""
        for answer in [*self.on_end.values()]:
            answer()

    def give_way(self, ordinal: int) -> None:
        """Let all other partitions be read before this one, which has just brought records."""
        ref = self.partitions.pop(ordinal, None)
        if ref is not None:
            self.partitions[ordinal] = ref


class ShareSessions:
    """All sessions of a server, those used longest ago first."""

    def __init__(self, sessions_max: int, partitions_max: int = PARTITIONS_MAX) -> None:
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._by_connection: dict[Connection, dict[MemberKey, ShareSession]] = {}
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: MemberKey, connection: Connection | None = None) -> ShareSession:
        """Begin a session in place of any that the member has. With a connection it is one of `of_connection`. Raises
        Refused SHARE_SESSION_LIMIT_REACHED."""
        self.end(key)
        if len(self._sessions) >= self._sessions_max:
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {self._sessions_max} share sessions, which is all this server takes "
                "(group_share_sessions_max): try again when members have left",
            )
        session = self._sessions[key] = ShareSession(key, connection)
        if connection is not None:
            self._by_connection.setdefault(connection, {})[key] = session
        return session

    def of_connection(self, connection: Connection) -> list[ShareSession]:
        """Return the sessions that end with a connection."""
        return [*self._by_connection.get(connection, {}).values()]

    def take(self, key: MemberKey, epoch: int) -> ShareSession:
        """Return the session of a request with this epoch, which is used up then. The final epoch leaves the session to
        `end`.

        Raises Refused: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get(key)
        if session is None:
            raise Refused(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"{key.member_id!a:.80} has no share session in {key.group_id!a:.300}: begin one with epoch 0",
            )
        if epoch != FINAL_EPOCH:
            if epoch != session.next_epoch:
                raise Refused(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                    f"the share session is at epoch {session.next_epoch}, and the request names {epoch}: begin a new "
                    "session with epoch 0",
                )
            session.next_epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        del self._sessions[key]
        self._sessions[key] = session
        return session

    def add(self, session: ShareSession, ref: PartitionRef) -> None:
        """Let a partition join a session. Other sessions may end for it. No effect if the session has ended."""
        if ref.ordinal not in session.partitions and self.is_current(session):
            session.partitions[ref.ordinal] = ref
            self._partition_count += 1
            while self._partition_count > self._partitions_max and len(self._sessions) > 1:
                self._evict_for(session)

    def remove(self, session: ShareSession, ordinal: int) -> None:
        """Let a partition leave a session. No effect if it is not in it."""
        if session.partitions.pop(ordinal, None) is not None:
            self._partition_count -= 1

    def end(self, key: MemberKey) -> None:
        """End the session of a member. No effect if it has none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
            session.partitions.clear()
            self._leave_connection(session)
            session.end_waits()

    def keep_for_acknowledgements(self, key: MemberKey) -> bool:
        """Answer the fetches that wait in the session of a member that left. Return False if it has no session."""
        session = self._sessions.get(key)
        if session is None:
            return False
        session.end_waits()
        return True

    def _leave_connection(self, session: ShareSession) -> None:
        if session.connection is None:
            return
        others = self._by_connection[session.connection]
        del others[session.key]
        if not others:
            del self._by_connection[session.connection]

    def is_current(self, session: ShareSession) -> bool:
        """Return True until the session ends."""
        return self._sessions.get(session.key) is session

    def _evict_for(self, growing: ShareSession) -> None:
        """End the session that was used longest ago, except for the one that grows. Sessions without a fetch that waits
        end first."""
        others = (session for session in self._sessions.values() if session is not growing)
        idle = (session for session in self._sessions.values() if session is not growing and not session.on_end)
        evicted = next(idle, None) or next(others)
        self.end(evicted.key)
