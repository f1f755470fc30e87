"""Transactions that block the committed readers of a partition, as rows and in words."""

from __future__ import annotations

from coordinator_protocol.next_event import NextEvent
from txnctl.commands.administration import command_that_ends
from txnctl.commands.late import sdk
from txnctl.commands.transactions import OLD_MS, actor, described
from txnctl.output import (
    Column,
    OutputFormat,
    Row,
    Value,
    duration,
    marked_if,
    marked_words,
    moment,
    print_document,
    print_facts,
)
from txnctl.tables import CellMark


def row_of(explained: sdk.PartitionExplanation) -> Row:
    """Return an explanation in the names of the API, with the next event in words."""
    blocking = None if explained.blocking is None else _blocking(explained, explained.blocking)
    return {
        "topic": explained.topic,
        "partition": explained.partition,
        "last_stable_offset": explained.last_stable_offset,
        "high_watermark": explained.high_watermark,
        "undecided_offsets": explained.undecided_offsets,
        "open_transactions": explained.open_transactions,
        "blocking": blocking,
        "next_event": _NOTHING_IN_THE_WAY if blocking is None else blocking["next_event"],
    }


def print_explained(explained: sdk.PartitionExplanation, output: OutputFormat) -> None:
    """Print an explanation."""
    row = row_of(explained)
    if output is not OutputFormat.TABLE:
        print_document(row, output)
    elif explained.blocking is None:
        print_facts(row, _FREE)
    else:
        blocking = row["blocking"]
        assert isinstance(blocking, dict)
        print_facts({**blocking, **row}, _BLOCKED)


def _blocking(explained: sdk.PartitionExplanation, found: sdk.BlockingTransaction) -> Row:
    if found.transaction is not None:
        owner = described(found.transaction)
        history = owner["history"]
        assert isinstance(history, list)
        last = history[0] if history else None
        next_event = _next_event(explained.next_event, found)
        return {"start_offset": found.start_offset, **owner, "last_step": last, "next_event": next_event}
    producer_id, producer_epoch = found.identity or (None, None)
    known: Row = {
        "topic": explained.topic,
        "partition": explained.partition,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "start_offset": found.start_offset,
        "start_ms": found.start_ms,
        "age_ms": found.age_ms,
        "time_left_ms": found.time_left_ms,
        "transactional_id": found.transactional_id or None,
    }
    if explained.next_event is NextEvent.HANGING:
        command = command_that_ends(explained.topic, explained.partition, producer_id)
        next_event = f"nothing: it hangs, no transactional id owns it; `{command}` ends it"
        hanging = {"reason": found.hanging_reason, "command": command, "state": "hanging"}
        return {**known, **hanging, "next_event": next_event}
    state = "hidden" if found.is_owner_hidden else "unknown"
    return {**known, "state": state, "next_event": _next_event(explained.next_event, found)}


def _next_event(event: NextEvent, found: sdk.BlockingTransaction) -> str:
    owner = found.transaction
    abort = "`txnctl abort` with its id" if owner is None else f"`txnctl abort {owner.transactional_id}`"
    match event:
        case NextEvent.MARKER_BEING_WRITTEN:
            outcome = "outcome" if owner is None else "commit" if owner.state == "PrepareCommit" else "abort"
            return f"the {outcome} is decided and its marker being written"
        case NextEvent.OUTSIDE_DECISION:
            return f"it waits for an outside decision and never times out; {abort} breaks the promise"
        case NextEvent.CLIENT_OR_TIMEOUT:
            left = duration(found.time_left_ms)
            return f"its client ends it, or the server aborts it in {left}; {abort} does it now"
        case NextEvent.OWNER_UNKNOWN:
            return f"its owner is unknown: {found.owner_unknown_reason}"
        case _:
            return "the server tells what this txnctl does not know; use one of the server's version"


_NOTHING_IN_THE_WAY = "nothing is in the way: readers get up to the end"


def _last_step(step: Value) -> str:
    if not isinstance(step, dict):
        return "-"
    who = actor(str(step["client_id"]), str(step["host"])) + (f" at {step['host']}" if step["host"] else "")
    return f"{step['cause']} by {who}, {moment(step['at_ms'])}"


_FREE = (
    Column("Topic", "topic"),
    Column("Partition", "partition"),
    Column("Committed readers get up to", "last_stable_offset"),
    Column("End of the log", "high_watermark"),
    Column("Undecided offsets", "undecided_offsets"),
    Column("Next", "next_event"),
)
_BLOCKED = (
    *_FREE[:-1],
    Column("In the way", "transactional_id"),
    Column("State", "state", mark=marked_words(bad=["hanging"])),
    Column("Producer id", "producer_id"),
    Column("Producer epoch", "producer_epoch"),
    Column("Its first offset here", "start_offset"),
    Column("Opened", "start_ms", moment),
    Column("Age", "age_ms", duration, mark=marked_if(CellMark.WARNING, above=OLD_MS)),
    Column("Time left", "time_left_ms", duration),
    Column("Last step", "last_step", _last_step),
    Column("Next", "next_event"),
)
