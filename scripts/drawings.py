"""The drawings of ARCHITECTURE.md in Mermaid, made from the code: `make docs` writes them, `make check` compares.

The layers are those of the import law in pyproject.toml, the states those of the tables `LEGAL_STEPS`. Each function in
the sequence of a commit is looked up, so a rename fails here and not in front of a reader.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from group_coordinator.share_partitions import state as shares
from txn_coordinator.state import LEGAL_STEPS, TransactionState

ROOT: Final = Path(__file__).resolve().parent.parent

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
_EMPTY_ABORT: Final = "abort of nothing, for a new epoch"
STEPS: Final[Mapping[tuple[TransactionState, TransactionState], str]] = MappingProxyType(
    {
        (_EMPTY, _EMPTY): "InitProducerId",
        (_EMPTY, _ONGOING): "first partition or group",
        (_EMPTY, _PREPARE_ABORT): _EMPTY_ABORT,
        (_ONGOING, _ONGOING): "more of them",
        (_ONGOING, _PREPARE_COMMIT): "commit",
        (_ONGOING, _PREPARE_ABORT): "abort, timeout, newer instance",
        (_PREPARE_COMMIT, _COMPLETE_COMMIT): "markers durable",
        (_PREPARE_ABORT, _COMPLETE_ABORT): "markers durable",
        (_COMPLETE_COMMIT, _EMPTY): "InitProducerId",
        (_COMPLETE_COMMIT, _ONGOING): "next transaction",
        (_COMPLETE_COMMIT, _PREPARE_ABORT): _EMPTY_ABORT,
        (_COMPLETE_ABORT, _EMPTY): "InitProducerId",
        (_COMPLETE_ABORT, _ONGOING): "next transaction",
        (_COMPLETE_ABORT, _PREPARE_ABORT): _EMPTY_ABORT,
    }
)
"""Cause of each legal step."""


_AVAILABLE, _ACQUIRED = shares.RecordState.AVAILABLE, shares.RecordState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = shares.RecordState.ACKNOWLEDGED, shares.RecordState.ARCHIVED
_TX_PENDING: Final = shares.RecordState.TX_PENDING
_ARCHIVING, _ARCHIVING_REJECTED = shares.RecordState.ARCHIVING, shares.RecordState.ARCHIVING_REJECTED
_LETTER_END: Final = "letter written, log start moved"
FIRST_STEPS: Final[Mapping[shares.RecordState, str]] = MappingProxyType(
    {_ACQUIRED: "acquire", _ARCHIVED: "no record to hand out"}
)
"""Cause of each state in which a record comes into flight."""
SHARE_STEPS: Final[Mapping[tuple[shares.RecordState, shares.RecordState], str]] = MappingProxyType(
    {
        (_AVAILABLE, _ACQUIRED): "acquire",
        (_AVAILABLE, _ARCHIVED): "log start moved, limit lowered",
        (_AVAILABLE, _ARCHIVING): "limit lowered",
        (_ACQUIRED, _ACQUIRED): "renew",
        (_ACQUIRED, _AVAILABLE): "release, lock expired, member gone",
        (_ACQUIRED, _ACKNOWLEDGED): "accept",
        (_ACQUIRED, _ARCHIVED): "gap; reject or delivery limit without letters",
        (_ACQUIRED, _ARCHIVING): "delivery limit",
        (_ACQUIRED, _ARCHIVING_REJECTED): "reject",
        (_ACQUIRED, _TX_PENDING): "acknowledge in a transaction",
        (_TX_PENDING, _TX_PENDING): "acknowledge again",
        (_TX_PENDING, _AVAILABLE): "abort",
        (_TX_PENDING, _ACKNOWLEDGED): "commit of an accept",
        (_TX_PENDING, _ARCHIVED): "log start moved; commit of a reject or abort at the limit without letters",
        (_TX_PENDING, _ARCHIVING): "abort at the limit",
        (_TX_PENDING, _ARCHIVING_REJECTED): "commit of a reject",
        (_ARCHIVING, _ARCHIVED): _LETTER_END,
        (_ARCHIVING_REJECTED, _ARCHIVED): _LETTER_END,
    }
)
"""Cause of each legal step of a record in a share partition."""


def layers() -> str:
    """Return the packages, each above those that it may import."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    arrows: dict[tuple[str, str], None] = {}
    for contract in contracts:
        if contract["type"] == "layers" and "containers" not in contract:
            levels = [[name.strip() for name in level.split("|")] for level in contract["layers"]]
            for above, below in pairwise(levels):
                arrows |= {(upper, lower): None for upper in above for lower in below}
    return _mermaid("flowchart TD", (f"{upper} --> {lower}" for upper, lower in arrows))


def states() -> str:
    """Return the state machine of a transactional id."""
    legal = {(state, to) for state, targets in LEGAL_STEPS.items() for to in targets}
    assert legal == STEPS.keys(), f"say why a step is taken, or drop it: {legal ^ STEPS.keys()}"
    arrows = (f"{state.api_name} --> {to.api_name}: {cause}" for (state, to), cause in STEPS.items())
    return _mermaid("stateDiagram-v2", (f"[*] --> {_EMPTY.api_name}: InitProducerId", *arrows))


