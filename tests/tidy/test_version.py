"""The version is in one place, and whatever else names it agrees."""

from __future__ import annotations

import re

import pytest

from coordinator_protocol.version import VERSION
from scripts.promises import keeps_promises
from tests.tidy.tree import ROOT, project

BEFORE_1_0_0 = {
    "README.md": "There is no release in a package index yet",
    "CHANGELOG.md": "Nothing is released yet",
    "docs/compatibility.md": "No such version is released yet",
    "docs/store-format.md": "Not frozen yet",
    "pyproject.toml": "Development Status :: 4 - Beta",
}
"""What each file says before version 1.0.0, and never again: whoever sets the version is told what else to change."""


@pytest.mark.parametrize(("file", "said"), BEFORE_1_0_0.items())
def test_what_is_true_before_the_first_release_is_said_until_then(file: str, said: str) -> None:
    assert (said in " ".join((ROOT / file).read_text().split())) is not keeps_promises(VERSION)


def test_the_package_has_the_version_of_the_code() -> None:
    assert project()["project"]["dynamic"] == ["version"]
    assert "coordinator_protocol/version.py" in str(project()["tool"]["hatch"]["version"])


def test_the_image_that_is_deployed_has_the_version_of_the_code() -> None:
    overlay = (ROOT / "ops/kubernetes/overlays/prod/kustomization.yaml").read_text()
    assert re.findall(r'newTag: "([^"]+)"', overlay) == [VERSION]


def test_the_changelog_begins_with_what_is_not_released_and_has_no_version_that_is_not_there() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    released = [tuple(map(int, heading.split(" ")[0].split("."))) for heading in headings[1:]]
    assert released == sorted(released, reverse=True)
    assert not released or released[0] <= tuple(map(int, VERSION.split(".")))


def test_what_a_release_is_told_to_run_is_there() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)`", (ROOT / "docs/releasing.md").read_text())
    assert set(named) <= set(targets)
