"""Servers that want one lease, on virtual time, with a bucket that answers late, twice or not at all.

One seed fixes everything. Each server has a clock of its own, which is faster or slower than the others, and stands
still now and then. The servers run the rules of the product; the bucket is a few lines that share nothing with it.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import msgspec

from coordinator_runtime.slate import lease as rules
from coordinator_runtime.slate.lease import LeaseState, Node, OwnerLease, ReadLease, Request, Standing, WriteLease

MINUTE_MS = 60_000

Digest = Callable[[LeaseState, int], LeaseState]
"""Takes an answer in, at a time."""


@dataclass(frozen=True, slots=True)
class Options:
    """One run."""

    seed: int
    servers: int = 3
    ttl_ms: int = 2_000
    duration_ms: int = 10 * MINUTE_MS
    median_ms: float = 20.0
    sigma: float = 0.8
    """Standard deviation of the logarithm of a delay."""
    fault_share: float = 0.05
    """Part of the requests with each kind of fault."""
    drift: float = 0.02
    """Largest difference of a clock's rate from the true one."""
    pause_interval_ms: int = 20_000
    pause_ms: int = 4_000
    """Longest pause of one server; the mean time between two."""
    overwrites: bool = False
    """True: the lease is given to a second server now and then, by force."""

    @classmethod
    def slow_store(cls, seed: int, *, ttl_ms: int, hours: int) -> Options:
        """A store whose p99.9 is a second, and pauses of two seconds, without faults."""
        return cls(
            seed,
            servers=2,
            ttl_ms=ttl_ms,
            duration_ms=hours * 60 * MINUTE_MS,
            median_ms=50.0,
            sigma=math.log(1_000 / 50) / 3.09,
            fault_share=0.0,
            pause_interval_ms=5 * MINUTE_MS,
            pause_ms=2_000,
        )


@dataclass(slots=True)
class Server:
    """One server. It is started again a second after its end."""

    number: int
    rate: float
    offset_ms: float
    state: LeaseState
    paused_until_ms: float = 0.0
    wake: int = 0
    """Number of the newest planned step; older ones do nothing."""
    request: int | None = None
    """Number of the request that is waited for."""
    held: list[int] = field(default_factory=list)
    """Terms that it has held."""

    def now_ms(self, true_ms: float) -> int:
        return int(true_ms * self.rate + self.offset_ms)

    def is_valid(self, true_ms: float) -> bool:
        return self.state.is_valid(self.now_ms(true_ms))


