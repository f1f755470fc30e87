"""The dashboard as rows of panels. Each row has a module in `rows`; build.py has the layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ops.grafana.kinds import Latency, Number, Panel
from ops.grafana.rows.access import ACCESS
from ops.grafana.rows.bucket import BUCKET
from ops.grafana.rows.endings import ENDINGS
from ops.grafana.rows.groups import GROUPS
from ops.grafana.rows.health import HEALTH
from ops.grafana.rows.phases import PHASES
from ops.grafana.rows.probe import PROBE
from ops.grafana.rows.readers import READERS
from ops.grafana.rows.runtime import RUNTIME

ROWS: Final[Mapping[str, Sequence[Panel | Latency | Number]]] = {
    "Health and rates": HEALTH,
    "What a client sees": PROBE,
    "How long the two phases take": PHASES,
    "Who holds up readers": READERS,
    "Access": ACCESS,
    "Fencing, aborts, waits": ENDINGS,
    "Groups": GROUPS,
    "Runtime and store": RUNTIME,
    "Store in a bucket": BUCKET,
}
