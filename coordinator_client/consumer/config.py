"""The settings of a consumer, checked before anything is opened. Names and defaults are Kafka's unless it says
otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from coordinator_client.errors import check_here, wrong_setting
from coordinator_client.settings import RAISE, check_durations, check_on_corrupt_batch, isolation_level
from coordinator_client.tls import Tls
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.transport.transport import MESSAGE_BYTES_MAX
from coordinator_protocol.assignors.classic import Assignor
from coordinator_protocol.limits import MEBI
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_group_id

GROUP_PROTOCOLS: Final = ("consumer", "classic")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
RESETS: Final = (EARLIEST, LATEST, "none")


class ConsumerOptions(TypedDict, total=False):
    """The keywords of `Consumer` and `AsyncConsumer`; `ConsumerConfig` says what each means."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    server_assignor: str | None
    partition_assignors: Sequence[str | Assignor]
    isolation: str
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    heartbeat_wait_ms: int
    metadata_max_age_ms: int
    rack_id: str | None
    fetch_bytes: int
    fetch_wait_ms: int
    buffer_bytes: int
    request_timeout_ms: int
    default_timeout_ms: int
    on_corrupt_batch: str
    close_timeout_ms: int
    client_id: str
    wait_ms: int | None
    tls: Tls | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer. Raises at construction: Rejected or Misconfigured, naming the setting."""

    group_id: str | None = None
    """The group whose members share the partitions, and under whose name offsets are committed. Default: none;
    then partitions are given by `assign`, and nothing can be committed."""

    group_instance_id: str | None = None
    """Makes this a static member (KIP-345): it keeps its partitions while it restarts within the session timeout.
    Unique in the group. Default: none, a dynamic member."""

    group_protocol: str = "consumer"
    """`consumer` (default): the server assigns (KIP-848). `classic`: one of the members does; what a Kafka client of
    before 4.0 speaks. Kafka's default is classic; this server always speaks both."""

    server_assignor: str | None = None
    """Protocol `consumer`: assignor of the server that this member prefers, `uniform` or `range`. Default: none."""

    partition_assignors: Sequence[str | Assignor] = ("range", "cooperative-sticky")
    """Protocol `classic`: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or objects like those of
    `coordinator_protocol.assignors.classic`, the preferred one first. The most
    advanced way to rebalance that all of them share is used: cooperative only if all are."""

    isolation: str = "read_committed"
    """`read_committed` (default, unlike Kafka's): nothing of open or aborted transactions. `read_uncommitted`: every
    durable record."""

    auto_offset_reset: str = LATEST
    """Where to begin without a committed offset, or with one that does not exist any more: `earliest`, `latest`
    (default), or `none`: `poll` raises. So a member of a group also begins a topic that was deleted and made again:
    what was committed in the old one is gone with it. Where records were lost that this consumer, or the one that
    committed, has read (`--accept-data-loss`, a restored backup), the first two go back to the first offset that was
    lost."""

    enable_auto_commit: bool = True
    """Commit what earlier calls of `poll` returned: every `auto_commit_interval_ms`, before partitions are given up,
    and in `close`. Must be False with `Transaction.commit_offsets`. Default True."""

    auto_commit_interval_ms: int = 5_000
    """Time between automatic commits. Default 5,000. Smaller: less is read again after a crash. Larger: fewer
    commits."""

    max_poll_records: int = 500
    """Most records that one `poll` returns. Default 500."""

    max_poll_interval_ms: int = 300_000
    """A member that does not call `poll` for this long leaves the group: it is taken for stuck. Also how long others
    wait for it in a rebalance. Default 300,000. Must be longer than the slowest handling of one poll."""

    session_timeout_ms: int = 45_000
    """Protocol `classic`: silence after which the group removes a member. Default 45,000. In the protocol `consumer`
    the server sets it."""

    heartbeat_interval_ms: int = 3_000
    """Protocol `classic`: time between heartbeats; below the session timeout. Default 3,000. In the protocol
    `consumer` the server sets it."""

    heartbeat_wait_ms: int = 5_000
    """A heartbeat may wait on the server for news up to this long, but never longer than the interval of heartbeats;
    so a member learns of a change at once. 0: Kafka's timing, it learns with the next heartbeat. Default 5,000."""

    metadata_max_age_ms: int = 30_000
    """How often topics that were subscribed to by name are looked up, to warn of those that do not exist. Protocol
    `classic`: also how often the leader looks for new partitions and for topics that were made again, and a pattern for
    new topics; in the protocol `consumer` the server does. Default 30,000 (Kafka: 300,000)."""

    rack_id: str | None = None
    """Where this consumer runs, for assignors that prefer partitions nearby. Default: none."""

    fetch_bytes: int = 4 * MEBI
    """Most bytes in one answer to a fetch. Default 4 MiB."""

    fetch_wait_ms: int = 500
    """Longest wait of one fetch for records, on the server. Default 500."""

    buffer_bytes: int = 32 * MEBI
    """Nothing more is fetched ahead while this much waits for `poll`. Up to four answers may be on their way, so the
    records that a consumer holds are bounded by this plus four times `fetch_bytes` (or four of the largest batches).
    Records that `poll` may not return now hold up no other partition: those of partitions that are paused, are being
    taken away or are not announced to the listener yet, and those behind the offsets of `until`. They make room, and
    are fetched again once they may be returned. Default 32 MiB."""

    request_timeout_ms: int = 30_000
    """An attempt without an answer is taken for lost after this, plus what it may wait on the server. Default
    30,000."""

    default_timeout_ms: int = 60_000
    """How long calls that ask the server may take where they are given no timeout. Default 60,000."""

    on_corrupt_batch: str = RAISE
    """`raise` (default): `poll` raises CorruptBatch at a batch that cannot be read, each time, until `seek` moves the
    consumer behind it. `skip`: it goes on behind it, and counts it in `skipped`."""

    close_timeout_ms: int = 30_000
    """How long `close` may take to commit and to leave the group. Default 30,000, as Kafka's. Smaller: more is read
    again by others. Once the server does not answer, it takes a second at most in any case."""

    client_id: str = ""
    """Name of the program in the server's lists and logs. Default: the connection's; without one `consumer-` and the
    group id, as Kafka's clients do."""

    wait_ms: int | None = GIVE_UP_MS
    """How long a consumer that was never connected looks for the server before `poll` raises Unreachable; it may be
    called again. Default 1,500. None: as long as each call may take. Only where the consumer makes its own connection
    (see `Connection`)."""

    tls: Tls | None = None
    """How to check the server and what to show it, as in `Tls(ca_file="ca.pem")`. Default: no TLS. See `Connection`."""

    def __post_init__(self) -> None:
        isolation_level(self.isolation)
        check_on_corrupt_batch(self.on_corrupt_batch)
        self._check_group()
        _check_choice("group_protocol", self.group_protocol, GROUP_PROTOCOLS)
        _check_choice("auto_offset_reset", self.auto_offset_reset, RESETS)
        check_durations(self, wrong_setting, may_be_zero=("heartbeat_wait_ms", "wait_ms"))
        for name in ("max_poll_records", "fetch_bytes", "buffer_bytes"):
            if getattr(self, name) < 1:
                raise wrong_setting(name, getattr(self, name), "must be positive")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise wrong_setting(
                "heartbeat_interval_ms",
                self.heartbeat_interval_ms,
                f"must be below session_timeout_ms, {self.session_timeout_ms}, or the group takes this member for dead",
            )
        if self.fetch_bytes > MESSAGE_BYTES_MAX // 2:
            raise wrong_setting("fetch_bytes", self.fetch_bytes, f"must be at most {MESSAGE_BYTES_MAX // 2}")

    def _check_group(self) -> None:
        if self.group_id is not None:
            check_here(check_group_id, self.group_id, Method.JOIN_GROUP)
        elif self.group_instance_id is not None:
            raise wrong_setting(
                "group_instance_id", self.group_instance_id, "needs a group_id: it names a member of a group"
            )
        if self.group_instance_id is not None and not self.group_instance_id.strip():
            raise wrong_setting("group_instance_id", self.group_instance_id, "is blank; give it a name or leave it out")


def _check_choice(name: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise wrong_setting(name, found, f"must be one of {', '.join(allowed)}")