def share_records() -> str:
    """Return the state machine of a record in a share partition."""
    legal = {(state, to) for state, targets in shares.LEGAL_STEPS.items() for to in targets}
    assert legal == SHARE_STEPS.keys(), f"say why a step is taken, or drop it: {legal ^ SHARE_STEPS.keys()}"
    assert FIRST_STEPS.keys() == shares.FIRST_STATES, "say why each record comes into flight"
    first = (f"[*] --> {state.api_name}: {cause}" for state, cause in FIRST_STEPS.items())
    arrows = (f"{state.api_name} --> {to.api_name}: {cause}" for (state, to), cause in SHARE_STEPS.items())
    return _mermaid("stateDiagram-v2", (*first, *arrows))


class Message(NamedTuple):
    """An arrow of a sequence."""

    sender: str
    receiver: str
    functions: tuple[str, ...]
    """`module:name` of the functions behind the arrow, in order."""
    words: str = ""


_SERVICER: Final = "coordinator_server.grpc_front.wire.transactions.servicer"
COMMIT: Final[tuple[Message | str, ...]] = (
    Message("client", "front", ("coordinator_server.grpc_front.dispatcher:Dispatcher.__call__",), "bytes"),
    Message("front", "gatekeeper", ("coordinator_server.traffic.gatekeeper:Gatekeeper.begin",), "Call"),
    "alt fast path: the usual commit",
    Message("gatekeeper", "decision", (f"{_SERVICER}:FastEnd.take", "coordinator_core.fast_path:FastPath._commit")),
    Message("decision", "decision", ("txn_coordinator.outcomes:Outcomes.end_at_once",)),
    Message("decision", "partitions", ("partition_log.partition_state:PartitionDraft.end",)),
    Message(
        "decision",
        "runtime",
        ("coordinator_core.fast_path:FastPath.end", "coordinator_runtime.runtime:Runtime.write_decided"),
    ),
    "else general path: everything else",
    Message(
        "gatekeeper",
        "decision",
        (f"{_SERVICER}:TransactionServicer.EndTxn", "txn_coordinator.service:TransactionService.end_txn"),
    ),
    Message("decision", "runtime", ("coordinator_runtime.runtime:Runtime.write",), "an Operation"),
    Message(
        "runtime",
        "decision",
        (
            "txn_coordinator.shard:TransactionShard.decide_end",
            "txn_coordinator.rules.ending:judge_end",
            "txn_coordinator.outcomes:Outcomes.decide",
        ),
    ),
    Message("runtime", "partitions", ("partition_log.shard:PartitionMarkers.partition_marker",), "joins"),
    Message(
        "runtime",
        "runtime",
        ("coordinator_runtime.work:Work.perform", "coordinator_runtime.runtime:Runtime._conclude"),
        "replays, then stages",
    ),
    "end",
    Message("runtime", "store", ("coordinator_runtime.commit_groups:CommitGroups.seal",), "one batch, one flush"),
    Message("store", "runtime", ("coordinator_runtime.runtime:Runtime.on_durable",), "new LSO visible"),
    Message("runtime", "client", (), "reply; effects start"),
)
"""Calls of EndTxn(commit), fused, on both paths."""


def commit() -> str:
    """Return the sequence of a commit on both paths."""
    lines = (each if isinstance(each, str) else _arrow(each) for each in COMMIT)
    people = ("client", "front", "gatekeeper", "decision", "partitions", "runtime", "store")
    return _mermaid("sequenceDiagram", (*(f"participant {name}" for name in people), *lines))


def _arrow(message: Message) -> str:
    names = ", ".join(_name(function) for function in message.functions)
    words = ": ".join(part for part in (names, message.words) if part)
    return f"{message.sender}->>{message.receiver}: {words}"


def _name(function: str) -> str:
    """Return the name to show for a function. Raises AttributeError or ImportError if it does not exist."""
    module, _, qualified = function.partition(":")
    found: object = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    assert callable(found), f"{function} is no function"
    return qualified


def _mermaid(kind: str, lines: Iterator[str] | tuple[str, ...]) -> str:
    return "\n".join(["```mermaid", kind, *(f"    {line}" for line in lines), "```"])


DRAWINGS: Final = MappingProxyType(
    {"layers": layers, "commit": commit, "states": states, "share records": share_records}
)
"""The drawings by the name in the mark before each: `<!-- drawing: NAME -->`, up to `<!-- end of drawing -->`."""


def with_drawings(page: str) -> str:
    """Return the page with every drawing made anew. Raises KeyError for an unknown name."""
    before, *parts = page.split("<!-- drawing: ")
    made = [before]
    for part in parts:
        name, _, rest = part.partition(" -->")
        _, _, after = rest.partition("<!-- end of drawing -->")
        made.append(f"{name} -->\n{DRAWINGS[name]()}\n<!-- end of drawing -->{after}")
    return "<!-- drawing: ".join(made)
