"""Waits for the start time of a server, then tries until an open transaction can be committed.

The start time comes on standard input, in Unix milliseconds. The figure is the time since then in milliseconds.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from bench.load.stubs import Refusal, checked
from bench.programs import READY
from bench.results import LoadFailed, Run
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub

_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 180.0
_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 10),
    ("grpc.min_reconnect_backoff_ms", 10),
    ("grpc.max_reconnect_backoff_ms", 10),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load. `notes` is the file with the open transactions."""

    endpoint: str
    server_process_id: int
    notes: str


def measure(load: Load) -> Run:
    """Return the time of the first successful commit. Raises: LoadFailed after three minutes."""
    transactional_id, producer_id, epoch = Path(load.notes).read_text().splitlines()[0].split()
    request = txn.EndTxnRequest(
        transactional_id=transactional_id, producer_id=int(producer_id), producer_epoch=int(epoch), committed=True
    )
    print(READY, flush=True)
    started_s = int(sys.stdin.readline()) / 1_000
    with grpc.insecure_channel(load.endpoint, options=_OPTIONS) as channel:
        end = TransactionServiceStub(channel).EndTxn
        while time.time() - started_s < _PATIENCE_S:
            try:
                checked(end(request, timeout=1))
            except (grpc.RpcError, Refusal):
                time.sleep(_PAUSE_S)
            else:
                return Run(figure=(time.time() - started_s) * 1_000, operations=1)
    raise LoadFailed(f"no commit worked for {_PATIENCE_S:.0f} s")
