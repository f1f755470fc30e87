"""The lease of a store in a bucket: which server may own the store, and until when. Pure rules over frozen values.

One object, `owner/lease`, names its holder. The holder replaces it three times in each time to live (`ttl_ms`), on the
condition that it is unchanged. Another server that sees the same object for a whole time to live takes it, on the same
condition, with the next term. A hand-over writes that the lease is free.

No clock is shared: each server measures durations by its own monotonic clock. A holder counts from the moment before it
sent a write, and a watcher from the moment after it read the object. So the watcher's count ends later. A write without
an answer may have been done, or may be done later. The holder reads the object back, and learns which of its writes is
there. Each write has another `counter`. Tags are computed from the content, so two equal contents would look unchanged.

Safety of the data does not rest on the lease: the store fences (decision 59). It carries answers that must be current.
Source: decision 63.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coordinator_runtime.store import StoreFailed, StoreRefused

LEASE_NAME: Final = "owner/lease"

_RENEWALS: Final = 3
"""Renewals in one time to live."""
_MARGIN: Final = 10
"""One part in so many of the time to live that a holder does not use, because clocks run at different rates."""
_LOOKS: Final = 20
"""Looks of a waiting server in one time to live."""
_LOOK_MS_MIN: Final = 100
_LOOK_MS_MAX: Final = 500
"""Bounds of their interval. A hand-over waits for the next look, and a takeover begins later by half an interval."""
_PAUSE_MS: Final = 50
"""Pause after a request that failed."""


class LeaseEnded(StoreFailed):
    """The lease of this server ended, so another server may own the store."""


class Node(Struct, frozen=True):
    """One run of a server, with the addresses at which clients find it."""

    node_id: int
    run: str
    """Random name of this run of the process. A server that was started again is not taken for its former run."""
    address: str
    """HOST:PORT of gRPC."""
    kafka_addresses: tuple[str, ...] = ()
    """HOST:PORT of each listener of Kafka's protocol, in the order of the settings."""


class OwnerLease(Struct, frozen=True):
    """Content of the object."""

    holder: Node
    term: int
    """Number of the holder among all holders. It rises with each claim."""
    ttl_ms: int
    counter: int
    """Rises with each write, so that no two contents are alike."""
    is_free: bool = False
    """True after a hand-over: the next server need not wait."""


class ReadLease(Struct, frozen=True):
    """Request: read the object."""


class WriteLease(Struct, frozen=True):
    """Request: write the object, if it still has this tag; None: create it."""

    lease: OwnerLease
    e_tag: str | None


Request = ReadLease | WriteLease


class Standing(Enum):
    """Relation of one server to the lease."""

    WAITING = "waiting"
    HOLDING = "holding"
    ENDED = "ended"
    """It held the lease and must end itself. There is no way back."""
    LEAVING = "leaving"
    """It hands the lease over. It is no owner from before the write on, since another may take the lease at once."""
    RELEASED = "released"
    """It has handed the lease over, or held none."""


class Seen(Struct, frozen=True):
    """The object as it was last known."""

    lease: OwnerLease
    e_tag: str
    since_ms: int
    """Moment after the first look that showed this tag."""


class Sent(Struct, frozen=True):
    """A write of unknown outcome."""

    lease: OwnerLease
    sent_ms: int
    """Moment before it was sent."""


class LeaseState(Struct, frozen=True):
    """Knowledge of one server about the lease. Times are of its monotonic clock."""

    me: Node
    ttl_ms: int
    standing: Standing = Standing.WAITING
    seen: Seen | None = None
    """None before the first look, and if there is no object."""
    valid_until_ms: int = 0
    """End of the time in which this server may answer as the owner."""
    sent: tuple[Sent, ...] = ()
    """Own writes that may be done or be done yet. They all rest on the tag in `seen`."""
    looks_next: bool = True
    """True if nothing can be decided before another look."""
    sent_ms: int = 0
    """Time of the last request."""
    not_before_ms: int = 0
    rival: Node | None = None
    """Another living server with the same `node_id`."""
    former: Node | None = None
    """Last holder with another `node_id`; None if this server saw none."""

    def is_valid(self, now_ms: int) -> bool:
        """Return True if this server may answer as the owner."""
        return self.standing is Standing.HOLDING and now_ms < self.valid_until_ms