class Simulation:
    """One run. `run` raises AssertionError if two servers are valid at one moment."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._random = random.Random(options.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self.true_ms = 0.0
        self._object: tuple[bytes, str] | None = None
        self._is_checked = False
        """True if no state has changed since the last check."""
        self.servers = [self._new(number) for number in range(1, options.servers + 1)]
        self.terms: dict[int, str] = {}
        """The run that held each term."""
        self.overwritten_ms = -math.inf
        self.faults_end_ms = math.inf

    def run(self) -> Simulation:
        options = self.options
        for server in self.servers:
            self._after(self._random.uniform(0, 500), lambda server=server: self._step(server))
            self._plan_pause(server)
        if options.overwrites:
            self._after(30_000, self._overwrite)
        self._until(options.duration_ms)
        # Calm: no more faults. One of them holds the lease soon.
        self.faults_end_ms = self.true_ms
        self._until(self.true_ms + options.pause_ms + 4 * options.ttl_ms)
        if options.median_ms * 20 <= options.ttl_ms:
            assert any(each.is_valid(self.true_ms) for each in self.servers), "no server holds the lease in the end"
        return self

    def _until(self, end_ms: float) -> None:
        events = self._events
        while events and events[0][0] <= end_ms:
            self.true_ms, _number, act = heapq.heappop(events)
            act()
            if not self._is_checked:
                self._check()

    def _check(self) -> None:
        """Compare the servers. Until another state changes, time only ends what is valid (`test_rules`)."""
        # A lease that was given to a second server by force is valid twice until the first one's time is over.
        if self.true_ms < self.overwritten_ms + 2 * self.options.ttl_ms:
            return
        valid = [each.number for each in self.servers if each.is_valid(self.true_ms)]
        assert len(valid) <= 1, f"at {self.true_ms:.0f} ms the servers {valid} hold the lease together"
        self._is_checked = True

    def _turn(self, server: Server, state: LeaseState) -> None:
        server.state = state
        self._is_checked = False

    def _new(self, number: int) -> Server:
        rate = 1 + self._random.uniform(-1, 1) * self.options.drift
        return Server(number, rate, self._random.uniform(0, 1e9), self._fresh(number))

    def _fresh(self, number: int) -> LeaseState:
        return LeaseState(Node(number, f"run-{next(self._numbers)}", f"host-{number}:1"), self.options.ttl_ms)

    def _after(self, delay_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.true_ms + delay_ms, next(self._numbers), act))

    def _chance(self) -> bool:
        return self.true_ms < self.faults_end_ms and self._random.random() < self.options.fault_share

    def _delay_ms(self) -> float:
        return self.options.median_ms / 2 * math.exp(self.options.sigma * self._random.gauss(0, 1))

    # One server.

    def _step(self, server: Server) -> None:
        if self.true_ms < server.paused_until_ms:
            self._again(server, server.paused_until_ms - self.true_ms)
            return
        now_ms = server.now_ms(self.true_ms)
        state = rules.at(server.state, now_ms)
        if state is not server.state:
            self._turn(server, state)
        standing = state.standing
        if standing is Standing.ENDED or standing is Standing.RELEASED:
            server.request = None
            self._turn(server, self._fresh(server.number))
            self._again(server, 1_000)
            return
        if server.request is not None:
            if standing is Standing.HOLDING:
                self._again(server, max(1, state.valid_until_ms - now_ms))
            return
        if standing is Standing.HOLDING and self._chance() and self._chance():
            self._turn(server, rules.hand_over(state))
        request = rules.next_request(server.state, now_ms)
        if request is not None:
            self._send(server, request)
        state = server.state
        wake_ms = rules.wake_ms(state, now_ms)
        if state.standing is Standing.HOLDING:
            wake_ms = min(wake_ms, state.valid_until_ms)
        self._again(server, max(1, wake_ms - now_ms))

    def _again(self, server: Server, delay_ms: float) -> None:
        server.wake = number = next(self._numbers)

        def act() -> None:
            if server.wake == number:
                self._step(server)

        self._after(delay_ms, act)

    def _plan_pause(self, server: Server) -> None:
        def act() -> None:
            if self.true_ms < self.faults_end_ms:
                server.paused_until_ms = self.true_ms + self._random.uniform(0, self.options.pause_ms)
                self._plan_pause(server)

        self._after(self._random.expovariate(1 / self.options.pause_interval_ms), act)

    # One request.

    def _send(self, server: Server, request: Request) -> None:
        self._turn(server, rules.sending(server.state, request, server.now_ms(self.true_ms)))
        server.request = number = next(self._numbers)
        if not self._chance():
            self._after(
                self._delay_ms() * (40 if self._chance() else 1), lambda: self._execute(server, request, number)
            )
            if self._chance():
                self._after(self._delay_ms(), lambda: self._execute(server, request, number))
        self._after(self.options.ttl_ms / 3, lambda: self._answer(server, number, rules.was_lost))

    def _execute(self, server: Server, request: Request, number: int) -> None:
        """Do a request in the bucket, now. Its answer is on its way, unless it is lost."""
        before = self._object
        digest: Digest
        if isinstance(request, ReadLease):
            found = None if before is None else (msgspec.json.decode(before[0], type=OwnerLease), before[1])
            digest = partial(_was_read, found)
        elif request.e_tag == (None if before is None else before[1]):
            e_tag = self._put(request.lease)
            digest = partial(_was_written, request, e_tag)
        else:
            digest = _was_refused
        if not self._chance():
            self._after(self._delay_ms(), lambda: self._answer(server, number, digest))

    def _put(self, lease: OwnerLease) -> str:
        content = msgspec.json.encode(lease)
        # As object stores do it: equal contents have equal tags.
        self._object = content, hashlib.md5(content).hexdigest()
        return self._object[1]

    def _answer(self, server: Server, number: int, digest: Digest) -> None:
        if server.request != number:
            return
        if self.true_ms < server.paused_until_ms:
            self._after(server.paused_until_ms - self.true_ms, lambda: self._answer(server, number, digest))
            return
        server.request = None
        was = server.state.standing
        self._turn(server, digest(server.state, server.now_ms(self.true_ms)))
        if server.state.standing is Standing.HOLDING and was is Standing.WAITING:
            self._claimed(server)
        self._again(server, 0)

    def _claimed(self, server: Server) -> None:
        assert server.state.seen is not None
        term = server.state.seen.lease.term
        assert self.terms.setdefault(term, server.state.me.run) == server.state.me.run, f"two servers had term {term}"
        server.held.append(term)

    def _overwrite(self) -> None:
        """Give the lease to a server that waits, though another holds it."""
        waiting = [each for each in self.servers if each.state.standing is Standing.WAITING]
        if waiting and self._object is not None and self.true_ms < self.faults_end_ms:
            server = self._random.choice(waiting)
            before = msgspec.json.decode(self._object[0], type=OwnerLease)
            request = WriteLease(
                OwnerLease(server.state.me, before.term + 1, self.options.ttl_ms, before.counter + 1), self._object[1]
            )
            now_ms = server.now_ms(self.true_ms)
            server.request = None
            self._turn(
                server,
                rules.was_written(
                    rules.sending(server.state, request, now_ms), request, self._put(request.lease), now_ms
                ),
            )
            self._claimed(server)
            self.overwritten_ms = self.true_ms
            self._again(server, 0)
        self._after(30_000, self._overwrite)


def _was_read(found: tuple[OwnerLease, str] | None, state: LeaseState, now_ms: int) -> LeaseState:
    return rules.was_read(state, found, now_ms)


def _was_written(request: WriteLease, e_tag: str, state: LeaseState, now_ms: int) -> LeaseState:
    return rules.was_written(state, request, e_tag, now_ms)


def _was_refused(state: LeaseState, _now_ms: int) -> LeaseState:
    return rules.was_refused(state)


def options_of(seed: int) -> Options:
    """Options that differ from seed to seed."""
    drawn = random.Random(seed)
    return replace(
        Options(seed),
        servers=drawn.choice((2, 3)),
        ttl_ms=drawn.choice((900, 2_000, 10_000)),
        fault_share=drawn.choice((0.0, 0.02, 0.1)),
        median_ms=drawn.choice((5.0, 60.0, 300.0)),
    )
