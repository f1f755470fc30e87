"""The definition of an import cycle."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.cycles import circles_of

Trees = Mapping[str, str]


@pytest.fixture(autouse=True)
def imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages are found here, and forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(root: Path, sources: Trees) -> None:
    for name, source in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source)


def test_a_way_down_is_no_cycle(tmp_path: Path) -> None:
    write(tmp_path, {"one/a.py": "import one.b, two.c", "one/b.py": "import two.c", "two/c.py": ""})
    assert circles_of(["one", "two"]) == []


@pytest.mark.parametrize(
    "back",
    [
        "import one.a",
        "from one import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import one.a",
        "def late():\n    from one.a import thing",
    ],
)
def test_modules_that_import_each_other_are_a_cycle_however_they_do(back: str, tmp_path: Path) -> None:
    write(tmp_path, {"one/a.py": "import one.b", "one/b.py": "import one.c", "one/c.py": back})
    assert circles_of(["one"]) == [("one.a", "one.b", "one.c", "one.a")]


def test_packages_whose_modules_are_no_cycle_may_be_one(tmp_path: Path) -> None:
    write(tmp_path, {"one/a.py": "import two.c", "one/b.py": "", "two/c.py": "", "two/d.py": "import one.b"})
    assert circles_of(["one", "two"]) == [("one", "two", "one")]


def test_each_knot_is_shown_once_by_its_shortest_circle(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "one/a.py": "import one.b",
            "one/b.py": "import one.c",
            "one/c.py": "import one.a, one.b",
            "one/x.py": "import one.y",
            "one/y.py": "import one.x",
        },
    )
    assert circles_of(["one"]) == [("one.a", "one.b", "one.c", "one.a"), ("one.x", "one.y", "one.x")]


def test_rooms_of_a_package_are_no_cycle(tmp_path: Path) -> None:
    sources = {
        "one/up/a.py": "import one.down.c",
        "one/up/b.py": "",
        "one/down/c.py": "",
        "one/down/d.py": "import one.up.b",
        "one/__init__.py": "",
    }
    write(tmp_path, sources)
    assert circles_of(["one"]) == [("one.down", "one.up", "one.down")]


def test_a_room_and_the_modules_beside_it_may_need_each_other(tmp_path: Path) -> None:
    sources = {"one/up/a.py": "import one.records", "one/up/b.py": "", "one/records.py": "import one.up.b"}
    write(tmp_path, sources)
    assert circles_of(["one"]) == []


def test_rooms_that_reach_each_other_by_a_module_beside_them_are_a_cycle(tmp_path: Path) -> None:
    sources = {
        "one/up/a.py": "import one.records",
        "one/records.py": "import one.down.c",
        "one/down/c.py": "",
        "one/down/d.py": "import one.up.a",
        "one/__init__.py": "",
    }
    write(tmp_path, sources)
    assert circles_of(["one"]) == [("one.down", "one.up", "one.records", "one.down")]
