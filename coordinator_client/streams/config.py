"""Settings of a member of a streams group, checked before anything is opened. Names and defaults are Kafka's unless
stated otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from coordinator_client.errors import check_here, wrong_setting
from coordinator_client.settings import check_durations
from coordinator_client.streams.topology import StreamsTopology
from coordinator_client.tls import Tls
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_group_id


class StreamsClientOptions(TypedDict, total=False):
    """The keyword arguments of `StreamsClient` and `AsyncStreamsClient`; `StreamsClientConfig` documents each."""

    group_id: str
    topology: StreamsTopology
    process_id: str
    reports_offsets: bool
    group_instance_id: str | None
    rack_id: str | None
    client_tags: Mapping[str, str]
    user_endpoint: tuple[str, int] | None
    max_poll_interval_ms: int
    heartbeat_wait_ms: int
    request_timeout_ms: int
    default_timeout_ms: int
    close_timeout_ms: int
    client_id: str
    wait_ms: int | None
    tls: Tls | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsClientConfig:
    """The settings of a member of a streams group. Raises at construction: Rejected or Misconfigured, naming the
    setting."""

    group_id: str
    """Streams group: Kafka's `application.id`."""

    topology: StreamsTopology
    """Topology of the application. A group with members takes no other one."""

    process_id: str = ""
    """Name of the process, which several members may share: a process has one copy of a task. Default: a name of its
    own for each member."""

    reports_offsets: bool = False
    """True if the application calls `report_offsets`. Then a stateful task moves here only after it has warmed up.
    False (default): tasks move at once, and their state is restored afterwards."""

    group_instance_id: str | None = None
    """Name of a static member, which keeps its tasks while it restarts. Default: none."""

    rack_id: str | None = None
    """Location of this member; standby tasks go to other racks. Default: none."""

    client_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags by name, such as a zone. Standby tasks are spread over their values. Default: none."""

    user_endpoint: tuple[str, int] | None = None
    """Address at which other processes query the state of this one. Default: none."""

    max_poll_interval_ms: int = 300_000
    """Time without a call of `poll` after which the member counts as stuck and leaves the group (ms). It is also the
    time for giving up revoked tasks. Default 300,000."""

    heartbeat_wait_ms: int = 5_000
    """Time for which a heartbeat may wait on the server for changes (ms), at most the heartbeat interval. So a member
    learns of a change at once. 0: Kafka's timing, with the next heartbeat. Default 5,000."""

    request_timeout_ms: int = 30_000
    """Time after which an attempt without an answer counts as lost (ms), in addition to its wait on the server. Default
    30,000."""

    default_timeout_ms: int = 60_000
    """Time limit of calls that ask the server and are given no timeout (ms). Default 60,000."""

    close_timeout_ms: int = 30_000
    """Time in which `close` gives up the tasks and leaves the group (ms). Default 30,000. Once the server does not
    answer, it takes at most a second in any case."""

    client_id: str = ""
    """Name of the program in the server's lists and logs. Default: that of the connection, else `consumer-` and
    the group id, as in Kafka's clients."""

    wait_ms: int | None = GIVE_UP_MS
    """Time for which a member that was never connected tries to reach the server before `poll` raises Unreachable (ms);
    `poll` may be called again. Default 1,500. None: as long as each call may take. Used only if the member makes its
    own connection (see `Connection`)."""

    tls: Tls | None = None
    """TLS settings: how to verify the server and which credentials to present, as in `Tls(ca_file="ca.pem")`. Default:
    no TLS. See `Connection`."""

    def __post_init__(self) -> None:
        check_here(check_group_id, self.group_id, Method.STREAMS_GROUP_HEARTBEAT)
        check_durations(self, wrong_setting, may_be_zero=("heartbeat_wait_ms", "wait_ms"))
