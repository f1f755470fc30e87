"""Shares tests out to the workers of a run: `--dist loadgroup`.

Tests with one Spark session are one unit of work, so that there is one Java machine. Tests that judge every module are
one, too, so that each module is parsed once. Slow tests are units by
themselves, so that no worker is left with many of them in the end, unless something is made once for all of their
module. All other modules are units; the largest units come first.

Units are recognised by the text of a module, and not by marks: the process that shares out knows names of tests and
nothing else. (The suffix that pytest-xdist 3.8 gives names for that purpose is lost with pytest 9.2.)
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SPARK: Final = "the Spark session"
TREE: Final = "the parsed tree"

_OF_SESSION: Final = re.compile(
    r"^pytestmark = pytest\.mark\.spark$|^def test_\w+\([^)]*\bspark: SparkSession", re.MULTILINE
)
_OF_TREE: Final = re.compile(r"^from tests\.tidy\.tree import .*\bfound_by\b", re.MULTILINE)
_SLOW: Final = re.compile(r"pytest\.mark\.slow\b")
_MADE_ONCE: Final = re.compile(r'fixture\(scope="(module|session)"')


class Shares(LoadScopeScheduling):  # type: ignore[misc]
    """Gives workers units of tests that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


def unit_of_work(name: str) -> str:
    """Return the unit that the test with this name belongs to."""
    module = name.partition("::")[0]
    return _unit_of_module(module) or name


@functools.cache
def _unit_of_module(module: str) -> str | None:
    """Return the unit of all tests of a module; None where each is one by itself."""
    path = ROOT / module
    text = path.read_text()
    if _OF_SESSION.search(text):
        return SPARK
    if _OF_TREE.search(text):
        return TREE
    above = path.with_name("conftest.py")
    made_once = _MADE_ONCE.search(text + (above.read_text() if above.is_file() else ""))
    return None if _SLOW.search(text) and not made_once else module
