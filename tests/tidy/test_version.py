"""The version is in one place, and whatever else names it agrees."""

from __future__ import annotations

import re

from coordinator_protocol.version import VERSION
from tests.tidy.tree import ROOT, project


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
