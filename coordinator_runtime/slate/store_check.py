"""Checks of an object store before a server trusts it: conditional writes are atomic, and metadata is kept.

Everything rests on that. Two servers that both create the same object of the log would both believe that they are the
one writer. A store that drops metadata makes a repeated write look like that of another server. So writers race for one
object, and exactly one of them must win, each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Final

from msgspec import Struct

from coordinator_runtime.slate.objects import Objects, ObjectsFailed
from coordinator_runtime.store import StoreRefused

RACERS: Final = 8
ROUNDS: Final = 200
"""Rounds of a thorough check: a store that checks first and writes later had two winners in one of 200 rounds."""
ROUNDS_OF_A_START: Final = 10


class RaceResult(Struct, frozen=True):
    """Result of one kind of race."""

    name: str
    promise: str
    rounds: int
    violations: int
    """Number of rounds in which not exactly one writer won."""


def check_object_store(
    objects: Objects, name: str, rounds: int, on_round: Callable[[int], None] = lambda _one: None
) -> list[RaceResult]:
    """Race writers for objects whose names begin with `name`; they are removed at the end. `on_round` is called with 1
    after each round. Raises ObjectsFailed."""
    creates = updates = 0
    try:
        for number in range(rounds):
            place = f"{name}-{number}"
            creates += _winners(partial(_create, objects, place)) != 1
            found = objects.read(place)
            updates += found is None or _winners(partial(_replace, objects, place, found.e_tag)) != 1
            on_round(1)
        kept = objects.keeps_metadata(f"{name}-metadata")
    finally:
        for each in (*(f"{name}-{number}" for number in range(rounds)), f"{name}-metadata"):
            _remove(objects, each)
    return [
        RaceResult("create", "of writers that create one object, exactly one succeeds", rounds, creates),
        RaceResult("update", "of writers that replace one version, exactly one succeeds", rounds, updates),
        RaceResult("metadata", "metadata of an object is kept", 1, int(not kept)),
    ]


def refuse_unsafe(address: str, results: list[RaceResult]) -> None:
    """Raise StoreRefused if a check found a violation."""
    broken = [f"{each.promise} (not so in {each.violations} of {each.rounds})" for each in results if each.violations]
    if broken:
        raise StoreRefused(
            f"the object store of {address} cannot keep a store safe: {'; '.join(broken)} does not hold. Use another"
            " object store; `txnctl cluster check-store` checks one thoroughly"
        )


def _create(objects: Objects, name: str, racer: int) -> str | None:
    return objects.create(name, b"%d" % racer)


def _replace(objects: Objects, name: str, e_tag: str, racer: int) -> str | None:
    return objects.replace(name, b"again %d" % racer, e_tag)


def _winners(attempt: Callable[[int], str | None]) -> int:
    """Let writers attempt the same at the same time. Returns the number of those that succeeded."""
    start = threading.Barrier(RACERS)
    return sum(each.result() is not None for each in list(_racing(attempt, start)))


def _racing(attempt: Callable[[int], str | None], start: threading.Barrier) -> Iterator[Future[str | None]]:
    for racer in range(RACERS):
        result: Future[str | None] = Future()

        def run(racer: int = racer, result: Future[str | None] = result) -> None:
            start.wait()
            try:
                result.set_result(attempt(racer))
            except Exception as error:  # noqa: BLE001  the caller gets it
                result.set_exception(error)

        threading.Thread(target=run, name="racer", daemon=True).start()  # noqa: TID251  it touches no state of ours
        yield result


def _remove(objects: Objects, name: str) -> None:
    try:
        objects.remove(name)
    except (FileNotFoundError, ObjectsFailed):
        return
