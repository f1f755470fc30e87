"""Producers of the test language (`script`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.pending import Pending
from tests.harness.script_line import Line
from txn_coordinator.state import Identity


@dataclass(slots=True)
class Producer:
    """One instance of a client, with what it believes."""

    name: str
    own_id: str | None
    """Its transactional id; None for a plain producer."""
    version: int = 2
    identity: Identity | None = None
    sequences: dict[str, int] = field(default_factory=dict)
    last_call: Pending[Any] | None = None

    @property
    def transactional_id(self) -> str:
        assert self.own_id is not None, f"{self.name} is a plain producer"
        return self.own_id

    def become(self, identity: Identity) -> None:
        """Go on with this identity; a new epoch starts its sequences anew."""
        if identity != self.identity:
            self.identity, self.sequences = identity, {}

    def shown(self, line: Line) -> Identity:
        if "as" in line.options:
            return identity_in(line.options["as"])
        assert self.identity is not None, f"{self.name} has no identity yet: init it first"
        return self.identity


def identity_in(text: str) -> Identity:
    """Return the identity that a text like 7/3 or plain0/0 means."""
    producer_id, epoch = text.split("/")
    if producer_id.startswith("plain"):
        return Identity(PLAIN_PRODUCER_IDS_FROM + int(producer_id.removeprefix("plain")), int(epoch))
    return Identity(int(producer_id), int(epoch))
