"""Writes whose payload is checked elsewhere, in a worker process: in order, and none before its check."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime


def write_checked(
    runtime: Runtime,
    operation: Operation,
    context: CallContext,
    *,
    check: Pending[Any] | None,
    park_key: Hashable,
    ask_again: Callable[[], object] | None = None,
) -> Pending[Any]:
    """Perform an operation as `Runtime.write` does, once its check, which is computed elsewhere, is settled.

    An error of the check is the answer, and nothing is written. `check` None: the operation was checked before.

    A caller that sends several requests without waiting for answers relies on their order. So an operation whose check
    is under way waits in the queue of its key (`parking.py`), and later calls with the same key wait behind it. The end
    of a transaction cannot overtake its records.

    A caller that must not be kept waiting (`refuse_concurrent`) still waits for the check, because every repetition
    would begin it again. Only then is its operation performed."""
    if check is None:
        return runtime.write(operation, context, park_key=park_key, ask_again=ask_again)
    if context.refuse_concurrent and not check.is_settled:

        def write_now(_checked: object) -> Pending[Any]:
            if ask_again is not None:
                ask_again()
            return runtime.write(operation, context, park_key=park_key)

        return check.then(write_now)

    def decide(shard: Any, turn: Turn) -> Decision:  # noqa: ANN401  as `Operation.decide`
        if not check.is_settled:
            # No caller sees this text: the refusal parks the call.
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the payload is still being checked; try again")
        check.result()
        return operation.decide(shard, turn)

    written = runtime.write(Operation(operation.shard, decide), context, park_key=park_key, ask_again=ask_again)
    if not check.is_settled:
        check.on_settled(lambda _checked: runtime.parking.retry(park_key))
    return written
