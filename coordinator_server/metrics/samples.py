"""What a scrape carries from the loop to the thread that renders it."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_server.metrics.instruments import Histogram, Labels

Sample = float | Histogram
Values = Mapping[Labels, Sample]
"""Samples of one metric by the values of its labels."""

Readings = Mapping[str, Values]
"""Values by metric name, all of one moment. A metric that is missing is published without samples."""


def single(sample: Sample) -> Values:
    """Of a metric without labels."""
    return {(): sample}
