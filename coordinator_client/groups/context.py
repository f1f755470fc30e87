"""State that the parts of one member of a group share, whatever the kind of the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import Deadlines
from coordinator_client.flights import Flights
from coordinator_client.random_source import RandomSource


class MemberConfig(Protocol):
    """The settings that all members of groups have."""

    @property
    def group_id(self) -> str | None: ...
    @property
    def heartbeat_wait_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...


class LookingConfig(MemberConfig, Protocol):
    """The settings of members that look topics up."""

    @property
    def metadata_max_age_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MemberContext:
    """Passed to every part of one member, so that none of them needs to know the others."""

    config: MemberConfig
    client_id: str
    random_source: RandomSource
    flights: Flights

    @property
    def group_id(self) -> str:
        """Id of the group; only for consumers that have one."""
        assert self.config.group_id is not None, "only consumers with a group are members"
        return self.config.group_id

    def header(self) -> RequestHeader:
        """Return the header of a new request."""
        return RequestHeader(client_id=self.client_id)

    def once(self, *, wait_ms: int = 0) -> Deadlines:
        """Return the deadlines of a request that is attempted once, because it is rebuilt after a failure. The server
        may hold it for `wait_ms`."""
        attempt_ms = self.config.request_timeout_ms + wait_ms
        return Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)


@dataclass(frozen=True, slots=True)
class LookingContext(MemberContext):
    """That of a member which looks topics up."""

    config: LookingConfig
