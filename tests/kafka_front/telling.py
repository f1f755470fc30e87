"""Lines of JSON with which the processes of a storm tell it what they do, each with its time.

    {"began": VALUES, "partitions": P, "group": G, "offset": N}    before anything of a transaction is sent
    {"sent": VALUE, "offset": N}                                   a record is acknowledged
    {"asks": "commit" or "abort"}                                  before the end is asked for
    {"fate": "committed", "aborted" or "unknown"}                  the end of the transaction, as its producer knows it
    {"producer": [ID, EPOCH], "since": TIME}                       answer to InitProducerId, asked for at that time
    {"polled": {PARTITION: [[OFFSET, VALUE], ...]}, "since": TIME} records of a consumer

A producer says only what its client knows. Each line has its time, `at`, which is after an answer and before a request.
"""

from __future__ import annotations

import json
import time


def now() -> float:
    """Return seconds on the clock that all processes of a machine share."""
    return time.monotonic()


def tell(**fields: object) -> None:
    print(json.dumps({**fields, "at": now()}), flush=True)
