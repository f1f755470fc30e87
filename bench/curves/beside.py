"""Load beside a growth: 16 producers whose transactions have a record of 100 bytes in each of three partitions."""

from __future__ import annotations

from typing import Final

from bench.arena import TOPIC
from bench.curves.growths.growth import Place
from bench.programs import load_command, output_of, run_of_output
from bench.results import Run

_PRODUCERS: Final = 16
_VALUE_BYTES: Final = 100
_WARM_UP_S: Final = 1.0


def loaded(place: Place, seconds: float) -> Run:
    """Load a server that has the topic for it. Raises: LoadFailed."""
    settings = {
        "endpoint": place.endpoint,
        "server_process_id": place.process_id,
        "driver": "session, Transact",
        "producers": _PRODUCERS,
        "value_bytes": _VALUE_BYTES,
        "topic": TOPIC,
        "warm_up_s": min(_WARM_UP_S, seconds),
        "measured_s": seconds,
    }
    command, environment = load_command("transactions", settings)
    return run_of_output(output_of(command, "the load beside", environment))
