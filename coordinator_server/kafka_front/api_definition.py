"""An API of Kafka's protocol, and the codecs of its messages."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from coordinator_server.kafka_front.writing import Piece

_API_VERSIONS: Final = 18
_MESSAGES: Final = "coordinator_server.kafka_front.messages"


class ApiDefinition(Struct, frozen=True, gc=False):
    """An API as Kafka defines it. Which of its versions are offered is another question."""

    key: int
    name: str
    version_min: int
    version_max: int
    flexible_from: int | None
    """First flexible version; None if none is."""
    is_latest_unstable: bool
    """True if Kafka offers the last version only on demand, by `unstable.api.versions.enable`."""

    def is_flexible(self, version: int) -> bool:
        """Return True if both bodies and the request's header have tagged fields in the version."""
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def request_module(self) -> str:
        """Full name of the module of the request."""
        return f"{_MESSAGES}.{_snake_case(self.name)}_request"

    @property
    def response_module(self) -> str:
        """Full name of the module of the response."""
        return f"{_MESSAGES}.{_snake_case(self.name)}_response"

    def decoder(self) -> Callable[[memoryview, int], Any]:
        """Return `decode` of the request, which is imported now."""
        decode: Callable[[memoryview, int], Any] = importlib.import_module(self.request_module).decode
        return decode

    def encoder(self) -> Callable[[Any, int], list[Piece]]:
        """Return `encode` of the response, which is imported now."""
        encode: Callable[[Any, int], list[Piece]] = importlib.import_module(self.response_module).encode
        return encode


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
