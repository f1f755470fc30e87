"""A dispatcher over a gatekeeper of its own, as one value: for tests of both together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from google.protobuf.descriptor import ServiceDescriptor

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit
from coordinator_server.calls import CallStatus
from coordinator_server.grpc_front.dispatcher import REQUEST_PARTS_MAX, Dispatcher
from coordinator_server.grpc_front.handler import FastMethod
from coordinator_server.traffic.admission import Admission
from coordinator_server.traffic.call import NoObserver
from coordinator_server.traffic.fair_messages import FairMessages
from coordinator_server.traffic.fair_reads import FairReads
from coordinator_server.traffic.gatekeeper import Gatekeeper


class Watching(NoObserver):
    """An observer whose parts a test replaces."""

    def __init__(self) -> None:
        self.on_unanswered: Callable[[Method, int, CallStatus], None] = lambda _method, _elapsed_us, _status: None
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        self.answered_methods: list[Method] = []

    def answered(self, method: Method, elapsed_us: int, codes: Iterable[int] = (), *, calls: int = 1) -> None:
        self.answered_methods += [method] * calls

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None:
        self.on_unanswered(method, elapsed_us, status)

    def defect(self, defect: Exception) -> None:
        self.on_defect(defect)


class GatedDispatcher(Dispatcher):
    """The handler of a transport, with the gatekeeper's switches beside it."""

    def __init__(
        self,
        services: Iterable[ServiceDescriptor],
        admission: Admission,
        clock: Clock,
        *,
        message_bytes_max: int,
        answer_limit: AnswerLimit = NO_ANSWER_LIMIT,
        reads: FairReads | None = None,
        messages: FairMessages | None = None,
        parts_max: int = REQUEST_PARTS_MAX,
    ) -> None:
        self.gatekeeper = Gatekeeper(admission, clock, answer_limit=answer_limit, reads=reads, messages=messages)
        self.watching = Watching()
        self.gatekeeper.observer = self.watching
        super().__init__(services, self.gatekeeper, message_bytes_max=message_bytes_max, parts_max=parts_max)

    def open(self, servicers: Iterable[object], fast: Iterable[FastMethod] = ()) -> None:
        """Serve from now on."""
        fast = list(fast)
        self.serve(servicers, fast)
        self.gatekeeper.open({each.method: each for each in fast})

    def close(self) -> None:
        self.gatekeeper.close()

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        self.gatekeeper.answer_unanswered(error)

    @property
    def unanswered_calls(self) -> int:
        return self.gatekeeper.unanswered_calls

    def calls_in_flight(self) -> Counter[Method]:
        return self.gatekeeper.calls_in_flight()
