"""The keeper of a lease: a thread that waits for it, renews it and hands it over, by the rules of `lease.py`.

It is a thread of its own, so that neither a busy loop nor a flush that takes long delays a renewal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from coordinator_runtime.clock import Clock
from coordinator_runtime.slate import lease as rules
from coordinator_runtime.slate.lease import (
    LEASE_NAME,
    LeaseState,
    Node,
    ReadLease,
    Request,
    Standing,
    decode_lease,
)
from coordinator_runtime.slate.location import StoreLocation
from coordinator_runtime.slate.objects import Objects, ObjectsFailed
from coordinator_runtime.slate.ownership import read_record
from coordinator_runtime.slate.standby import STANDBY_NAME, SeenStandby, Standby, other_server, seen_again
from coordinator_runtime.store import StoreRefused

_END_MS: Final = 5_000
"""Time for the process to end itself after the end of its lease. Then the keeper ends it."""


class LeaseKeeper:
    """Keeps the lease of one server. `state` may be read on any thread."""

    def __init__(
        self,
        objects: Objects,
        clock: Clock,
        state: LeaseState,
        on_change: Callable[[], None],
        end_process: Callable[[], None],
    ) -> None:
        """`on_change` is called on the thread of the keeper when the standing has changed, or requests begin to fail.
        `end_process` is called there if the process has not ended some seconds after its lease."""
        self._objects = objects
        self._clock = clock
        self._on_change = on_change
        self._end_process = end_process
        self._changed = threading.Condition()
        self.state = state
        self.refusal: StoreRefused | None = None
        """The reason for which the lease cannot be used."""
        self._standby: SeenStandby | None = None
        self._told = 0
        """Number of times that this server said that it waits."""
        self._told_ms = 0
        self.store_id: str | None = None
        """Identity of the store, as it was when this server began to wait; None for a store that was not made yet."""
        self.problem: str | None = None
        """Error of the newest request; None if it was answered."""
        # A daemon, because a process must end though the object store hangs.
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)  # noqa: TID251  no state of shards

    def start(self) -> None:
        """Begin to wait for the lease."""
        self._thread.start()

    def is_valid(self) -> bool:
        """Return True if this server may answer as the owner, at this moment."""
        return self.state.is_valid(self._clock.monotonic_ms())

    def owner(self) -> Node | None:
        """Return the server that holds the lease, unless it is this one; None if no lease is known to be valid. On any
        thread."""
        return rules.owner_of(self.state, self._clock.monotonic_ms())

    def other_server(self) -> Node | None:
        """Return the server that waits for the lease of this one, or the former owner; None if neither is known. On any
        thread."""
        return other_server(self._standby, self.state, self._clock.monotonic_ms())

    def hand_over(self, patience_ms: int) -> bool:
        """Free the lease, if this server holds it. Returns True once that is done, False after this time. The store
        must be closed: the next owner opens it at once."""
        with self._changed:
            self._set(rules.hand_over(self.state))
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self.state.standing is Standing.RELEASED, patience_ms / 1_000)

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except StoreRefused as refusal:
            self.refusal = refusal
            self._on_change()
            return
        if self.state.standing is Standing.ENDED:
            with self._changed:
                self._changed.wait_for(lambda: False, _END_MS / 1_000)
            self._end_process()

    def _step(self) -> bool:
        """Do what is due, or wait for it. Returns False once nothing more will be. Raises StoreRefused."""
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            self._set(rules.at(self.state, now_ms))
            state = self.state
            if state.standing in (Standing.ENDED, Standing.RELEASED):
                return False
            request = rules.next_request(state, now_ms)
            if request is None:
                wake_ms = rules.wake_ms(state, now_ms)
                if state.standing is Standing.HOLDING:
                    wake_ms = min(wake_ms, state.valid_until_ms)
                self._changed.wait(max(1, wake_ms - now_ms) / 1_000)
                return True
            self._set(rules.sending(state, request, now_ms))
        digest = self._performed(request)
        with self._changed:
            self._set(digest(self.state, self._clock.monotonic_ms()))
        self._tell_or_look()
        return True

    def _tell_or_look(self) -> None:
        """Say that this server waits, or look which one does. It is no matter if that fails."""
        state, now_ms = self.state, self._clock.monotonic_ms()
        try:
            if state.standing is Standing.HOLDING and not state.looks_next:
                # A request ends before the next renewal is due.
                found = self._objects.read(STANDBY_NAME)
                self._standby = seen_again(self._standby, None if found is None else found.content, now_ms)
            elif state.standing is Standing.WAITING and (not self._told or now_ms >= self._told_ms + state.ttl_ms):
                self._told, self._told_ms = self._told + 1, now_ms
                self._objects.put(STANDBY_NAME, msgspec.json.encode(Standby(state.me, self._told)))
        except ObjectsFailed as error:
            self._met(error)

    def _performed(self, request: Request) -> Callable[[LeaseState, int], LeaseState]:
        """Send a request. Returns the function that digests its answer. Raises StoreRefused."""
        try:
            if isinstance(request, ReadLease):
                read = self._objects.read(LEASE_NAME)
                self.problem = None
                found = None if read is None else (decode_lease(read.content), read.e_tag)
                return lambda state, now_ms: rules.was_read(state, found, now_ms)
            content = msgspec.json.encode(request.lease)
            if request.e_tag is None:
                e_tag = self._objects.create(LEASE_NAME, content)
            else:
                e_tag = self._objects.replace(LEASE_NAME, content, request.e_tag)
        except ObjectsFailed as error:
            self._met(error)
            return rules.was_lost
        self.problem = None
        if e_tag is None:
            return lambda state, _now_ms: rules.was_refused(state)
        return lambda state, now_ms: rules.was_written(state, request, e_tag, now_ms)

    def _met(self, error: Exception) -> None:
        before, self.problem = self.problem, _words(error)
        if before is None:
            self._on_change()

    def _set(self, state: LeaseState) -> None:
        """Take a state over. Call it with the lock."""
        before, self.state = self.state, state
        if state.standing is not before.standing or state.rival is not before.rival:
            self._changed.notify_all()
            self._on_change()


def _words(error: Exception) -> str:
    """Return an error in one line, without what is only for its developers."""
    return " ".join(str(error).partition("Debug source")[0].split())[:300]


def keeper_of(
    location: StoreLocation,
    me: Node,
    ttl_ms: int,
    clock: Clock,
    *,
    on_change: Callable[[], None],
    end_process: Callable[[], None],
) -> LeaseKeeper:
    """Return the keeper for a server that begins to wait for the lease of a store. Raises StoreRefused."""
    try:
        # With patience: only wrong credentials or a missing bucket end the start, and not a slow answer.
        patient = Objects(location)
        patient.read(LEASE_NAME)
        record = read_record(patient)
        # Requests end early enough for two more before the lease ends.
        objects = Objects(location, timedelta(milliseconds=ttl_ms // 3))
    except ObjectsFailed as error:
        raise StoreRefused(
            f"{location.address} cannot be used: {_words(error)}; check the bucket and the credentials"
        ) from error
    keeper = LeaseKeeper(objects, clock, LeaseState(me, ttl_ms), on_change, end_process)
    keeper.store_id = None if record is None else record[0].store_id
    return keeper