def next_request(state: LeaseState, now_ms: int) -> Request | None:
    """Return the request that is due; None if there is none yet (`wake_ms`) or ever."""
    if now_ms < wake_ms(state, now_ms):
        return None
    match state.standing:
        case Standing.WAITING:
            if state.looks_next or not is_claimable(state, now_ms):
                return ReadLease()
            return _write(state, term=1 if state.seen is None else state.seen.lease.term + 1)
        case Standing.HOLDING | Standing.LEAVING:
            if state.looks_next:
                return ReadLease()
            assert state.seen is not None, "a holder has seen its lease"
            return _write(state, term=state.seen.lease.term, is_free=state.standing is Standing.LEAVING)
    return None


def wake_ms(state: LeaseState, now_ms: int) -> int:
    """Return the time of the next request, which may be over. It is never for a server that is no candidate."""
    if state.standing in (Standing.ENDED, Standing.RELEASED):
        return now_ms + state.ttl_ms
    if state.looks_next or state.standing is Standing.LEAVING:
        return state.not_before_ms
    if state.standing is Standing.HOLDING:
        # By the newest write that is known to be done: after one that is not, the next is due at once.
        since_ms = state.valid_until_ms - (state.ttl_ms - state.ttl_ms // _MARGIN)
        return max(state.not_before_ms, since_ms + state.ttl_ms // _RENEWALS)
    if is_claimable(state, now_ms):
        return state.not_before_ms
    return max(state.not_before_ms, state.sent_ms + min(_LOOK_MS_MAX, max(_LOOK_MS_MIN, state.ttl_ms // _LOOKS)))


def is_claimable(state: LeaseState, now_ms: int) -> bool:
    """Return True if a waiting server may take the lease: there is none, it is free, or its time is over. Also if it is
    a claim of this server that was known too late."""
    seen = state.seen
    if seen is None or seen.lease.is_free or seen.lease.holder.run == state.me.run:
        return True
    return now_ms >= seen.since_ms + seen.lease.ttl_ms


def owner_of(state: LeaseState, now_ms: int) -> Node | None:
    """Return the server that holds the lease, as another server knows it. None if the lease is free, is over, or was
    not seen for so long that it may be."""
    seen = state.seen
    if seen is None or seen.lease.is_free or seen.lease.holder.run == state.me.run:
        return None
    return seen.lease.holder if now_ms < seen.since_ms + seen.lease.ttl_ms else None


def hand_over(state: LeaseState) -> LeaseState:
    """Return the state of a server that wants no lease any more. If it holds one, its next requests free it."""
    standing = Standing.LEAVING if state.standing is Standing.HOLDING else Standing.RELEASED
    return replace(state, standing=standing, valid_until_ms=0)


def sending(state: LeaseState, request: Request, now_ms: int) -> LeaseState:
    """Note that a request is about to be sent. Call it before, with the time before."""
    sent = state.sent if isinstance(request, ReadLease) else (*state.sent, Sent(request.lease, now_ms))
    # Until it is answered, nothing else can be decided.
    return replace(state, sent=sent, sent_ms=now_ms, looks_next=True)


def was_read(state: LeaseState, found: tuple[OwnerLease, str] | None, now_ms: int) -> LeaseState:
    """Digest the answer to a look: the object with its tag, or None if there is none."""
    state = replace(at(state, now_ms), looks_next=False)
    if found is None:
        # Removed by hand. Writes that rest on it can no longer be done.
        return replace(ended(state), seen=None, sent=()) if state.seen is not None else state
    lease, e_tag = found
    if state.seen is not None and state.seen.e_tag == e_tag:
        # Writes of unknown outcome may still be done: they rest on this tag.
        return state
    own = next((each for each in state.sent if each.lease == lease), None)
    rival = None
    if state.seen is not None and own is None and _is_rival(state, lease):
        rival = lease.holder
    former = state.former if lease.holder.node_id == state.me.node_id else lease.holder
    state = replace(state, seen=Seen(lease, e_tag, now_ms), sent=(), rival=rival, former=former)
    return ended(state) if own is None else _confirmed(state, own, now_ms)


def was_written(state: LeaseState, request: WriteLease, e_tag: str, now_ms: int) -> LeaseState:
    """Digest the answer to a write that was done."""
    own = next(each for each in state.sent if each.lease == request.lease)
    state = replace(at(state, now_ms), seen=Seen(own.lease, e_tag, now_ms), sent=(), looks_next=False)
    return _confirmed(state, own, now_ms)


def was_refused(state: LeaseState) -> LeaseState:
    """Digest a write whose condition did not hold. An earlier send of the same write may have been done, so look."""
    return replace(state, looks_next=True)


def was_lost(state: LeaseState, now_ms: int) -> LeaseState:
    """Digest a request without an answer, or with an error: it may have been done. Look, after a pause."""
    return replace(state, looks_next=True, not_before_ms=now_ms + _PAUSE_MS)


def at(state: LeaseState, now_ms: int) -> LeaseState:
    """Return the state at a time: a holder whose time is over has lost the lease."""
    is_over = state.standing is Standing.HOLDING and now_ms >= state.valid_until_ms
    return ended(state) if is_over else state


def ended(state: LeaseState) -> LeaseState:
    """Return the state after the loss of the lease. A server that waits goes on."""
    match state.standing:
        case Standing.HOLDING:
            return replace(state, standing=Standing.ENDED)
        case Standing.LEAVING:
            return replace(state, standing=Standing.RELEASED)
    return state


def decode_lease(content: bytes) -> OwnerLease:
    """Return the content of the object. Raises StoreRefused."""
    try:
        return msgspec.json.decode(content, type=OwnerLease)
    except msgspec.DecodeError as damage:
        raise StoreRefused(
            f"the lease of the store, {LEASE_NAME}, cannot be read: {damage}. Remove the object if no server runs"
        ) from damage


def _write(state: LeaseState, *, term: int, is_free: bool = False) -> WriteLease:
    seen = state.seen
    counters = [each.lease.counter for each in state.sent] + ([] if seen is None else [seen.lease.counter])
    lease = OwnerLease(state.me, term, state.ttl_ms, _next_counter(counters), is_free)
    return WriteLease(lease, None if seen is None else seen.e_tag)


def _next_counter(counters: list[int]) -> int:
    return 1 + max(counters, default=0)


def _confirmed(state: LeaseState, own: Sent, now_ms: int) -> LeaseState:
    """Return the state once an own write is known to be done."""
    if own.lease.is_free:
        return replace(state, standing=Standing.RELEASED, valid_until_ms=0)
    until_ms = _valid_until_ms(own, now_ms)
    is_late = state.standing is Standing.WAITING and now_ms >= until_ms
    if is_late or state.standing not in (Standing.WAITING, Standing.HOLDING):
        return state
    return replace(state, standing=Standing.HOLDING, valid_until_ms=until_ms)


def _valid_until_ms(own: Sent, _answered_ms: int) -> int:
    """Return the end of the time that a write gives. It counts from before the write was sent: a watcher may have seen
    the object long before the answer came."""
    ttl_ms = own.lease.ttl_ms
    return own.sent_ms + ttl_ms - ttl_ms // _MARGIN


def _is_rival(state: LeaseState, lease: OwnerLease) -> bool:
    """Return True if a lease that changed while it was watched is of a server with this server's number."""
    seen = state.seen
    assert seen is not None
    holder = lease.holder
    is_renewal = seen.lease.holder.run == holder.run and not lease.is_free
    return is_renewal and holder.node_id == state.me.node_id and holder.run != state.me.run
