"""Writes dashboard.json, the dashboard of a server, with Grafana's own library.

The library makes misspelt fields impossible. `make ops-files` runs this script; `make ops` runs it with --check, which
only checks that the file is up to date. The content of the panels is in `rows`."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from ops.grafana.kinds import WINDOW, Latency, Number, Panel, Query, chosen
from ops.grafana.panels import ROWS

TARGET: Final = Path(__file__).with_name("dashboard.json")
SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${source}")
HEIGHT: Final = 8
COLUMNS: Final = 24
"""Width of Grafana's grid."""


def target(query: Query, *, number: int, is_heatmap: bool = False) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + number)).datasource(SOURCE)
    if query.legend:
        built = built.legend_format(query.legend)
    return built.format(PromQueryFormat.HEATMAP) if is_heatmap else built


def graph(panel: Panel) -> timeseries.Panel:
    built = timeseries.Panel().title(panel.title).description(panel.meaning).unit(panel.unit).datasource(SOURCE).min(0)
    if panel.is_stacked:
        built = built.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(30)
    for number, query in enumerate(panel.queries):
        built = built.with_target(target(query, number=number))
    return built


def distribution(latency: Latency) -> heatmap.Panel:
    query = Query(f"sum by (le) (rate({chosen(latency.histogram + '_bucket', latency.labels)}{WINDOW}))", "{{le}}")
    axis = heatmap.YAxisConfig().unit("s")
    return (
        heatmap.Panel()
        .title(latency.title)
        .description(latency.meaning)
        .datasource(SOURCE)
        .calculate(calculate=False)
        .y_axis(axis)
        .with_target(target(query, number=0, is_heatmap=True))
    )


def number(panel: Number) -> stat.Panel:
    steps = [models.Threshold(color="green"), models.Threshold(value=panel.bad_from, color="red")]
    if panel.bad_from < 0:
        # For this panel, 1 is good and 0 is bad.
        steps = [models.Threshold(color="red"), models.Threshold(value=1, color="green")]
    thresholds = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
    return (
        stat.Panel()
        .title(panel.title)
        .description(panel.meaning)
        .unit(panel.unit)
        .datasource(SOURCE)
        .thresholds(thresholds)
        .with_target(target(Query(panel.expr), number=0))
    )


def built() -> str:
    """Return the content of dashboard.json."""
    whole = (
        dashboard.Dashboard("Transaction coordinator")
        .uid("txn-coordinator")
        .description("One server: is it well, how fast is it, who holds up readers. Built by ops/grafana/build.py.")
        .tags(["txn-coordinator"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("utc")
        .with_variable(dashboard.DatasourceVariable("source").label("Source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("instance")
            .label("Server")
            .query('label_values(txn_build_info{job="txn-coordinator"}, instance)')
            .datasource(SOURCE)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .multi(True)
        )
    )
    identity = itertools.count(1)
    for title, panels in ROWS.items():
        whole = whole.with_row(dashboard.Row(title).id(next(identity)))
        for panel in panels:
            at = next(identity)
            match panel:
                case Number():
                    whole = whole.with_panel(number(panel).id(at).height(HEIGHT // 2).span(COLUMNS // 4))
                case Latency():
                    whole = whole.with_panel(distribution(panel).id(at).height(HEIGHT).span(COLUMNS // 3))
                case Panel():
                    whole = whole.with_panel(graph(panel).id(at).height(HEIGHT).span(COLUMNS // 3))
    text: str = JSONEncoder(sort_keys=True, indent=2).encode(whole.build())
    return f"{text}\n"


def main() -> int:
    """Write the file, or with `--check` check that it is up to date (exit status 1 if not)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything would change")
    text = built()
    if parser.parse_args().check:
        if TARGET.read_text() != text:
            print(f"{TARGET.name}: not fresh; run `make ops-files` and commit the result", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
