"""Settings of a share consumer, checked before anything is opened. Names and defaults are Kafka's unless stated
otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from coordinator_client.errors import check_here, wrong_setting
from coordinator_client.settings import RAISE, check_choice, check_durations, check_on_corrupt_batch
from coordinator_client.tls import Tls
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.transport.transport import MESSAGE_BYTES_MAX
from coordinator_protocol.limits import MEBI
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_group_id

BATCH_OPTIMIZED: Final = "batch_optimized"
RECORD_LIMIT: Final = "record_limit"
ACQUIRE_MODES: Final = (BATCH_OPTIMIZED, RECORD_LIMIT)


class ShareConsumerOptions(TypedDict, total=False):
    """The keyword arguments of `ShareConsumer` and `AsyncShareConsumer`; `ShareConsumerConfig` documents each."""

    group_id: str
    explicit: bool
    share_acquire_mode: str
    max_poll_records: int
    max_poll_interval_ms: int
    heartbeat_wait_ms: int
    metadata_max_age_ms: int
    rack_id: str | None
    fetch_bytes: int
    fetch_wait_ms: int
    request_timeout_ms: int
    default_timeout_ms: int
    on_corrupt_batch: str
    close_timeout_ms: int
    client_id: str
    wait_ms: int | None
    tls: Tls | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig:
    """The settings of a share consumer. Raises at construction: Rejected or Misconfigured, naming the setting."""

    group_id: str
    """Share group whose members take records from the same partitions."""

    explicit: bool = False
    """Kafka's `share.acknowledgement.mode`. False (default, `implicit`): all records of a poll that were not
    acknowledged otherwise are accepted by the next `poll`, by `commit` or by `close`. True (`explicit`): each record
    must be acknowledged before the next poll, which raises Rejected otherwise. Needed for `Transaction.acknowledge`."""

    share_acquire_mode: str = BATCH_OPTIMIZED
    """Rule for the records that a poll acquires. `batch_optimized` (default): whole batches, until there are
    `max_poll_records`, so there may be more. `record_limit`: at most `max_poll_records`, also a part of a batch."""

    max_poll_records: int = 500
    """Number of records from which on one `poll` acquires no further batch. Default 500. Smaller: less waits behind a
    slow record, and others get a share. Larger: fewer requests."""

    max_poll_interval_ms: int = 300_000
    """Time without a call of `poll` after which the member counts as stuck and leaves the group (ms). Its records are
    then available to others. Default 300,000. Records whose lock ends are so before."""

    heartbeat_wait_ms: int = 5_000
    """Time for which a heartbeat may wait on the server for changes (ms), at most the heartbeat interval. So a member
    learns of a change at once. 0: Kafka's timing, with the next heartbeat. Default 5,000."""

    metadata_max_age_ms: int = 30_000
    """Interval at which the topics of the subscription are looked up, to warn of those that do not exist (ms). Default
    30,000 (Kafka: 300,000)."""

    rack_id: str | None = None
    """Location of this consumer. Default: none."""

    fetch_bytes: int = 4 * MEBI
    """Maximum bytes of batches in one answer; the first batch comes even if it is larger. Default 4 MiB."""

    fetch_wait_ms: int = 500
    """Longest time for which one fetch waits for records on the server (ms). Default 500."""

    request_timeout_ms: int = 30_000
    """Time after which an attempt without an answer counts as lost (ms), in addition to its wait on the server. Default
    30,000."""

    default_timeout_ms: int = 60_000
    """Time limit of calls that ask the server and are given no timeout (ms). Default 60,000."""

    on_corrupt_batch: str = RAISE
    """Reaction to records that cannot be read. `raise` (default): they are released, and `poll` raises CorruptBatch.
    They come again until the group's delivery limit. `skip`: they are rejected, and counted in `skipped`."""

    close_timeout_ms: int = 30_000
    """Time in which `close` acknowledges and leaves the group (ms). Default 30,000, as Kafka's. Once the server does
    not answer, it takes at most a second in any case."""

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
        check_here(check_group_id, self.group_id, Method.SHARE_FETCH)
        check_on_corrupt_batch(self.on_corrupt_batch)
        check_choice("share_acquire_mode", self.share_acquire_mode, ACQUIRE_MODES)
        check_durations(self, wrong_setting, may_be_zero=("heartbeat_wait_ms", "wait_ms"))
        for name in ("max_poll_records", "fetch_bytes"):
            if getattr(self, name) < 1:
                raise wrong_setting(name, getattr(self, name), "must be positive")
        if self.fetch_bytes > MESSAGE_BYTES_MAX // 2:
            raise wrong_setting("fetch_bytes", self.fetch_bytes, f"must be at most {MESSAGE_BYTES_MAX // 2}")
