"""Publishes a snapshot: taken on the loop, rendered on the thread that serves the scrape.

Rendering a thousand children takes about ten milliseconds, which would be felt by every call if it ran on the loop. So
the loop only copies numbers, in one step, and all metrics of one scrape are of one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from coordinator_server.metrics.families import BY_NAME, Family, Kind
from coordinator_server.metrics.instruments import Histogram, Labels

Values = Mapping[Labels, float | Histogram]
Snapshot = Mapping[str, Values]
"""Values by metric name. A metric without values is published without samples."""

SNAPSHOT_SECONDS_MAX: Final = 5.0
"""A loop that does not answer for so long makes the scrape fail, which is what an alert should see."""


class SnapshotCollector:
    """The one collector of the registry. `take` runs on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[], Snapshot]) -> None:
        self._loop = loop
        self._take = take

    def describe(self) -> Iterator[Metric]:
        """Every metric, so that the registry does not scrape to find their names."""
        for family in BY_NAME.values():
            yield _metric(family, {})

    def collect(self) -> Iterator[Metric]:
        """Raises TimeoutError when the loop does not answer, and RuntimeError after it ended."""
        snapshot = self._from_loop()
        for family in BY_NAME.values():
            yield _metric(family, snapshot.get(family.name, {}))

    def _from_loop(self) -> Snapshot:
        taken: Future[Snapshot] = Future()

        def fill() -> None:
            try:
                taken.set_result(self._take())
            except Exception as error:  # noqa: BLE001  the scrape fails with it, the loop goes on
                taken.set_exception(error)

        self._loop.call_soon_threadsafe(fill)
        return taken.result(SNAPSHOT_SECONDS_MAX)


def registry_of(collector: SnapshotCollector) -> CollectorRegistry:
    """A registry of our own: nothing that a library registers by itself is exported unseen."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def _metric(family: Family, values: Values) -> Metric:
    match family.kind:
        case Kind.COUNTER:
            counter = CounterMetricFamily(family.name, family.meaning, labels=family.labels)
            for labels, value in values.items():
                assert isinstance(value, float), family.name
                counter.add_metric(labels, value)
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(family.name, family.meaning, labels=family.labels)
            for labels, value in values.items():
                assert isinstance(value, float), family.name
                gauge.add_metric(labels, value)
            return gauge
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
            for labels, value in values.items():
                assert isinstance(value, Histogram), family.name
                histogram.add_metric(labels, buckets=list(value.cumulative), sum_value=value.total)
            return histogram
