"""One request and its answer, as the families of APIs see them.

A family of APIs is a module that maps requests to commands of the core, and results to responses. It has no state and
no rule: whatever it refuses itself is a value that the commands cannot express.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import NodeAddress
from coordinator_server.kafka_front.apis import Api
from coordinator_server.kafka_front.errors import code_for


@dataclass(slots=True)
class KafkaExchange:
    """Everything about one request besides its fields."""

    api: Api
    version: int
    context: CallContext
    """The caller, for the core."""
    node: NodeAddress
    """Address under which clients of the listener know this server."""
    api_versions_version: int | None = None
    """Version of the last ApiVersions on this connection; None if the client asked for none."""
    codes: set[int] = field(default_factory=set)
    """Error codes in the answer, for metrics and the audit log."""
    is_last: bool = False
    """Set it to end the connection after the answer, so that the client goes on to another server."""

    def context_of(self, method: Method) -> CallContext:
        """Return the caller, for a command of another method than that of the API."""
        return msgspec.structs.replace(self.context, method=method.value)

    def code(self, error: CoordinatorError | None) -> int:
        """Return the code of an error as this version knows it, and remember it."""
        if error is None:
            return 0
        return self.noted(code_for(self.api.key, self.version, error))

    def noted(self, code: int) -> int:
        """Remember a code of the answer, and return it."""
        if code:
            self.codes.add(int(code))
        return int(code)


Serve = Callable[[Any, KafkaExchange], Pending[Any]]
Refuse = Callable[[Any, KafkaExchange, CoordinatorError], Any]
Take = Callable[[Any, KafkaExchange], Any | None]


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """Functions for one API. Requests and responses are the generated messages."""

    serve: Serve
    """Calls the use case. Returns the pending response."""
    refused: Refuse
    """Returns a response with this error wherever the API has a place for one."""
    take: Take | None = None
    """Offers the request to the fast path. Returns the response, which is sent once the end of the calls taken is
    durable, or None if nothing was taken."""
