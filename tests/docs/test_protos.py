"""Permissions in the comments of the .proto files are those in the table of permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coordinator_core.permissions import PERMISSIONS
from coordinator_protocol.methods import Method
from tests.docs.fences import ROOT

PROCEDURE = re.compile(r"((?:^ *//.*\n)+) *rpc (\w+)\(", re.MULTILINE)
NEEDS = re.compile(
    r"permissions? (\w+)(?: and (\w+))?(?:, or (\w+),)? on (?:the |each )(cluster|topic|transactional id)"
)


def said() -> Iterator[tuple[str, str, str]]:
    """Procedure, operation and kind of resource of each."""
    for path in sorted((ROOT / "proto" / "coordinator_api" / "v1").glob("*.proto")):
        for comment, procedure in PROCEDURE.findall(path.read_text()):
            words = " ".join(line.strip(" /") for line in comment.splitlines())
            for *operations, resource in NEEDS.findall(words):
                yield from ((procedure, each, resource.replace(" ", "_")) for each in operations if each)


def test_the_permissions_that_comments_name_are_those_that_are_asked_for() -> None:
    found = list(said())
    assert len(found) > 20, "the pattern does not find them any more"
    asked = {(method, ask.permission, ask.resource_type) for method, asks in PERMISSIONS.items() for ask in asks}
    known = {(method.value, permission.value, resource.value) for method, permission, resource in asked}
    assert {procedure for procedure, _, _ in found} <= set(Method)
    assert [each for each in found if each not in known] == []
