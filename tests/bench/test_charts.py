"""Charts: bars in proportion to what was measured, and honest about what was not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.charts import CHARTS, bars, drawings, main
from tests.tidy.tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def result(row: str, side: str, contender: str, figure: float | None, case: str = "transactions") -> dict[str, Any]:
    found: dict[str, Any] = {"case": case, "row": row, "side": side, "contender": contender}
    return found | (
        {"problem": "no Java"} if figure is None else {"median": {"figure": figure, "p99_ms": figure / 100}}
    )


def heights(drawing: str) -> list[float]:
    """Heights of the bars: not of the ground, nor of the legend."""
    rectangles = ElementTree.fromstring(drawing).iter(f"{SVG}rect")
    return [float(each.attrib["height"]) for each in rectangles if each.attrib["height"] not in ("100%", "12.0")]


def texts(drawing: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def test_bars_are_as_high_as_their_values() -> None:
    drawing = bars("a < b", ["one", "two"], {"first": [100.0, 50.0], "second": [25.0, None]})
    first, second, third = heights(drawing)
    assert (round(first / second, 2), round(second / third, 2)) == (2, 2)
    assert "n/a" in texts(drawing)
    assert texts(drawing)[0] == "a < b"


def test_on_a_logarithmic_scale_equal_quotients_are_equal_steps() -> None:
    first, second, third = heights(bars("t", ["one"], {"a": [1.0], "b": [10.0], "c": [100.0]}, is_log=True))
    assert abs((second - first) - (third - second)) < 0.2


def test_what_was_measured_is_drawn_and_nothing_else() -> None:
    row = "3 x 1 KiB, 64 producers, commit"
    reports = [
        {"results": [result(row, "ours", "SDK", 1_000), result(row, "kafka", "Java, stock", None)]},
        {"results": [result(row, "ours", "SDK", 6_000)]},
    ]
    drawn = drawings(reports)
    assert set(drawn) == {"throughput", "latency"}
    assert "6,000" in texts(drawn["throughput"])
    assert "1,000" not in texts(drawn["throughput"])
    assert texts(drawn["throughput"]).count("n/a") == 11


def test_the_command_writes_files(tmp_path: Path) -> None:
    made = {"results": [result("idle, just started", "ours", "SDK", 88, case="memory")]}
    (tmp_path / "results.json").write_text(json.dumps(made))
    main([str(tmp_path / "results.json"), "--dir", str(tmp_path / "charts")])
    assert [path.name for path in (tmp_path / "charts").iterdir()] == ["memory-beside-kafka.svg"]


def test_charts_name_rows_and_contenders_that_the_bench_has() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "bench").rglob("*.py"))
    for series in (each for chart in CHARTS for each in chart.series):
        name = series.contender.partition(",")[0]
        assert re.search(rf'"{re.escape(name)}[",]', sources), name


def test_the_charts_of_the_page_are_drawn_from_the_results_that_it_names() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    (named,) = set(re.findall(r"bench\.charts (bench/history/\S+\.json)", page))
    drawn = drawings([json.loads((ROOT / named).read_text())])
    shown = re.findall(r"\(charts/([\w-]+)\.svg\)", page)
    assert set(shown) == set(drawn)
    assert {name: (ROOT / "docs" / "charts" / f"{name}.svg").read_text() for name in shown} == drawn
