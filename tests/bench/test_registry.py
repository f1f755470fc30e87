"""Every case has a name, rows, and both sides; nothing is started before something is measured."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import bench
from bench.__main__ import main
from bench.cases import kafka_front
from bench.kafka.settings import KAFKA_VERSION, LIBRDKAFKA_VERSION, SPARK_VERSION
from bench.load.transactions import DRIVERS
from bench.registry import CASES, STORIES, known_stories
from bench.results import Side
from bench.scale import FULL, QUICK, Scale
from tests.bench.fakes import arena

NO_BROKER_OF_THEIR_OWN = frozenset({"recovery", "memory", "disk"})
"""Cases of which a quick run shows our side only."""
OF_OUR_SIDE = (kafka_front.CODEC,)
"""Rows about our own parts."""
OF_OUR_SIDE_IF_QUICK = (kafka_front.IDLE,)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_can_be_told_without_the_arguments_of_the_command(name: str) -> None:
    """None would mean those of the whole program, which name the story."""
    parameters = signature(import_module(f"bench.{name}").main).parameters.values()
    assert [each.default for each in parameters] in ([], [()])


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_a_case_have_both_sides_and_names_of_their_own(name: str, scale: Scale, tmp_path: Path) -> None:
    rows = CASES[name].rows(arena(tmp_path, scale))
    assert rows
    labels = [row.label for row in rows]
    assert len(labels) == len(set(labels))
    for row in rows:
        names = [contender.name for contender in row.contenders]
        assert len(names) == len(set(names))
        sides = [contender.side for contender in row.contenders]
        is_alone = row.label.startswith(OF_OUR_SIDE) or (
            scale.is_quick and (name in NO_BROKER_OF_THEIR_OWN or row.label.startswith(OF_OUR_SIDE_IF_QUICK))
        )
        assert set(sides) == ({Side.OURS} if is_alone else {Side.OURS, Side.KAFKA})
        assert sides == sorted(sides, key=[Side.OURS, Side.KAFKA].index), "ours come first"
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_the_full_scale_has_every_row_that_is_promised(tmp_path: Path) -> None:
    labels = {row.label for row in CASES["transactions"].rows(arena(tmp_path, FULL))}
    assert labels == {
        f"3 x {size}, {producers}, {outcome}"
        for size, outcome in (("1 KiB", "commit"), ("100 B", "commit"), ("1 KiB", "abort"))
        for producers in ("1 producer", "16 producers", "64 producers", "256 producers")
    }


def test_kafkas_clients_meet_a_flushed_broker_where_they_write(tmp_path: Path) -> None:
    flushed = {
        row.label
        for row in CASES["kafka_front"].rows(arena(tmp_path, FULL))
        if any(each.name.endswith("flushed") for each in row.contenders)
    }
    assert flushed == {
        "Java, 3 x 100 B, 1 producer",
        "Java, 3 x 100 B, 16 producers",
        "Java, 3 x 100 B, 64 producers",
        "librdkafka, 3 x 100 B, 1 producer",
        "librdkafka, 3 x 100 B, 16 producers",
        kafka_front.BULK,
        kafka_front.BULK_TRANSACTIONS,
    }


def test_every_driver_takes_part_in_the_main_row(tmp_path: Path) -> None:
    (main_row,) = (
        row for row in CASES["transactions"].rows(arena(tmp_path)) if row.label == "3 x 1 KiB, 64 producers, commit"
    )
    assert [each.name for each in main_row.contenders if each.side is Side.OURS] == list(DRIVERS)


def test_the_versions_in_the_head_are_those_that_are_built() -> None:
    folder = Path(bench.__file__).parent / "kafka"
    assert f"<kafka.version>{KAFKA_VERSION}</kafka.version>" in (folder / "java" / "pom.xml").read_text()
    assert f"<spark.version>{SPARK_VERSION}</spark.version>" in (folder / "spark" / "pom.xml").read_text()
    assert f"confluent-kafka=={LIBRDKAFKA_VERSION}" in (folder / "librdkafka" / "requirements.txt").read_text()
    assert f"pyspark=={SPARK_VERSION}" in (folder / "spark" / "requirements.txt").read_text()


def test_cases_and_stories_share_no_name() -> None:
    assert not set(CASES) & set(STORIES)
    assert "load_ids" in known_stories()


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*CASES, *known_stories()]


@pytest.mark.parametrize("arguments", [["transaction"], ["disk", "--kafka", "fast"]])
def test_a_name_that_is_not_known_is_refused_with_those_that_are(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert ("transactions" if len(arguments) == 1 else "tuned") in said


def test_rows_that_no_case_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no row of disk has '1 GiB'"):
        main(["disk", "--quick", "--kafka", "none", "--rows", "1 GiB", "--dir", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
