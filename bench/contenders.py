"""Contenders of a row: our server with a kind of client, and Kafka in each of its profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.arena import Arena
from bench.case import FLUSHED, Contender
from bench.results import Run, Side

if TYPE_CHECKING:
    from bench.kafka.broker import Broker
    from bench.kafka.settings import Profile

JAVA: Final = "Java"
RAW: Final = "raw"


def own(client: str, measure: Callable[[], Run]) -> Contender:
    """Return our server as a contender, with this kind of client."""
    return Contender(Side.OURS, client, FLUSHED, measure)


def kafka(
    arena: Arena, client: str, measure: Callable[[Broker], Run], profiles: Sequence[Profile] | None = None
) -> list[Contender]:
    """Return Kafka as a contender on its shared, warm broker, once for each profile of the run or of the given ones."""
    return _in_profiles(arena, client, lambda profile: measure(arena.broker(profile)), profiles)


def kafka_alone(arena: Arena, client: str, measure: Callable[[Profile], Run]) -> list[Contender]:
    """Return Kafka as a contender that starts a broker of its own for each measurement. That takes half a minute, so
    quick runs leave it out."""
    return [] if arena.scale.is_quick else _in_profiles(arena, client, measure)


def _in_profiles(
    arena: Arena, client: str, measure: Callable[[Profile], Run], profiles: Sequence[Profile] | None = None
) -> list[Contender]:
    return [
        Contender(Side.KAFKA, f"{client}, {profile.name}", profile.durability, partial(measure, profile))
        for profile in (arena.profiles if profiles is None else profiles)
    ]


def client_settings(settings: Mapping[str, str]) -> str:
    """Return the settings of a Java client in the format of its command line."""
    return ";".join(f"{name}={value}" for name, value in settings.items())
