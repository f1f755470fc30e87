"""Two servers live through the same history, and are compared step by step.

They differ in one choice alone. So whatever differs of what they write, answer, log, count and hold is what that choice
changed, and for the fast path (`coordinator_core/fast_path.py`) that must be nothing. Nothing here knows how either of
them works inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from coordinator_protocol.acls import ANY_PRINCIPAL, CLUSTER_NAME, WILDCARD, Acl, AclFilter, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.disk_guard import DiskLow
from coordinator_runtime.ports import CallContext
from coordinator_server.traffic.admission import AdmissionLimits
from tests.fast_path.calls import PARTITIONS, Call, Clients
from tests.fast_path.side import CALLERS, Mutation, Side
from tests.harness.guarded import SUPER_USER, Guarded
from tests.harness.inside import WorldOptions
from tests.harness.world import World

_EVERYTHING = [
    Acl(
        principal=ANY_PRINCIPAL,
        resource_type=resource,
        resource_name=CLUSTER_NAME if resource is ResourceType.CLUSTER else WILDCARD,
        operation=Permission.ALL,
    )
    for resource in ResourceType
]
_DISK_LOW = DiskLow(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the disk is nearly full")

DESCRIBE = Call("DescribeTransactions")


class Different(AssertionError):
    """The two did not do the same."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens."""

    kind: str
    arguments: tuple[Any, ...] = ()


class Twins:
    """Both servers, and the clients that they share: these learn from the answers of the first."""

    def __init__(
        self,
        options: WorldOptions,
        admission: AdmissionLimits | None = None,
        *,
        lanes: tuple[bool, bool] = (True, False),
        mutation: Mutation = nullcontext,
    ) -> None:
        """`mutation`: the first of the two has a bug; see `tests.simulation.mutants`."""
        limits = admission or AdmissionLimits()
        self.sides = [
            Side(replace(options, lane=lane), limits, changed)
            for lane, changed in zip(lanes, (mutation, nullcontext), strict=True)
        ]
        self.clients = Clients()
        self.history: list[Step] = []
        self._learnt = 0
        if isinstance(options, Guarded):
            self._allow()
            self.settle()
        self.with_lane = self.sides[0].world
        self.send(Call("CreateTopics", partitions=PARTITIONS), Call("CreateTopics", partitions=()))
        self.settle()

    def live(self, step: Step) -> None:
        """Let one thing happen to both, and compare."""
        self.history.append(step)
        getattr(self, f"_{step.kind}")(*step.arguments)
        self._compare_looks()

    def settle(self) -> None:
        """Let everything become durable, and compare all that there is."""
        self._settle()
        self.compare()

    def send(self, *calls: Call) -> None:
        """One message."""
        self._message(0, calls)

    def send_mixed(self, *calls: tuple[int, Call]) -> None:
        """One message with calls of several sessions."""
        message = self.clients.message(call for _session, call in calls)
        for side in self.sides:
            side.dispatch([session for session, _call in calls], message)
        self._learn()

    def init(self, *names: str) -> None:
        """Let these producers come, and compare."""
        self.send(*(Call("InitProducerId", name) for name in names))
        self.settle()

    def do(self, action: Callable[[World], object]) -> None:
        """Let something happen to both that is no call."""
        for side in self.sides:
            side.do(action)
        self._learn()

    def compare(self) -> None:
        """Compare all that there is."""
        self._compare_looks()
        for what in ("holdings", "numbers"):
            self._compare(*(getattr(side, what)() for side in self.sides))

    # Steps

    def _message(self, session: int, calls: Sequence[Call], cancels: Sequence[int] = ()) -> None:
        newest = self.clients.correlation_id
        message = self.clients.message(calls, [max(0, newest - each) for each in cancels])
        for side in self.sides:
            side.send(session % len(CALLERS), message)
        self._learn()

    def _flush(self, count: int | None = None) -> None:
        self.do(lambda world: world.flush(count))

    def _seal(self) -> None:
        self.do(World.seal)

    def _tick(self, elapsed_ms: int) -> None:
        self.do(lambda world: world.tick(elapsed_ms))

    def _set_clock(self, difference_ms: int) -> None:
        self.do(lambda world: world.clock.step_wall(difference_ms))

    def _settle(self) -> None:
        self.do(World.settle)
        self.send(DESCRIBE)
        self.do(World.settle)

    def _crash(self, kept_groups: int) -> None:
        self.do(lambda world: world.crash(kept_groups=min(kept_groups, world.undurable_groups), down_ms=3))
        self._settle()

    def _fail_disk(self, kept_groups: int) -> None:
        def fail(world: World) -> None:
            # With nothing to write no sync fails.
            if world.undurable_groups:
                world.fail_disk(kept_groups=kept_groups)

        self.do(fail)
        self._settle()

    def _unload(self, name: str) -> None:
        self.do(lambda world: _tried(lambda: world.unload(name)))

    def _load(self, name: str) -> None:
        self.do(lambda world: _tried(lambda: world.load(name)))

    def _allow(self, *denied: Acl) -> None:
        """From now on everybody may do everything, but for this."""
        context = CallContext(principal=SUPER_USER, host="10.0.0.9", client_id="root", method=Method.CREATE_ACLS)

        def write(world: World) -> None:
            acls = world.inside.core.admin.acls
            acls.delete([AclFilter()], context, validate_only=False)
            acls.create([*_EVERYTHING, *denied], context, validate_only=False)

        self.do(lambda world: _tried(lambda: write(world)))

    def _fill_disk(self, is_full: bool) -> None:
        def fill(world: World) -> None:
            world.inside.core.checks.disk.refusal = _DISK_LOW if is_full else None

        self.do(fill)

    def _hold_checks(self, is_held: bool) -> None:
        """Payloads that take long are checked by another process; let it take its time, or end."""

        def hold(world: World) -> None:
            worker: Any = world.inside.core.checks.worker
            worker.is_held = is_held
            if not is_held:
                worker.release()

        self.do(hold)

    # Comparing

    def _learn(self) -> None:
        answers = self.sides[0].answers
        self.clients.learn(answers[self._learnt :])
        self._learnt = len(answers)

    def _compare_looks(self) -> None:
        self._compare(*(side.look() for side in self.sides))

    def _compare(self, with_lane: dict[str, Any], without: dict[str, Any]) -> None:
        if with_lane == without:
            return
        name, one, other = next(
            (name, with_lane.get(name), without.get(name))
            for name in [*with_lane, *without]
            if with_lane.get(name) != without.get(name)
        )
        raise Different(f"{name} after {self.history[-3:]}:\n{difference(one, other)}")


def difference(one: object, other: object, place: str = "") -> str:
    """Describe the first difference of two values."""
    if type(one) is type(other) and isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *other]:
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), f"{place}[{key!r}]")
    if type(one) is type(other) and isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            if mine != theirs:
                return difference(mine, theirs, f"{place}[{number}]")
        if len(one) != len(other):
            longer, shorter = sorted((one, other), key=len, reverse=True)
            beyond = longer[len(shorter)]
            return f"{place}: {len(one)} with the fast path, {len(other)} without; the first beyond: {beyond!r:.2000}"
    return f"{place}\n with the fast path: {one!r:.2000}\n without:       {other!r:.2000}"


def _tried(action: Callable[[], object]) -> None:
    """Ignore a refusal at once, which happens on both sides: the next comparison shows a difference."""
    with suppress(Refused):
        action()
