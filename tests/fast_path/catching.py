"""Looks for a history in which two servers differ."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, settings

from coordinator_server.traffic.admission import AdmissionLimits
from tests.fast_path.calls import IDS
from tests.fast_path.histories import ADMISSION, BUSY_HISTORY, BUSY_OPTIONS, HISTORY, OPTIONS
from tests.fast_path.side import Mutation
from tests.fast_path.stories import STORIES
from tests.fast_path.twins import Step, Twins
from tests.harness.inside import WorldOptions

EXAMPLES_MAX = 1_000


class NotCaught(AssertionError):
    """The two did the same, in all histories."""


def committed(examples_max: int) -> settings:
    """The same examples in every run."""
    return settings(
        max_examples=examples_max,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def live_through(twins: Twins, history: Sequence[Step]) -> None:
    """All of it, from producers that have just come. Raises Different."""
    twins.init(*IDS)
    for step in history:
        twins.live(step)
    twins.settle()


def catch(mutation: Mutation, *, lanes: tuple[bool, bool] = (True, False), examples_max: int = EXAMPLES_MAX) -> str:
    """Let one of two servers have a bug, until it shows. Returns how: a difference, or an assertion of the product's
    own. Raises NotCaught."""

    @given(BUSY_OPTIONS, BUSY_HISTORY)
    @committed(examples_max // 4)
    def search_busy(options: WorldOptions, history: list[Step]) -> None:
        live_through(Twins(options, lanes=lanes, mutation=mutation), history)

    @given(OPTIONS, ADMISSION, HISTORY)
    @committed(examples_max)
    def search(options: WorldOptions, admission: AdmissionLimits, history: list[Step]) -> None:
        live_through(Twins(options, admission, lanes=lanes, mutation=mutation), history)

    try:
        for options, history in STORIES.values():
            live_through(Twins(options, lanes=lanes, mutation=mutation), history)
        search()
        search_busy()
    except AssertionError as finding:
        return str(finding)
    raise NotCaught(f"nothing was noticed in {examples_max} histories")
