"""The answer to ApiVersions: what this front serves, and nothing else.

Source: KIP-511 (a version that is too new gets a body of version 0 with UNSUPPORTED_VERSION), KIP-584 (features).
"""

from __future__ import annotations

import re
from typing import Final

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.apis import APIS, FEATURES, ApiKey
from coordinator_server.kafka_front.messages import api_versions_request
from coordinator_server.kafka_front.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    encode,
)
from coordinator_server.kafka_front.writing import Piece

FEATURES_EPOCH: Final = 0
"""Epoch of the features. They never change while a server runs."""

_SOFTWARE_SINCE: Final = 3
"""First version with the name and the version of the client's software."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_versions(body: memoryview, version: int) -> list[Piece]:
    """Return the body of the answer to a request of any version. Raises Malformed."""
    if not APIS[ApiKey.API_VERSIONS].has(version):
        (own,) = [each for each in _VERSIONS if each.api_key == ApiKey.API_VERSIONS]
        return encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own]), 0)
    request = api_versions_request.decode(body, version)
    if version >= _SOFTWARE_SINCE and not _is_named(request):
        return encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version)
    return encode(_RESPONSE, version)


def _is_named(request: api_versions_request.ApiVersionsRequest) -> bool:
    """Return True if the client says which software it is, in characters that fit a metric's name."""
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


_VERSIONS: Final = [
    ApiVersion(api_key=api.key, min_version=api.listed_from, max_version=api.highest)
    for api in sorted(APIS.values(), key=lambda each: each.key)
]
_RESPONSE: Final = ApiVersionsResponse(
    api_keys=_VERSIONS,
    supported_features=[
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in FEATURES.items()
    ],
    finalized_features_epoch=FEATURES_EPOCH,
    finalized_features=[
        FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=highest)
        for name, (_lowest, highest) in FEATURES.items()
    ],
)
