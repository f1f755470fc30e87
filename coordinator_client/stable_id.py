"""Transactional ids that stay the same over restarts, so that the next producer of an id fences the previous one.

An id that changes at each start fences no producer. The transaction of a dead one then holds back readers until its
timeout. An id that two running producers share makes them fence each other.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Final

from coordinator_client.errors import check_here, misconfigured
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_transactional_id

SLOT_VARIABLE: Final = "TXN_SLOT"
"""Environment variable with the slot, where the application passes none."""

_SAFE: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_CHANGING: Final = re.compile(f"[0-9a-f]{{12}}|.+-{_SAFE}{{8,10}}-{_SAFE}{{5}}")
"""Host names that change at each start: those of a container, and of a pod of a Deployment. Kubernetes makes the latter
of these letters."""


def stable_id(app: str, *, namespace: str = "", slot: int | str | None = None, process: int | None = None) -> str:
    """Return a transactional id that is the same after each restart: NAMESPACE.APP-SLOT, with -PROCESS if one is given.

    `namespace` keeps environments apart, as "prod" and "test" do. `slot` is the number of this instance. Without it,
    the environment variable TXN_SLOT counts, else the name of the host. A pod of a StatefulSet has a name that stays.
    `process` is the number of this process, worker or producer within the instance: each needs an id of its own.

    Raises: Misconfigured if the name of the host changes at each start, as in a container; then give a slot. Rejected
    for an impossible id.
    """
    place = _place() if slot is None else str(slot)
    parts = [app, place] if process is None else [app, place, str(process)]
    made = "-".join(parts)
    if namespace:
        made = f"{namespace}.{made}"
    check_here(check_transactional_id, made, Method.INIT_PRODUCER_ID)
    return made


def _place() -> str:
    given = os.environ.get(SLOT_VARIABLE)
    if given:
        return given
    host = platform.node()
    if not host or _CHANGING.fullmatch(host):
        raise misconfigured(
            ErrorCode.INVALID_CONFIG,
            f"the host name {host!r} changes at each start, and so would the transactional id: give a slot, or set "
            f"{SLOT_VARIABLE}",
        )
    return host
