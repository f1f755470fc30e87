"""Publishes the readings of all metrics: taken on the loop, rendered on the thread that serves the scrape.

Rendering a thousand children takes about ten milliseconds, which would delay every call if it ran on the loop. So the
loop only copies numbers, in one step, and all metrics of one scrape are of one moment. Statistics of the store are read
on the scrape's own thread, because that may wait for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from coordinator_runtime.store_statistics import Durations, ObjectStoreNumbers, StoreStatistics
from coordinator_server.connection_numbers import ConnectionNumbers
from coordinator_server.metrics.families import FAMILIES, Kind, MetricFamily
from coordinator_server.metrics.instruments import MS, Histogram, Labels, Readings, Sample, Values, by_label, single

READING_MS_MAX: Final = 5_000
"""Time limit for the loop to answer. Beyond it the scrape fails, which is what an alert should see."""


class ScrapeFailed(Exception):
    """There are no numbers to publish. The message has the reason."""


class ReadingsCollector:
    """The one collector of the registry. `take` runs on the loop, the others on the scrape's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[], Readings],
        store_statistics: Callable[[], StoreStatistics],
        connection_numbers: Callable[[], ConnectionNumbers],
        *,
        reading_ms_max: int = READING_MS_MAX,
    ) -> None:
        self._loop = loop
        self._take = take
        self._store_statistics = store_statistics
        self._connection_numbers = connection_numbers
        self._reading_ms_max = reading_ms_max

    def describe(self) -> Iterator[Metric]:
        """Yield every metric without values, so that the registry does not scrape to find their names."""
        for family in FAMILIES:
            yield _metric(family, {})

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its values. Raises ScrapeFailed."""
        readings = {
            **self._from_loop(),
            **_of_store(self._store_statistics()),
            **_of_connections(self._connection_numbers()),
        }
        for family in FAMILIES:
            yield _metric(family, readings.get(family.name, {}))

    def _from_loop(self) -> Readings:
        taken: Future[Readings] = Future()

        def fill() -> None:
            # False if the scrape has given up meanwhile, so that the numbers are not needed.
            if taken.set_running_or_notify_cancel():
                try:
                    taken.set_result(self._take())
                except Exception as error:  # noqa: BLE001  the scrape fails with it, the loop goes on
                    taken.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(fill)
        except RuntimeError as error:
            raise ScrapeFailed("the server has stopped") from error
        try:
            return taken.result(self._reading_ms_max / 1000)
        except TimeoutError as error:
            taken.cancel()
            raise ScrapeFailed(f"the server did not come to it within {self._reading_ms_max} ms") from error


def registry_of(collector: ReadingsCollector) -> CollectorRegistry:
    """Return a registry of our own, so that nothing that a library registers by itself is exported unnoticed."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def _of_store(statistics: StoreStatistics) -> Readings:
    return {
        "txn_store_size_bytes": single(statistics.sst_bytes),
        "txn_store_wal_bytes": single(statistics.wal_bytes),
        "txn_store_segment_bytes": single(statistics.segment_bytes),
        "txn_store_memtable_bytes": single(statistics.memtable_bytes),
        "txn_store_block_cache_bytes": single(statistics.block_cache_bytes),
        "txn_store_table_readers_bytes": single(statistics.table_readers_bytes),
        "txn_store_pending_compaction_bytes": single(statistics.pending_compaction_bytes),
        "txn_store_write_stalls_total": single(statistics.write_stalls),
        "txn_store_reclaims_total": single(statistics.reclaims),
        "txn_store_damaged_files": single(statistics.damaged_files),
        **({} if statistics.objects is None else _of_objects(statistics.objects)),
    }


def _of_objects(numbers: ObjectStoreNumbers) -> Readings:
    return {
        "txn_object_store_requests_total": _counts(numbers.requests),
        "txn_object_store_request_seconds": {(kind,): _histogram(each) for kind, each in numbers.seconds.items()},
        "txn_object_store_cache_reads_total": _counts(numbers.cache_reads),
        "txn_object_store_written_bytes_total": by_label(numbers.written_bytes),
        "txn_object_store_cache_bytes": single(numbers.cache_bytes),
        "txn_object_store_log_flushes_total": single(numbers.log_flushes),
    }


def _counts(numbers: Mapping[tuple[str, str], int]) -> Values:
    return dict[Labels, Sample](numbers.items())


def _histogram(durations: Durations) -> Histogram:
    labels = (*map(str, durations.bounds), "+Inf")
    return Histogram(tuple(zip(labels, accumulate(durations.numbers), strict=True)), durations.total)


def _of_connections(numbers: ConnectionNumbers) -> Readings:
    return {
        "txn_rpc_connections": {} if numbers.open_connections is None else single(numbers.open_connections),
        "txn_rpc_connections_max": single(numbers.connections_max),
        "txn_tls_handshakes_total": single(numbers.handshakes),
        "txn_rpc_harm_total": {(kind,): number for kind, number in numbers.abuses.items()},
        "txn_rpc_unauthenticated_total": {(reason,): number for reason, number in numbers.unauthenticated.items()},
        "txn_insecure_listeners": single(numbers.insecure_listeners),
        "txn_tls_certificate_expiry_timestamp_seconds": {
            (listen,): each.ends_ms / MS for listen, each in numbers.certificates.items()
        },
        "txn_tls_files_refused": {(listen,): int(each.is_refused) for listen, each in numbers.certificates.items()},
    }


_METRICS: Final[Mapping[Kind, type[CounterMetricFamily] | type[GaugeMetricFamily] | type[HistogramMetricFamily]]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _metric(family: MetricFamily, values: Values) -> Metric:
    metric = _METRICS[family.kind](family.name, family.meaning, labels=family.labels)
    for labels, value in values.items():
        if isinstance(metric, HistogramMetricFamily):
            assert isinstance(value, Histogram), family.name
            metric.add_metric(labels, buckets=list(value.cumulative), sum_value=value.total)
        else:
            assert not isinstance(value, Histogram), family.name
            metric.add_metric(labels, value)
    return metric
