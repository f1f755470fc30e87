"""Administration of the server: its limits, shards, disk and backups."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import (
    CREATE_BACKUP,
    DESCRIBE_LIMITS,
    LIST_BACKUPS,
    LIST_SHARDS,
    LOAD_SHARD,
    UNLOAD_SHARD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of requests, and the version of the server."""

    transactional_id_bytes_max: int
    group_id_bytes_max: int
    topic_name_length_max: int
    partitions_per_topic_max: int
    partitions_per_transaction_max: int
    """Maximum partitions and groups of one transaction."""
    batch_bytes_max: int
    """Maximum stored size of a batch; its header takes 64 bytes of it."""
    message_bytes_max: int
    transaction_max_timeout_ms: int
    server_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDescription:
    """A shard of a coordinator."""

    coordinator: str
    """transactions, groups, log, catalog or counters."""
    shard: int
    state: str
    """unloaded, loading, active, unloading or failed. Only active ones serve."""
    coordinator_epoch: int | None
    """Number that grows with every load; None unless the shard is active and belongs to transactions or groups."""
    reason: str | None
    """Reason of the failure; None in every other state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskDescription:
    """Free space on the disk of the store."""

    free_bytes: int | None
    """Free bytes at the last measurement; None = the server does not measure."""
    free_bytes_min: int
    """Free bytes below which records are refused; 0 = they are never refused for this."""
    is_low: bool
    """True while records are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupDescription:
    """A backup in the backup directory of the server."""

    name: str
    """Name of its directory: the time at which it was asked for, in UTC."""
    state: str
    """copying, complete, failed or unreadable."""
    created_ms: int
    version: int
    """Newest commit group in it; 0 = not known."""
    store_id: str
    """Id of the store that it was made of; empty = not known."""
    incarnation: int
    size_bytes: int
    """Total size of its files, some of which may be shared with other backups."""
    done_bytes: int
    """Bytes copied so far."""
    reason: str
    """Reason of the states failed and unreadable."""


class ServerCalls:
    """Administrator calls about the server; users create an `Admin`."""

    _asker: BlockingAsker

    async def describe_limits(self) -> ServerLimits:
        """Return the limits of requests that the server is configured with, and its version."""
        request = admin.DescribeLimitsRequest(header=self._asker.header())
        found = await self._asker.ask(DESCRIBE_LIMITS, request)
        return ServerLimits(
            transactional_id_bytes_max=found.transactional_id_bytes_max,
            group_id_bytes_max=found.group_id_bytes_max,
            topic_name_length_max=found.topic_name_length_max,
            partitions_per_topic_max=found.partitions_per_topic_max,
            partitions_per_transaction_max=found.partitions_per_transaction_max,
            batch_bytes_max=found.batch_bytes_max,
            message_bytes_max=found.message_bytes_max,
            transaction_max_timeout_ms=found.transaction_max_timeout_ms,
            server_version=found.server_version,
        )

    async def list_shards(self, coordinator: str = "") -> list[ShardDescription]:
        """Return the shards of one coordinator, or of all, sorted by coordinator and number.

        Raises: Rejected (INVALID_REQUEST for a coordinator that does not exist); Misconfigured
        (CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.ListShardsRequest(header=self._asker.header(), coordinator=coordinator)
        return [*map(_shard, (await self._asker.ask(LIST_SHARDS, request)).shards)]

    async def describe_disk(self) -> DiskDescription:
        """Return the free space on the disk of the store. Raises: Misconfigured (CLUSTER_AUTHORIZATION_FAILED)."""
        request = admin.ListShardsRequest(header=self._asker.header(), coordinator="counters")
        disk = (await self._asker.ask(LIST_SHARDS, request)).disk
        return DiskDescription(
            free_bytes=disk.free_bytes if disk.HasField("free_bytes") else None,
            free_bytes_min=disk.free_bytes_min,
            is_low=disk.is_low,
        )

    async def load_shard(self, coordinator: str, shard: int) -> ShardDescription:
        """Load a shard from the store, and return it once it serves. The shard was unloaded, or failed and is repaired.
        A shard that serves is loaded again.

        Raises: Rejected (INVALID_REQUEST for a shard that does not exist, or cannot be loaded by itself); Misconfigured
        (CORRUPT_MESSAGE, CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.LoadShardRequest(header=self._asker.header(), coordinator=coordinator, shard=shard)
        return _shard((await self._asker.ask(LOAD_SHARD, request)).shard)

    async def unload_shard(self, coordinator: str, shard: int) -> ShardDescription:
        """Stop serving a shard until it is loaded again. Its callers are refused and retry; nothing is lost.

        Raises: Rejected (INVALID_REQUEST for a shard that does not exist, or that all others need); Misconfigured
        (CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.UnloadShardRequest(header=self._asker.header(), coordinator=coordinator, shard=shard)
        return _shard((await self._asker.ask(UNLOAD_SHARD, request)).shard)

    async def create_backup(self, *, is_independent: bool = False) -> BackupDescription:
        """Begin a backup in the backup directory of the server, and return it. It holds everything that was
        acknowledged before. Files are copied after the call: look at it with `list_backups` until it is complete.

        `is_independent`: share no files with other backups, at the price of space and time.

        Raises: Misconfigured (INVALID_CONFIG without a backup directory, CLUSTER_AUTHORIZATION_FAILED); Retriable if
        another backup is being made until the deadline.
        """
        request = admin.CreateBackupRequest(header=self._asker.mutation(), independent=is_independent)
        return _backup((await self._asker.ask(CREATE_BACKUP, request)).backup)

    async def list_backups(self) -> list[BackupDescription]:
        """Return the backups in the backup directory of the server, the oldest first. The last one may be one that is
        being made, or that failed.

        Raises: Misconfigured (INVALID_CONFIG without a backup directory, CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.ListBackupsRequest(header=self._asker.header())
        return [*map(_backup, (await self._asker.ask(LIST_BACKUPS, request)).backups)]


def _shard(found: admin.ShardDescription) -> ShardDescription:
    return ShardDescription(
        coordinator=found.coordinator,
        shard=found.shard,
        state=found.state,
        coordinator_epoch=found.coordinator_epoch if found.HasField("coordinator_epoch") else None,
        reason=found.reason if found.HasField("reason") else None,
    )


def _backup(found: admin.BackupDescription) -> BackupDescription:
    return BackupDescription(
        name=found.name,
        state=found.state,
        created_ms=found.created_ms,
        version=found.version,
        store_id=found.store_id,
        incarnation=found.incarnation,
        size_bytes=found.size_bytes,
        done_bytes=found.done_bytes,
        reason=found.reason,
    )
