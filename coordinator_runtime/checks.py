"""Operations that wait for something that is computed elsewhere, and what comes after them meanwhile.

Who sends several requests without waiting for answers relies on their order. So an operation whose check is under way
waits in the queue of its key (`parking.py`), and whatever comes under the same key waits behind it: the end of a
transaction cannot overtake its records.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime


def write_checked(
    runtime: Runtime, operation: Operation, context: CallContext, *, check: Pending[Any] | None, park_key: Hashable
) -> Pending[Any]:
    """Perform an operation as `Runtime.write` does, once its check is settled; an error of the check is the answer, and
    nothing is written. None: it was checked before.

    A caller that must not be kept waiting (`immediate_51`) waits for the check all the same, because every repetition
    would begin it anew; only then is its operation looked at."""
    if check is None:
        return runtime.write(operation, context, park_key=park_key)
    if context.immediate_51 and not check.is_settled:
        return check.then(lambda _checked: runtime.write(operation, context, park_key=park_key))

    def decide(shard: Any, turn: Turn) -> Decision:  # noqa: ANN401  as `Operation.decide`
        if not check.is_settled:
            # Nobody reads this: it makes the call wait.
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the payload is still being checked; try again")
        check.result()
        return operation.decide(shard, turn)

    written = runtime.write(Operation(operation.shard, decide), context, park_key=park_key)
    if not check.is_settled:
        check.on_settled(lambda _checked: runtime.parking.retry(park_key))
    return written
