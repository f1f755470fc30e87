"""Verbs of the test language (`script`) for sinks: producers become members of a batch, which is decided as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from coordinator_runtime.ports import CallContext
from tests.harness.calls import called
from tests.harness.script_producer import Producer
from tests.harness.shown import shown_identity
from txn_coordinator.sinks.decisions import JoinedBatch
from txn_coordinator.sinks.rules import AbortRequest, CommitRequest, JoinRequest
from txn_coordinator.sinks.service import SealMember

if TYPE_CHECKING:
    from tests.harness.script import Script
    from tests.harness.script_line import Line


def _join(script: Script, line: Line) -> None:
    name, sink, batch_id = line.words
    script.transacts += 1
    request = JoinRequest(
        sink=sink,
        run_id=line.options.get("run", "run"),
        batch_id=int(batch_id),
        attempt=name,
        txn_timeout_ms=int(line.options.get("timeout", "60000")),
        request_id=b"%016d" % script.transacts,
    )

    def tell(joined: JoinedBatch) -> str:
        if joined.identity is None:
            return "committed already"
        script.producers[name] = Producer(name, joined.transactional_id, identity=joined.identity)
        return shown_identity(joined.identity)

    sinks = script.world.inside.core.transactions.sinks
    script.ask(name, line, called(lambda: sinks.join_batch(request, CallContext())), tell)


def _close(script: Script, line: Line) -> None:
    producer = script.producer(line)
    command = SealMember(transactional_id=producer.transactional_id, identity=producer.shown(line))
    sinks = script.world.inside.core.transactions.sinks
    producer.last_call = called(lambda: sinks.seal_member(command, CallContext()))
    script.ask(producer.name, line, producer.last_call, lambda _sealed: "ok")


def _decide(script: Script, line: Line) -> None:
    sink, batch_id, *names = line.words
    members = [identity for name in names if (identity := script.producers[name].identity) is not None]
    request = CommitRequest(sink=sink, run_id=line.options.get("run", "run"), batch_id=int(batch_id), members=members)
    sinks = script.world.inside.core.transactions.sinks
    script.ask(
        "",
        line,
        called(lambda: sinks.commit_batch(request, CallContext())),
        lambda decided: f"ok, csn {decided.csn}{', as before' if decided.was_committed else ''}",
    )


def _give_up(script: Script, line: Line) -> None:
    request = AbortRequest(sink=line.words[0], run_id=None, batch_id=None)
    sinks = script.world.inside.core.transactions.sinks
    script.ask("", line, called(lambda: sinks.abort_batch(request, CallContext())), lambda count: f"{count} given up")


SINK_VERBS: Final[dict[str, Callable[[Script, Line], None]]] = {
    "join": _join,
    "close": _close,
    "decide": _decide,
    "give_up": _give_up,
}
