"""Curves: the way along an axis, and what is said and drawn of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import main
from bench.curves.__main__ import main as curves_main
from bench.curves.axes import AXES, Axis
from bench.curves.curve import Curve, Curves, Point
from bench.curves.drawing import drawing
from bench.curves.figures import FIGURES
from bench.curves.growths.connections import check_handles
from bench.curves.growths.growth import NoRoom
from bench.curves.growths.stored import check_room
from bench.curves.page import PAGE, RESULTS, charts, files, page
from bench.curves.verdicts import amount, judge
from bench.curves.walk import INTERRUPTED, walk
from bench.results import LoadFailed
from tests.tidy.tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"
WORKS = (10, 32, 100, 320, 1_000, 3_200, 10_000)
GIBI = 1 << 30


class FakeServer:
    """A server whose memory is 100 MiB and one more for each hundred units of work. It may fail at a point."""

    def __init__(self, failure: BaseException | None = None, fails_at: float = 0) -> None:
        self.ways: list[tuple[float, float]] = []
        self._failure, self._fails_at = failure, fails_at

    def grow(self, have: float, to: float) -> float:
        self.ways.append((have, to))
        if self._failure is not None and to >= self._fails_at:
            raise self._failure
        return (to - have) / 1_000

    def measure(self, at: float) -> Point:
        return Point(at, {"commits_per_s": 1_000.0, "memory_mib": 100 + at / 100})


def curve_of(cost: Callable[[float], float], figure: str = "memory_mib", works: Sequence[float] = WORKS) -> Curve:
    points = [Point(at, {figure: cost(at)}) for at in works]
    return Curve("ids", "Transactional ids", "ids", "a fake", points)


def walked(axis: Axis, server: FakeServer, points: int = 3) -> Curve:
    return walk(axis, axis.places(points), server, lambda _line: None)


def curves(*found: Curve) -> Curves:
    return Curves(
        machine={"processor": "abacus"},
        versions={"Python": "3.11"},
        command="python -m bench curves",
        began="2026-11-30 16:00 UTC",
        is_quick=False,
        curves=found,
    )


# Verdicts


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        pytest.param(lambda _n: 80, "level", id="nothing"),
        pytest.param(lambda n: 80 + n / 1_000, "level", id="less than noise"),
        pytest.param(lambda n: n / 7, "at most linear", id="in proportion"),
        pytest.param(lambda n: 80 + n, "at most linear", id="linear above what an idle server takes"),
        pytest.param(lambda n: 5 + n**0.5, "at most linear", id="a root"),
        pytest.param(lambda n: 800 if n == 320 else 80, "at most linear", id="one point that is too high"),
        pytest.param(lambda n: 80 - n / 1_000, "level", id="falling"),
        pytest.param(lambda n: n * n, "worse than linear from 10 on", id="a square"),
        pytest.param(lambda n: 80 + n + n * n / 1_000, "worse than linear from 320 on", id="a square that shows late"),
        pytest.param(lambda n: 80 if n < 10_000 else 8_000, "worse than linear from 3.2 k on", id="a cliff at the end"),
    ],
)
def test_a_cost_is_judged_by_its_growth(cost: Callable[[float], float], words: str) -> None:
    assert judge([(work, cost(work)) for work in WORKS]).words == words


def test_exponents_are_those_of_the_cost_above_the_first_point() -> None:
    assert judge([(10, 90), (100, 180), (1_000, 1_080)]).exponents == pytest.approx([0.301, 1.0], abs=0.01)


def test_one_point_says_nothing() -> None:
    assert judge([(10, 90)]).words == judge([]).words == "too few points"


def test_the_cost_behind_a_rate_is_the_time_of_an_operation() -> None:
    falling = curve_of(lambda n: 1_000_000 / n**2, "commits_per_s")
    assert falling.verdict("commits_per_s").words == "worse than linear from 10 on"
    assert curve_of(lambda n: n, "commits_per_s").verdict("commits_per_s").words == "level"


@pytest.mark.parametrize(("value", "words"), [(3, "3"), (320, "320"), (32_000, "32 k"), (1e6, "1 M"), (0.01, "0.01")])
def test_amounts_are_short(value: float, words: str) -> None:
    assert amount(value) == words


# Axes


def test_points_have_equal_quotients_and_an_end_of_their_own() -> None:
    ids = AXES["ids"]
    assert ids.places() == [1_000, 3_200, 10_000, 32_000, 100_000, 320_000, 1_000_000]
    assert ids.places(last=100_000) == [1_000, 3_200, 10_000, 32_000, 100_000]
    assert ids.places(points=2) == [1_000, 1_000_000]
    assert ids.places(points=2, last=500) == [500]
    assert AXES["stored"].places(last=50 * 1_024)[-1] == 50 * 1_024


def test_a_full_run_takes_less_than_forty_minutes() -> None:
    assert sum(axis.expected_s(axis.places()) for axis in AXES.values()) < 40 * 60


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_the_points_of_an_axis_ascend_and_its_figures_are_known(axis: Axis) -> None:
    assert list(axis.places()) == sorted(set(axis.places()))
    assert len(axis.places()) == axis.points
    assert {*axis.figures} <= {*FIGURES}


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_each_point_is_reached_from_the_one_before(axis: Axis) -> None:
    server = FakeServer()
    found = walked(axis, server)
    first, second, third = axis.places(3)
    assert server.ways == [(0, first), (first, second), (second, third)]
    assert [point.at for point in found.points] == [first, second, third]
    assert found.points[-1].figures["growing_s"] == pytest.approx(third / 1_000)
    assert (found.ended, found.is_failure) == ("", False)


@pytest.mark.parametrize(
    ("failure", "ended", "is_failure"),
    [
        (KeyboardInterrupt(), INTERRUPTED, False),
        (NoRoom("the disk is full"), "the disk is full", False),
        (LoadFailed("the server ended by itself"), "the server ended by itself", True),
    ],
)
def test_what_was_measured_before_an_early_end_is_kept(failure: BaseException, ended: str, is_failure: bool) -> None:
    found = walked(AXES["ids"], FakeServer(failure, fails_at=10_000), points=4)
    assert [point.at for point in found.points] == [1_000]
    assert (found.ended, found.is_failure) == (ended, is_failure)


def test_a_disk_that_would_be_full_is_not_filled() -> None:
    check_room(10 * GIBI, 6 * GIBI)
    with pytest.raises(NoRoom, match=r"9.0 GiB free, and 6.0 GiB more"):
        check_room(9 * GIBI, 6 * GIBI)


def test_connections_need_handles() -> None:
    check_handles(20_000, 10_000)
    with pytest.raises(NoRoom, match="1,024"):
        check_handles(1_024, 1_000)


# Page and charts


def test_a_page_is_made_of_the_json_alone() -> None:
    found = curves(walked(AXES["ids"], FakeServer()), curve_of(lambda n: n * n))
    read_again = Curves.of(json.loads(json.dumps(found.as_json())))
    assert page(read_again) == page(found)
    assert charts(read_again) == charts(found)


def test_a_page_names_what_is_worse_than_linear_first() -> None:
    text = page(curves(curve_of(lambda n: n * n)))
    assert "| Transactional ids | resident memory | worse than linear from 10 on |" in text
    assert "(charts/curve-ids.svg)" in text
    assert "No cost that was measured is worse than linear." in page(curves(curve_of(lambda _n: 80)))


def test_a_page_says_what_ended_early_and_what_was_disturbed() -> None:
    noisy = Curve("ids", "Ids", "ids", "a fake", [Point(1_000, {"memory_mib": 90}, other_cores=0.5)], "no room")
    text = page(curves(noisy))
    assert "Ended before its last point: no room." in text
    assert "Others took more than 0.1 cores at 1 k ids." in text


def test_a_curve_without_points_has_no_chart() -> None:
    failed = Curve("ids", "Ids", "ids", "a fake", [], "it did not start", is_failure=True)
    assert charts(curves(failed)) == {}
    assert "it did not start" in page(curves(failed))


def test_linear_growth_lies_on_the_reference() -> None:
    drawn = ElementTree.fromstring(drawing(curve_of(lambda n: n / 10)))
    (line,) = (each.attrib["d"] for each in drawn.iter(f"{SVG}path") if each.attrib.get("class") == "linear")
    (points,) = (each.attrib["points"].split() for each in drawn.iter(f"{SVG}polyline"))
    assert line == f"M{points[0]} L{points[-1]}"


@pytest.mark.parametrize("figure", ["memory_mib", "commits_per_s"])
@pytest.mark.parametrize("cost", [lambda n: n**2, lambda n: 1e6 / n, lambda _n: 100.0, lambda _n: 1_234.0])
def test_everything_is_drawn_within_the_picture(cost: Callable[[float], float], figure: str) -> None:
    drawn = ElementTree.fromstring(drawing(curve_of(cost, figure)))
    width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
    places = [each.attrib["points"] for each in drawn.iter(f"{SVG}polyline")]
    places += [each.attrib["d"] for each in drawn.iter(f"{SVG}path") if each.attrib.get("class") == "linear"]
    for place in " ".join(places).replace("M", "").replace("L", "").split():
        x, y = map(float, place.split(","))
        assert 0 < x < width
        assert 0 < y < height


def test_one_point_is_drawn() -> None:
    assert "<circle" in drawing(curve_of(lambda n: n, works=(10,)))


def test_the_page_in_docs_is_made_of_the_results_that_it_names(tmp_path: Path) -> None:
    """Without results there is no page."""
    made = {name: (ROOT / name).read_text() for name in files()}
    assert made == files()
    assert (ROOT / PAGE).exists() == bool(made)
    assert files(tmp_path) == {}
    (tmp_path / RESULTS).parent.mkdir(parents=True)
    (tmp_path / RESULTS).write_text(json.dumps(curves(curve_of(lambda n: n)).as_json()))
    assert list(files(tmp_path)) == [PAGE, "docs/charts/curve-ids.svg"]


# The command


def test_the_list_has_every_axis_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curves", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(AXES)
    assert all(line.endswith(" min") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["id"], "there is no axis id"),
        (["--max", "ids=many"], "ids=many is no axis with a number"),
        (["--max", "ids"], "ids= is no axis with a number"),
        (["--max", "id=5"], "id=5 is no axis with a number"),
    ],
)
def test_what_is_not_known_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        curves_main(words)
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_an_axis_is_measured_at_a_real_server_and_leaves_nothing_behind(tmp_path: Path) -> None:
    written, stores = tmp_path / "curves.json", tmp_path / "stores"
    stores.mkdir()
    words = ["ids", "--quick", "--points", "2", "--max", "ids=2000", "--json", str(written), "--dir", str(stores)]
    assert curves_main(words) == 0
    (found,) = Curves.of(json.loads(written.read_text())).curves
    assert [point.at for point in found.points] == [1_000, 2_000]
    assert all({*AXES["ids"].figures} == {*point.figures} for point in found.points)
    assert list(stores.iterdir()) == []
