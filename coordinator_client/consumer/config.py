"""Settings of a consumer, checked before anything is opened. Names and defaults are Kafka's unless stated otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from coordinator_client.errors import check_here, wrong_setting
from coordinator_client.settings import RAISE, check_choice, check_durations, check_on_corrupt_batch, isolation_level
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
    """The keyword arguments of `Consumer` and `AsyncConsumer`; `ConsumerConfig` documents each."""

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
    """Group whose members share the partitions, and in whose name offsets are committed. Default: none; then partitions
    are given by `assign`, and nothing can be committed."""

    group_instance_id: str | None = None
    """Name that makes this a static member (KIP-345), which keeps its partitions while it restarts within the session
    timeout. Unique in the group. Default: none, a dynamic member."""

    group_protocol: str = "consumer"
    """Group protocol. `consumer` (default): the server assigns partitions (KIP-848). `classic`: one of the members
    does, as in Kafka clients before 4.0. Kafka's default is classic; this server always speaks both."""

    server_assignor: str | None = None
    """Protocol `consumer`: preferred assignor of the server, `uniform` or `range`. Default: none."""

    partition_assignors: Sequence[str | Assignor] = ("range", "cooperative-sticky")
    """Protocol `classic`: assignors in order of preference. Names are `range`, `roundrobin`, `sticky` and
    `cooperative-sticky`; objects like those of `coordinator_protocol.assignors.classic` are possible too. The most
    advanced rebalance protocol that all of them share is used: cooperative only if all are."""

    isolation: str = "read_committed"
    """Isolation level. `read_committed` (default, unlike Kafka's): no records of open or aborted transactions.
    `read_uncommitted`: every durable record."""

    auto_offset_reset: str = LATEST
    """Start position without a committed offset, or with one that no longer exists: `earliest`, `latest` (default), or
    `none`: `poll` raises. A group member also uses it for a topic that was deleted and recreated, since the offsets
    committed in the old topic are gone.

    Records that this consumer, or the previous committer, has read may have been lost (`--accept-data-loss`, a restored
    backup). Then the first two settings go back to the first lost offset.
    """

    enable_auto_commit: bool = True
    """True to commit the records of earlier `poll` calls automatically: every `auto_commit_interval_ms`, before
    partitions are given up, and in `close`. Must be False with `Transaction.commit_offsets`. Default True."""

    auto_commit_interval_ms: int = 5_000
    """Time between automatic commits (ms). Default 5,000. Smaller: less is read again after a crash. Larger: fewer
    commits."""

    max_poll_records: int = 500
    """Maximum number of records that one `poll` returns. Default 500."""

    max_poll_interval_ms: int = 300_000
    """Time without a call of `poll` after which the member counts as stuck and leaves the group (ms). Other members
    also wait this long for it in a rebalance. Default 300,000. Must be longer than the slowest processing of one
    poll."""

    session_timeout_ms: int = 45_000
    """Protocol `classic`: silence after which the group removes a member (ms). Default 45,000. In the protocol
    `consumer` the server sets it."""

    heartbeat_interval_ms: int = 3_000
    """Protocol `classic`: time between heartbeats (ms); below the session timeout. Default 3,000. In the protocol
    `consumer` the server sets it."""

    heartbeat_wait_ms: int = 5_000
    """Time for which a heartbeat may wait on the server for changes (ms), at most the heartbeat interval. So a member
    learns of a change at once. 0: Kafka's timing, with the next heartbeat. Default 5,000."""

    metadata_max_age_ms: int = 30_000
    """Interval at which named topics of the subscription are looked up, to warn of those that do not exist (ms).
    Default 30,000 (Kafka: 300,000).

    Protocol `classic`: also the interval at which the leader looks up new partitions and recreated topics, and every
    member new topics that match its pattern. In the protocol `consumer` the server does that.
    """

    rack_id: str | None = None
    """Location of this consumer, for assignors that prefer partitions nearby. Default: none."""

    fetch_bytes: int = 4 * MEBI
    """Maximum bytes in one answer to a fetch. Default 4 MiB."""

    fetch_wait_ms: int = 500
    """Longest time for which one fetch waits for records on the server (ms). Default 500."""

    buffer_bytes: int = 32 * MEBI
    """Number of bytes waiting for `poll` at which the consumer stops fetching ahead. Up to four answers may be in
    flight. So a consumer holds at most this much plus four times `fetch_bytes` (or four of the largest batches).
    Default 32 MiB.

    Records that `poll` may not return now never block other partitions. They belong to partitions that are paused,
    being revoked or not yet announced to the listener, or lie at or after the offsets of `until`. They are dropped when
    space is needed, and fetched again once they may be returned.
    """

    request_timeout_ms: int = 30_000
    """Time after which an attempt without an answer counts as lost (ms), in addition to its wait on the server. Default
    30,000."""

    default_timeout_ms: int = 60_000
    """Time limit of calls that ask the server and are given no timeout (ms). Default 60,000."""

    on_corrupt_batch: str = RAISE
    """Reaction to a batch that cannot be read. `raise` (default): `poll` raises CorruptBatch each time, until `seek`
    moves the consumer past the batch. `skip`: it continues after the batch, and counts it in `skipped`."""

    close_timeout_ms: int = 30_000
    """Time in which `close` commits and leaves the group (ms). Default 30,000, as Kafka's. Smaller: others read more
    records again. Once the server does not answer, it takes at most a second in any case."""

    client_id: str = ""
    """Name of the program in the server's lists and logs. Default: that of the connection, else `consumer-` and the
    group id, as in Kafka's clients."""

    wait_ms: int | None = GIVE_UP_MS
    """Time for which a consumer that was never connected tries to reach the server before `poll` raises Unreachable
    (ms); `poll` may be called again. Default 1,500. None: as long as each call may take. Used only if the consumer
    makes its own connection (see `Connection`)."""

    tls: Tls | None = None
    """TLS settings: how to verify the server and which credentials to present, as in `Tls(ca_file="ca.pem")`. Default:
    no TLS. See `Connection`."""

    def __post_init__(self) -> None:
        isolation_level(self.isolation)
        check_on_corrupt_batch(self.on_corrupt_batch)
        self._check_group()
        check_choice("group_protocol", self.group_protocol, GROUP_PROTOCOLS)
        check_choice("auto_offset_reset", self.auto_offset_reset, RESETS)
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
