"""Names of ours that docstrings and comments of the product point at are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import pytest

from tests.tidy.tree import ROOT, project, python_files

WHEEL = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKAGES = {package.rpartition("/")[2] for package in WHEEL["packages"]} - {"coordinator_api"}
DOTTED = re.compile(r"`((?:\w+\.)+[A-Za-z_]\w*)(?:\([^`]*\))?`")
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
OF_OTHERS = {"Topic.validate"}
"""A class of Kafka that has the name of one of ours."""

Sources = Mapping[str, str]
"""Text by dotted name of the module."""


@cache
def product() -> Sources:
    paths = [path for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in paths
    }


def has(text: str, name: str) -> bool:
    """Return whether a module defines, assigns or imports a name, at its top or within."""
    return (
        re.search(rf"\b(?:def|class) {name}\b|\b{name}\b *(?::(?!:)|=(?!=))|^from .*\b{name}\b", text, re.MULTILINE)
        is not None
    )


def is_missing(dotted: str, sources: Sources) -> bool:
    """Return whether a dotted name begins with a package of ours and leads nowhere, or gives a class of ours an
    attribute that nothing in its package has: a class may have it from another one. Names of Kafka, Spark and Python
    are not judged."""
    first, *_ = parts = dotted.split(".")
    if first in PACKAGES:
        module = max((name for name in sources if f"{dotted}.".startswith(f"{name}.")), key=len, default=first)
        rest = parts[len(module.split(".")) :]
        return bool(rest) and not all(has(sources.get(module, ""), name) for name in rest)
    declared = f"class {parts[-2]}"
    owners = {
        module.partition(".")[0]
        for module, text in sources.items()
        if declared in text and parts[-2] in CLASS.findall(text)
    }
    nearby = [text for module, text in sources.items() if module.partition(".")[0] in owners and parts[-1] in text]
    return bool(owners) and not any(has(text, parts[-1]) for text in nearby)


def test_dotted_names_lead_to_what_is_there() -> None:
    named = {(module, dotted) for module, text in product().items() for dotted in DOTTED.findall(text)}
    assert len(named) > 100, "the pattern does not find them any more"
    missing = {dotted for dotted in {dotted for _module, dotted in named} - OF_OTHERS if is_missing(dotted, product())}
    assert sorted(each for each in named if each[1] in missing) == []


@pytest.mark.parametrize(
    ("dotted", "missing"),
    [
        ("coordinator_runtime.ports", False),
        ("coordinator_runtime.ports.Port", False),
        ("coordinator_runtime.ports.Port.place", False),
        ("coordinator_runtime.ports.Gone", True),
        ("coordinator_runtime.gone", True),
        ("Port.place", False),
        ("Port.gone", True),
        ("Utils.murmur2", False),
    ],
)
def test_a_name_that_is_not_there_is_found(dotted: str, missing: bool) -> None:
    sources = {"coordinator_runtime": "", "coordinator_runtime.ports": "class Port:\n    def place(self): ...\n"}
    assert is_missing(dotted, sources) is missing
